//! Files of 1 TB and more. Nearly all of each is holes, so that disk and time are those of its data.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use copy::{Exit, Parallelism, VerifyMode};
use proto::checksum::ChecksumAlgorithm;

use crate::support::{EndToEndServer, copy, options, random_bytes};

/// Numbers of bytes that shorter types would cut off.
const EDGES: [u64; 3] = [1 << 31, 1 << 32, 1 << 40];
/// Bytes that are written around each edge, half of them before it.
const AROUND: usize = 300_000;
/// Length of the file.
const LENGTH: u64 = (1 << 40) + (5 << 20) + 3;
/// More blocks than this were not left as holes, bytes.
const MAX_ALLOCATED: u64 = 32 << 20;

fn start(edge: u64) -> u64 {
    edge - AROUND as u64 / 2
}

/// The bytes around the edge with this number, other ones at each.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = random_bytes(AROUND);
    bytes.rotate_left(number * 1000 + 1);
    bytes
}

fn create(path: &Path) {
    let file = File::create(path).unwrap();
    for (number, edge) in EDGES.into_iter().enumerate() {
        file.write_all_at(&content(number), start(edge)).unwrap();
    }
    file.set_len(LENGTH).unwrap();
}

fn assert_same(path: &Path) {
    let file = File::open(path).unwrap();
    let facts = file.metadata().unwrap();
    assert_eq!(facts.len(), LENGTH);
    assert!(facts.blocks() * 512 < MAX_ALLOCATED, "{}", facts.blocks());
    for (number, edge) in EDGES.into_iter().enumerate() {
        let mut around = vec![1; AROUND + 8192];
        let before = start(edge) - 4096;
        file.read_exact_at(&mut around, before).unwrap();
        let expected = [&[0; 4096][..], &content(number), &[0; 4096]].concat();
        assert!(around == expected, "{edge}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_terabyte_is_copied_here_in_the_time_of_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    create(&from);
    for (streams, verify, verified) in [
        (Parallelism::Auto, VerifyMode::Auto, "crc32c"),
        (
            Parallelism::Fixed(1),
            VerifyMode::With(ChecksumAlgorithm::Adler32),
            "adler32",
        ),
    ] {
        let options = options().with(|o| {
            o.streams.parallelism = streams;
            o.file.verify = verify;
        });
        let text = |path: &Path| path.display().to_string();
        let (summary, _) = copy(&[&text(&from)], &text(&to), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        // A file system may share the blocks, if the algorithm is not named.
        let shared = verify == VerifyMode::Auto && summary.verified == "reflink";
        assert!(summary.verified == verified || shared, "{summary:?}");
        assert_eq!(summary.bytes, LENGTH);
        assert_same(&to);
        std::fs::remove_file(&to).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_terabyte_are_fetched_from_a_server_and_verified() {
    let server = EndToEndServer::start().await;
    create(&server.root().join("f"));
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("part");
    for (number, edge) in EDGES.into_iter().enumerate() {
        for streams in [1, 4] {
            let options = options().with(|o| {
                o.streams.parallelism = Parallelism::Fixed(streams);
                o.file.offset = Some(start(edge));
                o.file.length = Some(AROUND as u64);
            });
            let to = to.display().to_string();
            let (summary, _) = copy(&[&server.url("f")], &to, &options).await;
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert_eq!(summary.verified, "crc32c");
            assert!(std::fs::read(&to).unwrap() == content(number), "{edge}");
        }
    }
}
