//! A file is fetched in one version, or not at all.

use super::*;
use ftp::FailureKind;
use ftp::answers::SourceVersion;

const LENGTH: usize = 3_000_000;
const DATE: (&str, &str) = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");

/// A server whose file changes from `A`s to `B`s once it has sent so many bytes of it. `fields` are those of each version.
fn changing(after: usize, fields: [&'static [(&str, &str)]; 2]) -> ScriptedHttpServer {
    let sent = AtomicUsize::new(0);
    ScriptedHttpServer::start(move |request| {
        let is_new = sent.load(Ordering::SeqCst) >= after;
        let bytes = vec![b"AB"[usize::from(is_new)]; LENGTH];
        let mut reply = file_response(request, &bytes, fields[usize::from(is_new)]);
        if request.method == "GET" {
            // A connection that breaks in the middle.
            let end = reply.len().min(after + 200);
            reply.truncate(end);
            sent.fetch_add(end, Ordering::SeqCst);
        }
        reply
    })
}

/// The bytes that a fetch keeps: of a failed one those that the next attempt may continue after.
async fn kept(server: &ScriptedHttpServer, streams: u32) -> (bool, Vec<u8>) {
    let spec = spec(Some(LENGTH as u64), streams);
    let (result, mut bytes, stored) = fetched(&server.url("/f"), &spec).await;
    let is_kept = result.is_ok() || !spec.confirmation.was_refused();
    if !is_kept || stored.is_empty() {
        bytes.clear();
    }
    (result.is_ok(), bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_strong_tag_a_file_is_fetched_in_one_request_or_not_at_all() {
    let weak: [&'static [_]; 2] = [
        &[("Connection", "close"), ("ETag", "W/\"1\"")],
        &[("Connection", "close"), ("ETag", "W/\"2\"")],
    ];
    let date: [&'static [_]; 2] = [&[("Connection", "close"), DATE]; 2];
    let nothing: [&'static [_]; 2] = [&[("Connection", "close")]; 2];
    for fields in [weak, date, nothing] {
        for streams in [1, 4] {
            let server = changing(1_000_000, fields);
            let (is_done, kept) = kept(&server, streams).await;
            assert_eq!((is_done, kept.len()), (false, 0), "{fields:?} {streams}");
            let requests = server.requests();
            let gets: Vec<_> = requests.iter().filter(|r| r.method == "GET").collect();
            assert_eq!(gets.len(), 1, "{gets:?}");
            assert_eq!(gets[0].header("range"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_overwritten_while_it_is_sent_is_refused() {
    let versions: [&'static [_]; 2] = [
        &[DATE],
        &[("Last-Modified", "Sun, 06 Nov 1994 08:49:38 GMT")],
    ];
    let weak: [&'static [_]; 2] = [&[("ETag", "W/\"1\""), DATE], &[("ETag", "W/\"2\""), DATE]];
    let strong: [&'static [_]; 2] = [&[("ETag", "\"1\"")], &[("ETag", "\"2\"")]];
    for fields in [versions, weak, strong] {
        let sent = AtomicUsize::new(0);
        let server = ScriptedHttpServer::start(move |request| {
            let is_new = sent.load(Ordering::SeqCst) > 0;
            if request.method == "GET" {
                sent.fetch_add(1, Ordering::SeqCst);
            }
            file_response(request, &vec![7; LENGTH], fields[usize::from(is_new)])
        });
        let spec = spec(Some(LENGTH as u64), 1);
        let failure = fetched(&server.url("/f"), &spec).await.0.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Integrity, "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_counts_only_if_the_server_tells_its_version_again_or_never_does() {
    for (status, is_done, is_transient) in [
        ("405 Method Not Allowed", true, false),
        ("501 Not Implemented", true, false),
        ("503 Service Unavailable", false, true),
        ("404 Not Found", false, false),
        ("403 Forbidden", false, false),
        // The connection is closed.
        ("", false, true),
    ] {
        let is_sent = AtomicUsize::new(0);
        let server = ScriptedHttpServer::start(move |request| {
            let is_whole = request.method == "GET" && request.header("range").is_none();
            match is_sent.load(Ordering::SeqCst) {
                0 => {
                    is_sent.fetch_add(usize::from(is_whole), Ordering::SeqCst);
                    file_response(request, &vec![7; LENGTH], &[DATE])
                }
                _ if status.is_empty() => Vec::new(),
                _ => head_response(status, &[], 0),
            }
        });
        let spec = spec(Some(LENGTH as u64), 1);
        let result = fetched(&server.url("/f"), &spec).await.0;
        assert_eq!(result.is_ok(), is_done, "{status}: {result:?}");
        let failed_transiently = result.is_err_and(|failure| failure.may_retry());
        assert_eq!(failed_transiently, is_transient, "{status}");
        assert_eq!(spec.confirmation.was_refused(), !is_done, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_after_the_file_does_not_cost_the_file() {
    let is_first = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| {
        if request.method == "GET" {
            is_first.store(1, Ordering::SeqCst);
        } else if is_first.swap(0, Ordering::SeqCst) == 1 {
            return Vec::new();
        }
        file_response(request, &vec![7; LENGTH], &[DATE])
    });
    let spec = spec(Some(LENGTH as u64), 1);
    let (result, bytes, _) = fetched(&server.url("/f"), &spec).await;
    result.unwrap();
    assert_eq!(bytes.len(), LENGTH);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_without_the_tag_of_the_file_are_not_joined() {
    for of_ranges in [&[][..], &[("ETag", "W/\"v1\"")]] {
        check_ranges_without_tag(of_ranges).await;
    }
}

/// `of_ranges`: the fields of responses with ranges.
async fn check_ranges_without_tag(of_ranges: &'static [(&str, &str)]) {
    let body = content(LENGTH);
    let served = Arc::clone(&body);
    let server = ScriptedHttpServer::start(move |request| {
        let is_range = request.header("range").is_some();
        file_response(request, &served, if is_range { of_ranges } else { &[ETAG] })
    });
    let (result, bytes, _) = fetched(&server.url("/f"), &spec(Some(LENGTH as u64), 4)).await;
    result.unwrap();
    assert!(bytes == *body);
    let requests = server.requests();
    let mut gets = requests.iter().filter(|r| r.method == "GET");
    assert!(
        gets.any(|get| get.header("range").is_none()),
        "the whole file at once"
    );
    let mut rest = spec(Some(LENGTH as u64), 1);
    rest.completed_ranges.insert(0, 1000);
    let failure = fetched(&server.url("/f"), &rest).await.0.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Protocol);
    assert!(!failure.may_retry());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_stays_at_the_mirror_to_which_its_first_request_was_redirected() {
    let body = content(LENGTH);
    let served = Arc::clone(&body);
    let redirects = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| match &*request.path {
        "/f" => {
            let mirror = redirects.fetch_add(1, Ordering::SeqCst);
            response("302 Found", &[("Location", &format!("/{mirror}/f"))], b"")
        }
        path => {
            let tag = format!("\"{}\"", &path[1..2]);
            file_response(request, &served, &[("ETag", &tag)])
        }
    });
    let (mut http, path) = session(&server.url("/f"));
    let before = http.stat(&path).await.unwrap();
    let memory = MemorySink::new(64 << 20, "memory");
    let sink: Arc<dyn Sink> = Arc::new(memory.clone());
    let (spec, control) = (spec(Some(LENGTH as u64), 4), Arc::default());
    http.fetch(&path, sink, &spec, &control).await.unwrap();
    assert!(memory.bytes() == *body);
    assert_eq!(http.stat(&path).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_strong_tag_is_a_version() {
    for (fields, version) in [
        (&[ETAG, DATE][..], SourceVersion::Tag("\"v1\"".to_owned())),
        (&[("ETag", "W/\"v1\""), DATE], SourceVersion::Unknown),
        (&[DATE], SourceVersion::Unknown),
    ] {
        let server = ScriptedHttpServer::start(move |request| file_response(request, b"x", fields));
        let (mut http, path) = session(&server.url("/f"));
        assert_eq!(http.version(&path).await, Ok(version));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_coding_that_was_not_asked_for_is_refused_unless_it_is_the_files_own() {
    for (path, coding, media_type, is_taken) in [
        ("/f", "gzip", "text/plain", false),
        ("/f.txt", "br", "text/plain", false),
        ("/f.gz", "gzip, gzip", "application/gzip", false),
        ("/f.gz", "x-gzip", "application/octet-stream", true),
        ("/f.TGZ", "GZIP", "application/x-tar", true),
        ("/f", "gzip", "application/x-gzip", true),
        ("/f.Z", "x-compress", "application/octet-stream", true),
        ("/f", "identity", "text/plain", true),
        (
            "/f",
            "identity\r\nContent-Encoding: gzip",
            "text/plain",
            false,
        ),
        ("/f.gz", "gzip\r\nContent-Encoding: br", "text/plain", false),
        ("/f.gz", "identity, gzip", "application/gzip", true),
    ] {
        for sized in [true, false] {
            let server = ScriptedHttpServer::start(move |request| {
                let fields = [
                    ETAG,
                    ("Content-Encoding", coding),
                    ("Content-Type", media_type),
                ];
                let reply = file_response(request, b"coded", &fields);
                let text = String::from_utf8(reply).unwrap();
                match sized {
                    true => text.into_bytes(),
                    false => {
                        let text = text.replace("Content-Length: 5", "Connection: close");
                        text.into_bytes()
                    }
                }
            });
            let size = sized.then_some(5);
            let (result, bytes, _) = fetched(&server.url(path), &spec(size, 1)).await;
            assert_eq!(result.is_ok(), is_taken, "{path} {coding}: {result:?}");
            assert_eq!(bytes == b"coded", is_taken, "{path} {coding}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_beside_another_one_is_none() {
    for (tags, is_version) in [
        ("\"1\"\r\nETag: \"1\"", true),
        ("\"1\"\r\nETag: \"2\"", false),
    ] {
        let server = ScriptedHttpServer::start(move |request| {
            file_response(request, b"hello", &[("ETag", tags)])
        });
        let (mut http, path) = session(&server.url("/f"));
        let version = http.version(&path).await.unwrap();
        assert_eq!(version != SourceVersion::Unknown, is_version, "{tags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_override_a_content_length() {
    let server = ScriptedHttpServer::start(|request| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = if request.method == "HEAD" {
            ""
        } else {
            "5\r\nhello\r\n0\r\n\r\n"
        };
        format!("{head}{body}").into_bytes()
    });
    let (mut http, path) = session(&server.url("/f"));
    assert_eq!(http.stat(&path).await.unwrap().size, None);
    let (result, bytes, _) = fetched(&server.url("/f"), &spec(None, 1)).await;
    result.unwrap();
    assert_eq!(bytes, b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_longer_than_the_file_was_is_refused() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "HEAD" => head_response("200 OK", &[], 5),
        _ => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n"
            .to_vec(),
    });
    let failure = fetched(&server.url("/f"), &spec(Some(5), 1)).await.0;
    assert_eq!(failure.unwrap_err().kind(), FailureKind::Protocol);
}
