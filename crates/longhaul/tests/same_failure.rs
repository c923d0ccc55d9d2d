//! Failures that many files have in common are said once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;

mod served;

use rustix::net::{self, AddressFamily, SocketType};
use served::ServedRoot;

/// The messages and events of a copy of these files from a server that is not there.
fn failures(names: &[&str], flags: &[&str]) -> (Vec<String>, String) {
    let scratch = tempfile::tempdir().unwrap();
    // Bound until the end, so that no other server gets the port; nobody listens there.
    let bound = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gone = SocketAddrV4::try_from(net::getsockname(&bound).unwrap()).unwrap();
    let pairs: String = names
        .iter()
        .map(|name| format!("ftp://{gone}/{name} {name}\n"))
        .collect();
    fs::write(scratch.path().join("list"), pairs).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "--no-history", "--retries", "0", "--from", "list"])
        .args(flags)
        .current_dir(scratch.path())
        .env("XDG_STATE_HOME", scratch.path().join("state"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let events = String::from_utf8(output.stdout).unwrap();
    // A slow machine has time for lines of progress too.
    let messages = text.lines().filter(|line| line.starts_with("longhaul: "));
    (messages.map(str::to_owned).collect(), events)
}

#[test]
fn a_failure_of_many_files_is_one_line_and_their_number() {
    for flags in [&[][..], &["-q"]] {
        let (lines, _) = failures(&["a", "b", "c", "d"], flags);
        let [failure, rest] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(failure.contains("cannot connect"), "{failure}");
        assert_eq!(rest, "longhaul: the same for 3 more files");
    }
    let (lines, _) = failures(&["a"], &[]);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

/// Messages of a copy that the destination refuses, and their number with `--json`.
fn refused(source: &str, destination: &str, state: &Path) -> (Vec<String>, usize) {
    let run = |flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["cp", "-r", "--no-history"])
            .args(flags)
            .args([source, destination])
            .env("XDG_STATE_HOME", state)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [_, text] = run(&[]);
    let messages = text.lines().filter(|line| line.starts_with("longhaul: "));
    let [events, _] = run(&["--json"]);
    let failed = events
        .lines()
        .filter(|line| line.contains(r#""event":"failed""#));
    (messages.map(str::to_owned).collect(), failed.count())
}

#[test]
fn files_that_are_refused_alike_are_told_once_also_between_servers() {
    let scratch = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
    fs::create_dir_all(from.join("t")).unwrap();
    fs::create_dir_all(to.join("t")).unwrap();
    for n in 0..30 {
        fs::write(from.join(format!("t/file-{n}")), "x").unwrap();
    }
    let [source, destination] = [&from, &to].map(|root| ServedRoot::start(root, "ro"));
    let local = from.to_str().unwrap().to_owned();
    // Their directories exist, so that every failure is that of a file.
    for source in [format!("{local}/t"), format!("ftp://{}/t", source.address)] {
        let (messages, events) = refused(
            &source,
            &format!("ftp://{}/", destination.address),
            scratch.path(),
        );
        assert_eq!(events, 30);
        let [first, rest] = messages.as_slice() else {
            panic!("{messages:?}");
        };
        assert!(first.contains("refused to write /t/file-"), "{first}");
        let number = "longhaul: the same for 29 more files: ";
        assert!(rest.starts_with(number), "{rest}");
        assert!(rest.ends_with(" and 26 others (-v names each)"), "{rest}");
    }
}

#[test]
fn programs_get_an_event_for_each_file() {
    let (_, events) = failures(&["a", "b", "c"], &["--json"]);
    let failed = events.lines().filter(|line| line.contains("\"failed\""));
    let failed = failed.filter(|line| line.contains("\"source\""));
    assert_eq!(failed.count(), 3, "{events}");
}

#[test]
fn what_the_listing_shows_to_fail_is_told_with_its_number_before_anything_is_done() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), "x").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "-n", "none-1", "none-2", "a", "d/"])
        .current_dir(scratch.path())
        .env("XDG_STATE_HOME", scratch.path().join("state"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = text.lines().take(3).collect();
    assert!(lines[0].contains("none-1"), "{text}");
    assert_eq!(lines[1], "longhaul: the same for 1 more file: none-2");
    assert!(lines[2].starts_with("would copy a"), "{text}");
}
