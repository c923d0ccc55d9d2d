use proptest::prelude::*;

use std::fs;
use std::path::Path;

use super::*;
use crate::local::local_name::own_user;

fn name(path: &Path) -> LocalName {
    LocalName::at(path).unwrap()
}

fn load(path: &Path) -> Option<LoadedJournal> {
    super::load(&name(path), own_user())
}

fn identity() -> CopyIdentity {
    CopyIdentity {
        source: "ftp://h/a".to_owned(),
        destination: "file:///b".to_owned(),
        size: Some(1 << 40),
        modified: Some(1_700_000_000),
        version: None,
        part: None,
        in_order: false,
    }
}

fn range_set(ranges: &[(u64, u64)]) -> RangeSet {
    let mut set = RangeSet::new();
    for (start, end) in ranges {
        set.insert(*start, *end);
    }
    set
}

fn safe_ranges(ranges: &[(u64, u64)]) -> StoredRanges {
    StoredRanges::safe_only(range_set(ranges))
}

/// The identity and the safe ranges of the journal `text`.
fn identity_and_safe(text: &[u8]) -> Option<(CopyIdentity, RangeSet)> {
    parse_journal(text, None).map(|found| (found.identity, found.ranges.safe))
}

/// The text of a journal file after each of `states` was written.
fn journal_text(states: &[RangeSet]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    for state in states {
        journal
            .write(&StoredRanges::safe_only(state.clone()))
            .unwrap();
    }
    fs::read(path).unwrap_or_default()
}

#[test]
fn the_last_record_counts() {
    let text = journal_text(&[range_set(&[(0, 5)]), range_set(&[(0, 5), (9, 12)])]);
    assert_eq!(
        identity_and_safe(&text),
        Some((identity(), range_set(&[(0, 5), (9, 12)])))
    );
}

#[test]
fn journal_writes_are_rate_limited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    let start = Instant::now();
    journal
        .write_if_due(&safe_ranges(&[(0, 5)]), start)
        .unwrap();
    journal
        .write_if_due(&safe_ranges(&[(0, 9)]), start + INTERVAL / 2)
        .unwrap();
    assert_eq!(load(&path).unwrap().ranges.safe, range_set(&[(0, 5)]));
    journal
        .write_if_due(
            &safe_ranges(&[(0, MAX_UNRECORDED_BYTES + 9)]),
            start + INTERVAL / 2,
        )
        .unwrap();
    assert_eq!(
        load(&path).unwrap().ranges.safe,
        range_set(&[(0, MAX_UNRECORDED_BYTES + 9)])
    );
    journal
        .write_if_due(
            &safe_ranges(&[(0, MAX_UNRECORDED_BYTES + 99)]),
            start + INTERVAL * 2,
        )
        .unwrap();
    assert_eq!(
        load(&path).unwrap().ranges.safe,
        range_set(&[(0, MAX_UNRECORDED_BYTES + 99)])
    );
}

#[test]
fn a_journal_shows_whether_this_machine_was_rebooted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut state = safe_ranges(&[(0, 9)]);
    state.synced.insert(0, 5);
    for (place, rebooted) in [
        (JournalLocation::ThisMachine, true),
        (JournalLocation::Server, false),
    ] {
        let mut journal = Journal::start_new(name(&path), identity(), place).unwrap();
        journal.write(&state).unwrap();
        let found = load(&path).unwrap();
        assert_eq!((&found.ranges, found.rebooted), (&state, false));
        // Bytes that a server acknowledged do not depend on the boots of this machine.
        let text = fs::read(&path).unwrap();
        assert_eq!(
            parse_journal(&text, Some("other")).unwrap().rebooted,
            rebooted
        );
        assert_eq!(parse_journal(&text, None).unwrap().rebooted, rebooted);
    }
}

#[test]
fn a_lost_server_stays_recorded_for_the_rest_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::start_new(name(&path), identity(), JournalLocation::Server).unwrap();
    journal.write(&safe_ranges(&[(0, 9)])).unwrap();
    assert!(!load(&path).unwrap().server_lost);
    journal.mark_server_lost();
    let found = load(&path).unwrap();
    assert_eq!(
        (found.server_lost, found.ranges),
        (true, safe_ranges(&[(0, 9)]))
    );
    journal.write(&safe_ranges(&[(0, 20)])).unwrap();
    assert!(load(&path).unwrap().server_lost);
}

#[test]
fn the_journal_is_synced_once_for_new_synced_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    let mut state = safe_ranges(&[(0, 9)]);
    journal.write(&state).unwrap();
    assert!(journal.take_unsynced().is_none());
    state.synced.insert(0, 5);
    journal.write(&state).unwrap();
    journal.take_unsynced().unwrap().sync();
    assert!(journal.take_unsynced().is_none());
}

#[test]
fn starting_over_removes_the_older_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    journal.write(&safe_ranges(&[(0, 5)])).unwrap();
    let other = CopyIdentity {
        in_order: !identity().in_order,
        ..identity()
    };
    let _ = Journal::continue_from(
        name(&path),
        other.clone(),
        JournalLocation::ThisMachine,
        &safe_ranges(&[(0, 4)]),
    )
    .unwrap();
    let found = load(&path).unwrap();
    assert_eq!(
        (found.identity, found.ranges.safe),
        (other, range_set(&[(0, 4)]))
    );
    let _ = Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    assert!(load(&path).is_none());
}

#[test]
fn retracted_ranges_also_withdraw_the_in_order_claim() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let in_order = CopyIdentity {
        in_order: true,
        ..identity()
    };
    let mut journal =
        Journal::start_new(name(&path), in_order, JournalLocation::ThisMachine).unwrap();
    journal.write(&safe_ranges(&[(0, 60)])).unwrap();
    let left = StoredRanges {
        safe: range_set(&[(0, 20)]),
        synced: range_set(&[(0, 20)]),
    };
    journal.retract_to(&left).unwrap();
    let found = load(&path).unwrap();
    assert_eq!((found.identity.in_order, found.ranges), (false, left));
}

#[test]
fn a_journal_that_cannot_be_retracted_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    journal.write(&safe_ranges(&[(0, 60)])).unwrap();
    // A directory in the place of the temporary file makes the journal unwritable.
    fs::create_dir(temporary(&name(&path)).path()).unwrap();
    assert!(journal.retract_to(&safe_ranges(&[(0, 20)])).is_err());
    assert_eq!(load(&path), None);
}

#[test]
fn journals_are_not_read_or_written_through_links() {
    let dir = tempfile::tempdir().unwrap();
    let (path, victim) = (dir.path().join("j"), dir.path().join("victim"));
    let mut journal = Journal::start_new(
        name(&dir.path().join("other")),
        identity(),
        JournalLocation::ThisMachine,
    )
    .unwrap();
    journal.write(&safe_ranges(&[(0, 5)])).unwrap();
    std::os::unix::fs::symlink(dir.path().join("other"), &path).unwrap();
    assert!(load(&path).is_none());
    fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, temporary(&name(&path)).path()).unwrap();
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    journal.write(&safe_ranges(&[(0, 5)])).unwrap();
    assert_eq!(load(&path).unwrap().ranges.safe, range_set(&[(0, 5)]));
    assert_eq!(fs::read(victim).unwrap(), b"kept");
}

#[test]
fn the_keys_of_the_file_format_are_stable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    journal.mark_server_lost();
    journal.mark_server_refused();
    let mut ranges = safe_ranges(&[(0, 9)]);
    ranges.synced.insert(0, 5);
    journal.write(&ranges).unwrap();
    let text = String::from_utf8(fs::read(&path).unwrap()).unwrap();
    let keys = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(&line[9..]).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(
        keys(text.lines().next().unwrap()),
        ["boot", "copy", "version"]
    );
    assert_eq!(
        keys(text.lines().last().unwrap()),
        ["lost", "refused", "safe", "synced"]
    );
}

#[test]
fn long_journals_are_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal =
        Journal::start_new(name(&path), identity(), JournalLocation::ThisMachine).unwrap();
    let wide = range_set(&(0..2000).map(|i| (i * 10, i * 10 + 5)).collect::<Vec<_>>());
    for end in 0..100 {
        let mut state = wide.clone();
        state.insert(1 << 30, (1 << 30) + end + 1);
        journal
            .write(&StoredRanges::safe_only(state.clone()))
            .unwrap();
        // Not every time, because a long journal takes a while to read.
        if end % 9 == 0 {
            assert_eq!(load(&path).unwrap().ranges.safe, state);
        }
    }
    assert!(fs::metadata(&path).unwrap().len() < 2 * COMPACT_AT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_truncated_journal_holds_an_older_state_or_none(
        cuts in proptest::collection::vec((0_u64..1000, 1_u64..1000), 1..12),
    ) {
        let mut states = Vec::new();
        let mut state = RangeSet::new();
        for (start, length) in cuts {
            state.insert(start, start + length);
            states.push(state.clone());
        }
        let text = journal_text(&states);
        for end in 0..=text.len() {
            match identity_and_safe(&text[..end]) {
                None => {}
                Some((copy, safe)) => {
                    prop_assert_eq!(copy, identity());
                    prop_assert!(safe.is_empty() || states.contains(&safe), "{}", safe);
                }
            }
        }
        prop_assert_eq!(identity_and_safe(&text).unwrap().1, state);
    }

    #[test]
    fn a_changed_byte_never_adds_safe_ranges(at in 0_usize..4096, flip in 1_u8..) {
        let states = [range_set(&[(0, 5)]), range_set(&[(0, 50)]), range_set(&[(0, 50), (70, 90)])];
        let mut text = journal_text(&states);
        let at = at % text.len();
        text[at] ^= flip;
        if let Some((copy, safe)) = identity_and_safe(&text) {
            prop_assert_eq!(copy, identity());
            prop_assert!(safe.is_empty() || states.contains(&safe), "{}", safe);
        }
    }

    #[test]
    fn parsing_never_panics(text: Vec<u8>) {
        let _ = parse_journal(&text, None);
    }
}
