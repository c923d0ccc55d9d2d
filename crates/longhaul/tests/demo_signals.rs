//! `longhaul demo` ends with everything that it has started, and leaves no file.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Limit for what follows the end of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demo, and its output: without a reader, the demo would fail at its next line.
struct StartedDemo(
    Child,
    #[expect(dead_code, reason = "kept open")] Lines<BufReader<ChildStdout>>,
);

impl Drop for StartedDemo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A demo over loopback whose servers run.
fn demo(place: &Path) -> StartedDemo {
    // Where nohup(1) runs the tests, SIGHUP is ignored, and in the background of a script SIGINT and SIGQUIT.
    let mut child = Command::new("env")
        .args([
            "--default-signal=HUP,INT,QUIT",
            env!("CARGO_BIN_EXE_longhaul"),
        ])
        .args(["demo", "--loopback", "--size", "300M", "--dir"])
        .arg(place.join("demo"))
        .env("HOME", place)
        .env("XDG_STATE_HOME", place.join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_running = |line: &String| line.starts_with("server A on ");
    let found = lines.find(|line| is_running(line.as_ref().unwrap()));
    assert!(found.is_some(), "the demo ended");
    StartedDemo(child, lines)
}

/// Command lines of processes that name a path.
fn processes_of(place: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let command_lines = entries.filter_map(|entry| {
        let bytes = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    let place = place.to_str().unwrap();
    command_lines.filter(|line| line.contains(place)).collect()
}

/// Processes end a moment after the one that they depend on.
fn wait_for_none(place: &Path) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if processes_of(place).is_empty() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{:?}", processes_of(place));
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn every_signal_that_ends_the_demo_ends_all_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("demo");
    fs::create_dir(&place).unwrap();
    for signal in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::ALARM,
    ] {
        let mut demo = demo(scratch.path());
        assert!(!processes_of(&place).is_empty());
        kill_process(Pid::from_child(&demo.0), signal).unwrap();
        let status = demo.0.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal:?}: {status}");
        wait_for_none(&place);
        assert!(is_empty(&place), "{signal:?}");
    }
    assert!(
        !scratch.path().join("state").exists(),
        "no lessons, no journals"
    );
}

#[test]
fn a_demo_that_is_killed_leaves_no_process_and_the_next_one_removes_its_files() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("demo");
    fs::create_dir(&place).unwrap();
    let mut killed = demo(scratch.path());
    kill_process(Pid::from_child(&killed.0), Signal::KILL).unwrap();
    killed.0.wait().unwrap();
    wait_for_none(&place);
    assert!(!is_empty(&place));
    let mut next = demo(scratch.path());
    kill_process(Pid::from_child(&next.0), Signal::TERM).unwrap();
    next.0.wait().unwrap();
    assert!(is_empty(&place));
}
