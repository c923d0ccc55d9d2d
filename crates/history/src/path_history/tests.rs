use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use proptest::prelude::*;
use tune::limiter::{Limiter, Role};
use tune::path::{EVIDENCE_EXPIRES_AFTER, prior_from_evidence};

use super::*;
use crate::record_file::MAX_RECORDS;
use crate::recorded_evidence::tests::{evidence, key};

const NOW: u64 = 1_800_000_000;

/// A memory in a directory of its own that does not exist yet.
struct TestMemory {
    directory: tempfile::TempDir,
    history: PathHistory,
}

impl TestMemory {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("state/longhaul/paths.json");
        Self {
            directory,
            history: PathHistory::at(file),
        }
    }

    /// One whose file has this content.
    fn holding(content: &[u8]) -> Self {
        let memory = Self::new();
        fs::create_dir_all(memory.history.file.parent().unwrap()).unwrap();
        fs::write(&memory.history.file, content).unwrap();
        memory
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.history.file).unwrap()
    }
}

#[test]
fn the_next_transfer_begins_with_what_is_known_of_the_last_one() {
    let TestMemory { directory, history } = TestMemory::new();
    let path = key(2, Role::Sender);
    assert_eq!(history.prior_at(&path, NOW), Prior::default());
    history.record_at(path, &evidence(), NOW);
    let expected = prior_from_evidence(&evidence(), Duration::from_secs(60));
    assert_eq!(expected.streams, Some(20));
    assert_eq!(history.prior_at(&path, NOW + 60), expected);
    let again = PathHistory::at(history.file.clone());
    assert_eq!(again.prior_at(&path, NOW + 60), expected);
    for other in [key(3, Role::Sender), key(2, Role::Receiver)] {
        assert_eq!(history.prior_at(&other, NOW), Prior::default());
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&history.file), 0o600);
    assert_eq!(mode(&directory.path().join("state/longhaul")), 0o700);
    let names: Vec<_> = fs::read_dir(history.file.parent().unwrap())
        .unwrap()
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn the_spread_of_goodputs_is_learned_and_older_records_have_none() {
    let TestMemory {
        directory: _kept,
        history,
    } = TestMemory::new();
    let path = key(2, Role::Sender);
    let known = |rtt| history.goodput_at(&path, Duration::from_millis(rtt), NOW);
    assert_eq!(known(100), None);
    history.record_at(path, &evidence(), NOW);
    assert_eq!(known(100), Some(ExpectedRate::of_one_transfer(100_000_000)));
    assert_eq!(known(10), None);
    assert!(
        !fs::read_to_string(history.file())
            .unwrap()
            .contains("spread")
    );
    for _ in 0..20 {
        history.record_at(path, &evidence(), NOW);
    }
    assert_eq!(known(100).unwrap().spread_percent, 5);
    let slower = Evidence {
        bytes: evidence().bytes / 2,
        ..evidence()
    };
    history.record_at(path, &slower, NOW);
    let known = known(100).unwrap();
    assert_eq!(
        (known.bytes_per_second, known.spread_percent),
        (50_000_000, 40)
    );
}

#[test]
fn a_path_with_another_round_trip_is_another() {
    let TestMemory {
        directory: _kept,
        history,
    } = TestMemory::new();
    let path = key(2, Role::Sender);
    history.record(path, &evidence());
    let known = |rtt| history.prior(&path, Duration::from_millis(rtt)).streams;
    assert_eq!([0, 70, 100, 150].map(known), [Some(20); 4]);
    assert_eq!([10, 40, 200].map(known), [None; 3]);
}

#[test]
fn a_record_expires_and_one_from_the_future_does_not_count() {
    let memory = TestMemory::new();
    let path = key(2, Role::Sender);
    memory.history.record_at(path, &evidence(), NOW);
    let expires = NOW + EVIDENCE_EXPIRES_AFTER.as_secs();
    assert!(memory.history.prior_at(&path, expires).streams.is_some());
    for time in [expires + 1, NOW - 1] {
        assert_eq!(memory.history.prior_at(&path, time), Prior::default());
    }
    memory
        .history
        .record_at(key(3, Role::Sender), &evidence(), expires + 1);
    assert!(!memory.text().contains("192.0.2.0/24"));
}

#[test]
fn the_number_of_records_is_bounded_and_the_oldest_go_first() {
    let memory = TestMemory::new();
    let path = |n: usize| {
        let [high, low] = u16::try_from(n).unwrap().to_be_bytes();
        PathKey::new(
            [10, 0, 0, 1].into(),
            [172, high, low, 7].into(),
            Role::Sender,
        )
    };
    for n in 0..MAX_RECORDS + 10 {
        memory
            .history
            .record_at(path(n), &evidence(), NOW + n as u64);
    }
    let now = NOW + MAX_RECORDS as u64 + 10;
    let known = |n| memory.history.prior_at(&path(n), now).streams.is_some();
    assert_eq!(
        (known(9), known(10), known(MAX_RECORDS + 9)),
        (false, true, true)
    );
    assert!(memory.text().len() < 128 << 10, "{}", memory.text().len());
}

#[test]
fn a_short_transfer_teaches_the_rate_once_a_minute_and_replaces_no_longer_one() {
    let TestMemory { history, .. } = &TestMemory::new();
    let key = key(2, Role::Sender);
    let short = |bytes| Evidence {
        bytes,
        elapsed: Duration::from_secs(1),
        ..evidence()
    };
    let rate = |now| {
        history
            .prior_at(&key, now)
            .path_rate
            .map(|r| r.bytes_per_second)
    };
    history.record_at(key, &short(10_000_000), 1_000);
    history.record_at(key, &short(20_000_000), 1_059);
    assert_eq!(rate(1_060), Some(10_000_000));
    assert_eq!(history.goodput_at(&key, Duration::ZERO, 1_060), None);
    history.record_at(key, &short(20_000_000), 1_060);
    assert_eq!(rate(1_061), Some(20_000_000));
    history.record_at(key, &evidence(), 1_061);
    history.record_at(key, &short(20_000_000), 2_000);
    assert_eq!(rate(2_001), Some(100_000_000));
}

#[test]
fn a_transfer_that_its_ends_limited_does_not_replace_a_record_of_the_path() {
    let memory = TestMemory::new();
    let path = key(2, Role::Sender);
    let mut slow_disk = evidence();
    slow_disk.final_streams = 18;
    slow_disk.verdict.as_mut().unwrap().limiter = Limiter::StoreRead;
    let streams = || memory.history.prior_at(&path, NOW).streams;
    memory.history.record_at(path, &slow_disk, NOW);
    assert_eq!(streams(), Some(18));
    memory.history.record_at(path, &evidence(), NOW);
    assert_eq!(streams(), Some(20));
    memory.history.record_at(path, &slow_disk, NOW);
    assert_eq!(streams(), Some(20));
}

#[test]
fn a_deleted_file_is_forgotten_and_made_again() {
    let memory = TestMemory::new();
    let path = key(2, Role::Sender);
    memory.history.record_at(path, &evidence(), NOW);
    assert!(memory.history.prior_at(&path, NOW).streams.is_some());
    fs::remove_dir_all(memory.directory.path().join("state")).unwrap();
    assert_eq!(memory.history.prior_at(&path, NOW), Prior::default());
    memory.history.record_at(path, &evidence(), NOW);
    assert!(memory.history.prior_at(&path, NOW).streams.is_some());
}

#[test]
fn another_version_is_ignored_and_replaced() {
    let memory = TestMemory::new();
    let path = key(2, Role::Sender);
    memory.history.record_at(path, &evidence(), NOW);
    let other = memory
        .text()
        .replace("longhaul paths 1", "longhaul paths 2");
    let memory = TestMemory::holding(other.as_bytes());
    assert_eq!(memory.history.prior_at(&path, NOW), Prior::default());
    memory
        .history
        .record_at(key(3, Role::Sender), &evidence(), NOW);
    assert!(memory.text().contains("192.0.3.0/24") && !memory.text().contains("192.0.2.0/24"));
}

#[test]
fn one_record_that_makes_no_sense_leaves_the_others() {
    let memory = TestMemory::new();
    for site in [2, 3, 4] {
        memory
            .history
            .record_at(key(site, Role::Sender), &evidence(), NOW);
    }
    for (valid, nonsense) in [
        ("192.0.3.0/24", "192.0.3.9/24"),
        ("192.0.3.0/24", "all of them"),
    ] {
        let text = memory.text().replace(valid, nonsense);
        let memory = TestMemory::holding(text.as_bytes());
        let known = |site| {
            memory
                .history
                .prior_at(&key(site, Role::Sender), NOW)
                .streams
                .is_some()
        };
        assert_eq!([2, 3, 4].map(known), [true, false, true]);
    }
}

#[test]
fn a_pipe_a_directory_and_a_huge_file_neither_hang_nor_fail() {
    let path = key(2, Role::Sender);
    let memory = TestMemory::holding(&vec![b' '; 1 << 20]);
    assert_eq!(memory.history.prior_at(&path, NOW), Prior::default());
    memory.history.record_at(path, &evidence(), NOW);
    assert!(memory.history.prior_at(&path, NOW).streams.is_some());

    let memory = TestMemory::holding(b"");
    fs::remove_file(&memory.history.file).unwrap();
    let made = Command::new("mkfifo")
        .arg(&memory.history.file)
        .status()
        .unwrap();
    assert!(made.success());
    assert_eq!(memory.history.prior_at(&path, NOW), Prior::default());
    memory.history.record_at(path, &evidence(), NOW);
    assert!(memory.history.prior_at(&path, NOW).streams.is_some());

    let memory = TestMemory::new();
    fs::create_dir_all(&memory.history.file).unwrap();
    memory.history.record_at(path, &evidence(), NOW);
    assert_eq!(memory.history.prior_at(&path, NOW), Prior::default());
}

#[test]
fn processes_at_the_same_time_lose_at_most_one_record_each() {
    let memory = TestMemory::new();
    let file = &memory.history.file;
    std::thread::scope(|scope| {
        for site in 0..8 {
            // Each has read nothing yet, as a process of its own.
            scope.spawn(move || {
                let history = PathHistory::at(file.clone());
                for _ in 0..4 {
                    history.record_at(key(site, Role::Sender), &evidence(), NOW);
                }
            });
        }
    });
    // Each records four times: one of them gets the lock in time.
    for site in 0..8 {
        let known = memory.history.prior_at(&key(site, Role::Sender), NOW);
        assert!(known.streams.is_some(), "{site}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_no_error() {
    let memory = TestMemory::holding(b"");
    let below_a_file = memory.history.file.join("more/paths.json");
    let history = PathHistory::at(below_a_file);
    assert!(!history.is_writable());
    history.record_at(key(2, Role::Sender), &evidence(), NOW);
    assert_eq!(
        history.prior_at(&key(2, Role::Sender), NOW),
        Prior::default()
    );
    assert!(TestMemory::new().history.is_writable());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_corrupt_file_is_ignored_or_read_in_part_and_replaced(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let memory = TestMemory::new();
        for site in [2, 3] {
            memory.history.record_at(key(site, Role::Sender), &evidence(), NOW);
        }
        let mut bytes = memory.text().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let memory = TestMemory::holding(&bytes);
        for site in [2, 3] {
            let prior = memory.history.prior_at(&key(site, Role::Sender), NOW);
            prop_assert!(prior.streams.is_none_or(|streams| (1..=64).contains(&streams)));
        }
        memory.history.record_at(key(5, Role::Sender), &evidence(), NOW);
        prop_assert!(memory.history.prior_at(&key(5, Role::Sender), NOW).streams.is_some());
    }
}

#[test]
fn the_limit_of_a_server_is_kept_beside_records_until_it_expires() {
    let directory = tempfile::tempdir().unwrap();
    let history = PathHistory::at(directory.path().join("paths.json"));
    let key = PathKey::new(
        "10.1.2.3".parse().unwrap(),
        "192.0.2.7".parse().unwrap(),
        Role::Receiver,
    );
    assert_eq!(history.session_limit_at(&key, 21, 1000), None);
    history.record_session_limit_at((key, 21), 3, 1000);
    history.record_session_limit_at((key, 2811), 8, 1001);
    assert_eq!(history.session_limit_at(&key, 21, 1002), Some(3));
    assert_eq!(history.session_limit_at(&key, 2811, 1002), Some(8));
    history.record_session_limit_at((key, 21), 5, 1003);
    assert_eq!(history.session_limit_at(&key, 21, 1004), Some(5));
    assert_eq!(history.session_limit_at(&key, 21, 40 * 86_400), None);
    history.record_session_limit_at((key, 21), 0, 1005);
    assert_eq!(history.session_limit_at(&key, 21, 1006), Some(5));
}

#[test]
fn closed_ports_are_remembered_until_one_is_open_or_a_week_has_passed() {
    let directory = tempfile::tempdir().unwrap();
    let history = PathHistory::at(directory.path().join("paths.json"));
    let key = PathKey::new(
        "10.1.2.3".parse().unwrap(),
        "192.0.2.7".parse().unwrap(),
        Role::Receiver,
    );
    history.record_ports_at((key, 22), false, 1000);
    assert!(!history.file().exists());
    history.record_ports_at((key, 22), true, 1000);
    history.record_session_limit_at((key, 22), 3, 1000);
    let were_closed = |port, now| history.were_ports_closed_at(&key, port, now);
    assert!(were_closed(22, 1001) && !were_closed(2222, 1001));
    assert!(!were_closed(22, 1001 + 8 * 86_400) && !were_closed(22, 999));
    history.record_ports_at((key, 22), false, 1002);
    assert!(!were_closed(22, 1003));
    assert_eq!(history.session_limit_at(&key, 22, 1003), Some(3));
}
