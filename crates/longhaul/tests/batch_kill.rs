//! A batch that is killed with SIGKILL, and continued.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

mod served;

use served::ServedRoot;

const FILES: usize = 400;

fn copy(server: &ServedRoot, scratch: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .args(["cp", "-r", "--json", "--no-history"])
        .args(more)
        .arg(format!("ftp://{}/t", server.address))
        .arg(scratch.join("to"))
        .env("XDG_STATE_HOME", scratch.join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn is_finished(line: &str) -> bool {
    line.contains("\"event\":\"finished\"")
}

#[test]
fn a_killed_batch_continues_without_listing_or_moving_what_is_done() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("root/t");
    for n in 0..FILES {
        let directory = tree.join(format!("d{}", n % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(n.to_string()), n.to_string()).unwrap();
    }
    let server = ServedRoot::start(&scratch.path().join("root"), "ro");
    // A checksum that bundles do not have: the files move one by one.
    let single = ["--verify", "sha256", "--concurrency", "2"];
    let mut killed = copy(&server, scratch.path(), &single).spawn().unwrap();
    let mut output = BufReader::new(killed.stdout.take().unwrap()).lines();
    let mut finished = 0;
    while finished < FILES / 4 {
        finished += usize::from(is_finished(&output.next().unwrap().unwrap()));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    finished += output
        .map_while(Result::ok)
        .filter(|line| is_finished(line))
        .count();
    assert!(finished < FILES, "killed before its end");
    // Another listing would find it.
    fs::write(tree.join("d0/new"), "new").unwrap();
    // The checksum belongs to the command.
    let again = [&single[..], &["--resume"]].concat();
    let resumed = copy(&server, scratch.path(), &again).output().unwrap();
    let text = String::from_utf8(resumed.stdout).unwrap();
    assert!(resumed.status.success(), "{text}");
    let again = text.lines().filter(|line| is_finished(line)).count();
    // A mark comes before the event, so nothing that was reported moves again.
    assert!(
        again <= FILES - finished,
        "{again} of {FILES} after {finished}"
    );
    for n in 0..FILES {
        let path = scratch.path().join(format!("to/d{}/{n}", n % 7));
        assert_eq!(fs::read_to_string(path).unwrap(), n.to_string());
    }
    assert!(!scratch.path().join("to/d0/new").exists());
    let journals = fs::read_dir(scratch.path().join("state/longhaul/batches")).unwrap();
    assert_eq!(journals.count(), 0, "removed at the end");
}
