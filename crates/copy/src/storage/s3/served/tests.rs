use std::io;

use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;

use super::super::bucket_server::{BUCKET, BucketServer};
use super::*;
use crate::storage::conformance::content;

fn serve(server: &BucketServer) -> ServedBucket {
    let timeout = Duration::from_secs(20);
    let settings = server.settings();
    ServedBucket::with_settings(BUCKET, b"/data/", settings, &Arc::default(), timeout).unwrap()
}

fn v(path: &str) -> VPath {
    VPath::root().resolve(path.as_bytes()).unwrap()
}

fn names(bucket: &ServedBucket, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let listed = bucket.list(&v(path), &mut |entry| {
        let mark = if entry.kind == EntryKind::Dir {
            "/"
        } else {
            ""
        };
        names.push(format!("{}{mark}", String::from_utf8_lossy(&entry.name)));
        ControlFlow::Continue(())
    });
    listed.unwrap();
    names
}

fn kind<T>(result: Result<T, FileError>) -> FileErrorKind {
    match result {
        Ok(_) => panic!("not refused"),
        Err(error) => error.kind,
    }
}

fn source_of(bucket: &ServedBucket, path: &str) -> Arc<dyn Source> {
    let file = bucket.open(&v(path)).unwrap();
    let mut wanted = RangeSet::new();
    wanted.insert(0, file.size());
    file.source(&wanted, &ServedClient::default()).unwrap()
}

fn read(source: &dyn Source, from: u64) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; 300_000]);
    loop {
        let n = source.read_at(from + bytes.len() as u64, &mut buf)?;
        if n == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&buf[..n]);
    }
}

fn begin(bucket: &ServedBucket, path: &str) -> Arc<dyn ServedSink> {
    bucket
        .create(&v(path), None, &ServedClient::default())
        .unwrap()
}

#[test]
fn objects_below_the_root_are_files_and_prefixes_directories() {
    let server = BucketServer::start();
    for key in [
        "data/a",
        "data/b/x",
        "data/b/y/z",
        "data/c",
        "data/empty/",
        "data.d",
        "e",
    ] {
        server.put(key, b"12345");
    }
    let bucket = serve(&server);
    bucket.check().unwrap();
    assert_eq!(bucket.name(), "s3://bucket/data");
    assert_eq!(names(&bucket, "/"), ["a", "b/", "c", "empty/"]);
    assert_eq!(names(&bucket, "/b"), ["x", "y/"]);
    assert_eq!(names(&bucket, "/a"), ["a"]);
    assert!(names(&bucket, "/empty").is_empty());
    assert_eq!(bucket.stat(&v("/a")).unwrap().size, Some(5));
    assert_eq!(bucket.stat(&v("/b")).unwrap().kind, EntryKind::Dir);
    assert_eq!(kind(bucket.stat(&v("/../e"))), FileErrorKind::NotFound);
    bucket.enter(&v("/b/y")).unwrap();
    assert_eq!(kind(bucket.enter(&v("/a"))), FileErrorKind::NotADirectory);
    assert_eq!(kind(bucket.enter(&v("/none"))), FileErrorKind::NotFound);
    assert_eq!(kind(bucket.open(&v("/b"))), FileErrorKind::IsADirectory);
    let mut tree = Vec::new();
    let walked = bucket.walk(&v("/b"), &mut |entry| {
        tree.push(entry.name);
        ControlFlow::Continue(())
    });
    walked.unwrap();
    assert_eq!(tree, [&b"x"[..], b"y", b"y/z"]);
}

#[test]
fn a_file_and_a_directory_of_one_name_are_both_shown_and_other_keys_are_told() {
    let server = BucketServer::start();
    server.put("data/a", b"1");
    server.put("data/a/b", b"1");
    let bucket = serve(&server);
    assert_eq!(names(&bucket, "/"), ["a", "a/"]);
    server.put("data/c//d", b"1");
    let mut shown = 0;
    let listed = bucket.list(&v("/c"), &mut |_| {
        shown += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((kind(listed), shown), (FileErrorKind::Denied, 0));
}

#[test]
fn an_object_is_read_by_large_ranges_of_one_version() {
    let server = BucketServer::start();
    let bytes = content(5, 20 << 20);
    server.put("data/large", &bytes);
    let bucket = serve(&server);
    let source = source_of(&bucket, "/large");
    assert!(read(&*source, 0).unwrap() == bytes);
    let requests = server.server.requests();
    let gets: Vec<_> = requests.iter().filter(|get| get.method == "GET").collect();
    assert_eq!(gets.len(), 3, "of 8 MiB each");
    assert!(gets.iter().all(|get| get.header("if-match").is_some()));
    // Another version is not joined to it.
    let source = source_of(&bucket, "/large");
    source.read_at(0, &mut [0; 1000]).unwrap();
    server.put("data/large", &content(6, 20 << 20));
    let error = read(&*source, 17 << 20).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
}

#[test]
fn a_part_of_an_object_is_read_and_nothing_else() {
    let server = BucketServer::start();
    server.put("data/f", b"0123456789");
    let bucket = serve(&server);
    let file = bucket.open(&v("/f")).unwrap();
    let mut wanted = RangeSet::new();
    wanted.insert(3, 6);
    let source = file.source(&wanted, &ServedClient::default()).unwrap();
    let mut buf = [0; 3];
    assert_eq!(source.read_at(3, &mut buf).unwrap(), 3);
    assert_eq!(&buf, b"345");
    let requests = server.server.requests();
    let get = requests.iter().rfind(|get| get.method == "GET").unwrap();
    assert_eq!(get.header("range"), Some("bytes=3-5"));
}

#[test]
fn blocks_in_any_order_become_an_object_that_is_seen_when_it_is_whole() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    let bytes = content(7, 40 << 20);
    let sink = begin(&bucket, "/new");
    let mut blocks: Vec<_> = bytes.chunks(1 << 20).enumerate().collect();
    // Two streams, of which one is behind.
    blocks.sort_by_key(|(n, _)| n + 9 * (n % 2));
    for (n, block) in blocks {
        sink.write_at((n << 20) as u64, block).unwrap();
    }
    assert_eq!(server.get("data/new"), None);
    let version = sink.finish(Some(bytes.len() as u64)).unwrap();
    assert!(server.get("data/new").unwrap() == bytes);
    assert_eq!(server.upload_count(), 0);
    let file = bucket.open(&v("/new")).unwrap();
    assert_eq!(file.version(), version.as_deref());
    assert!(version.is_some());
}

#[test]
fn a_short_file_is_one_request_and_an_empty_one_too() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    let sink = begin(&bucket, "/short");
    sink.write_at(2, b"c").unwrap();
    sink.write_at(0, b"ab").unwrap();
    assert!(sink.finish(Some(3)).unwrap().is_some());
    assert_eq!(server.get("data/short").unwrap(), b"abc");
    begin(&bucket, "/empty").finish(Some(0)).unwrap();
    assert_eq!(server.get("data/empty").unwrap(), b"");
}

#[test]
fn nothing_is_left_of_an_upload_that_ends_early() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    let part = vec![1; 16 << 20];
    for is_dropped in [true, false] {
        let sink = begin(&bucket, "/half");
        sink.write_at(0, &part).unwrap();
        sink.write_at(16 << 20, b"more").unwrap();
        match is_dropped {
            true => drop(sink),
            false => sink.abandon(),
        }
    }
    let sink = begin(&bucket, "/half");
    sink.write_at(0, &part).unwrap();
    sink.write_at((16 << 20) + 1, b"a gap is before it")
        .unwrap();
    assert!(sink.finish(None).is_err());
    assert_eq!((server.keys().len(), server.upload_count()), (0, 0));
}

#[test]
fn a_refused_part_ends_the_upload() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    let sink = begin(&bucket, "/f");
    server.refuse("AccessDenied");
    let part = vec![1; 16 << 20];
    sink.write_at(0, &part).unwrap();
    let finished = kind(sink.finish(None));
    server.refuse_nothing();
    assert_eq!(finished, FileErrorKind::Denied);
    assert_eq!((server.keys().len(), server.upload_count()), (0, 0));
}

#[test]
fn refusals_have_the_kinds_by_which_replies_are_chosen() {
    let server = BucketServer::start();
    server.put("data/f", b"1");
    let bucket = serve(&server);
    server.refuse("AccessDenied");
    assert_eq!(kind(bucket.check()), FileErrorKind::Denied);
    assert_eq!(kind(bucket.enter(&v("/f"))), FileErrorKind::Denied);
    server.refuse_nothing();
    let long = format!("/{}", ["n".repeat(250).as_str(); 5].join("/"));
    assert_eq!(
        kind(bucket.create(&v(&long), None, &ServedClient::default())),
        FileErrorKind::Denied
    );
}

#[test]
fn names_change_as_in_a_directory() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    bucket.make_dir(&v("/d")).unwrap();
    assert_eq!(kind(bucket.make_dir(&v("/d"))), FileErrorKind::Exists);
    assert_eq!(
        kind(bucket.make_dir(&v("/none/e"))),
        FileErrorKind::NotFound
    );
    begin(&bucket, "/d/f").finish(None).unwrap();
    assert_eq!(kind(bucket.remove_dir(&v("/d"))), FileErrorKind::NotEmpty);
    assert_eq!(
        kind(bucket.remove_file(&v("/d"))),
        FileErrorKind::IsADirectory
    );
    assert_eq!(
        kind(bucket.rename(&v("/d"), &v("/g"))),
        FileErrorKind::IsADirectory
    );
    let taken = bucket.create(&v("/d"), None, &ServedClient::default());
    assert_eq!(kind(taken), FileErrorKind::IsADirectory);
    assert_eq!(
        kind(bucket.rename(&v("/none"), &v("/g"))),
        FileErrorKind::NotFound
    );
    bucket.rename(&v("/d/f"), &v("/g")).unwrap();
    assert_eq!(names(&bucket, "/"), ["d/", "g"]);
    bucket.remove_dir(&v("/d")).unwrap();
    bucket.remove_file(&v("/g")).unwrap();
    assert_eq!(kind(bucket.remove_file(&v("/g"))), FileErrorKind::NotFound);
    assert!(server.keys().is_empty());
}

#[test]
fn a_directory_stays_when_its_last_file_has_gone() {
    let server = BucketServer::start();
    server.put("data/d/f", b"1");
    let bucket = serve(&server);
    bucket.remove_file(&v("/d/f")).unwrap();
    bucket.enter(&v("/d")).unwrap();
    bucket.remove_tree(&v("/d")).unwrap();
    assert_eq!(kind(bucket.enter(&v("/d"))), FileErrorKind::NotFound);
    assert_eq!(kind(bucket.remove_tree(&v("/"))), FileErrorKind::Denied);
}

#[test]
fn a_checksum_that_the_bucket_keeps_is_known() {
    let server = BucketServer::start();
    let bucket = serve(&server);
    let sink = begin(&bucket, "/f");
    sink.write_at(0, b"123456789").unwrap();
    sink.finish(None).unwrap();
    let file = bucket.open(&v("/f")).unwrap();
    let sum = file.checksum(ChecksumAlgorithm::Crc32c);
    assert_eq!(sum.as_deref(), Some("e3069283"));
    assert_eq!(file.checksum(ChecksumAlgorithm::Sha512), None);
}

#[test]
fn transfers_together_have_no_more_memory_than_their_budget() {
    const MIB: u64 = 1 << 20;
    let server = BucketServer::start();
    server.put("data/large", &content(8, 17 << 20));
    let bucket = ServedBucket {
        memory: Arc::new(TransferMemoryBudget::of(48 * MIB, Duration::from_secs(60))),
        ..serve(&server)
    };
    let by = |n: usize| ServedClient {
        name: n.to_string(),
        ..ServedClient::default()
    };
    let begin = |n: usize| bucket.create(&v(&format!("/{n}")), None, &by(n));
    // 16 MiB each.
    let uploads: Vec<_> = (0..2).map(|n| begin(n).unwrap()).collect();
    let file = bucket.open(&v("/large")).unwrap();
    let mut wanted = RangeSet::new();
    wanted.insert(0, file.size());
    let source = file.source(&wanted, &by(2)).unwrap();
    assert_eq!(kind(begin(3)), FileErrorKind::Busy);
    assert_eq!(kind(file.source(&wanted, &by(3))), FileErrorKind::Busy);
    // A file that is announced to be short needs no more than its bytes, but these are not free, either.
    assert_eq!(
        kind(bucket.create(&v("/short"), Some(10), &by(3))),
        FileErrorKind::Busy
    );
    // Whoever has begun comes to the end.
    assert!(read(&*source, 0).unwrap() == content(8, 17 << 20));
    drop(source);
    let bytes = content(9, 40 << 20);
    for (n, block) in bytes.chunks(1 << 20).enumerate() {
        uploads[0].write_at((n << 20) as u64, block).unwrap();
    }
    uploads[0].finish(Some(bytes.len() as u64)).unwrap();
    assert!(server.get("data/0").unwrap() == bytes);
    drop(uploads);
    let waiting = ServedClient {
        may_wait: true,
        ..by(3)
    };
    assert!(bucket.create(&v("/3"), None, &waiting).is_ok());
}
