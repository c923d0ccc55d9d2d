//! Copies whose bytes change on the way or at an end.

use super::*;
use crate::file::block_proof::MIN_BLOCK;

/// Offsets of wrong bytes in three blocks.
const WRONG: [u64; 3] = [10, 4_000_000, 8_000_000];

#[tokio::test]
async fn only_blocks_that_were_stored_wrong_are_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = memory_stores("wrong");
    let local_path = dir.path().join("f");
    std::fs::write(&local_path, &bytes).unwrap();
    to.corrupt_at(&WRONG);
    let from = local_path.display().to_string();
    let (summary, warnings) = copy(&from, "http://wrong.to.memory.invalid/f", &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(to.get("/f") == Some(bytes));
    assert_eq!(summary.resent_bytes, 3 * MIN_BLOCK);
    assert_eq!(summary.bytes, LENGTH as u64 + 3 * MIN_BLOCK);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("wrong.to.memory.invalid/f") && warnings[0].contains("3 ranges"));
}

#[tokio::test]
async fn only_blocks_that_arrived_wrong_are_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, bytes) = memory_stores("garbled");
    let to = dir.path().join("f");
    // The second byte changes in the repair.
    from.garble_at(&[4_000_001, 4_000_000]);
    let (summary, warnings) = copy(
        "http://garbled.from.memory.invalid/f",
        &to.display().to_string(),
        &options(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert_eq!(summary.resent_bytes, 2 * MIN_BLOCK);
    assert_eq!(summary.bytes, LENGTH as u64 + 2 * MIN_BLOCK);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no journal is left");
}

#[tokio::test]
async fn a_repair_that_loses_its_connection_continues() {
    let dir = tempfile::tempdir().unwrap();
    let (from, _, bytes) = memory_stores("garbled.cut");
    let to = dir.path().join("f");
    from.garble_at(&[4_000_000]);
    from.break_after(&[u64::MAX, 64 << 10]);
    let to_name = to.display().to_string();
    let (summary, _) = copy(
        "http://garbled.cut.from.memory.invalid/f",
        &to_name,
        &options_with_retries(),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert!(
        summary.bytes <= LENGTH as u64 + 2 * MIN_BLOCK,
        "{summary:?}"
    );
}

#[tokio::test]
async fn a_byte_that_is_wrong_every_time_fails_after_some_repairs() {
    let dir = tempfile::tempdir().unwrap();
    let (_, to, bytes) = memory_stores("always.wrong");
    let local_path = dir.path().join("f");
    std::fs::write(&local_path, &bytes).unwrap();
    to.corrupt_at(&[4_000_000; 50]);
    let from = local_path.display().to_string();
    let (summary, warnings) =
        copy(&from, "http://always.wrong.to.memory.invalid/f", &options()).await;
    assert_eq!(summary.exit, Exit::Integrity, "{summary:?}");
    assert_eq!(to.get("/f"), None);
    assert_eq!(summary.resent_bytes, 4 * MIN_BLOCK);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    let failure = summary.first_failure.unwrap();
    assert!(failure.to_string().contains("4 times"), "{failure}");
    assert!(failure.to_string().contains("partial name"), "{failure}");
    // One that has its final name from the start.
    to.corrupt_at(&[4_000_000; 50]);
    let in_place = options().with(|options| options.file.in_place = true);
    let (summary, _) = copy(&from, "http://always.wrong.to.memory.invalid/g", &in_place).await;
    let failure = summary.first_failure.unwrap();
    assert!(failure.to_string().contains("final name"), "{failure}");
}

#[tokio::test]
async fn a_relayed_file_that_arrived_wrong_is_sent_again_once() {
    for (test, wrong, exit) in [
        ("relay.wrong", 1, Exit::Done),
        ("relay.always.wrong", 2, Exit::Integrity),
    ] {
        let (from, to, bytes) = memory_stores(test);
        from.garble_at(&vec![4_000_000; wrong]);
        let (source, destination) = (
            format!("http://{test}.from.memory.invalid/f"),
            format!("http://{test}.to.memory.invalid/f"),
        );
        let (summary, warnings) = copy(&source, &destination, &options()).await;
        assert_eq!(summary.exit, exit, "{summary:?}");
        assert_eq!(to.get("/f"), Some(bytes).filter(|_| exit == Exit::Done));
        assert_eq!(from.moved(), 2 * LENGTH as u64);
        assert!(warnings[0].contains("starting over"), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_source_without_checksums_is_trusted() {
    let (from, to, bytes) = memory_stores("trusted");
    from.remove_capabilities();
    let (summary, _) = copy(
        "http://trusted.from.memory.invalid/f",
        "http://trusted.to.memory.invalid/f",
        &options(),
    )
    .await;
    assert_eq!(
        (summary.exit, summary.verified.as_str()),
        (Exit::Done, "crc32c")
    );
    assert!(to.get("/f") == Some(bytes));
}
