//! A server that lies: what arrives is not what it says it sent.

use client::{CopyEvent, CopyOptions, Exit, VerifyMode};
use proto::checksum::ChecksumAlgorithm;

use crate::faulty_server::FaultyServer;
use crate::support::{copy, names, options};

async fn get(
    liar: &FaultyServer,
    options: &CopyOptions,
) -> (client::CopySummary, Vec<String>, Vec<String>) {
    let address = liar.start();
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let url = format!("ftp://{address}/f");
    let (summary, seen) = copy(&[&url], to.to_str().unwrap(), options).await;
    assert_eq!(seen.count(|e| matches!(e, CopyEvent::Retrying { .. })), 0);
    (summary, names(here.path()), seen.warnings())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mismatch_never_gets_the_name() {
    let liar = FaultyServer {
        sent: b"12345678X".to_vec(),
        size: 9,
        sum: Some("e3069283"),
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&liar, &options()).await;
    assert_eq!(summary.exit, Exit::Integrity);
    assert_eq!(left, ["f.longhaul-partial"]);
    let failure = summary.first_failure.unwrap();
    assert!(failure.message.contains("e3069283"), "{failure}");
    assert!(failure.message.contains("partial name"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_match_does() {
    let liar = FaultyServer {
        sent: b"123456789".to_vec(),
        size: 9,
        sum: Some("e3069283"),
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&liar, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(left, ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_bytes_are_no_success() {
    let liar = FaultyServer {
        sent: b"12345".to_vec(),
        size: 9,
        sum: None,
        ..FaultyServer::default()
    };
    let once = CopyOptions {
        retries: 0,
        ..options()
    };
    let (summary, left, _) = get(&liar, &once).await;
    assert_ne!(summary.exit, Exit::Done);
    assert_eq!(left, ["f.longhaul-journal", "f.longhaul-partial"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_checksums_the_size_counts() {
    let liar = FaultyServer {
        sent: b"123456789".to_vec(),
        size: 9,
        sum: None,
        ..FaultyServer::default()
    };
    let (summary, left, _) = get(&liar, &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "size");
    assert_eq!(left, ["f"]);
    let named = CopyOptions {
        verify: VerifyMode::With(ChecksumAlgorithm::Md5),
        ..options()
    };
    let (summary, left, _) = get(&liar, &named).await;
    assert_eq!(summary.exit, Exit::Protocol);
    assert!(left.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_names_stay_below_the_destination() {
    let liar = FaultyServer {
        sent: b"123456789".to_vec(),
        names: vec!["good", "../evil", "..", "/tmp/evil", "a/../../evil"],
        ..FaultyServer::default()
    };
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("a/b");
    std::fs::create_dir_all(&to).unwrap();
    let url = format!("ftp://{}/d", liar.start());
    let recursive = CopyOptions {
        recursive: true,
        ..options()
    };
    let (summary, _) = copy(&[&url], to.to_str().unwrap(), &recursive).await;
    assert_eq!(summary.exit, Exit::Partial, "{:?}", summary.first_failure);
    // The session drops `..` itself, as a listing may have it.
    assert_eq!((summary.files, summary.failed), (1, 3));
    assert_eq!(names(here.path()), ["a"]);
    assert_eq!(names(&here.path().join("a")), ["b"]);
    assert_eq!(names(&to), ["d"]);
    assert_eq!(names(&to.join("d")), ["good"]);
}
