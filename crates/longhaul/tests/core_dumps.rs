//! Processes that hold passwords, tokens or keys write no core files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Soft and hard limit of the size of a process's core files.
fn core_limits(process: u32) -> Vec<String> {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max core file size"));
    let values = line.unwrap().split_whitespace().map(str::to_owned);
    values.take(2).collect()
}

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
    assert_eq!(core_limits(child.id()), ["0", "0"]);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn doctor_forbids_core_dumps() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://joe:secret@{}/", server.local_addr().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["doctor", &url])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // It has connected, so it has read the password of the URL, and waits for the greeting.
    let (connection, _) = server.accept().unwrap();
    assert_eq!(core_limits(child.id()), ["0", "0"]);
    drop(connection);
    child.kill().unwrap();
    child.wait().unwrap();
}
