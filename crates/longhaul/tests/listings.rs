//! Output of the remote file verbs.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

#[test]
fn a_full_standard_output_exits_with_7() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("f"), "x").unwrap();
    let mut server = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "ro"])
        .arg("--root")
        .arg(root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("listening on ").unwrap();
    let (directory, file) = (format!("ftp://{address}/"), format!("ftp://{address}/f"));
    let calls = [
        vec!["ls", &directory],
        vec!["ls", "--json", &directory],
        vec!["stat", &file],
        vec!["cksum", &file],
    ];
    let exit = |arguments: &[&str], out: Stdio| {
        let output = longhaul(arguments).stdout(out).output().unwrap();
        output.status.code()
    };
    let codes: Vec<_> = calls
        .iter()
        .map(|call| {
            let full = std::fs::File::options().write(true).open("/dev/full");
            (exit(call, Stdio::null()), exit(call, full.unwrap().into()))
        })
        .collect();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(codes, [(Some(0), Some(7)); 4]);
}
