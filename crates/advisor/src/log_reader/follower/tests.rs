//! Files that grow, rotate, vanish and contain junk.

use std::fs;
use std::io::Write as _;

use super::*;

struct Log {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn log() -> Log {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.log");
    Log {
        _directory: directory,
        path,
    }
}

fn append(path: &Path, text: &str) {
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// The lines of enough turns for every rotation to be followed.
fn lines(follower: &mut LogFollower) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..6 {
        follower
            .turn(&mut |line| found.push(String::from_utf8_lossy(line).into_owned()))
            .unwrap();
    }
    found
}

fn from_beginning(path: &Path) -> LogFollower {
    LogFollower::new(path, FollowFrom::Beginning, FollowLimits::default())
}

fn resumed(path: &Path, position: LogPosition) -> LogFollower {
    LogFollower::resume(path, position, FollowLimits::default())
}

#[test]
fn a_half_line_waits_for_its_end() {
    let log = log();
    append(&log.path, "one\ntw");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower), ["one"]);
    append(&log.path, "o\r\nthree\n");
    assert_eq!(lines(&mut follower), ["two", "three"]);
    assert_eq!(lines(&mut follower), [""; 0]);
}

#[test]
fn a_follower_starts_at_the_end_if_asked() {
    let log = log();
    append(&log.path, "old\nhal");
    let mut follower = LogFollower::new(&log.path, FollowFrom::End, FollowLimits::default());
    assert_eq!(lines(&mut follower), [""; 0]);
    append(&log.path, "f\nnew\n");
    assert_eq!(lines(&mut follower), ["half", "new"]);
}

#[test]
fn a_file_that_appears_later_is_read_from_its_beginning() {
    let log = log();
    let mut follower = LogFollower::new(&log.path, FollowFrom::End, FollowLimits::default());
    assert!(follower.turn(&mut |_| panic!()).unwrap().missing);
    append(&log.path, "first\n");
    assert_eq!(lines(&mut follower), ["first"]);
}

#[test]
fn a_renamed_file_is_read_to_its_end_before_the_new_one() {
    let log = log();
    append(&log.path, "1\n");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower), ["1"]);
    append(&log.path, "2\n");
    let old = log.path.with_extension("log.1");
    fs::rename(&log.path, &old).unwrap();
    assert_eq!(lines(&mut follower), ["2"]);
    append(&old, "3\n");
    append(&log.path, "4\n");
    assert_eq!(lines(&mut follower), ["3", "4"]);
    assert_eq!(follower.counts().rotations, 1);
}

#[test]
fn two_rotations_between_two_turns_lose_nothing() {
    let log = log();
    append(&log.path, "1\n");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower), ["1"]);
    let name = |n: u8| log.path.with_extension(format!("log.{n}"));
    append(&log.path, "2\n");
    fs::rename(&log.path, name(2)).unwrap();
    append(&log.path, "3\n");
    fs::rename(&log.path, name(1)).unwrap();
    append(&log.path, "4\n");
    let at = |path: &Path, seconds| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    at(&name(2), 100);
    at(&name(1), 200);
    at(&log.path, 300);
    assert_eq!(lines(&mut follower), ["2", "3", "4"]);
}

#[test]
fn a_truncated_file_is_read_from_its_beginning_and_the_copy_to_its_end() {
    let log = log();
    append(&log.path, "1 first line\n2 second line\n");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower).len(), 2);
    append(&log.path, "3 written before the truncation\n");
    fs::copy(&log.path, log.path.with_extension("log.1")).unwrap();
    let file = File::options().write(true).open(&log.path).unwrap();
    file.set_len(0).unwrap();
    // The new content is longer than the old, so that its size tells nothing.
    let new: Vec<String> = (4..20)
        .map(|n| format!("{n} after the truncation"))
        .collect();
    append(&log.path, &(new.join("\n") + "\n"));
    let mut expected = vec!["3 written before the truncation".to_owned()];
    expected.extend(new);
    assert_eq!(lines(&mut follower), expected);
    assert_eq!(follower.counts().truncations, 1);
    assert_eq!(follower.counts().gaps, 0);
}

#[test]
fn a_truncation_without_a_copy_is_counted_as_a_gap() {
    let log = log();
    append(&log.path, "a long first line\n");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower).len(), 1);
    fs::write(&log.path, "b\n").unwrap();
    assert_eq!(lines(&mut follower), ["b"]);
    assert_eq!(follower.counts().gaps, 1);
}

#[test]
fn a_restart_repeats_and_loses_nothing() {
    let log = log();
    append(&log.path, "1\n2\nhal");
    let mut follower = from_beginning(&log.path);
    assert_eq!(lines(&mut follower), ["1", "2"]);
    let saved = PositionFile::new(&log.path.with_file_name("positions"));
    assert!(saved.load().unwrap().is_empty());
    let position = follower.position().unwrap();
    saved.save(&[(log.path.clone(), position)].into()).unwrap();
    drop(follower);
    let load = || saved.load().unwrap().remove(&log.path).unwrap();
    append(&log.path, "f\n3\n");
    assert_eq!(lines(&mut resumed(&log.path, load())), ["half", "3"]);
    fs::rename(&log.path, log.path.with_extension("log.1")).unwrap();
    append(&log.path, "4\n");
    assert_eq!(lines(&mut resumed(&log.path, load())), ["half", "3", "4"]);
    fs::remove_file(log.path.with_extension("log.1")).unwrap();
    let mut follower = resumed(&log.path, load());
    assert_eq!(lines(&mut follower), ["4"]);
    assert_eq!(follower.counts().gaps, 1);
}

#[test]
fn a_long_line_is_left_out_and_a_turn_is_bounded() {
    let log = log();
    let long = "x".repeat(200_000);
    append(&log.path, &format!("1\n{long}\n2\n"));
    let limits = FollowLimits {
        line_bytes: 100,
        turn_bytes: 1000,
    };
    let mut follower = LogFollower::new(&log.path, FollowFrom::Beginning, limits);
    let turn = follower.turn(&mut |_| {}).unwrap();
    assert_eq!((turn.lines, turn.more), (1, true));
    assert_eq!(lines(&mut follower), ["2"]);
    assert_eq!(follower.counts().long_lines, 1);
    // An end that comes later, over a restart.
    append(&log.path, &long);
    assert_eq!(lines(&mut follower), [""; 0]);
    let mut follower = LogFollower::resume(&log.path, follower.position().unwrap(), limits);
    append(&log.path, "yyy\n3\n");
    assert_eq!(lines(&mut follower), ["3"]);
}

#[test]
fn a_fifo_and_a_directory_are_refused_without_blocking() {
    let log = log();
    fs::create_dir(&log.path).unwrap();
    let mut follower = from_beginning(&log.path);
    assert!(follower.turn(&mut |_| {}).is_err());
    fs::remove_dir(&log.path).unwrap();
    nix::unistd::mkfifo(&log.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(follower.turn(&mut |_| {}).is_err());
    fs::remove_file(&log.path).unwrap();
    append(&log.path, "1\n");
    assert_eq!(lines(&mut follower), ["1"]);
}
