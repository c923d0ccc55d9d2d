mod dav;
mod expected;
mod third_party;
mod versions;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use data::store::memory::{MemorySink, MemorySource};
use proto::http::url::HttpUrl;
use proto::ranges::RangeSet;
use units::splitmix::SplitMix64;

use super::scripted::{
    ReceivedRequest, ScriptedHttpServer, file_response, head_response, response,
};
use super::*;
use ftp::FailureKind;
use ftp::credentials::Credential;
use ftp::location::Location;

const ETAG: (&str, &str) = ("ETag", "\"v1\"");

fn content(len: usize) -> Arc<Vec<u8>> {
    let mut random = SplitMix64::new(11);
    let bytes = (0..len).map(|_| random.next_u64().to_le_bytes()[0]);
    Arc::new(bytes.collect())
}

/// A session with the server of a URL, and the path.
fn http_session(url: &str) -> (HttpStorage, Vec<u8>) {
    let find = |_: &str, _: Option<&str>| Ok(Credential::Anonymous);
    let Ok(Location::Remote { server, path }) = Location::parse_with(url, &find, &Arc::default())
    else {
        panic!("{url}");
    };
    let query = server.query.as_deref();
    let target = HttpUrl::new(false, &server.host, server.port, b"/", query);
    let timeout = Duration::from_secs(20);
    (
        HttpStorage::new(&target, &server.credential, &server.security, timeout).unwrap(),
        path,
    )
}

/// The same by its contract.
fn session(url: &str) -> (Box<dyn Storage>, Vec<u8>) {
    let (http, path) = http_session(url);
    (Box::new(http), path)
}

fn spec(size: Option<u64>, streams: u32) -> TransferSpec {
    TransferSpec {
        size,
        part: None,
        restart_proof: ftp::transfer::RestartProof::default(),
        destination_offset: None,
        chunks: None,
        completed_ranges: RangeSet::new(),
        streams,
        max_streams: streams,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ftp::ModeChoice::Auto,
        checksum: None,
        server_checksum: None,
        options: data::options::TransferOptions::default(),
        started: Arc::default(),
        stored_ranges: Arc::default(),
        confirmation: Arc::default(),
        data_ports: None,
    }
}

/// Result of a fetch, the fetched bytes, and the stored ranges according to the control.
async fn fetched(
    url: &str,
    spec: &TransferSpec,
) -> (Result<TransferAttempt, Failure>, Vec<u8>, String) {
    let (mut http, path) = session(url);
    let memory = MemorySink::new(64 << 20, "memory");
    let sink: Arc<dyn Sink> = Arc::new(memory.clone());
    let control = Arc::new(TransferControl::new());
    let result = http.fetch(&path, sink, spec, &control).await;
    (result, memory.bytes(), control.stored().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_over_one_or_several_reused_connections() {
    let body = content(9_000_000);
    let served = Arc::clone(&body);
    let server =
        ScriptedHttpServer::start(move |requests| file_response(requests, &served, &[ETAG]));
    for streams in [1, 4] {
        let mut spec = spec(Some(9_000_000), streams);
        spec.checksum = Some(ChecksumAlgorithm::Crc32c);
        let (result, bytes, stored) = fetched(&server.url("/f"), &spec).await;
        let attempt = result.unwrap();
        assert!(bytes == *body);
        assert_eq!(
            (attempt.report.evidence.bytes, stored.as_str()),
            (9_000_000, "0-9000000")
        );
        let mut digest = data::checksum::ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
        digest.update(&body);
        assert_eq!(attempt.report.checksum, Some(digest.finish()));
    }
    let requests = server.requests();
    let gets: Vec<_> = requests.iter().filter(|a| a.method == "GET").collect();
    assert!(
        gets.iter()
            .all(|get| get.header("accept-encoding") == Some("identity"))
    );
    assert!(gets[0].header("range").is_none());
    assert!(
        gets[1..]
            .iter()
            .all(|get| get.header("if-range") == Some("\"v1\""))
    );
    let connections = requests.iter().map(|a| a.connection).max().unwrap() + 1;
    assert!(
        connections <= 5 && gets.len() > 5,
        "{connections} {}",
        gets.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_missing_ranges_are_requested_relative_to_the_part() {
    let body = content(100_000);
    let served = Arc::clone(&body);
    let server =
        ScriptedHttpServer::start(move |requests| file_response(requests, &served, &[ETAG]));
    let mut spec = spec(Some(50_000), 1);
    spec.part = Some((10_000, 50_000));
    spec.completed_ranges.insert(0, 20_000);
    let (result, bytes, stored) = fetched(&server.url("/f"), &spec).await;
    result.unwrap();
    assert!(bytes[20_000..] == body[30_000..60_000]);
    assert_eq!(stored, "20000-50000");
    let requests = server.requests();
    assert_eq!(
        requests.last().unwrap().header("range"),
        Some("bytes=30000-59999")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_ranges_is_read_from_the_first_byte() {
    let body = content(5_000_000);
    for announces_none in [true, false] {
        let served = Arc::clone(&body);
        let ranges = if announces_none { "none" } else { "bytes" };
        let server = ScriptedHttpServer::start(move |requests| match requests.method.as_str() {
            "HEAD" => head_response("200 OK", &[ETAG, ("Accept-Ranges", ranges)], served.len()),
            _ => response("200 OK", &[ETAG], &served),
        });
        let mut spec = spec(Some(5_000_000), 4);
        spec.completed_ranges.insert(0, 1_000_000);
        let (result, bytes, stored) = fetched(&server.url("/f"), &spec).await;
        result.unwrap();
        assert!(bytes[1_000_000..] == body[1_000_000..]);
        assert_eq!(stored, "1000000-5000000");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_body_is_a_lost_connection_and_its_bytes_are_kept() {
    let body = content(3_000_000);
    let server = ScriptedHttpServer::start(move |requests| {
        let mut full = file_response(requests, &body, &[ETAG, ("Connection", "close")]);
        if requests.method == "GET" {
            full.truncate(1_000_000);
        }
        full
    });
    let (result, _, stored) = fetched(&server.url("/f"), &spec(Some(3_000_000), 1)).await;
    let failure = result.unwrap_err();
    assert!(failure.is_lost(), "{failure}");
    let end: u64 = stored.strip_prefix("0-").unwrap().parse().unwrap();
    assert!(end > 900_000 && end < 1_000_000, "{end}");
}

/// The failure of a fetch from a server that answers GET with `script`.
async fn failure_of(
    script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
) -> Failure {
    let server = ScriptedHttpServer::start(move |requests| match requests.method.as_str() {
        "HEAD" => head_response("200 OK", &[ETAG, ("Accept-Ranges", "bytes")], 1000),
        _ => script(requests),
    });
    let mut spec = spec(Some(1000), 1);
    spec.completed_ranges.insert(0, 100);
    let (result, _, stored) = fetched(&server.url("/f?secret=s"), &spec).await;
    assert_eq!(stored, "");
    let failure = result.unwrap_err();
    assert!(!failure.to_string().contains("secret"), "{failure}");
    assert!(!failure.to_string().contains('\n'), "{failure}");
    failure
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_ranges_and_changed_files_are_refused() {
    let partial = |range: &'static str, etag: &'static str| {
        move |_: &ReceivedRequest| {
            let fields = [("Content-Range", range), ("ETag", etag)];
            response("206 Partial Content", &fields, &[7; 900])
        }
    };
    for range in ["bytes 0-899/1000", "bytes 101-1000/*", "nonsense"] {
        let exit = failure_of(partial(range, "\"v1\"")).await.kind();
        assert_eq!(exit, FailureKind::Protocol, "{range}");
    }
    for range in ["bytes 100-999/2000", "bytes 100-1000/1001"] {
        let other_size = failure_of(partial(range, "\"v1\"")).await;
        assert_eq!(other_size.kind(), FailureKind::Integrity);
    }
    let changed = failure_of(partial("bytes 100-999/1000", "\"v2\"")).await;
    assert!(
        changed.to_string().contains("changed while it was copied"),
        "{changed}"
    );
    let replaced = failure_of(|_| response("200 OK", &[("ETag", "\"v2\"")], &[1; 1000])).await;
    assert_eq!(replaced.kind(), FailureKind::Integrity);
    let failed = failure_of(|_| response("412 Precondition Failed", &[], b"")).await;
    assert_eq!(failed.kind(), FailureKind::Integrity);
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_map_to_exit_classes() {
    for (status, exit, transient) in [
        ("404 Not Found", FailureKind::NotFound, false),
        ("410 Gone", FailureKind::NotFound, false),
        ("401 Unauthorized", FailureKind::Refused, false),
        ("403 Forbidden", FailureKind::Refused, false),
        ("429 Too Many Requests", FailureKind::Unreachable, true),
        ("503 Service Unavailable", FailureKind::Unreachable, true),
        (
            "507 Insufficient Storage",
            FailureKind::ServerDiskFull,
            false,
        ),
        ("400 Bad Request", FailureKind::Protocol, false),
    ] {
        let failure = failure_of(move |_| response(status, &[("Retry-After", "7")], b"no")).await;
        assert_eq!(
            (failure.kind(), failure.may_retry()),
            (exit, transient),
            "{failure}"
        );
    }
    let later = failure_of(|_| response("503 Busy", &[("Retry-After", "7")], b"")).await;
    assert!(later.to_string().contains("Retry-After: 7"), "{later}");
    let silent = failure_of(|_| Vec::new()).await;
    assert!(silent.may_retry(), "{silent}");
    let nonsense = failure_of(|_| b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()).await;
    assert_eq!(nonsense.kind(), FailureKind::Protocol, "{nonsense}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_not_sent_to_the_target_of_a_redirect() {
    let body = content(1000);
    let served = Arc::clone(&body);
    let other = ScriptedHttpServer::start(move |requests| file_response(requests, &served, &[]));
    let redirect_target = other.url("/real?sig=abc");
    let server = ScriptedHttpServer::start(move |_| {
        response("302 Found", &[("Location", &redirect_target)], b"moved")
    });
    let url = server.url("/f").replace("http://", "http://user:pw@");
    let (result, bytes, _) = fetched(&url, &spec(None, 1)).await;
    result.unwrap();
    assert!(bytes == *body);
    let login = |requests: Vec<ReceivedRequest>| {
        requests.iter().all(|a| a.header("authorization").is_some())
    };
    assert!(login(server.requests()));
    assert!(
        other
            .requests()
            .iter()
            .all(|a| a.header("authorization").is_none())
    );
    // The bytes are requested directly from the redirect's target.
    assert_eq!(server.requests().len(), 1);
    assert!(other.requests().iter().all(|a| a.path == "/real?sig=abc"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_loops_end() {
    let server = ScriptedHttpServer::start(|_| response("302 Found", &[("Location", "/f")], b""));
    let (mut http, path) = session(&server.url("/f"));
    let failure = http.stat(&path).await.unwrap_err();
    assert!(
        failure.to_string().contains("too many redirects"),
        "{failure}"
    );
    // PROPFIND and HEAD.
    assert_eq!(server.requests().len(), 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_come_from_head_or_from_get_of_the_first_byte() {
    let date = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let weak = ("ETag", "W/\"x\"");
    let server = ScriptedHttpServer::start(move |requests| {
        match (requests.method.as_str(), requests.path.as_str()) {
            ("HEAD", "/signed") => head_response("403 Forbidden", &[], 0),
            ("HEAD", "/weak") => head_response("200 OK", &[weak], 5),
            ("HEAD", "/no-content") => head_response("200 OK", &[], 0),
            (_, "/empty") => file_response(requests, b"", &[ETAG, date]),
            _ => file_response(requests, &[1; 1234], &[ETAG, date]),
        }
    });
    for (path, size) in [
        ("/plain", 1234),
        ("/signed", 1234),
        ("/no-content", 1234),
        ("/empty", 0),
    ] {
        let (mut http, path) = session(&server.url(path));
        assert_eq!(http.path_ends(), None);
        let entry = http.stat(&path).await.unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(http.path_ends(), Some((here, here)));
        assert_eq!((entry.kind, entry.size), (EntryKind::File, Some(size)));
        assert_eq!(entry.modified, Some(Timestamp(784_111_777)));
        assert_eq!(entry.version.as_deref(), Some("\"v1\""));
    }
    let (mut http, path) = session(&server.url("/weak"));
    assert_eq!(http.stat(&path).await.unwrap().version, None);
    let (mut http, path) = session(&server.url("/d/"));
    assert_eq!(http.stat(&path).await.unwrap().kind, EntryKind::Dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_come_from_the_digest_of_the_whole_file() {
    let digest = ("Repr-Digest", "md5=:XUFAKrxLKna5cZ2REBfFkg==:");
    let server =
        ScriptedHttpServer::start(move |requests| file_response(requests, b"hello", &[digest]));
    let (mut http, path) = session(&server.url("/f"));
    assert_eq!(
        http.available_checksums(&path).await.unwrap().whole_files,
        [ChecksumAlgorithm::Md5]
    );
    let sum = http.checksum(ChecksumAlgorithm::Md5, 0, None, &path).await;
    assert_eq!(sum.as_deref(), Ok("5d41402abc4b2a76b9719d911017c592"));
    for (algorithm, length) in [
        (ChecksumAlgorithm::Sha256, None),
        (ChecksumAlgorithm::Md5, Some(3)),
    ] {
        let none = http.checksum(algorithm, 0, length, &path).await;
        assert_eq!(none.unwrap_err().kind(), FailureKind::Protocol);
    }
    assert!(server.requests()[0].header("want-repr-digest").is_some());
}

async fn stored(
    server: &ScriptedHttpServer,
    bytes: &[u8],
    size: Option<u64>,
) -> (Result<TransferAttempt, Failure>, Arc<TransferControl>) {
    let (mut http, path) = session(&server.url("/dir/f"));
    let control = Arc::new(TransferControl::new());
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(bytes.to_vec(), "memory"));
    let mut spec = spec(size, 1);
    spec.checksum = Some(ChecksumAlgorithm::Md5);
    let result = http.store(source, &path, &spec, &control).await;
    (result, control)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_put_with_its_length_or_chunked() {
    let body = content(3_000_000);
    for size in [Some(3_000_000), None] {
        let server = ScriptedHttpServer::start(|_| response("201 Created", &[], b""));
        let (result, control) = stored(&server, &body, size).await;
        assert!(result.unwrap().report.checksum.is_some());
        assert_eq!(control.bytes(), 3_000_000);
        let requests = server.requests();
        assert_eq!(
            (requests[0].method.as_str(), requests[0].path.as_str()),
            ("PUT", "/dir/f")
        );
        assert!(requests[0].body == *body);
        assert_eq!(
            requests[0].header("content-length").is_some(),
            size.is_some()
        );
        assert_eq!(requests[0].header("expect"), Some("100-continue"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_put_is_explained() {
    for (status, kind, word) in [
        ("409 Conflict", FailureKind::NotFound, "directory above"),
        (
            "507 Insufficient Storage",
            FailureKind::ServerDiskFull,
            "full",
        ),
        ("405 Method Not Allowed", FailureKind::Protocol, "WebDAV"),
        ("403 Forbidden", FailureKind::Refused, "refuses"),
    ] {
        let server = ScriptedHttpServer::start(move |_| response(status, &[], b""));
        let failure = stored(&server, b"hello", Some(5)).await.0.unwrap_err();
        assert_eq!(failure.kind(), kind, "{failure}");
        assert!(failure.to_string().contains(word), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_name_is_told_from_a_missing_directory() {
    let listing = "<multistatus xmlns='DAV:'><response><href>/dir/</href><propstat><prop><resourcetype><collection/>\
                   </resourcetype></prop></propstat></response></multistatus>";
    for (status, is_there, exit) in [
        ("400 Bad Request", true, FailureKind::Refused),
        ("403 Forbidden", true, FailureKind::Refused),
        ("409 Conflict", true, FailureKind::Refused),
        ("409 Conflict", false, FailureKind::NotFound),
    ] {
        let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
            "PUT" => response(status, &[], b""),
            "PROPFIND" if is_there => response("207 Multi-Status", &[], listing.as_bytes()),
            _ => response("404 Not Found", &[], b""),
        });
        let (mut http, path) = session(&server.url("/dir/f"));
        let source: Arc<dyn Source> = Arc::new(MemorySource::new(b"x".to_vec(), "memory"));
        let spec = spec(Some(1), 1);
        let control = Arc::new(TransferControl::new());
        let stored = http.store(source, &path, &spec, &control).await;
        assert_eq!(stored.unwrap_err().kind(), exit, "{status} {is_there}");
        assert!(!spec.started.load(Ordering::Relaxed), "nothing is stored");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_fetch_ends_at_once() {
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waits);
    let server = ScriptedHttpServer::start(move |requests| match requests.method.as_str() {
        "HEAD" => head_response("200 OK", &[ETAG, ("Accept-Ranges", "bytes")], 1 << 20),
        _ => {
            counted.fetch_add(1, Ordering::SeqCst);
            head_response("200 OK", &[ETAG], 1 << 20)
        }
    });
    let (mut http, path) = session(&server.url("/f"));
    let sink: Arc<dyn Sink> = Arc::new(MemorySink::new(1 << 20, "memory"));
    let control = Arc::new(TransferControl::new());
    let stopper = Arc::clone(&control);
    let waiting = Arc::clone(&waits);
    let stop = tokio::spawn(async move {
        while waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        stopper.cancel();
    });
    let mut requests = spec(Some(1 << 20), 1);
    requests.options.stall = Duration::from_secs(3600);
    let failure = http
        .fetch(&path, sink, &requests, &control)
        .await
        .unwrap_err();
    stop.await.unwrap();
    assert!(control.is_cancelled(), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_known_by_its_first_response() {
    let asked = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |requests| {
        let version = format!("Web/1.{}", asked.fetch_add(1, Ordering::SeqCst));
        file_response(requests, b"content", &[ETAG, ("Server", &version)])
    });
    let security: Arc<ftp::ConnectionSecurity> = Arc::default();
    let target = HttpUrl::new(false, "127.0.0.1", server.address.port(), b"/", None);
    let timeout = Duration::from_secs(20);
    let http = HttpStorage::new(&target, &Credential::Anonymous, &security, timeout);
    let mut http: Box<dyn Storage> = Box::new(http.unwrap());
    for _ in 0..2 {
        http.stat(b"/f").await.unwrap();
    }
    assert!(server.requests().len() >= 2);
    let known = ftp::ServerIdentity::of_software("Web/1.0");
    let expected = [(server.address.to_string(), known)];
    assert_eq!(security.identities(), expected.into());
}
