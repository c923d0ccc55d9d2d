use proptest::prelude::*;

use super::*;
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

fn listed(body: &str, path: &[&str]) -> Vec<(String, EntryKind, Option<u64>)> {
    let path: Vec<_> = path.iter().map(|part| part.as_bytes().to_vec()).collect();
    let (_, entries) = directory_entries(&parse(body.as_bytes()).unwrap(), &path);
    let named = entries.into_iter();
    named
        .map(|e| (String::from_utf8(e.name).unwrap(), e.kind, e.size))
        .collect()
}

#[test]
fn a_collection_of_apache_is_parsed() {
    assert_eq!(
        listed(APACHE, &["dav", "dir one"]),
        [
            ("a&bü&.bin".to_owned(), EntryKind::File, Some(12345)),
            ("sub".to_owned(), EntryKind::Dir, None)
        ]
    );
    let resources = parse(APACHE.as_bytes()).unwrap();
    let path = [b"dav".to_vec(), b"dir one".to_vec()];
    let (itself, entries) = directory_entries(&resources, &path);
    let itself = itself.unwrap();
    assert_eq!(
        (itself.kind, itself.name),
        (EntryKind::Dir, b"dir one".to_vec())
    );
    assert_eq!(entries[0].modified, Some(Timestamp(784_111_777)));
    assert_eq!(entries[0].unique.as_deref(), Some("\"3039-62f\""));
}

/// A response with one resource.
fn response(href: &str, properties: &str) -> String {
    format!(
        "<multistatus xmlns='DAV:'><response><href>{href}</href><propstat><prop>{properties}</prop>\
         <status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"
    )
}

#[test]
fn hrefs_are_paths_or_complete_urls() {
    for href in [
        "/d/f",
        "http://inner:8080/d/f",
        "https://h/d/f?x#y",
        "/d/f/",
        " /d/f ",
    ] {
        let found = listed(&response(href, ""), &["d"]);
        assert_eq!(found, [("f".to_owned(), EntryKind::File, None)], "{href}");
    }
    let root = listed(&response("/f", ""), &[]);
    assert_eq!(root.len(), 1);
}

#[test]
fn resources_elsewhere_and_invalid_names_are_left_out() {
    for href in [
        "/other/f",
        "/d",
        "/d/",
        "/d/a/b",
        "f",
        "d/f",
        "/d/..",
        "/d/.",
        "/d//",
        "/d/a%2Fb",
        "/d/a%00b",
        "/dd/f",
        "",
        "http://host",
        "%2Fd/f",
    ] {
        assert_eq!(listed(&response(href, ""), &["d"]), [], "{href}");
    }
}

#[test]
fn properties_of_other_namespaces_and_with_error_status_are_ignored() {
    let foreign = "<getcontentlength xmlns='urn:x'>5</getcontentlength>\
                   <x:getcontentlength xmlns:x='urn:y'>6</x:getcontentlength>\
                   <y:getcontentlength>7</y:getcontentlength>";
    assert_eq!(listed(&response("/d/f", foreign), &["d"])[0].2, None);
    let weak = response(
        "/d/f",
        "<getetag>W/\"x\"</getetag><getcontentlength>-1</getcontentlength>",
    );
    let (_, found) = directory_entries(&parse(weak.as_bytes()).unwrap(), &[b"d".to_vec()]);
    assert_eq!((found[0].unique.as_deref(), found[0].size), (None, None));
    let refused = response("/d/f", "<getcontentlength>5</getcontentlength>").replace("200", "403");
    assert_eq!(listed(&refused, &["d"])[0].2, None);
    let text = "<getcontentlength><![CDATA[12]]>&#51;</getcontentlength>";
    assert_eq!(listed(&response("/d/f", text), &["d"])[0].2, Some(123));
}

#[test]
fn documents_that_are_no_multistatus_are_refused() {
    use MultistatusError::{Malformed, NotMultistatus, TooComplex};
    let deep = format!("<multistatus xmlns='DAV:'>{}", "<a>".repeat(100));
    let long = response(&format!("/{}", "x".repeat(MAX_TEXT)), "");
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
        let found = listed(&response(&format!("/d/{encoded}"), ""), &["d"]);
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(&found[0].0, &name);
    }

    #[test]
    fn arbitrary_documents_never_panic(body in "(<[a-z:/!?]{0,12}( xmlns='DAV:')?>?|&[a-z#0-9]{0,6};?|.){0,60}") {
        let _ = parse(body.as_bytes());
    }
}
