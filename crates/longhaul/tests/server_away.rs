//! A server that restarts while files move.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

mod served;

use served::ServedRoot;

const FILES: usize = 6;
const LENGTH: usize = 4 << 20;

/// A process that ends with the test.
struct EndedWithTest(Child);

impl Drop for EndedWithTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A copy of a tree that has lost its server.
struct InterruptedCopy {
    scratch: TempDir,
    address: String,
    copy: EndedWithTest,
    /// Its messages to come.
    lines: Lines<BufReader<ChildStderr>>,
    said: Vec<String>,
}

impl InterruptedCopy {
    fn begin() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        fs::create_dir(&served).unwrap();
        for n in 0..FILES {
            let byte = u8::try_from(n).unwrap();
            fs::write(served.join(n.to_string()), vec![byte; LENGTH]).unwrap();
        }
        let server = ServedRoot::start(&served, "ro");
        let address = server.address.clone();
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            // One line each time that the progress is looked at: they show when bytes move.
            .args(["cp", "-r", "--limit-rate", "30M", "--stats", "100ms"])
            .arg(format!("ftp://{address}/"))
            .arg(scratch.path().join("got"))
            .env("XDG_STATE_HOME", scratch.path().join("state"))
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut copy = Self {
            scratch,
            address,
            copy: EndedWithTest(child),
            lines,
            said: Vec::new(),
        };
        copy.wait_for(" MB of ");
        drop(server);
        copy.wait_for("; reconnecting for up to 10 min");
        copy
    }

    fn wait_for(&mut self, text: &str) {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let is_found = line.contains(text);
            self.said.push(line);
            if is_found {
                return;
            }
        }
        panic!("not said: {text}\n{}", self.said.join("\n"));
    }

    /// Waits for the end. Returns everything that was said.
    fn end(mut self) -> (ExitStatus, Vec<String>, TempDir) {
        for line in self.lines.by_ref() {
            self.said.push(line.unwrap());
        }
        (self.copy.0.wait().unwrap(), self.said, self.scratch)
    }
}

#[test]
fn a_copy_goes_on_when_its_server_is_back() {
    let mut copy = InterruptedCopy::begin();
    copy.wait_for("reconnecting for ");
    let _server = ServedRoot::start_at(&copy.address, &copy.scratch.path().join("served"), "ro");
    copy.wait_for("longhaul: connected again after ");
    let (status, said, scratch) = copy.end();
    assert!(status.success(), "{status}: {said:?}");
    let told = said
        .iter()
        .filter(|line| line.contains("reconnecting for up to"));
    assert_eq!(told.count(), 1, "{said:?}");
    for n in 0..FILES {
        let copied = fs::read(scratch.path().join("got").join(n.to_string())).unwrap();
        assert_eq!(copied, vec![u8::try_from(n).unwrap(); LENGTH]);
    }
}

#[test]
fn an_interrupt_ends_the_wait_and_the_last_line_says_how_to_go_on() {
    let copy = InterruptedCopy::begin();
    kill_process(Pid::from_child(&copy.copy.0), Signal::INT).unwrap();
    let (status, said, _scratch) = copy.end();
    assert_eq!(status.code(), Some(130), "{said:?}");
    let last = said.last().unwrap();
    assert!(
        last.starts_with("longhaul: interrupted; ")
            && last.contains(" of 25.2 MB is safe; ")
            && last.ends_with("repeat the command to go on from there"),
        "{last}"
    );
}
