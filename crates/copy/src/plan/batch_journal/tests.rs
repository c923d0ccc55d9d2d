use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use proto::timestamp::Timestamp;

use super::*;
use ftp::FailureKind;
use ftp::answers::SourceFacts;

const COMMAND: &[u8] = b"cp a b";

fn file(name: &str) -> PlanRecord {
    PlanRecord::File {
        name: name.into(),
        facts: SourceFacts {
            size: Some(300),
            modified: Some(Timestamp(1_700_000_000)),
            mode: Some(0o640),
            ..SourceFacts::default()
        },
    }
}

fn open(path: &Path, resume: bool) -> BatchJournal {
    BatchJournal::open(path, COMMAND, resume, true).unwrap()
}

/// State that a later run believes: entries, the done ones, whether the listing is complete.
type BelievedState = (u32, Vec<u32>, bool);

fn state(journal: &BatchJournal) -> BelievedState {
    let entries = journal.entry_count();
    let done = (0..entries).filter(|entry| journal.is_done(*entry));
    (entries, done.collect(), journal.is_listed())
}

#[derive(Debug, Clone)]
enum Step {
    Add(Vec<u8>),
    Done(u32),
    Flush,
    Listed,
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Step::Add),
        any::<u32>().prop_map(Step::Done),
        Just(Step::Flush),
        Just(Step::Listed),
        Just(Step::Relist),
    ];
    prop::collection::vec(step, 0..40)
}

/// Writes a journal; returns the states after each of its groups, with its length then.
fn write(path: &Path, steps: &[Step]) -> Vec<(u64, BelievedState)> {
    let mut journal = open(path, false);
    let mut states = vec![(0, (0, Vec::new(), false))];
    for step in steps {
        match step {
            Step::Add(name) => {
                let facts = SourceFacts::default();
                let name = name.clone();
                journal.append(&PlanRecord::File { name, facts });
                journal.flush();
            }
            Step::Done(_) if journal.entry_count() == 0 => {}
            Step::Done(number) => journal.mark_done(&[number % journal.entry_count()]),
            Step::Flush => journal.flush(),
            Step::Listed => {
                journal.append(&PlanRecord::Listed);
                journal.flush();
            }
            Step::Relist => {
                journal.append(&PlanRecord::Relist);
                journal.flush();
            }
        }
        states.push((journal.store.length(), state(&journal)));
    }
    states
}

/// The last state that was written when the file had this length.
fn at_length(states: &[(u64, BelievedState)], length: u64) -> &BelievedState {
    let earlier = states.iter().rfind(|(end, _)| *end <= length);
    &earlier.unwrap().1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_journal_that_was_cut_anywhere_is_an_earlier_state(steps in steps(), cut: prop::sample::Index) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let states = write(&path, &steps);
        let text = fs::read(&path).unwrap();
        let length = cut.index(text.len());
        fs::write(&path, &text[..length]).unwrap();
        // Without its first group nothing says whose it is.
        match BatchJournal::open(&path, COMMAND, true, true) {
            Ok(journal) => prop_assert_eq!(&state(&journal), at_length(&states, length as u64)),
            Err(failure) => prop_assert!(failure.to_string().contains("not a batch journal")),
        }
    }

    #[test]
    fn damaged_bytes_are_never_believed(steps in steps(), place: prop::sample::Index, flip in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let states = write(&path, &steps);
        let mut text = fs::read(&path).unwrap();
        let at = place.index(text.len());
        text[at] ^= flip;
        fs::write(&path, &text).unwrap();
        match BatchJournal::open(&path, COMMAND, true, true) {
            Ok(journal) => prop_assert_eq!(&state(&journal), at_length(&states, at as u64)),
            Err(failure) => prop_assert!(failure.to_string().contains("not a batch journal")),
        }
    }

    #[test]
    fn decoding_never_fails_otherwise_than_with_none(bytes: Vec<u8>) {
        let mut rest = bytes.as_slice();
        while let Some(record) = PlanRecord::decode(&mut rest) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(PlanRecord::decode(&mut again.as_slice()), Some(record));
        }
    }
}

#[test]
fn a_journal_goes_on_after_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = open(&path, false);
    for name in ["a", "b", "c"] {
        journal.append(&file(name));
    }
    journal.append(&PlanRecord::Listed);
    journal.mark_done(&[0, 2]);
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for torn in [&b"\x05\0\0\0"[..], &[0; 4096], b"\x01\0\0\0\0\0\0\0x"] {
        fs::write(&path, [&whole, torn].concat()).unwrap();
        let mut journal = open(&path, true);
        assert_eq!(state(&journal), (3, vec![0, 2], true));
        journal.mark_done(&[1]);
        drop(journal);
        assert_eq!(state(&open(&path, true)), (3, vec![0, 1, 2], true));
    }
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn marks_that_are_not_on_disk_are_void_after_a_boot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = BatchJournal::open(&path, COMMAND, false, false).unwrap();
    journal.append(&file("a"));
    journal.append(&file("b"));
    journal.mark_done(&[0]);
    // As if another boot had been in between.
    for durable in [false, true] {
        let boot = b"another".to_vec();
        journal.append(&PlanRecord::Run { boot, durable });
        journal.mark_done(&[1]);
        journal.flush();
        let mut again = BatchJournal {
            store: GroupStore::in_file(
                File::open(&path).unwrap(),
                fs::metadata(&path).unwrap().len(),
            ),
            ..BatchJournal::default()
        };
        again
            .load(boot_id().unwrap_or_default().as_bytes(), false)
            .unwrap();
        let done = if durable { vec![0, 1] } else { vec![0] };
        assert_eq!(state(&again).1, done);
    }
}

#[test]
fn one_run_at_a_time_has_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let first = open(&path, false);
    let failure = BatchJournal::open(&path, COMMAND, true, true).unwrap_err();
    assert!(failure.kind() == FailureKind::DestinationBusy, "{failure}");
    drop(first);
    open(&path, true);
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    fs::write(&path, "a text that is no journal").unwrap();
    for resume in [false, true] {
        let failure = BatchJournal::open(&path, COMMAND, resume, true).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"a text that is no journal");
    let other = dir.path().join("other");
    drop(BatchJournal::open(&other, b"cp x y", false, true).unwrap());
    let before = fs::read(&other).unwrap();
    let failure = BatchJournal::open(&other, COMMAND, false, true).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    assert_eq!(fs::read(&other).unwrap(), before);
}

/// All names of a journal.
fn names(journal: &BatchJournal) -> Vec<Vec<u8>> {
    let mut at = GroupPosition::default();
    let mut names = Vec::new();
    while let Some((records, next)) = journal.read_group(at).unwrap() {
        names.extend(records.into_iter().filter_map(|record| match record {
            PlanRecord::File { name, .. } => Some(name),
            _ => None,
        }));
        at = next;
    }
    names
}

#[test]
fn a_full_disk_leaves_an_earlier_state_and_the_plan_goes_on_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = open(&path, false);
    journal.append(&file("before"));
    journal.flush();
    let length = journal.store.length();
    // A file that cannot be written stands for a disk that is full.
    journal.store = GroupStore::in_file(File::open(&path).unwrap(), length);
    journal.append(&file("after"));
    journal.flush();
    assert!(journal.take_failure().is_some());
    journal.append(&file("later"));
    journal.mark_done(&[0, 1]);
    assert!(journal.take_failure().is_none(), "reported once");
    assert_eq!(names(&journal), [&b"before"[..], b"after", b"later"]);
    drop(journal);
    assert_eq!(state(&open(&path, true)), (1, Vec::new(), false));
}

#[test]
fn a_large_plan_without_a_journal_leaves_memory() {
    let mut journal = BatchJournal::unnamed();
    let count = 100_000;
    for n in 0..count {
        journal.append(&file(&format!("file-{n:07}")));
    }
    journal.flush();
    assert!(journal.store.file().is_some(), "in a temporary file");
    assert!(journal.store.length() < 30 * count, "bytes for each file");
    let names = names(&journal);
    assert_eq!(names.len() as u64, count);
    assert_eq!(names[99_999], b"file-0099999");
}

#[test]
fn directories_and_hard_links_keep_the_facts_of_their_sources() {
    let facts = SourceFacts {
        mode: Some(0o7750),
        modified: Some(Timestamp(-5)),
        version: Some(u64::MAX - 3),
        is_archived: true,
        ..SourceFacts::default()
    };
    let records = [
        PlanRecord::NewDirectory {
            path: b"d/e".to_vec(),
            facts,
        },
        PlanRecord::HardLink {
            name: b"b".to_vec(),
            facts,
            first: b"d/a".to_vec(),
        },
    ];
    for record in records {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(PlanRecord::decode(&mut rest), Some(record));
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(PlanRecord::decode(&mut &bytes[..cut]), None);
        }
    }
}

#[test]
fn a_record_that_is_too_large_is_refused_and_does_not_read_as_the_end() {
    let mut journal = BatchJournal::unnamed();
    journal.append(&PlanRecord::Root(vec![b'x'; MAX_GROUP]));
    journal.append(&file("a"));
    journal.flush();
    let failure = journal.take_failure().unwrap();
    assert_eq!(failure.kind(), io::ErrorKind::InvalidInput);
    let mut at = GroupPosition::default();
    let read = loop {
        match journal.read_group(at) {
            Ok(Some((_, next))) => at = next,
            other => break other,
        }
    };
    assert!(read.is_err(), "{read:?}");
    let dir = tempfile::tempdir().unwrap();
    let command = vec![b'x'; MAX_GROUP];
    let opened = BatchJournal::open(&dir.path().join("j"), &command, false, true);
    assert_eq!(opened.unwrap_err().kind(), FailureKind::Local);
}

#[test]
fn a_group_that_is_damaged_while_the_plan_is_carried_out_is_an_error_and_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = open(&path, false);
    let before = journal.store.length();
    journal.append(&file("a"));
    journal.flush();
    let mut text = fs::read(&path).unwrap();
    *text.last_mut().unwrap() ^= 1;
    fs::write(&path, text).unwrap();
    let at = |offset| GroupPosition { offset, entry: 0 };
    assert!(journal.read_group(at(before)).is_err());
    let end = journal.store.length();
    assert_eq!(journal.read_group(at(end)).unwrap(), None);
}

#[test]
fn marks_that_are_not_on_disk_are_void_for_a_run_that_promises_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = BatchJournal::open(&path, COMMAND, false, false).unwrap();
    journal.append(&file("a"));
    journal.mark_done(&[0]);
    drop(journal);
    for (durable, done) in [(false, vec![0]), (true, Vec::new())] {
        let again = BatchJournal::open(&path, COMMAND, true, durable).unwrap();
        assert_eq!(state(&again).1, done);
    }
}

#[test]
fn nothing_of_a_group_with_an_unknown_record_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut journal = open(&path, false);
    journal.append(&file("a"));
    journal.flush();
    journal.append(&file("b"));
    journal.append(&PlanRecord::Done { first: 0, count: 2 });
    journal.pending.push(200);
    journal.flush();
    drop(journal);
    let mut again = open(&path, true);
    assert_eq!(state(&again), (1, Vec::new(), false));
    assert_eq!(again.append(&file("c")), 1);
    again.flush();
    assert_eq!(names(&again), [&b"a"[..], b"c"]);
}
