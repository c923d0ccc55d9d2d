use proptest::prelude::*;

use super::*;

fn identity() -> CopyIdentity {
    CopyIdentity {
        source: "ftp://h/a".to_owned(),
        destination: "file:///b".to_owned(),
        size: Some(1 << 40),
        modified: Some(1_700_000_000),
        part: None,
        in_order: false,
    }
}

fn set(ranges: &[(u64, u64)]) -> RangeSet {
    let mut set = RangeSet::new();
    for (start, end) in ranges {
        set.insert(*start, *end);
    }
    set
}

fn told(ranges: &[(u64, u64)]) -> StoredRanges {
    StoredRanges::safe_only(set(ranges))
}

/// The copy that the journal `text` is about, and the ranges it calls safe.
fn last(text: &[u8]) -> Option<(CopyIdentity, RangeSet)> {
    read(text, None).map(|found| (found.copy, found.state.safe))
}

/// A journal file's text after each of `states` was written.
fn written(states: &[RangeSet]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    for state in states {
        journal
            .write(&StoredRanges::safe_only(state.clone()))
            .unwrap();
    }
    fs::read(path).unwrap_or_default()
}

#[test]
fn last_state_counts() {
    let text = written(&[set(&[(0, 5)]), set(&[(0, 5), (9, 12)])]);
    assert_eq!(last(&text), Some((identity(), set(&[(0, 5), (9, 12)]))));
}

#[test]
fn writes_are_spaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    let start = Instant::now();
    journal.write_if_due(&told(&[(0, 5)]), start).unwrap();
    journal
        .write_if_due(&told(&[(0, 9)]), start + INTERVAL / 2)
        .unwrap();
    assert_eq!(load(&path).unwrap().state.safe, set(&[(0, 5)]));
    journal
        .write_if_due(&told(&[(0, STEP + 9)]), start + INTERVAL / 2)
        .unwrap();
    assert_eq!(load(&path).unwrap().state.safe, set(&[(0, STEP + 9)]));
    journal
        .write_if_due(&told(&[(0, STEP + 99)]), start + INTERVAL * 2)
        .unwrap();
    assert_eq!(load(&path).unwrap().state.safe, set(&[(0, STEP + 99)]));
}

#[test]
fn a_journal_tells_whether_this_machine_was_booted_since() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut state = told(&[(0, 9)]);
    state.synced.insert(0, 5);
    for (place, rebooted) in [
        (JournalLocation::Here, true),
        (JournalLocation::Server, false),
    ] {
        let mut journal = Journal::fresh(path.clone(), identity(), place).unwrap();
        journal.write(&state).unwrap();
        let found = load(&path).unwrap();
        assert_eq!((&found.state, found.rebooted), (&state, false));
        // What a server acknowledged does not depend on the boots of this machine.
        let text = fs::read(&path).unwrap();
        assert_eq!(read(&text, Some("other")).unwrap().rebooted, rebooted);
        assert_eq!(read(&text, None).unwrap().rebooted, rebooted);
    }
}

#[test]
fn a_lost_server_stays_noted_for_the_rest_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Server).unwrap();
    journal.write(&told(&[(0, 9)])).unwrap();
    assert!(!load(&path).unwrap().lost);
    journal.mark_server_lost();
    let found = load(&path).unwrap();
    assert_eq!((found.lost, found.state), (true, told(&[(0, 9)])));
    journal.write(&told(&[(0, 20)])).unwrap();
    assert!(load(&path).unwrap().lost);
}

#[test]
fn synced_ranges_are_forced_to_disk_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path, identity(), JournalLocation::Here).unwrap();
    let mut state = told(&[(0, 9)]);
    journal.write(&state).unwrap();
    assert!(journal.take_unsynced().is_none());
    state.synced.insert(0, 5);
    journal.write(&state).unwrap();
    journal.take_unsynced().unwrap().sync();
    assert!(journal.take_unsynced().is_none());
}

#[test]
fn starting_over_forgets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    journal.write(&told(&[(0, 5)])).unwrap();
    let other = CopyIdentity {
        in_order: !identity().in_order,
        ..identity()
    };
    let _ = Journal::continue_from(
        path.clone(),
        other.clone(),
        JournalLocation::Here,
        &told(&[(0, 4)]),
    )
    .unwrap();
    let found = load(&path).unwrap();
    assert_eq!((found.copy, found.state.safe), (other, set(&[(0, 4)])));
    let _ = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    assert!(load(&path).is_none());
}

#[test]
fn what_is_taken_back_is_not_claimed_by_the_length_of_the_file_either() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let in_order = CopyIdentity {
        in_order: true,
        ..identity()
    };
    let mut journal = Journal::fresh(path.clone(), in_order, JournalLocation::Here).unwrap();
    journal.write(&told(&[(0, 60)])).unwrap();
    let left = StoredRanges {
        safe: set(&[(0, 20)]),
        synced: set(&[(0, 20)]),
    };
    journal.retract_to(&left).unwrap();
    let found = load(&path).unwrap();
    assert_eq!((found.copy.in_order, found.state), (false, left));
}

#[test]
fn a_journal_that_cannot_take_back_what_it_claims_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    journal.write(&told(&[(0, 60)])).unwrap();
    // No file can be made there.
    fs::create_dir(next_path(&path)).unwrap();
    assert!(journal.retract_to(&told(&[(0, 20)])).is_err());
    assert_eq!(load(&path), None);
}

#[test]
fn nothing_is_read_or_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (path, victim) = (dir.path().join("j"), dir.path().join("victim"));
    let mut journal =
        Journal::fresh(dir.path().join("other"), identity(), JournalLocation::Here).unwrap();
    journal.write(&told(&[(0, 5)])).unwrap();
    std::os::unix::fs::symlink(dir.path().join("other"), &path).unwrap();
    assert!(load(&path).is_none());
    fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, next_path(&path)).unwrap();
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    journal.write(&told(&[(0, 5)])).unwrap();
    assert_eq!(load(&path).unwrap().state.safe, set(&[(0, 5)]));
    assert_eq!(fs::read(victim).unwrap(), b"kept");
}

#[test]
fn long_journals_are_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = Journal::fresh(path.clone(), identity(), JournalLocation::Here).unwrap();
    let wide = set(&(0..2000).map(|i| (i * 10, i * 10 + 5)).collect::<Vec<_>>());
    for end in 0..100 {
        let mut state = wide.clone();
        state.insert(1 << 30, (1 << 30) + end + 1);
        journal
            .write(&StoredRanges::safe_only(state.clone()))
            .unwrap();
        // Not each time: a long journal takes a while to read.
        if end % 9 == 0 {
            assert_eq!(load(&path).unwrap().state.safe, state);
        }
    }
    assert!(fs::metadata(&path).unwrap().len() < 2 * COMPACT_AT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_truncation_gives_an_older_state_or_none(
        cuts in proptest::collection::vec((0_u64..1000, 1_u64..1000), 1..12),
    ) {
        let mut states = Vec::new();
        let mut state = RangeSet::new();
        for (start, length) in cuts {
            state.insert(start, start + length);
            states.push(state.clone());
        }
        let text = written(&states);
        for end in 0..=text.len() {
            match last(&text[..end]) {
                None => {}
                Some((copy, safe)) => {
                    prop_assert_eq!(copy, identity());
                    prop_assert!(safe.is_empty() || states.contains(&safe), "{}", safe);
                }
            }
        }
        prop_assert_eq!(last(&text).unwrap().1, state);
    }

    #[test]
    fn a_changed_byte_never_adds_ranges(at in 0_usize..4096, flip in 1_u8..) {
        let states = [set(&[(0, 5)]), set(&[(0, 50)]), set(&[(0, 50), (70, 90)])];
        let mut text = written(&states);
        let at = at % text.len();
        text[at] ^= flip;
        if let Some((copy, safe)) = last(&text) {
            prop_assert_eq!(copy, identity());
            prop_assert!(safe.is_empty() || states.contains(&safe), "{}", safe);
        }
    }

    #[test]
    fn never_panics(text: Vec<u8>) {
        let _ = read(&text, None);
    }
}
