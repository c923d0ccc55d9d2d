//! A small file that is fetched next is asked for by one request.

use super::*;
use ftp::answers::SourceVersion;

/// Expects a file of so many bytes, asks for its checksums, and fetches it.
async fn fetch_expected(
    http: &mut dyn Storage,
    path: &[u8],
    size: u64,
) -> Result<Vec<u8>, Failure> {
    http.expect_fetch(path, size);
    http.available_checksums(path).await?;
    let memory = MemorySink::new(64 << 20, "memory");
    let sink: Arc<dyn Sink> = Arc::new(memory.clone());
    let control = Arc::new(TransferControl::new());
    http.fetch(path, sink, &spec(Some(size), 1), &control)
        .await
        .map(|_| memory.bytes())
}

fn methods(server: &ScriptedHttpServer, seen: usize) -> Vec<String> {
    let requests = server.requests();
    requests[seen..].iter().map(|r| r.method.clone()).collect()
}

/// A session that has fetched a file from this server already.
async fn warm_session(server: &ScriptedHttpServer) -> Box<dyn Storage> {
    let (mut http, _) = session(&server.url("/"));
    let got = fetch_expected(&mut *http, b"/abc", 3).await;
    assert_eq!(got.unwrap(), b"abc");
    assert_eq!(methods(server, 0), ["HEAD", "GET"]);
    http
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_has_the_facts_and_the_bytes_of_a_small_file() {
    let digest = ("Digest", "adler32=024d0127");
    let server = ScriptedHttpServer::start(move |request| {
        let body = request.path.trim_start_matches('/').as_bytes();
        file_response(request, body, &[ETAG, digest])
    });
    let mut http = warm_session(&server).await;
    for path in [&b"/abc"[..], b"/other"] {
        let seen = server.requests().len();
        let got = fetch_expected(&mut *http, path, path.len() as u64 - 1).await;
        assert_eq!(got.unwrap(), path[1..]);
        assert_eq!(methods(&server, seen), ["GET"]);
        let requests = server.requests();
        let asked = requests.last().unwrap();
        assert!(asked.header("want-digest").is_some());
    }
    http.expect_fetch(b"/abc", 3);
    let known = http.available_checksums(b"/abc").await.unwrap();
    assert_eq!(known.whole_files, [ChecksumAlgorithm::Adler32]);
    let seen = server.requests().len();
    let version = http.versioned_files().unwrap().version(b"/abc").await;
    assert_eq!(version.unwrap(), SourceVersion::Tag("\"v1\"".to_owned()));
    assert_eq!(methods(&server, seen), [""; 0], "it is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_and_empty_files_are_examined_first() {
    let large = content(3_000_000);
    let served = Arc::clone(&large);
    let server = ScriptedHttpServer::start(move |request| match request.path.as_str() {
        "/large" => file_response(request, &served, &[ETAG]),
        "/empty" => file_response(request, b"", &[ETAG]),
        _ => file_response(request, b"abc", &[ETAG]),
    });
    let mut http = warm_session(&server).await;
    for (path, bytes) in [(&b"/large"[..], &large[..]), (b"/empty", b"")] {
        let seen = server.requests().len();
        let got = fetch_expected(&mut *http, path, bytes.len() as u64).await;
        assert!(got.unwrap() == bytes);
        assert_eq!(methods(&server, seen)[0], "HEAD");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_tells_less_with_the_bytes_is_asked_first_from_then_on() {
    let chunked = "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let digest = ("Digest", "adler32=024d0127");
    for lacks_length in [true, false] {
        let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
            "HEAD" => head_response("200 OK", &[ETAG, digest], 3),
            _ if lacks_length => chunked.as_bytes().to_vec(),
            _ => response("200 OK", &[ETAG], b"abc"),
        });
        let mut http = warm_session(&server).await;
        for asked in [&["GET", "HEAD", "GET"][..], &["HEAD", "GET"]] {
            let seen = server.requests().len();
            http.expect_fetch(b"/abc", 3);
            let known = http.available_checksums(b"/abc").await.unwrap();
            assert_eq!(known.whole_files, [ChecksumAlgorithm::Adler32]);
            let got = fetch_expected(&mut *http, b"/abc", 3).await;
            assert_eq!(got.unwrap(), b"abc");
            assert_eq!(methods(&server, seen), asked);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_the_answer() {
    for status in [
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "503 Service Unavailable",
    ] {
        let server = ScriptedHttpServer::start(move |request| match request.path.as_str() {
            "/refused" if request.method == "GET" => head_response(status, &[], 0),
            _ => file_response(request, b"abc", &[ETAG]),
        });
        let mut http = warm_session(&server).await;
        let seen = server.requests().len();
        http.expect_fetch(b"/refused", 3);
        let refused = http.available_checksums(b"/refused").await;
        let is_transient = refused.unwrap_err().may_retry();
        assert_eq!(is_transient, status.starts_with("503"), "{status}");
        assert_eq!(methods(&server, seen), ["GET"], "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_that_a_later_file_has_by_head_alone_are_not_lost() {
    let digest = ("Digest", "adler32=024d0127");
    let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
        "HEAD" if request.path != "/abc" => head_response("200 OK", &[ETAG, digest], 3),
        _ => file_response(request, b"abc", &[ETAG]),
    });
    // The first file has none.
    let mut http = warm_session(&server).await;
    let parts = [FilePart {
        offset: 0,
        length: None,
    }];
    let sum = http.checksums(ChecksumAlgorithm::Adler32, &parts, b"/b");
    assert_eq!(sum.await.unwrap(), ["024d0127"]);
    http.expect_fetch(b"/c", 3);
    let known = http.available_checksums(b"/c").await.unwrap();
    assert_eq!(known.whole_files, [ChecksumAlgorithm::Adler32]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_came_with_the_facts_are_of_the_file_that_is_fetched_or_not_used() {
    let version = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&version);
    let server = ScriptedHttpServer::start(move |request| {
        let at = current.load(Ordering::SeqCst);
        let tag = ["\"0\"", "\"1\""][at];
        let body = format!("{}{at}", request.path);
        file_response(request, body.as_bytes(), &[("ETag", tag)])
    });
    let (mut http, _) = session(&server.url("/"));
    fetch_expected(&mut *http, b"/c", 3).await.unwrap();
    // Another one is fetched than the one that was expected.
    http.expect_fetch(b"/a", 3);
    http.available_checksums(b"/a").await.unwrap();
    let memory = MemorySink::new(1 << 20, "memory");
    let sink: Arc<dyn Sink> = Arc::new(memory.clone());
    let control = Arc::new(TransferControl::new());
    let fetched = http.fetch(b"/b", sink, &spec(Some(3), 1), &control).await;
    fetched.unwrap();
    assert_eq!(memory.bytes(), b"/b0");
    // It has grown since it was listed.
    let changed = fetch_expected(&mut *http, b"/a", 2).await.unwrap_err();
    assert!(changed.to_string().contains("changed"), "{changed}");
    // Bytes that nobody has fetched are of the version of that time.
    http.expect_fetch(b"/a", 3);
    http.available_checksums(b"/a").await.unwrap();
    version.store(1, Ordering::SeqCst);
    let got = fetch_expected(&mut *http, b"/a", 3).await;
    assert_eq!(got.unwrap(), b"/a1");
}
