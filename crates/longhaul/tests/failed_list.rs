//! `longhaul cp --failed`: what its list may not replace.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `longhaul cp` in a directory.
fn cp(directory: &Path, arguments: &[&str], input: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "--no-history"])
        .args(arguments)
        .current_dir(directory)
        .env("XDG_STATE_HOME", directory.join("state"))
        .stdin(input)
        .output()
        .unwrap()
}

/// The one line of a refusal with exit code 2.
fn refusal(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn the_list_that_a_copy_reads_is_not_replaced_by_its_failures() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("a"), "copied").unwrap();
    fs::write(at("list"), "a b\nmissing c\n").unwrap();
    symlink("list", at("soft")).unwrap();
    fs::hard_link(at("list"), at("hard")).unwrap();
    fs::create_dir(at("d")).unwrap();
    let before = fs::read_dir(scratch.path()).unwrap().count();
    let absolute = at("list").display().to_string();
    let names = [
        "list",
        "./list",
        "d/../list",
        "soft",
        "hard",
        absolute.as_str(),
    ];
    let pairs = names
        .map(|name| ("list", name))
        .into_iter()
        .chain(names.map(|name| (name, "list")));
    let input = || Stdio::from(File::open(at("list")).unwrap());
    for (list, failed) in pairs.chain([("-", "list"), ("/dev/stdin", "soft")]) {
        for flag in ["--failed", "--trace", "--journal"] {
            let output = cp(scratch.path(), &["--from", list, flag, failed], input());
            let line = refusal(&output);
            let message =
                format!("{flag} would overwrite the list that --from reads: name another file");
            assert!(line.contains(&message), "{line}");
        }
    }
    assert_eq!(fs::read_to_string(at("list")).unwrap(), "a b\nmissing c\n");
    assert!(fs::symlink_metadata(at("soft")).unwrap().is_symlink());
    let after = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(before, after, "nothing was done");
    // Another file, with the same content too, is in nobody's way.
    fs::copy(at("list"), at("left")).unwrap();
    let output = cp(
        scratch.path(),
        &["--from", "list", "--failed", "left"],
        input(),
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(at("b")).unwrap(), "copied");
    assert!(fs::read_to_string(at("left")).unwrap().contains("missing"));
}

#[test]
fn a_list_of_failures_takes_the_place_of_no_device() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("a"), "not copied").unwrap();
    fs::write(at("list"), "a b\n").unwrap();
    let pipe = at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for arguments in [
        &["--from", "list", "--failed", "pipe"][..],
        &["--failed", "pipe", "a", "b"],
        &["--failed", "state", "a", "b"],
    ] {
        fs::create_dir_all(at("state")).unwrap();
        let line = refusal(&cp(scratch.path(), arguments, Stdio::null()));
        assert!(line.contains("is not a regular file"), "{line}");
    }
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(!at("b").exists());
}
