//! Claims of journals and of partial files.

use std::path::Path;

use super::*;
use crate::local::journal::{Journal, StoredRanges};
use crate::local::local_name::own_user;

fn name(path: &Path) -> LocalName {
    LocalName::at(path).unwrap()
}

fn identity(in_order: bool) -> CopyIdentity {
    CopyIdentity {
        source: "s".to_owned(),
        destination: "d".to_owned(),
        size: Some(100),
        modified: Some(5),
        version: None,
        part: None,
        in_order,
    }
}

fn claimed(
    journal_content: Option<(CopyIdentity, (u64, u64))>,
    length: u64,
) -> Result<ClaimedRanges, &'static str> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    if let Some((copy, (start, end))) = journal_content {
        let mut safe = RangeSet::new();
        safe.insert(start, end);
        Journal::start_new(name(&path), copy, JournalLocation::ThisMachine)
            .unwrap()
            .write(&StoredRanges::safe_only(safe))
            .unwrap();
    }
    claimed_ranges(&PartialLeftover {
        identity: &identity(false),
        length,
        journal: Some((&name(&path), own_user())),
        display_name: "x",
        has_checksum: true,
    })
}

fn safe(claim: Result<ClaimedRanges, &'static str>) -> String {
    claim.unwrap().safe.to_string()
}

#[test]
fn a_journal_of_the_same_copy_is_used() {
    assert_eq!(
        safe(claimed(Some((identity(false), (10, 20))), 30)),
        "10-20"
    );
    // In order, the length counts.
    assert_eq!(safe(claimed(Some((identity(true), (0, 20))), 30)), "0-30");
}

#[test]
fn a_journal_of_a_changed_source_is_not_used() {
    for change in [
        |i: &mut CopyIdentity| i.size = Some(101),
        |i: &mut CopyIdentity| i.modified = Some(6),
        |i: &mut CopyIdentity| i.part = Some((0, 50)),
        |i: &mut CopyIdentity| i.source = "t".to_owned(),
    ] {
        let mut other = identity(false);
        change(&mut other);
        assert!(claimed(Some((other, (0, 20))), 30).is_err());
    }
}

#[test]
fn a_source_that_may_have_changed_is_continued_only_if_a_checksum_decides() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let version = |text: &str| CopyIdentity {
        version: Some(text.to_owned()),
        ..identity(false)
    };
    let mut safe = RangeSet::new();
    safe.insert(0, 20);
    Journal::start_new(name(&path), version("a"), JournalLocation::ThisMachine)
        .unwrap()
        .write(&StoredRanges::safe_only(safe))
        .unwrap();
    for (now, has_checksum, is_same_version) in [
        (version("a"), false, Some(true)),
        (version("b"), false, None),
        (version("b"), true, Some(false)),
        // Nothing shows it.
        (identity(false), false, Some(false)),
    ] {
        let claim = claimed_ranges(&PartialLeftover {
            identity: &now,
            length: 30,
            journal: Some((&name(&path), own_user())),
            display_name: "x",
            has_checksum,
        });
        let claimed = claim.ok().map(|claim| claim.is_same_version);
        assert_eq!(claimed, is_same_version, "{now:?} {has_checksum}");
    }
}

#[test]
fn a_partial_file_that_does_not_fit_its_journal_is_not_used() {
    assert!(claimed(Some((identity(false), (0, 20))), 10).is_err());
    assert!(claimed(Some((identity(true), (0, 20))), 101).is_err());
    assert!(claimed(None, 101).is_err());
}

/// The claim of a journal that was written before the last boot.
fn claimed_after_a_reboot(in_order: bool, length: u64) -> Result<ClaimedRanges, &'static str> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut state = StoredRanges::default();
    state.safe.insert(0, 60);
    state.synced.insert(0, 20);
    Journal::start_new(
        name(&path),
        identity(in_order),
        JournalLocation::ThisMachine,
    )
    .unwrap()
    .write(&state)
    .unwrap();
    journal::set_other_boot(&path);
    claimed_ranges(&PartialLeftover {
        identity: &identity(in_order),
        length,
        journal: Some((&name(&path), own_user())),
        display_name: "x",
        has_checksum: true,
    })
}

#[test]
fn after_a_reboot_only_synced_bytes_are_safe() {
    let ranges = |claim: &ClaimedRanges| (claim.safe.to_string(), claim.doubtful[0].to_string());
    let claim = claimed_after_a_reboot(false, 90).unwrap();
    assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-60".to_owned()));
    // Bytes beyond the end of the file need no proof.
    let claim = claimed_after_a_reboot(false, 30).unwrap();
    assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-30".to_owned()));
    // In order, the length is only a claim.
    let claim = claimed_after_a_reboot(true, 90).unwrap();
    assert_eq!(ranges(&claim), ("0-20".to_owned(), "20-90".to_owned()));
    // Synced bytes are missing, so it is a different file.
    assert!(claimed_after_a_reboot(false, 10).is_err());
}

#[test]
fn a_partial_file_longer_than_the_part_is_not_used() {
    let part = CopyIdentity {
        part: Some((10, 20)),
        ..identity(false)
    };
    for (length, fits) in [(20, true), (21, false)] {
        let claim = claimed_ranges(&PartialLeftover {
            identity: &part,
            length,
            journal: None,
            display_name: "x",
            has_checksum: true,
        });
        assert_eq!(claim.is_ok(), fits);
    }
}

#[test]
fn without_a_journal_the_whole_partial_file_is_claimed() {
    let claim = claimed(None, 30).unwrap();
    assert!(!claim.has_journal);
    assert_eq!(claim.safe.to_string(), "0-30");
}

#[test]
fn a_refusal_is_recorded_even_without_safe_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    // Holds even if nothing was safe.
    let mut journal =
        Journal::start_new(name(&path), identity(false), JournalLocation::Server).unwrap();
    journal.mark_server_refused();
    journal.retract_to(&StoredRanges::default()).unwrap();
    let claim = claimed_ranges(&PartialLeftover {
        identity: &identity(false),
        length: 30,
        journal: Some((&name(&path), own_user())),
        display_name: "x",
        has_checksum: true,
    });
    let claim = claim.unwrap();
    assert!(claim.server_refused && claim.has_journal && claim.safe.is_empty());
}
