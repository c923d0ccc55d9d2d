//! The programs of `longhaul advisor`, `longhaul lab` and `longhaul queue`, which another installation may lack.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: a child that another thread starts holds the programs that are being written open, and nobody can
/// execute those (ETXTBSY, execve(2)).
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A `longhaul` with nothing beside it, in a directory of its own.
fn lonely(place: &Path) -> Command {
    let directory = place.join("bin");
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join("longhaul");
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), &program).unwrap();
    let mut command = Command::new(program);
    command.current_dir(place).env("PATH", "");
    command
}

/// A program that says its words and ends with 5.
fn script(file: &Path, mode: u32) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, "#!/bin/sh\necho \"$0 $*\"\nexit 5\n").unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

#[test]
fn a_missing_program_is_named_with_the_way_to_get_it() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    for words in [
        &["lab", "list"][..],
        &["advisor", "list"],
        &["queue", "list"],
    ] {
        let output = lonely(place.path()).args(words).output().unwrap();
        let (said, name) = (said(&output), format!("longhaul-{}", words[0]));
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains(&name) && said.contains("packages"), "{said}");
    }
    // Its manual needs no program.
    let help = lonely(place.path()).args(["help", "lab", "net"]).output();
    assert!(help.unwrap().status.success());
    let settings = place.path().join("advisor.toml");
    fs::write(&settings, "").unwrap();
    let output = lonely(place.path())
        .args(["serve", "--anonymous", "ro", "--check", "--root", "."])
        .arg("--advisor")
        .arg(&settings)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("longhaul-advisor"));
}

#[test]
fn a_program_of_path_is_run_with_all_words_and_its_exit_code() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let on_path = place.path().join("p");
    script(&on_path.join("longhaul-lab"), 0o755);
    // One beside it that cannot be executed does not hide it.
    script(&place.path().join("bin/longhaul-lab"), 0o644);
    let output = lonely(place.path())
        .args(["lab", "exec", "a", "--", "-x y"])
        .env("PATH", &on_path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(said(&output).ends_with("/p/longhaul-lab exec a -- -x y\n"));
}

#[test]
fn a_worker_is_run_by_the_program_of_the_queue() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    script(&place.path().join("bin/longhaul-queue"), 0o755);
    let output = lonely(place.path())
        .args(["worker", "--jobs", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(said(&output).ends_with("/longhaul-queue worker --jobs 2\n"));
}

#[test]
fn a_relative_directory_of_path_runs_nothing() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    script(&place.path().join("p/longhaul-lab"), 0o755);
    script(&place.path().join("longhaul-lab"), 0o755);
    for path in ["p", "", ":/nowhere", "."] {
        let output = lonely(place.path())
            .args(["lab", "list"])
            .env("PATH", path)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(7), "{path}: {}", said(&output));
    }
}
