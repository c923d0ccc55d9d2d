use std::time::Duration;

use data::store::memory::{MemorySink, MemorySource};

use super::bucket_server::{BUCKET, BucketServer};
use super::*;
use crate::storage::conformance::{content, spec};

fn session(server: &BucketServer) -> S3Storage {
    let timeout = Duration::from_secs(20);
    S3Storage::new(BUCKET, server.settings(), &Arc::default(), timeout)
}

/// The same by its contract.
fn storage(server: &BucketServer) -> Box<dyn Storage> {
    Box::new(session(server))
}

async fn put(
    storage: &mut dyn Storage,
    path: &[u8],
    bytes: &[u8],
) -> Result<TransferAttempt, Failure> {
    store(storage, path, bytes, &spec(Some(bytes.len()))).await
}

async fn store(
    storage: &mut dyn Storage,
    path: &[u8],
    bytes: &[u8],
    spec: &TransferSpec,
) -> Result<TransferAttempt, Failure> {
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(bytes, "source"));
    let control = Arc::new(TransferControl::new());
    storage.store(source, path, spec, &control).await
}

async fn get(storage: &mut dyn Storage, path: &[u8], size: usize) -> Result<Vec<u8>, Failure> {
    let sink = MemorySink::new(size, "sink");
    let shared: Arc<dyn Sink> = Arc::new(sink.clone());
    let control = Arc::new(TransferControl::new());
    let fetched = storage
        .fetch(path, shared, &spec(Some(size)), &control)
        .await;
    fetched.map(|_| sink.take())
}

/// A source that is read once, from its first byte to its last.
#[derive(Debug)]
struct OnceReadable(MemorySource);

impl Source for OnceReadable {
    fn name(&self) -> String {
        self.0.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> std::io::Result<Option<u64>> {
        Ok(None)
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Bytes of an object with several parts.
const LARGE: usize = 23 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_is_stored_in_parts_and_fetched_in_ranges() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    let bytes = content(3, LARGE);
    let mut wanted = spec(Some(LARGE));
    wanted.checksum = Some(ChecksumAlgorithm::Crc32c);
    let attempt = store(&mut *bucket, b"/large", &bytes, &wanted)
        .await
        .unwrap();
    assert_eq!(attempt.report.evidence.bytes, LARGE as u64);
    assert!(server.get("large").unwrap() == bytes);
    assert_eq!(server.upload_count(), 0);
    // The checksum of the bytes that passed is the one that the server has.
    let sum = bucket
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/large")
        .await
        .unwrap();
    assert_eq!(attempt.report.checksum, Some(sum));
    assert!(get(&mut *bucket, b"/large", LARGE).await.unwrap() == bytes);
    let requests = server.server.requests();
    let gets: Vec<_> = requests
        .iter()
        .filter(|get| get.header("range").is_some())
        .collect();
    assert!(gets.len() > 1 && gets.iter().all(|get| get.header("if-match").is_some()));
    let parts = requests.iter().filter(|put| put.method == "PUT");
    assert!(parts.clone().count() > 1);
    assert!(
        parts
            .clone()
            .all(|put| put.header("x-amz-checksum-crc32c").is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_with_the_parts_that_arrived() {
    let server = BucketServer::start();
    let mut bucket = session(&server);
    let path = unique_path("resumed");
    let bytes = content(4, LARGE);
    server.accept_parts(Some(2));
    let mut wanted = spec(Some(LARGE));
    wanted.streams = 4;
    let failure = store(&mut bucket, &path, &bytes, &wanted)
        .await
        .unwrap_err();
    assert!(
        failure.may_retry() && failure.to_string().contains("are kept"),
        "{failure}"
    );
    assert_eq!((server.upload_count(), server.keys().len()), (1, 0));
    server.accept_parts(None);
    // Another process.
    let mut bucket = session(&server);
    let left = bucket.left_parts(&path, LARGE as u64).await.unwrap();
    assert_eq!(left.len(), 2);
    for part in &left {
        wanted
            .completed_ranges
            .insert(part.range.start, part.range.end);
    }
    let moved = store(&mut bucket, &path, &bytes, &wanted).await.unwrap();
    let rest = LARGE as u64 - wanted.completed_ranges.byte_count();
    assert_eq!(moved.report.evidence.bytes, rest);
    let key = std::str::from_utf8(&path[1..]).unwrap();
    assert!(server.get(key).unwrap() == bytes);
    assert_eq!(server.upload_count(), 0);
    assert_eq!(bucket.left_parts(&path, LARGE as u64).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_goes_on_with_is_aborted() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    let path = unique_path("given-up");
    let bytes = content(5, LARGE);
    // A later copy that begins anew, and one that is removed.
    for is_removed in [false, true] {
        server.accept_parts(Some(1));
        put(&mut *bucket, &path, &bytes).await.unwrap_err();
        assert_eq!(server.upload_count(), 1);
        server.accept_parts(None);
        match is_removed {
            true => bucket.remove(&path).await.unwrap(),
            false => drop(put(&mut *bucket, &path, &bytes).await.unwrap()),
        }
        assert_eq!(server.upload_count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_users_goes_with_each_request_about_an_object() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = BucketServer::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, [7; 32]).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = server.settings();
    settings.customer_key = Some(customer_key::CustomerKey::from_file(file.path()).unwrap());
    let bucket = S3Storage::new(BUCKET, settings, &Arc::default(), Duration::from_secs(20));
    let mut bucket: Box<dyn Storage> = Box::new(bucket);
    let path = unique_path("encrypted");
    let bytes = content(3, LARGE);
    put(&mut *bucket, &path, &bytes).await.unwrap();
    assert!(get(&mut *bucket, &path, LARGE).await.unwrap() == bytes);
    bucket.rename(&path, b"/renamed", None).await.unwrap();
    bucket.remove(b"/renamed").await.unwrap();
    for request in server.server.requests() {
        let (path, _) = request.path.split_once('?').unwrap();
        let is_object = path.len() > BUCKET.len() + 2 && request.method != "DELETE";
        let key = request.header("x-amz-server-side-encryption-customer-key");
        assert_eq!(
            key.is_some(),
            is_object,
            "{} {}",
            request.method,
            request.path
        );
        assert!(
            !is_object || request.path.contains("customer-key"),
            "it is not signed"
        );
        let of_source = request.header("x-amz-copy-source-server-side-encryption-customer-key");
        assert_eq!(
            of_source.is_some(),
            request.header("x-amz-copy-source").is_some()
        );
    }
}

/// Leaves an upload with two parts of `bytes` at a server, of which this machine has no record.
async fn leave_upload(server: &BucketServer, path: &[u8], bytes: &[u8]) {
    server.accept_parts(Some(2));
    let mut bucket = session(server);
    let mut wanted = spec(Some(bytes.len()));
    wanted.streams = 4;
    store(&mut bucket, path, bytes, &wanted).await.unwrap_err();
    server.accept_parts(None);
    bucket.upload_target(path).unwrap().record.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_record_is_found_and_goes_on_if_it_was_left() {
    let server = BucketServer::start();
    let path = unique_path("found");
    let bytes = content(4, LARGE);
    leave_upload(&server, &path, &bytes).await;
    let mut bucket = session(&server);
    // Its program may still run.
    assert_eq!(bucket.left_parts(&path, LARGE as u64).await, Ok(Vec::new()));
    server.age_uploads(Duration::from_secs(1000));
    let left = bucket.left_parts(&path, LARGE as u64).await.unwrap();
    assert_eq!(left.len(), 2);
    let mut wanted = spec(Some(LARGE));
    for part in &left {
        wanted
            .completed_ranges
            .insert(part.range.start, part.range.end);
    }
    let moved = store(&mut bucket, &path, &bytes, &wanted).await.unwrap();
    let rest = LARGE as u64 - wanted.completed_ranges.byte_count();
    assert_eq!(moved.report.evidence.bytes, rest);
    assert!(
        server
            .get(std::str::from_utf8(&path[1..]).unwrap())
            .unwrap()
            == bytes
    );
    assert_eq!(server.upload_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_upload_stays_and_is_told() {
    let server = BucketServer::start();
    let path = unique_path("foreign");
    leave_upload(&server, &path, &content(4, LARGE)).await;
    server.age_uploads(Duration::from_secs(1000));
    let told = Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let texts = Arc::clone(&told);
    let warn = move |text: &str| texts.lock().push(text.to_owned());
    let security =
        ConnectionSecurity::new(ftp::SecurityOptions::default(), Arc::new(warn)).unwrap();
    let timeout = Duration::from_secs(20);
    let mut bucket = S3Storage::new(BUCKET, server.settings(), &security, timeout);
    assert_eq!(
        bucket.left_parts(&path, LARGE as u64).await.unwrap().len(),
        2
    );
    // None of its parts is the file's.
    let bytes = content(5, LARGE);
    put(&mut bucket, &path, &bytes).await.unwrap();
    assert!(
        server
            .get(std::str::from_utf8(&path[1..]).unwrap())
            .unwrap()
            == bytes
    );
    assert_eq!(server.upload_count(), 1);
    bucket.remove_entry(&path, RemovedKind::File).await.unwrap();
    assert_eq!(server.upload_count(), 1);
    let told = told.lock();
    assert!(
        told.len() == 1 && told[0].contains("rm --unfinished"),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_uploads_are_listed_page_by_page_and_removed() {
    let server = BucketServer::start();
    let top = unique_path("uploads");
    for name in ["/a", "/b/c", "/d", "x"] {
        leave_upload(
            &server,
            &[&top[..], name.as_bytes()].concat(),
            &content(4, LARGE),
        )
        .await;
    }
    let mut bucket = session(&server);
    let (mut after, mut uploads) = (None, Vec::new());
    loop {
        let (page, next) = bucket.unfinished(&top, after).await.unwrap();
        uploads.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    let below: Vec<_> = uploads
        .iter()
        .map(|upload| &upload.path[top.len()..])
        .collect();
    assert_eq!(below, [&b"/a"[..], b"/b/c", b"/d"]);
    assert!(
        uploads
            .iter()
            .all(|upload| upload.bytes > 0 && upload.last_change.is_some())
    );
    for upload in &uploads {
        bucket.abort_upload(upload).await.unwrap();
        bucket.abort_upload(upload).await.unwrap();
    }
    assert_eq!(server.upload_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_change_on_the_way_are_refused() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    for (path, length) in [(unique_path("small"), 5), (unique_path("damaged"), LARGE)] {
        server.damage_next_body();
        let failure = put(&mut *bucket, &path, &content(6, length))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind(), failure.may_retry()),
            (FailureKind::Integrity, true)
        );
        assert!(server.keys().is_empty());
        bucket.remove(&path).await.unwrap_err();
        assert_eq!(server.upload_count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_that_are_read_once_are_stored_whatever_their_length() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    for (length, is_known) in [
        (0, false),
        (5, false),
        (40 << 20, false),
        (5, true),
        (LARGE, true),
    ] {
        let bytes = content(7, length);
        let source: Arc<dyn Source> = Arc::new(OnceReadable(MemorySource::new(&*bytes, "pipe")));
        let wanted = spec(is_known.then_some(length));
        let control = Arc::new(TransferControl::new());
        let path = unique_path("piped");
        let stored = bucket
            .store(source, &path, &wanted, &control)
            .await
            .unwrap();
        assert_eq!(stored.report.evidence.bytes, length as u64);
        let key = std::str::from_utf8(&path[1..]).unwrap();
        assert!(server.get(key).unwrap() == bytes, "{length} {is_known}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_replaced_while_it_is_fetched_fails_the_fetch() {
    let server = BucketServer::start();
    let mut bucket = session(&server);
    server.put("f", &content(8, 1000));
    bucket.version(b"/f").await.unwrap();
    server.put("f", &content(9, 1000));
    let failure = get(&mut bucket, b"/f", 1000).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Integrity);
    assert!(get(&mut bucket, b"/f", 1000).await.unwrap() == content(9, 1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_of_parts_has_their_places_and_is_none_of_the_object() {
    let server = BucketServer::start();
    let mut bucket = session(&server);
    for tells in [true, false] {
        server.put_parts("c", &[b"abc", b"defg", b"h"], tells);
        assert_eq!(
            bucket.available_checksums(b"/c").await.unwrap(),
            AvailableChecksums::default()
        );
        let sum = bucket.composite_sum(b"/c").await.unwrap().unwrap();
        assert!(sum.algorithm == ChecksumAlgorithm::Sha256 && sum.is_certain);
        let ends: Vec<_> = sum.parts.iter().map(|part| part.end).collect();
        assert_eq!(ends, [3, 7, 8], "{tells}");
    }
    server.put("plain", b"abc");
    assert_eq!(bucket.composite_sum(b"/plain").await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_of_parts_is_a_checksum_of_parts_of_which_the_first_shows_the_length() {
    let server = BucketServer::start();
    let mut bucket = session(&server);
    server.put_tagged_parts("c", &[b"abcd", b"efgh", b"i"]);
    let sum = bucket.composite_sum(b"/c").await.unwrap().unwrap();
    assert!(sum.algorithm == ChecksumAlgorithm::Md5 && !sum.is_certain);
    let ends: Vec<_> = sum.parts.iter().map(|part| part.end).collect();
    assert_eq!(ends, [4, 8, 9]);
    // As many as these are no parts of this length.
    server.put_tagged_parts("d", &[b"ab", b"cdef", b"ghi"]);
    assert_eq!(bucket.composite_sum(b"/d").await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_name_is_unknown_is_away() {
    let settings = S3Settings {
        endpoint: Some("http://no-such-host.invalid/".parse().unwrap()),
        ..BucketServer::start().settings()
    };
    let mut unknown = S3Storage::new(BUCKET, settings, &Arc::default(), Duration::from_secs(20));
    let failure = unknown.facts(b"/f", FactsUse::Reading).await.unwrap_err();
    // A batch waits for such a host only if it has reached it before.
    assert_eq!(failure.kind(), FailureKind::Away, "{failure}");
    assert!(unknown.condition().is_away);
    let text = failure.to_string();
    let expected = "cannot find the address of no-such-host.invalid";
    assert!(text.contains(expected), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_object_is_told_before_anything_starts() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    server.put("a", b"x");
    server.archive("a");
    bucket.stat(b"/a").await.unwrap();
    let failure = bucket.stat_to_read(b"/a").await.unwrap_err();
    assert!(failure.to_string().contains("GLACIER"), "{failure}");
    assert_eq!(failure.kind(), FailureKind::Refused);
    let failure = get(&mut *bucket, b"/a", 1).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(
        server
            .server
            .requests()
            .iter()
            .all(|request| request.method == "HEAD")
    );
    // Its checksums need no restored copy.
    bucket.available_checksums(b"/a").await.unwrap();
    server.restore("a");
    bucket.stat_to_read(b"/a").await.unwrap();
    assert_eq!(get(&mut *bucket, b"/a", 1).await.unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_object_that_is_fetched_next_comes_with_the_answer_about_it() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    let large = content(4, LARGE);
    let objects: [(&str, &[u8]); 4] = [
        ("small", b"abc"),
        ("large", &large),
        ("empty", b""),
        ("archived", b"xyz"),
    ];
    for (key, bytes) in objects {
        server.put(key, bytes);
    }
    server.archive("archived");
    let mut methods = async |key: &str, size: usize| {
        let (path, seen) = (
            format!("/{key}").into_bytes(),
            server.server.requests().len(),
        );
        bucket.expect_fetch(&path, size as u64);
        bucket.available_checksums(&path).await.unwrap();
        let got = get(&mut *bucket, &path, size).await;
        let requests = server.server.requests();
        let methods: Vec<_> = requests[seen..].iter().map(|r| r.method.clone()).collect();
        (got, methods)
    };
    let (got, asked) = methods("small", 3).await;
    assert_eq!(
        (got.unwrap(), asked),
        (b"abc".to_vec(), vec!["GET".to_owned()])
    );
    // Ranges of it come over several connections.
    let (got, asked) = methods("large", LARGE).await;
    assert!(got.unwrap() == large && asked[0] == "HEAD");
    let (got, asked) = methods("empty", 0).await;
    assert_eq!((got.unwrap(), asked), (Vec::new(), vec!["HEAD".to_owned()]));
    let (got, asked) = methods("archived", 3).await;
    assert_eq!(got.unwrap_err().kind(), FailureKind::Refused);
    assert_eq!(asked[..2], ["GET", "HEAD"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_asked_for_with_the_facts_are_of_the_object_that_is_fetched_or_not_used() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    server.put("a", b"aaa");
    server.put("b", b"bbb");
    for (expected, fetched) in [("/a", "/b"), ("/b", "/a")] {
        bucket.expect_fetch(expected.as_bytes(), 3);
        bucket
            .available_checksums(expected.as_bytes())
            .await
            .unwrap();
        let got = get(&mut *bucket, fetched.as_bytes(), 3).await.unwrap();
        assert_eq!(got, fetched.as_bytes()[1..].repeat(3));
    }
    // It has grown since it was listed.
    bucket.expect_fetch(b"/a", 2);
    bucket.available_checksums(b"/a").await.unwrap();
    let changed = get(&mut *bucket, b"/a", 2).await.unwrap_err();
    assert!(changed.to_string().contains("changed"), "{changed}");
    assert_eq!(get(&mut *bucket, b"/a", 3).await.unwrap(), b"aaa");
    // It is replaced after its bytes were asked for: they are those of the old version, all of them.
    bucket.expect_fetch(b"/a", 3);
    bucket.available_checksums(b"/a").await.unwrap();
    server.put("a", b"new");
    assert_eq!(get(&mut *bucket, b"/a", 3).await.unwrap(), b"aaa");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_listed_and_removed_page_by_page() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    for key in ["t/a/1", "t/a/2 & 3", "t/b/c/4", "t/5", "u"] {
        server.put(key, b"x");
    }
    server.archive("t/5");
    let mut names = Vec::new();
    let mut visit = |entry: ListedEntry| {
        assert_eq!(entry.is_archived, entry.name == b"5");
        names.push(String::from_utf8(entry.name).unwrap());
        std::ops::ControlFlow::Continue(())
    };
    assert!(bucket.list_tree(b"/t", &mut visit).await.unwrap());
    assert_eq!(names, ["5", "a", "a/1", "a/2 & 3", "b", "b/c", "b/c/4"]);
    bucket.remove_tree(b"/t").await.unwrap();
    assert_eq!(server.keys(), ["u"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_kinds_and_secrets_are_not_told() {
    let server = BucketServer::start();
    server.put("f", b"x");
    let mut bucket = storage(&server);
    server.refuse("SlowDown");
    let failure = bucket
        .list(b"/", SymlinkCheckScope::Nothing, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .await
        .unwrap_err();
    assert_eq!(
        (failure.kind(), failure.may_retry()),
        (FailureKind::Unreachable, true)
    );
    let mut settings = server.settings();
    settings.credentials = None;
    let mut unsigned = S3Storage::new(BUCKET, settings, &Arc::default(), Duration::from_secs(20));
    let failure = unsigned.facts(b"/f", FactsUse::Reading).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(failure.to_string().contains("AWS_PROFILE"), "{failure}");
    let other = S3Storage::new(
        "other",
        server.settings(),
        &Arc::default(),
        Duration::from_secs(20),
    );
    assert!(!format!("{other:?}").contains("hush"));
    let mut other: Box<dyn Storage> = Box::new(other);
    let missing = other.stat(b"/f").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_no_object_can_have_are_refused() {
    let server = BucketServer::start();
    let mut bucket = storage(&server);
    for path in [&b"/a/../b"[..], b"/\xff", &[b'/'; 1]] {
        let failure = bucket.check_path(path).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage, "{path:?}");
    }
    let long = [b"/".to_vec(), vec![b'x'; 1025]].concat();
    bucket.check_path(&long).unwrap_err();
    assert!(server.server.requests().is_empty());
}

/// A path that no other test process has: records of uploads outlive a process.
fn unique_path(name: &str) -> Vec<u8> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("/{name}-{}-{next}", std::process::id()).into_bytes()
}
