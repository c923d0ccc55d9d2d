//! Runs that find an unfinished copy of an earlier one, where both ends have no checksum in common.

use std::path::PathBuf;

use super::{LENGTH, copy};
use crate::options::BatchJournalLocation;
use crate::options::CopyOptions;
use crate::run::tests::options;
use crate::storage::conformance::content;
use crate::storage::memory::MemoryStore;
use ftp::Exit;

/// Stored bytes of the copy that breaks, at least and at most.
const STORED: std::ops::Range<u64> = 4 << 20..6 << 20;

fn resuming() -> CopyOptions {
    options().with(|o| o.file.resume = true)
}

/// A copy from a store with the file `/f` to this machine that broke. Its times have this fraction.
async fn broken_get(
    test: &str,
    fraction: Option<u32>,
) -> (std::sync::Arc<MemoryStore>, tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let from = MemoryStore::named(test);
    from.put("/f", &content(9, LENGTH), 1_000_000_000);
    from.remove_checksums(fraction);
    from.break_after(&[5 << 20]);
    let to = dir.path().join("f");
    let source = format!("http://{test}.memory.invalid/f");
    let (summary, _) = copy(&source, to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    (from, dir, to)
}

#[tokio::test]
async fn bytes_are_joined_by_size_and_time_alone_only_if_that_is_asked_for() {
    for (test, later) in [("later.default", options()), ("later.asked", resuming())] {
        let (from, _dir, to) = broken_get(test, None).await;
        // Of equal size and time.
        let other = content(10, LENGTH);
        if !later.file.resume {
            from.put("/f", &other, 1_000_000_000);
        }
        let expected = from.get("/f").unwrap();
        let source = format!("http://{test}.memory.invalid/f");
        let (summary, warnings) = copy(&source, to.to_str().unwrap(), &later).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert!(std::fs::read(&to).unwrap() == expected, "{test}");
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        match later.file.resume {
            true => {
                assert!(
                    warning.contains("resumed by size and time alone"),
                    "{warning}"
                );
                assert!(summary.bytes <= LENGTH as u64 - STORED.start, "{summary:?}");
            }
            false => {
                assert!(warning.contains("starting over, without the "), "{warning}");
                assert!(warning.contains("--resume continues"), "{warning}");
                assert_eq!(summary.bytes, LENGTH as u64);
            }
        }
    }
}

#[tokio::test]
async fn a_version_that_a_server_shows_is_continued_silently_and_another_one_never() {
    for (test, fraction, later) in [
        ("later.same", 5, options()),
        ("later.other", 6, options()),
        ("later.other.asked", 6, resuming()),
    ] {
        let (from, _dir, to) = broken_get(test, Some(5)).await;
        from.remove_checksums(Some(fraction));
        let is_same = fraction == 5;
        if !is_same {
            from.put("/f", &content(10, LENGTH), 1_000_000_000);
        }
        let source = format!("http://{test}.memory.invalid/f");
        let (summary, warnings) = copy(&source, to.to_str().unwrap(), &later).await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        assert!(
            std::fs::read(&to).unwrap() == from.get("/f").unwrap(),
            "{test}"
        );
        assert_eq!(warnings.is_empty(), is_same, "{test}: {warnings:?}");
        assert_eq!(
            summary.bytes < LENGTH as u64,
            is_same,
            "{test}: {summary:?}"
        );
    }
}

#[tokio::test]
async fn a_file_with_its_final_name_is_the_copy_by_size_and_time_alone_only_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let from = MemoryStore::named("later.in.place");
    from.put("/f", &content(9, LENGTH), 1_000_000_000);
    from.remove_checksums(None);
    let to = dir.path().join("f");
    let run = async |options| {
        // A run that was killed right after the rename leaves its journal.
        std::fs::write(dir.path().join("f.longhaul-journal"), "x").unwrap();
        let (summary, _) = copy(
            "http://later.in.place.memory.invalid/f",
            to.to_str().unwrap(),
            &options,
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{summary:?}");
        summary.bytes
    };
    assert_eq!(run(options()).await, LENGTH as u64);
    from.put("/f", &content(10, LENGTH), 1_000_000_000);
    assert_eq!(run(resuming()).await, 0);
    assert_eq!(run(options()).await, LENGTH as u64);
    assert!(std::fs::read(&to).unwrap() == content(10, LENGTH));
}

#[tokio::test]
async fn files_of_a_server_that_tells_nothing_about_single_ones_are_copied_by_a_resumed_batch() {
    let dir = tempfile::tempdir().unwrap();
    let from = MemoryStore::named("later.hidden");
    for name in ["/a", "/b", "/c"] {
        from.put(name, name.as_bytes(), 1_000_000_000);
    }
    from.hide_facts();
    from.break_after(&[u64::MAX, 0]);
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
        o.journal = BatchJournalLocation::Directory(dir.path().join("j"));
    });
    let to = dir.path().join("to");
    let to = to.to_str().unwrap();
    let (summary, _) = copy("http://later.hidden.memory.invalid/", to, &tree).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Partial, 2),
        "{summary:?}"
    );
    let later = tree.with(|o| o.file.resume = true);
    let (summary, _) = copy("http://later.hidden.memory.invalid/", to, &later).await;
    assert_eq!(
        (summary.exit, summary.files),
        (Exit::Done, 1),
        "{summary:?}"
    );
    for name in ["a", "b", "c"] {
        let got = std::fs::read_to_string(dir.path().join("to").join(name)).unwrap();
        assert_eq!(got, format!("/{name}"));
    }
}
