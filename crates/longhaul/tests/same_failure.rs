//! Failures that many files have in common are said once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::net::TcpListener;
use std::process::Command;

/// The lines on standard error of a copy of these files from a server that is not there.
fn failures(names: &[&str], flags: &[&str]) -> (Vec<String>, String) {
    let scratch = tempfile::tempdir().unwrap();
    // Nobody listens there once it is dropped.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
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
    (text.lines().map(str::to_owned).collect(), events)
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

#[test]
fn programs_get_an_event_for_each_file() {
    let (_, events) = failures(&["a", "b", "c"], &["--json"]);
    let failed = events.lines().filter(|line| line.contains("\"failed\""));
    let failed = failed.filter(|line| line.contains("\"source\""));
    assert_eq!(failed.count(), 3, "{events}");
}
