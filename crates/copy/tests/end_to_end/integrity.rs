//! A faulty server: the bytes that arrive are not those it reports.

use copy::{CopyEvent, CopyOptions, Exit, VerifyMode};
use proto::checksum::ChecksumAlgorithm;

use crate::faulty_server::FaultyServer;
use crate::support::{copy, file_names, options};

async fn get(
    faulty: &FaultyServer,
    options: &CopyOptions,
) -> (copy::CopySummary, Vec<String>, Vec<String>) {
    let address = faulty.start();
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let url = format!("ftp://{address}/f");
    let (summary, events) = copy(&[&url], to.to_str().unwrap(), options).await;
    assert_eq!(events.count(|e| matches!(e, CopyEvent::Retrying { .. })), 0);
    (summary, file_names(workdir.path()), events.warnings())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_mismatch_leaves_only_the_partial_file() {
    let faulty = FaultyServer {
        sent: b"12345678X".to_vec(),
        size: 9,
        sum: Some("e3069283"),
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&faulty, &options()).await;
    assert_eq!(summary.exit, Exit::Integrity);
    assert_eq!(left, ["f.longhaul-partial"]);
    let failure = summary.first_failure.unwrap();
    assert!(failure.to_string().contains("e3069283"), "{failure}");
    assert!(failure.to_string().contains("partial name"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_match_puts_the_file_in_place() {
    let faulty = FaultyServer {
        sent: b"123456789".to_vec(),
        size: 9,
        sum: Some("e3069283"),
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&faulty, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(left, ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_bytes_fail() {
    let faulty = FaultyServer {
        sent: b"12345".to_vec(),
        size: 9,
        sum: None,
        ..FaultyServer::default()
    };
    let once = options().with(|o| o.retry.retries = 0);
    let (summary, left, _) = get(&faulty, &once).await;
    assert_ne!(summary.exit, Exit::Done);
    assert_eq!(left, ["f.longhaul-journal", "f.longhaul-partial"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_checksums_the_size_is_compared() {
    let faulty = FaultyServer {
        sent: b"123456789".to_vec(),
        size: 9,
        sum: None,
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&faulty, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "size");
    assert_eq!(left, ["f"]);
    let named = options().with(|o| o.file.verify = VerifyMode::With(ChecksumAlgorithm::Md5));
    let (summary, left, _) = get(&faulty, &named).await;
    assert_eq!(summary.exit, Exit::Protocol);
    assert!(left.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_names_cannot_leave_the_destination() {
    let faulty = FaultyServer {
        sent: b"123456789".to_vec(),
        listed_names: vec!["good", "../evil", "..", "/tmp/evil", "a/../../evil"],
        ..FaultyServer::default()
    };
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("a/b");
    std::fs::create_dir_all(&to).unwrap();
    let url = format!("ftp://{}/d", faulty.start());
    let recursive = options().with(|o| o.tree.recursive = true);
    let (summary, _) = copy(&[&url], to.to_str().unwrap(), &recursive).await;
    assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
    // The session drops `..` itself, since a listing may contain it.
    assert_eq!((summary.files, summary.failed), (1, 3));
    assert_eq!(file_names(workdir.path()), ["a"]);
    assert_eq!(file_names(&workdir.path().join("a")), ["b"]);
    assert_eq!(file_names(&to), ["d"]);
    assert_eq!(file_names(&to.join("d")), ["good"]);
}
