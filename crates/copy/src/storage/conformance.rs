//! Checks that every storage must pass.

use std::sync::Arc;

use data::checksum::ChecksumHasher;
use data::job::TransferControl;
use data::options::TransferOptions;
use data::store::memory::{MemorySink, MemorySource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::collected::CollectedEntries;
use super::contract::{FilePart, Storage};
use crate::storage::entry_names::join_path;
use ftp::answers::{SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::transfer::{RestartProof, TransferSpec};
use ftp::{Failure, FailureKind, ModeChoice};

/// Length of the file that is moved, bytes.
const LENGTH: usize = 700_000;

pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = units::splitmix::SplitMix64::new(seed);
    (0..len)
        .map(|_| random.next_u64().to_le_bytes()[0])
        .collect()
}

pub(crate) fn spec(size: Option<usize>) -> TransferSpec {
    TransferSpec {
        size: size.map(|size| size as u64),
        part: None,
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: None,
        completed_ranges: RangeSet::new(),
        streams: 2,
        max_streams: 2,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ModeChoice::Auto,
        checksum: None,
        server_checksum: None,
        options: TransferOptions::default(),
        started: Arc::default(),
        stored_ranges: Arc::default(),
        confirmation: Arc::default(),
        data_ports: None,
    }
}

fn digest(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut digest = ChecksumHasher::new(algorithm);
    digest.update(bytes);
    digest.finish()
}

fn ranges(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

/// The names in a directory, sorted.
async fn sorted_names(storage: &mut dyn Storage, path: &[u8]) -> Vec<Vec<u8>> {
    let listed = collected(storage, path).await.unwrap().complete().unwrap();
    let mut names: Vec<_> = listed
        .into_iter()
        .map(|checked| checked.entry.name)
        .collect();
    names.sort();
    names
}

async fn collected(storage: &mut dyn Storage, path: &[u8]) -> Result<CollectedEntries, Failure> {
    CollectedEntries::of(storage, path, SymlinkCheckScope::Directories).await
}

async fn put(storage: &mut dyn Storage, path: &[u8], bytes: &[u8], spec: &TransferSpec) {
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(bytes, "source"));
    let control = Arc::new(TransferControl::new());
    let stored = storage.store(source, path, spec, &control).await;
    stored.unwrap();
}

async fn get(storage: &mut dyn Storage, path: &[u8], spec: &TransferSpec) -> Vec<u8> {
    let sink = MemorySink::new(LENGTH, "sink");
    let shared: Arc<dyn Sink> = Arc::new(sink.clone());
    let control = Arc::new(TransferControl::new());
    let fetched = storage.fetch(path, shared, spec, &control).await;
    fetched.unwrap();
    sink.take()
}

/// Runs all checks in the empty directory `top`.
pub(crate) async fn check(storage: &mut dyn Storage, top: &[u8]) {
    assert!(!storage.name().is_empty());
    check_directories(storage, top).await;
    let file = join_path(top, b"a file");
    let bytes = content(1, LENGTH);
    put(storage, &file, &bytes, &spec(Some(LENGTH))).await;
    check_facts(storage, top, &file).await;
    check_fetch(storage, &file, &bytes).await;
    check_checksums(storage, &file, &bytes).await;
    check_store(storage, &file, &bytes).await;
    check_names_and_times(storage, top, &file).await;
    let (tree, empty) = (join_path(top, b"d"), join_path(top, b"d/empty"));
    storage.make_dir(&empty).await.unwrap();
    storage.remove_dir(&tree).await.unwrap_err();
    storage.remove_dir(&empty).await.unwrap();
    storage.remove_dir(&empty).await.unwrap_err();
    storage.stat(&join_path(top, b"d/x")).await.unwrap();
    storage.remove_tree(&tree).await.unwrap();
    let missing = storage.stat(&join_path(top, b"d")).await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    assert!(!missing.may_retry());
    check_cancellation(storage, top).await;
}

async fn check_directories(storage: &mut dyn Storage, top: &[u8]) {
    let directory = join_path(top, b"d");
    let missing = storage.stat(&directory).await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    assert!(!missing.may_retry());
    assert!(collected(storage, &directory).await.is_err());
    assert!(storage.make_dir(&directory).await.unwrap());
    assert!(!storage.make_dir(&directory).await.unwrap());
    assert_eq!(storage.stat(&directory).await.unwrap().kind, EntryKind::Dir);
    assert!(sorted_names(storage, &directory).await.is_empty());
    let deep = join_path(&directory, b"no/such");
    assert!(storage.make_dir(&deep).await.is_err());
    put(storage, &join_path(&directory, b"x"), b"", &spec(Some(0))).await;
    let empty = storage.stat(&join_path(&directory, b"x")).await.unwrap();
    assert_eq!((empty.kind, empty.size), (EntryKind::File, Some(0)));
}

async fn check_facts(storage: &mut dyn Storage, top: &[u8], file: &[u8]) {
    let entry = storage.stat(file).await.unwrap();
    assert_eq!(
        (entry.kind, entry.size),
        (EntryKind::File, Some(LENGTH as u64))
    );
    assert_eq!(entry.name, b"a file");
    assert_eq!(
        sorted_names(storage, top).await,
        [b"a file".to_vec(), b"d".to_vec()]
    );
    let mut visited = Vec::new();
    let mut first = |checked: SymlinkCheckedEntry| {
        visited.push(checked.entry.name);
        std::ops::ControlFlow::Break(())
    };
    let scope = SymlinkCheckScope::Nothing;
    storage.list(top, scope, &mut first).await.unwrap();
    assert_eq!(visited.len(), 1);
}

async fn check_fetch(storage: &mut dyn Storage, file: &[u8], bytes: &[u8]) {
    assert_eq!(get(storage, file, &spec(Some(LENGTH))).await, bytes);
    if storage.capabilities().ranges {
        let part = TransferSpec {
            part: Some((1000, 5000)),
            ..spec(Some(5000))
        };
        assert_eq!(get(storage, file, &part).await, bytes[1000..6000]);
        let rest = TransferSpec {
            completed_ranges: ranges("0-200000"),
            ..spec(Some(LENGTH))
        };
        let got = get(storage, file, &rest).await;
        assert_eq!(got[200_000..], bytes[200_000..]);
        assert!(
            got[..200_000].iter().all(|byte| *byte == 0),
            "only what is missing"
        );
    }
    let sink: Arc<dyn Sink> = Arc::new(MemorySink::new(LENGTH, "sink"));
    let control = Arc::new(TransferControl::new());
    let missing = join_path(file, b"not there");
    let fetched = storage
        .fetch(&missing, sink, &spec(Some(5)), &control)
        .await;
    assert!(!fetched.unwrap_err().may_retry());
    assert!(control.stored().is_empty());
}

async fn check_checksums(storage: &mut dyn Storage, file: &[u8], bytes: &[u8]) {
    let sums = storage.available_checksums(file).await.unwrap();
    for algorithm in sums.ranges.iter().chain(&sums.whole_files) {
        let sum = storage.checksum(*algorithm, 0, None, file).await.unwrap();
        assert!(
            sum.eq_ignore_ascii_case(&digest(*algorithm, bytes)),
            "{algorithm:?}"
        );
    }
    for algorithm in &sums.ranges {
        let parts = [0..10, 1000..301_000];
        let ranges_asked = parts.clone().map(|part| FilePart {
            offset: part.start as u64,
            length: Some(part.len() as u64),
        });
        let checksums = storage
            .checksums(*algorithm, &ranges_asked, file)
            .await
            .unwrap();
        for (part, sum) in parts.into_iter().zip(checksums) {
            let part = &bytes[part];
            assert!(
                sum.eq_ignore_ascii_case(&digest(*algorithm, part)),
                "{algorithm:?}"
            );
        }
    }
}

async fn check_store(storage: &mut dyn Storage, file: &[u8], bytes: &[u8]) {
    let second = content(2, LENGTH);
    if storage.capabilities().partial_writes {
        let rest = TransferSpec {
            completed_ranges: ranges("0-300000"),
            ..spec(Some(LENGTH))
        };
        put(storage, file, &second, &rest).await;
        let mixed = [&bytes[..300_000], &second[300_000..]].concat();
        assert!(get(storage, file, &spec(Some(LENGTH))).await == mixed);
    }
    let part = TransferSpec {
        part: Some((100, 9000)),
        ..spec(Some(9000))
    };
    put(storage, file, &second, &part).await;
    assert_eq!(storage.stat(file).await.unwrap().size, Some(9000));
    assert_eq!(
        get(storage, file, &spec(Some(9000))).await,
        second[100..9100]
    );
}

/// Runs last, because a session whose transfer was cancelled need not be usable.
async fn check_cancellation(storage: &mut dyn Storage, top: &[u8]) {
    let control = Arc::new(TransferControl::new());
    control.cancel();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(content(2, LENGTH), "source"));
    let path = join_path(top, b"cancelled");
    let stored = storage
        .store(source, &path, &spec(Some(LENGTH)), &control)
        .await;
    assert!(stored.is_err(), "a copy that was cancelled is none");
}

async fn check_names_and_times(storage: &mut dyn Storage, top: &[u8], file: &[u8]) {
    if storage
        .set_modified(file, Timestamp(1_000_000_000))
        .await
        .unwrap()
    {
        let entry = storage.stat(file).await.unwrap();
        assert_eq!(entry.modified, Some(Timestamp(1_000_000_000)));
    }
    let renamed = join_path(top, b"renamed");
    put(storage, &renamed, b"old", &spec(Some(3))).await;
    if storage.rename(file, &renamed, None).await.is_ok() {
        assert_eq!(storage.stat(&renamed).await.unwrap().size, Some(9000));
        let missing = storage.stat(file).await.unwrap_err();
        assert_eq!(missing.kind(), FailureKind::NotFound);
        let failure = storage.rename(file, &renamed, None).await.unwrap_err();
        assert!(!failure.failure.may_retry());
    }
    storage.remove(&renamed).await.unwrap();
    let missing = storage.remove(&renamed).await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
}
