//! Processes that hold passwords, tokens or keys write no core files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn cp_forbids_core_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "-q", "-"])
        .arg(dir.path().join("copy"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than a pipe holds, so the program has begun to read.
    stdin.write_all(&vec![0; 2 << 20]).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let values: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(values[..2], ["0", "0"]);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}
