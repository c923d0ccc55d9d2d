use proptest::prelude::*;

use super::*;
use crate::http::url::HttpUrl;
use crate::timestamp::Timestamp;

/// Response in the form of Apache's mod_dav.
const APACHE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns0="DAV:">
<D:response xmlns:lp1="DAV:" xmlns:lp2="http://apache.org/dav/props/">
<D:href>/dav/dir%20one/</D:href>
<D:propstat><D:prop>
<lp1:resourcetype><D:collection/></lp1:resourcetype>
<lp1:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</lp1:getlastmodified>
<lp1:getetag>"1000-62f"</lp1:getetag>
</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
<D:propstat><D:prop><D:getcontentlength/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>
</D:response>
<D:response xmlns:lp1="DAV:">
<D:href>/dav/dir%20one/a%26b%c3%bc&amp;.bin</D:href>
<D:propstat><D:prop>
<lp1:resourcetype/>
<lp1:getcontentlength>12345</lp1:getcontentlength>
<lp1:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</lp1:getlastmodified>
<lp1:getetag>"3039-62f"</lp1:getetag>
</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
</D:response>
<D:response><D:href>/dav/dir%20one/sub/</D:href>
<D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>
<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
</D:multistatus>"#;

fn url(path: &str) -> HttpUrl {
    HttpUrl::new(false, "h", 80, path.as_bytes(), None)
}

/// Name, kind and size of each member, and the hrefs that are unknown.
type ShownListing = (Vec<(String, EntryKind, Option<u64>)>, Vec<String>);

/// The response of a collection.
fn listed(body: &str, collection: &str) -> ShownListing {
    let resources = parse(body.as_bytes()).unwrap();
    let listing = DavListing::of(&resources, &url(collection));
    let members = listing.members.into_iter();
    let shown = members.map(|e| (String::from_utf8(e.name).unwrap(), e.kind, e.size));
    let unknown = listing.unknown.into_iter().map(str::to_owned);
    (shown.collect(), unknown.collect())
}

#[test]
fn a_collection_of_apache_is_parsed() {
    let (members, unknown) = listed(APACHE, "/dav/dir one/");
    assert_eq!(
        members,
        [
            ("a&bü&.bin".to_owned(), EntryKind::File, Some(12345)),
            ("sub".to_owned(), EntryKind::Dir, None)
        ]
    );
    assert!(unknown.is_empty());
    let resources = parse(APACHE.as_bytes()).unwrap();
    let listing = DavListing::of(&resources, &url("/dav/dir one"));
    assert_eq!(listing.itself.unwrap().kind, Some(EntryKind::Dir));
    assert_eq!(listing.members[0].modified, Some(Timestamp(784_111_777)));
    let tag = listing.members[0].version.as_deref();
    assert_eq!(tag, Some("\"3039-62f\""));
}

/// A response with the collection `/d/` and one more resource, without a slash at its end.
fn response(href: &str, properties: &str) -> String {
    multistatus(&[("/d/", COLLECTION), (href, properties)])
}

const COLLECTION: &str = "<resourcetype><collection/></resourcetype>";
const FILE: &str = "<resourcetype/>";

fn multistatus(resources: &[(&str, &str)]) -> String {
    let resources = resources.iter().map(|(href, properties)| {
        format!(
            "<response><href>{href}</href><propstat><prop>{properties}</prop>\
             <status>HTTP/1.1 200 OK</status></propstat></response>"
        )
    });
    let resources: String = resources.collect();
    format!("<multistatus xmlns='DAV:'>{resources}</multistatus>")
}

fn file(name: &str) -> (String, EntryKind, Option<u64>) {
    (name.to_owned(), EntryKind::File, None)
}

#[test]
fn hrefs_are_paths_or_complete_urls_or_relative() {
    for href in [
        "/d/f",
        "http://inner:8080/d/f",
        "/d/f/",
        " /d/f ",
        "//d//f",
        "/%64/%66",
        "f",
        "./f",
        "../d/f",
    ] {
        let found = listed(&response(href, FILE), "/d/");
        assert_eq!(found, (vec![file("f")], vec![]), "{href}");
    }
    let root = listed(&multistatus(&[("/", COLLECTION), ("/f", FILE)]), "/");
    assert_eq!(root, (vec![file("f")], vec![]));
    // Below the directory of what was asked for, which is a file here.
    let resources = parse(multistatus(&[("f", FILE)]).as_bytes()).unwrap();
    let listing = DavListing::of(&resources, &url("/d/f"));
    assert_eq!(listing.itself, resources.first());
}

#[test]
fn what_is_elsewhere_or_has_no_name_is_unknown() {
    for href in [
        "/other/f",
        "/d/a/b",
        "d/f",
        "../f",
        "../../../f",
        "/d/..",
        "/d/.",
        "/d/a%2Fb",
        "/d/a%00b",
        "/dd/f",
        "",
        "http://host",
        "%2Fd/f",
        "/d/f?x",
        "/d/f#y",
        "/d/\u{fffd}",
    ] {
        let found = listed(&response(href, FILE), "/d/");
        assert_eq!(found, (vec![], vec![href.trim().to_owned()]), "{href}");
    }
}

#[test]
fn names_that_a_server_does_not_escape_are_taken_as_they_are() {
    let body = multistatus(&[
        ("/d/", COLLECTION),
        ("/d/t #:?3.txt", FILE),
        ("/d/50%.txt", FILE),
        ("/d/a#b", FILE),
        ("/d/a%20b", FILE),
    ]);
    let (members, unknown) = listed(&body, "/d/");
    assert_eq!(members, ["t #:?3.txt", "50%.txt", "a#b"].map(file));
    assert_eq!(unknown, ["/d/a%20b"]);
}

#[test]
fn a_path_that_a_proxy_changes_is_told_by_what_is_below_it() {
    for (requested, top) in [
        ("/d/", "/internal/dav/d/"),
        ("/dav/d/", "/d/"),
        ("/dav/d", "/d"),
    ] {
        let member = format!("{}/d", top.trim_end_matches('/'));
        let body = multistatus(&[(&member, FILE), (top, COLLECTION)]);
        let found = listed(&body, requested);
        assert_eq!(found, (vec![file("d")], vec![]), "{requested}");
        let other = multistatus(&[(&member, FILE), (top, COLLECTION), ("/else", FILE)]);
        assert_eq!(listed(&other, requested).1.len(), 3, "{requested}");
    }
    // Nothing shows which of them was asked for.
    for (requested, top) in [("/", "/internal/dav/"), ("/dav/", "/"), ("/d/", "/e/")] {
        let found = listed(&multistatus(&[(top, COLLECTION)]), requested);
        assert_eq!(found, (vec![], vec![top.to_owned()]), "{requested}");
    }
}

#[test]
fn a_collection_that_is_not_described_itself_is_unknown() {
    let found = listed(&multistatus(&[("/d/f", FILE)]), "/d/");
    assert_eq!(found, (vec![], vec!["/d/f".to_owned()]));
    let found = listed("<multistatus xmlns='DAV:'/>", "/d/");
    assert_eq!(found, (vec![], vec![]));
    let resources = parse(b"<multistatus xmlns='DAV:'/>").unwrap();
    assert_eq!(DavListing::of(&resources, &url("/d/")).itself, None);
}

#[test]
fn members_of_members_and_repetitions_are_known_already() {
    let body = multistatus(&[
        ("/d/", COLLECTION),
        ("/d/", COLLECTION),
        ("/d/sub/f", FILE),
        ("/d/sub/", COLLECTION),
        ("/d/f", FILE),
        ("/d/%66", FILE),
        ("/d/sub", FILE),
        ("/d/f/g", FILE),
    ]);
    let (members, unknown) = listed(&body, "/d/");
    let names: Vec<_> = members.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["sub", "f"]);
    assert_eq!(unknown, ["/d/sub", "/d/f/g"]);
}

#[test]
fn what_a_server_does_not_describe_is_unknown() {
    let refused = "<response><href>/d/secret</href><status>HTTP/1.1 403 Forbidden</status></response>\
                   <response><href>/d/a</href><href>/d/b</href><status>HTTP/1.1 500 Error</status></response>\
                   <response><propstat><prop><resourcetype/></prop></propstat></response>\
                   <response><href>/d/</href><status>HTTP/1.1 507 Insufficient Storage</status></response>\
                   </multistatus>";
    let body = response("/d/f", FILE).replace("</multistatus>", refused);
    let unknown = ["/d/secret", "/d/a", "/d/b", "", "/d/"].map(str::to_owned);
    assert_eq!(listed(&body, "/d/"), (vec![file("f")], unknown.to_vec()));
    for properties in ["", "<getlastmodified/>"] {
        let found = listed(&response("/d/x", properties), "/d/");
        assert_eq!(found, (vec![], vec!["/d/x".to_owned()]));
    }
    // Only files have a length.
    let length = response("/d/f", "<getcontentlength>5</getcontentlength>");
    let found = listed(&length, "/d/").0;
    assert_eq!(found, [("f".to_owned(), EntryKind::File, Some(5))]);
}

#[test]
fn properties_of_other_namespaces_and_with_error_status_are_ignored() {
    let foreign = "<resourcetype/><getcontentlength xmlns='urn:x'>5</getcontentlength>\
                   <x:getcontentlength xmlns:x='urn:y'>6</x:getcontentlength>\
                   <y:getcontentlength>7</y:getcontentlength>";
    assert_eq!(listed(&response("/d/f", foreign), "/d/").0, [file("f")]);
    let weak = "<resourcetype/><getetag>W/\"x\"</getetag><getcontentlength>-1</getcontentlength>";
    let resources = parse(response("/d/f", weak).as_bytes()).unwrap();
    let found = DavListing::of(&resources, &url("/d/")).members;
    assert_eq!((found[0].version.as_deref(), found[0].size), (None, None));
    let missing = "<resourcetype/></prop><status>HTTP/1.1 200 OK</status></propstat>\
                   <propstat><prop><getcontentlength>5</getcontentlength></prop>\
                   <status>HTTP/1.1 404 Not Found</status></propstat><propstat><prop>";
    assert_eq!(listed(&response("/d/f", missing), "/d/").0, [file("f")]);
    for status in ["HTTP/1.1 2xx", "HTTP/1.1 +20", "HTTP/1.1 2000", "200", ""] {
        let unknown = format!("{FILE}</prop><status>{status}</status></propstat><propstat><prop>");
        let (members, hrefs) = listed(&response("/d/f", &unknown), "/d/");
        assert!(members.is_empty() && hrefs == ["/d/f"], "{status}");
    }
    let text = "<getcontentlength><![CDATA[12]]>&#51;</getcontentlength>";
    assert_eq!(listed(&response("/d/f", text), "/d/").0[0].2, Some(123));
}

#[test]
fn documents_that_are_no_multistatus_are_refused() {
    use MultistatusError::{Malformed, NotMultistatus, TooComplex};
    let deep = format!("<multistatus xmlns='DAV:'>{}", "<a>".repeat(100));
    let long = response(&format!("/{}", "x".repeat(MAX_TEXT)), FILE);
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'>]><multistatus xmlns='DAV:'/>";
    let names: String = (0..300).map(|n| format!(" xmlns:n{n}='urn:n'")).collect();
    for (body, error) in [
        ("", NotMultistatus),
        ("plain", NotMultistatus),
        ("<html></html>", NotMultistatus),
        ("<multistatus/>", NotMultistatus),
        (
            "<multistatus xmlns='DAV:'/><multistatus xmlns='DAV:'/>",
            NotMultistatus,
        ),
        ("<multistatus xmlns='DAV:'>", Malformed),
        ("<multistatus xmlns='DAV:'></other>", Malformed),
        (
            "<multistatus xmlns='DAV:'>&unknown;</multistatus>",
            Malformed,
        ),
        (bomb, Malformed),
        (deep.as_str(), TooComplex),
        (long.as_str(), TooComplex),
        (
            format!("<multistatus xmlns='DAV:'{names}/>").as_str(),
            TooComplex,
        ),
    ] {
        assert_eq!(parse(body.as_bytes()), Err(error), "{body:.80}");
    }
    assert_eq!(parse(b"<multistatus xmlns='DAV:'/>"), Ok(Vec::new()));
}

#[test]
fn strong_entity_tags_are_quoted_and_not_weak() {
    for (etag, strong) in [
        ("\"x\"", true),
        ("\"\"", true),
        ("W/\"x\"", false),
        ("x", false),
        ("\"x", false),
        ("\"a\"b\"", false),
        ("\"a\r\nb\"", false),
        ("\"", false),
    ] {
        assert_eq!(is_strong_etag(etag), strong, "{etag}");
    }
}

proptest! {
    #[test]
    fn any_file_name_is_decoded_from_an_href(name in "[^/\0]{1,40}") {
        prop_assume!(name != "." && name != "..");
        let encoded: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        let (members, unknown) = listed(&response(&format!("/d/{encoded}"), FILE), "/d/");
        prop_assert_eq!(members, [file(&name)]);
        prop_assert!(unknown.is_empty());
    }

    #[test]
    fn arbitrary_documents_never_panic(body in "(<[a-z:/!?]{0,12}( xmlns='DAV:')?>?|&[a-z#0-9]{0,6};?|.){0,60}") {
        if let Ok(resources) = parse(body.as_bytes()) {
            let listing = DavListing::of(&resources, &url("/d/"));
            prop_assert!(listing.unknown.len() + listing.members.len() <= resources.len());
        }
    }
}

/// XRootD 5.5, whose files have no `resourcetype`.
#[test]
fn an_older_property_tells_the_kind_where_the_usual_one_is_missing() {
    let kind = |properties: &str| {
        let text = format!(
            "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
        );
        parse(text.as_bytes()).unwrap()[0].kind
    };
    let (collection, empty) = (
        "<D:resourcetype><D:collection/></D:resourcetype>",
        "<D:resourcetype/>",
    );
    let is = |value: &str| format!("<D:iscollection>{value}</D:iscollection>");
    for (properties, expected) in [
        (is("0"), Some(EntryKind::File)),
        (is("1"), Some(EntryKind::Dir)),
        (is("x"), None),
        (is("0") + collection, Some(EntryKind::Dir)),
        (collection.to_owned() + &is("0"), Some(EntryKind::Dir)),
        (empty.to_owned() + &is("1"), Some(EntryKind::File)),
    ] {
        assert_eq!(kind(&properties), expected, "{properties}");
    }
}
