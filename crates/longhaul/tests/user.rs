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
fn a_name_that_cannot_be_added_is_refused_before_a_password_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let users = place.path().join("users");
    let add = ["user", "add", "--users", text(&users), "--password-stdin"];
    let add = |name, password| ending(longhaul(&[&add[..], &[name]].concat()), password);
    assert_eq!(add("ann", "long enough\n").0, Some(0));
    let before = std::fs::read(&users).unwrap();
    for (name, reason) in [
        ("ann", "has ann already"),
        ("anonymous", "name of anonymous sessions"),
        ("ftp", "name of anonymous sessions"),
    ] {
        // A password that would be refused itself, if it were read.
        let (code, message) = add(name, "short\n");
        assert_eq!(code, Some(2), "{name}: {message}");
        assert!(message.contains(reason), "{name}: {message}");
    }
    assert_eq!(std::fs::read(&users).unwrap(), before);
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
    let (code, message) = add(&["joe"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(owner(), 65_534, "{message}");
    let (code, message) = add(&["--run-as", "no-such-account", "eve"]);
    assert_eq!(code, Some(7), "{message}");
}

#[test]
fn a_user_that_exists_is_changed_by_flags_alone_and_never_added_again() {
    let place = tempfile::tempdir().unwrap();
    let users = place.path().join("users");
    let root = place.path().canonicalize().unwrap();
    let user = |verb: &str, more: &[&str]| {
        let words = ["user", verb, "--users", text(&users)];
        ending(longhaul(&[&words[..], more].concat()), "long enough\n")
    };
    let root_and_rights = ["--root", text(&root), "--read-only", "--no-third-party"];
    let added = user(
        "add",
        &[&root_and_rights[..], &["--password-stdin", "ann"]].concat(),
    );
    assert_eq!(added.0, Some(0), "{}", added.1);
    let before = std::fs::read_to_string(&users).unwrap();
    let (code, message) = user("add", &["--password-stdin", "ann"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("`longhaul user change`"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(std::fs::read_to_string(&users).unwrap(), before);
    // Before the password is asked for: there is no terminal here.
    assert_eq!(user("add", &["ann"]).1, message);
    let (code, message) = user("change", &["--password-stdin", "ann"]);
    assert_eq!(code, Some(0), "{message}");
    let after = std::fs::read_to_string(&users).unwrap();
    let fields = |line: &str| {
        let mut fields: Vec<_> = line.trim_end().splitn(5, ':').map(str::to_owned).collect();
        let hash = fields.remove(1);
        (hash, fields)
    };
    assert_ne!(fields(&after).0, fields(&before).0, "another salt");
    assert_eq!(fields(&after).1, fields(&before).1);
    let (code, message) = user("change", &["--read-write", "--server-root", "ann"]);
    assert_eq!(code, Some(0), "{message}");
    let last = std::fs::read_to_string(&users).unwrap();
    assert_eq!(fields(&last).0, fields(&after).0, "the same password");
    assert_eq!(fields(&last).1, ["ann", "w", "/", ""]);
    assert_eq!(user("change", &["ann"]).0, Some(2), "nothing to change");
    for (verb, flags) in [("change", &["--password-stdin"][..]), ("remove", &[])] {
        let (code, message) = user(verb, &[flags, &["bob"]].concat());
        assert_eq!(code, Some(4), "{message}");
        assert!(message.contains("has no user bob"), "{message}");
    }
}
