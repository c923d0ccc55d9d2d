//! Output of the remote file verbs.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// A server of `root`, and its address.
fn serve(root: &Path) -> (Child, String) {
    let mut server = longhaul(&["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw"])
        .arg("--root")
        .arg(root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("listening on ").unwrap();
    (server, address.to_owned())
}

#[test]
fn a_dry_run_of_rm_prints_what_would_be_deleted() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("d")).unwrap();
    std::fs::write(root.path().join("d/f"), "x").unwrap();
    let (mut server, address) = serve(root.path());
    let url = format!("ftp://{address}/d");
    let outputs = [
        &["rm", "-rn", &url][..],
        &["rm", "-r", "-n", "--json", &url],
    ]
    .map(|arguments| longhaul(arguments).output().unwrap());
    let refused = longhaul(&["rm", "--json", &url]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let texts = outputs.map(|output| String::from_utf8(output.stdout).unwrap());
    let expected = format!("would delete ftp://{address}/d\nwould delete ftp://{address}/d/f\n");
    assert_eq!(texts[0], expected);
    let last: serde_json::Value = serde_json::from_str(texts[1].lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["type"]),
        (&"would_delete".into(), &"file".into())
    );
    assert_eq!(refused.status.code(), Some(2), "--json is for --dry-run");
    assert!(root.path().join("d/f").exists());
}

#[test]
fn a_full_standard_output_exits_with_7() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("f"), "x").unwrap();
    let (mut server, address) = serve(root.path());
    let (directory, file) = (format!("ftp://{address}/"), format!("ftp://{address}/f"));
    let calls = [
        vec!["ls", &directory],
        vec!["ls", "--json", &directory],
        vec!["stat", &file],
        vec!["cksum", &file],
        vec!["rm", "-n", &file],
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
    assert_eq!(codes, [(Some(0), Some(7)); 5]);
}
