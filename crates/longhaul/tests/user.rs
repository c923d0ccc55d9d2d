//! `longhaul user`, and files that are no files where an administrator's file is expected.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn longhaul(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let command = command.args(arguments).env_remove("RUST_LOG");
    let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// The exit code and standard error of a program that gets `input` and must end.
fn ending(mut child: Child, input: &str) -> (Option<i32>, String) {
    // A program that does not read its input has closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_password_that_is_too_short_is_an_error_of_usage() {
    let place = tempfile::tempdir().unwrap();
    let users = place.path().join("users");
    let add = ["user", "add", "--users", text(&users), "--password-stdin"];
    let add = |password| ending(longhaul(&[&add[..], &["ann"]].concat()), password);
    let (code, message) = add("short\n");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("at least 8 characters"), "{message}");
    assert!(!users.exists());
    let (code, message) = add("long enough\n");
    assert_eq!(code, Some(0), "{message}");
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_and_never_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let pipe = place.path().join("pipe");
    let root = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = text(&pipe);
    let listen = ["serve", "--listen", "127.0.0.1:0", "--root", text(&root)];
    for arguments in [
        &["user", "list", "--users", pipe][..],
        &["user", "remove", "--users", pipe, "ann"],
        &["doctor", "--serve-config", pipe],
        &[&listen[..], &["--users", pipe]].concat(),
        &[&listen[..], &["--config", pipe]].concat(),
    ] {
        let (code, message) = ending(longhaul(arguments), "");
        assert!(
            code.is_some_and(|code| code != 0),
            "{arguments:?}: {code:?} {message}"
        );
        assert!(
            message.contains("not a regular file"),
            "{arguments:?}: {message}"
        );
    }
}

#[test]
fn a_password_file_that_root_makes_is_the_servers_or_a_message_says_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files away");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let users = place.path().join("users");
    let add = ["user", "add", "--users", text(&users), "--password-stdin"];
    let add = |more: &[&str]| ending(longhaul(&[&add[..], more].concat()), "long enough\n");
    let owner = || std::os::unix::fs::MetadataExt::uid(&users.metadata().unwrap());
    let (code, message) = add(&["ann"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("chown ACCOUNT"), "{message}");
    assert_eq!(owner(), 0);
    let (code, message) = add(&["--run-as", "nobody", "bob"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(!message.contains("chown"), "{message}");
    assert_eq!(owner(), 65_534, "nobody of every Debian");
    // The owner stays.
    let (code, message) = add(&["eve"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(owner(), 65_534, "{message}");
    let (code, message) = add(&["--run-as", "no-such-account", "eve"]);
    assert_eq!(code, Some(7), "{message}");
}
