//! WebDAV: what a path is, what is listed, and what may be removed or replaced.

use std::ops::ControlFlow;

use super::*;
use crate::storage::webdav::WebDavServer;
use ftp::FailureKind;
use ftp::answers::RefusedRenameStep;

/// A server with the files `/f` and `/d/precious`.
fn server() -> WebDavServer {
    let server = WebDavServer::start();
    server.make_collection("/d");
    server.put("/f", b"a file");
    server.put("/d/precious", b"precious");
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_path_is_comes_from_propfind() {
    let server = server();
    server.answer_head_of_collections();
    let (mut http, _) = session(&server.url("/"));
    for (path, kind, size) in [
        (&b"/d"[..], EntryKind::Dir, None),
        (b"/f", EntryKind::File, Some(6)),
        (b"/", EntryKind::Dir, None),
    ] {
        let entry = http.stat(path).await.unwrap();
        assert_eq!((entry.kind, entry.size), (kind, size));
    }
    assert_eq!(server.methods(), ["PROPFIND"; 3]);
    let missing = http.stat(b"/none").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_webdav_is_asked_once_for_a_directory() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "PROPFIND" => response("405 Method Not Allowed", &[], b""),
        _ => file_response(request, b"hello", &[ETAG]),
    });
    let (mut http, _) = session(&server.url("/"));
    for path in [&b"/a/x"[..], b"/a/y", b"/b/z"] {
        let entry = http.stat(path).await.unwrap();
        assert_eq!((entry.kind, entry.size), (EntryKind::File, Some(5)));
    }
    let methods: Vec<_> = server.requests().into_iter().map(|r| r.method).collect();
    assert_eq!(methods, ["PROPFIND", "HEAD", "HEAD", "PROPFIND", "HEAD"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_a_listing_lacks_comes_from_head() {
    let date = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let server = ScriptedHttpServer::start(move |request| match request.path.as_str() {
        "/f" => file_response(request, b"x", &[date]),
        "/timeless" => file_response(request, b"x", &[]),
        _ => response("404 Not Found", &[], b""),
    });
    let (mut http, _) = session(&server.url("/"));
    let paths = [&b"/f"[..], b"/timeless", b"/missing"].map(<[u8]>::to_vec);
    let times = http.modification_times(&paths, false).await.unwrap();
    assert_eq!(times, [Some(Timestamp(784_111_777)), None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_has_not_said_what_a_path_is() {
    for status in ["500 Internal Server Error", "503 Service Unavailable"] {
        let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
            "PROPFIND" => response(status, &[], b""),
            _ => file_response(request, b"a page about a collection", &[ETAG]),
        });
        let (mut http, path) = session(&server.url("/d"));
        let failure = http.stat(&path).await.unwrap_err();
        assert!(failure.may_retry(), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_or_is_not_understood_has_not_said_that_a_path_is_a_file() {
    let described = |resource: &str| {
        let body = format!("<multistatus xmlns='DAV:'>{resource}</multistatus>");
        response("207 Multi-Status", &[], body.as_bytes())
    };
    for answer in [
        response("500 Internal Server Error", &[], b""),
        response("508 Loop Detected", &[], b""),
        response("520 Unknown", &[], b""),
        Vec::new(),
        response("207 Multi-Status", &[], b"<html>a login</html>"),
        described("<response><href>/d</href><status>HTTP/1.1 403 Forbidden</status></response>"),
        described("<response><href>/d</href></response>"),
        described(
            "<response><href>/other</href><propstat><prop><resourcetype><collection/></resourcetype></prop></propstat>\
             </response>",
        ),
    ] {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
            "PROPFIND" => answer.clone(),
            _ => file_response(request, b"a page about a collection", &[ETAG]),
        });
        let (mut http, path) = session(&server.url("/d"));
        http.stat(&path).await.expect_err(&shown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refusal_does_not_make_files_of_collections() {
    const COLLECTION: &[u8] =
        b"<multistatus xmlns='DAV:'><response><href>/a/d</href><propstat><prop><resourcetype><collection/>\
          </resourcetype></prop></propstat></response></multistatus>";
    for refusal in ["400 Bad Request", "403 Forbidden", "404 Not Found"] {
        let server = ScriptedHttpServer::start(move |request| {
            match (request.method.as_str(), request.path.as_str()) {
                ("PROPFIND", "/a/d") => response("207 Multi-Status", &[], COLLECTION),
                ("PROPFIND", _) => response(refusal, &[], b""),
                _ => file_response(request, b"a page", &[ETAG]),
            }
        });
        let (mut http, _) = session(&server.url("/"));
        let entry = http.stat(b"/a/x").await.unwrap();
        assert_eq!(entry.kind, EntryKind::File, "the server may have no WebDAV");
        let entry = http.stat(b"/a/d").await.unwrap();
        assert_eq!(entry.kind, EntryKind::Dir, "{refusal}");
        // Now it is known to have it, so the refusal is about the path.
        let failure = http.stat(b"/a/x").await.unwrap_err();
        assert!(!failure.may_retry(), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_removed_as_an_empty_one_only_if_the_server_lists_nothing_in_it() {
    let server = server();
    server.make_collection("/empty");
    let (mut http, _) = session(&server.url("/"));
    for path in [&b"/d"[..], b"/f"] {
        let failure = http.remove_dir(path).await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused, "{failure}");
    }
    assert_eq!(server.paths(), ["/d/precious", "/f"]);
    http.remove_dir(b"/empty").await.unwrap();
    let missing = http.stat(b"/empty").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    let itself = "<response><href>/d/</href><propstat><prop><resourcetype><collection/></resourcetype></prop></propstat>\
                  </response>";
    let other = "<response><href>/proxy/d/g</href></response>";
    for resources in [other.to_owned(), itself.to_owned() + other] {
        let body = format!("<multistatus xmlns='DAV:'>{resources}</multistatus>");
        let server =
            ScriptedHttpServer::start(move |_| response("207 Multi-Status", &[], body.as_bytes()));
        let (mut http, path) = session(&server.url("/d"));
        http.remove_dir(&path).await.unwrap_err();
        assert!(server.requests().iter().all(|r| r.method == "PROPFIND"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_neither_removed_nor_replaced_as_a_file() {
    let server = server();
    server.answer_head_of_collections();
    let (mut http, _) = session(&server.url("/"));
    let failure = http.remove(b"/d").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    let failure = http.rename(b"/f", b"/d", None).await.unwrap_err().failure;
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    let failure = http.rename(b"/d", b"/f", None).await.unwrap_err().failure;
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    assert_eq!(server.paths(), ["/d/precious", "/f"]);
    http.rename(b"/d", b"/e", None).await.unwrap();
    assert_eq!(server.paths(), ["/e/precious", "/f"]);
    http.remove_tree(b"/e").await.unwrap();
    http.remove(b"/f").await.unwrap();
    assert!(server.paths().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_replaced_where_a_server_ignores_overwrite() {
    let server = server();
    server.ignore_overwrite();
    server.make_collection("/e");
    let (mut http, _) = session(&server.url("/"));
    for (from, to) in [
        (&b"/f"[..], &b"/d"[..]),
        (b"/e", b"/d"),
        (b"/e", b"/f"),
        (b"/d", b"/e"),
    ] {
        let renamed = http.rename(from, to, None).await.unwrap_err();
        assert_eq!(renamed.refused_step, RefusedRenameStep::NewNameIsTaken);
    }
    assert_eq!(server.paths(), ["/d/precious", "/f"]);
    server.put("/new", b"new");
    http.rename(b"/new", b"/f", None).await.unwrap();
    assert_eq!(server.get("/f").as_deref(), Some(&b"new"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_takes_the_place_of_a_file_stays() {
    let server = server();
    let (mut http, _) = session(&server.url("/"));
    server.swap_after_question("/f");
    http.remove(b"/f").await.unwrap_err();
    server.put("/new", b"new");
    server.put("/old", b"old");
    server.swap_after_question("/old");
    http.rename(b"/new", b"/old", None).await.unwrap_err();
    let stays = ["/d/precious", "/f/precious", "/new", "/old/precious"];
    assert_eq!(server.paths(), stays);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_removed_and_replaced_also_where_conditions_are_refused() {
    for refuses_conditions in [false, true] {
        let server = server();
        if refuses_conditions {
            server.refuse_conditions();
        }
        server.put("/g", b"other");
        let (mut http, _) = session(&server.url("/"));
        http.rename(b"/f", b"/g", None).await.unwrap();
        assert_eq!(server.get("/g").as_deref(), Some(&b"a file"[..]));
        http.remove(b"/g").await.unwrap();
        assert_eq!(server.paths(), ["/d/precious"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_or_replaced_whose_kind_is_unknown() {
    let multistatus = |href: &str, properties: &str| {
        format!(
            "<multistatus xmlns='DAV:'><response><href>{href}</href><propstat><prop>{properties}</prop>\
             </propstat></response></multistatus>"
        )
    };
    let described = |body: String| response("207 Multi-Status", &[], body.as_bytes());
    let is_file = "<resourcetype/>";
    for answer in [
        response("405 Method Not Allowed", &[], b""),
        response("200 OK", &[], b"<html/>"),
        response("403 Forbidden", &[], b""),
        described(multistatus("/f", "<getcontentlength>5</getcontentlength>")),
        described(multistatus("/other", is_file)),
        described("<multistatus xmlns='DAV:'/>".to_owned()),
        response("302 Found", &[("Location", "/other")], b""),
    ] {
        let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
            "PROPFIND" if request.path == "/other" => described(multistatus("/other", is_file)),
            "PROPFIND" => answer.clone(),
            "HEAD" => head_response("200 OK", &[], 5),
            _ => response("204 No Content", &[], b""),
        });
        let (mut http, path) = session(&server.url("/f"));
        assert!(http.remove(&path).await.is_err());
        assert!(http.remove_tree(&path).await.is_err());
        assert!(http.rename(b"/new", &path, None).await.is_err());
        let requests = server.requests();
        // Not even with `Overwrite: F`, which a server may ignore.
        let destroys = |r: &ReceivedRequest| matches!(r.method.as_str(), "DELETE" | "MOVE");
        assert!(!requests.iter().any(destroys), "{requests:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_this_session_needs_no_webdav_to_be_removed() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "PUT" => response("201 Created", &[], b""),
        "DELETE" => response("204 No Content", &[], b""),
        _ => response("405 Method Not Allowed", &[], b""),
    });
    let (mut http, path) = session(&server.url("/f"));
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(b"hello".to_vec(), "memory"));
    let control = Arc::new(TransferControl::new());
    http.store(source, &path, &spec(Some(5), 1), &control)
        .await
        .unwrap();
    http.remove(&path).await.unwrap();
    assert!(http.remove(&path).await.is_err(), "it may be another's now");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_change_something_follow_no_redirect() {
    let other = ScriptedHttpServer::start(|_| response("201 Created", &[], b""));
    for status in ["301 Moved", "302 Found", "303 See Other", "307 T", "308 P"] {
        let target = other.url("/elsewhere?signature=hush");
        let server = ScriptedHttpServer::start(move |request| {
            match request.method.as_str() {
            "PROPFIND" if request.path == "/g" => response("404 Not Found", &[], b""),
            "PROPFIND" => response(
                "207 Multi-Status",
                &[],
                b"<multistatus xmlns='DAV:'><response><href>/f</href><propstat><prop><resourcetype/></prop>\
                  </propstat></response></multistatus>",
            ),
            _ => response(status, &[("Location", &target)], b""),
        }
        });
        let (mut http, path) = session(&server.url("/f"));
        let stored = stored(&server, b"hello", Some(5)).await.0.map(drop);
        let renamed = http.rename(&path, b"/g", None).await.unwrap_err();
        assert_eq!(renamed.refused_step, RefusedRenameStep::NewNameIsTaken);
        for failure in [
            stored.unwrap_err(),
            http.remove(&path).await.unwrap_err(),
            http.make_dir(b"/new").await.unwrap_err(),
            renamed.failure,
        ] {
            assert!(!failure.may_retry(), "{failure}");
            assert!(failure.to_string().contains("/elsewhere"), "{failure}");
            assert!(!failure.to_string().contains("hush"), "{failure}");
        }
    }
    assert!(other.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_takes_the_destination_for_another_server_is_given_a_path() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "MOVE" if request.header("destination") != Some("/d/f") => {
            response("502 Bad Gateway", &[], b"")
        }
        "MOVE" => response("201 Created", &[], b""),
        "HEAD" => response("404 Not Found", &[], b""),
        _ => response("405 Method Not Allowed", &[], b""),
    });
    let (mut http, _) = session(&server.url("/"));
    http.rename(b"/part", b"/d/f", None).await.unwrap();
    let failure = http.rename(b"/part", b"/d/g", None).await.unwrap_err();
    assert_eq!(failure.refused_step, RefusedRenameStep::Unsupported);
    assert!(!failure.failure.may_retry(), "{}", failure.failure);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_that_a_server_cuts_off_is_found_out() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "MOVE" => response("201 Created", &[], b""),
        _ => response("404 Not Found", &[], b""),
    });
    let (mut http, path) = http_session(&server.url("/part"));
    http.remember_stored(&path);
    http.rename(&path, b"/plain", None).await.unwrap();
    let names = [&b"/a;b"[..], b"/a?b", b"/a#b", b"/d;/f"];
    for name in names {
        http.remember_stored(&path);
        let failure = http.rename(&path, name, None).await.unwrap_err().failure;
        assert_eq!(failure.kind(), FailureKind::Protocol, "{failure}");
    }
    // Another file, or a collection, has the name that is left.
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "MOVE" => response("412 Precondition Failed", &[], b""),
        _ => response("404 Not Found", &[], b""),
    });
    let (mut http, path) = http_session(&server.url("/part"));
    http.remember_stored(&path);
    for (name, step) in [
        (&b"/a;b"[..], RefusedRenameStep::RntoRefused),
        // Nothing has it: a proxy that does not know MOVE.
        (b"/plain", RefusedRenameStep::Unsupported),
    ] {
        let renamed = http.rename(&path, name, None).await.unwrap_err();
        assert_eq!(renamed.refused_step, step);
    }
    // The server may replace another file, or a collection.
    let server = WebDavServer::start();
    let (mut http, _) = session(&server.url("/"));
    server.put("/new", b"new");
    server.make_collection("/d;");
    for name in names {
        let old = String::from_utf8(name.to_vec()).unwrap();
        server.put(&old, b"old");
        http.rename(b"/new", name, None).await.unwrap_err();
        assert_eq!(server.get(&old).as_deref(), Some(&b"old"[..]));
    }
}

/// The names that a server lists in `/d`, and the failure that follows.
async fn listed(resources: &'static str) -> (Vec<String>, Option<Failure>) {
    let body = format!("<multistatus xmlns='DAV:'>{resources}</multistatus>");
    let server =
        ScriptedHttpServer::start(move |_| response("207 Multi-Status", &[], body.as_bytes()));
    let (mut http, path) = session(&server.url("/d"));
    let mut names = Vec::new();
    let mut visit = |checked: SymlinkCheckedEntry| {
        names.push(String::from_utf8(checked.entry.name).unwrap());
        ControlFlow::Continue(())
    };
    let scope = SymlinkCheckScope::Directories;
    let listed = http.list(&path, scope, &mut visit).await;
    assert_eq!(server.requests()[0].header("depth"), Some("1"));
    (names, listed.err())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_with_what_is_not_understood_ends_with_a_failure_after_what_is() {
    let whole = "<response><href>/d/</href><propstat><prop><resourcetype><collection/></resourcetype></prop></propstat>\
                 </response><response><href>/d/a%20b</href><propstat><prop><resourcetype/></prop></propstat></response>";
    assert_eq!(listed(whole).await, (vec!["a b".to_owned()], None));
    let (names, failure) = listed(
        "<response><href>/d/</href><propstat><prop><resourcetype><collection/></resourcetype></prop></propstat></response>\
         <response><href>/d/f</href><propstat><prop><resourcetype/></prop></propstat></response>\
         <response><href>/proxy/d/g</href><propstat><prop><resourcetype/></prop></propstat></response>\
         <response><href>/d/h</href><status>HTTP/1.1 403 Forbidden</status></response>",
    )
    .await;
    let failure = failure.unwrap();
    assert_eq!(
        (names, failure.kind()),
        (vec!["f".to_owned()], FailureKind::Protocol)
    );
    assert!(failure.to_string().contains("/proxy/d/g"), "{failure}");
    let (names, failure) = listed("").await;
    assert_eq!(
        (names.len(), failure.unwrap().kind()),
        (0, FailureKind::Protocol)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_another_path_or_server_shows_nothing() {
    let collection = |href: &str| {
        let body = format!(
            "<multistatus xmlns='DAV:'><response><href>{href}</href><propstat><prop><resourcetype><collection/>\
             </resourcetype></prop></propstat></response></multistatus>"
        );
        response("207 Multi-Status", &[], body.as_bytes())
    };
    let elsewhere = ScriptedHttpServer::start(move |_| collection("/d/"));
    for (target, is_same) in [
        ("/d".to_owned(), true),
        ("/empty/".to_owned(), false),
        ("/login/".to_owned(), false),
        (elsewhere.url("/d/"), false),
    ] {
        let server = ScriptedHttpServer::start(move |request| match request.path.as_str() {
            "/d/" => response("302 Found", &[("Location", &target)], b""),
            other => collection(other),
        });
        let (mut http, path) = session(&server.url("/d"));
        let scope = SymlinkCheckScope::Directories;
        let mut visit = |_| ControlFlow::Continue(());
        let listed = http.list(&path, scope, &mut visit).await;
        assert_eq!(listed.is_ok(), is_same, "{listed:?}");
    }
}
