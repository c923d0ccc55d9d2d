//! `--log` and `--trace` write into nothing that is copied.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn longhaul(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .current_dir(directory)
        .env("LONGHAUL_CONFIG", "off")
        .env("LONGHAUL_HISTORY", "off")
        .env("XDG_STATE_HOME", directory.join("state"))
        .output()
        .unwrap()
}

#[test]
fn a_log_or_a_trace_among_what_is_copied_is_refused_and_nothing_is_touched() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::create_dir_all(at("dst/src")).unwrap();
    fs::write(at("src/a.dat"), "data").unwrap();
    fs::write(at("list"), "src/a.dat b\n").unwrap();
    std::os::unix::fs::symlink("src", at("linked")).unwrap();
    for flag in ["--log", "--trace", "--journal", "--failed"] {
        for (words, file) in [
            (&["cp", "src/a.dat", "b"][..], "src/a.dat"),
            (&["cp", "src/a.dat", "b"], "b"),
            (&["cp", "src/a.dat", "dst"], "dst/a.dat"),
            (&["cp", "src/*.dat", "dst"], "dst/x.dat"),
            (&["cp", "-r", "src", "new"], "src/a.dat"),
            (&["cp", "-r", "src", "new"], "src/sub/log"),
            (&["cp", "-r", "src", "new"], "linked/log"),
            (&["cp", "-r", "src", "new"], "new/log"),
            (&["cp", "-r", "src", "dst"], "dst/src/log"),
            (&["sync", "src", "dst"], "src/log"),
            (&["sync", "src", "dst"], "dst/log"),
            (&["cp", "--from", "list"], "list"),
        ] {
            if words[0] == "sync" && matches!(flag, "--journal" | "--failed") {
                continue;
            }
            let words = [words, &[flag, file]].concat();
            let output = longhaul(scratch.path(), &words);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
            assert!(text.contains(flag), "{words:?}: {text}");
            assert_eq!(fs::read_to_string(at("src/a.dat")).unwrap(), "data");
            assert_eq!(fs::read_dir(at("src")).unwrap().count(), 2, "{words:?}");
            assert_eq!(fs::read_dir(at("dst")).unwrap().count(), 1, "{words:?}");
            assert!(!at("b").exists() && !at("new").exists(), "{words:?}");
        }
    }
    assert_eq!(fs::read_to_string(at("list")).unwrap(), "src/a.dat b\n");
}

#[test]
fn a_refused_log_has_a_summary_with_json_too() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), "data").unwrap();
    let output = longhaul(scratch.path(), &["cp", "--json", "--log", "a", "a", "b"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&summary["event"], &summary["exit"]),
        (&"summary".into(), &2.into())
    );
}

#[test]
fn a_log_beside_what_is_copied_is_written() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir_all(at("far/src")).unwrap();
    fs::write(at("far/src/a.dat"), "data").unwrap();
    for (number, words) in [
        &["cp", "-r", "far/src", "."][..],
        &["cp", "far/src/*.dat", "."],
        &["cp", "far/src/a.dat", "b"],
        &["sync", "far/src", "c"],
    ]
    .into_iter()
    .enumerate()
    {
        let (log, trace) = (format!("log{number}"), format!("trace{number}"));
        let words = [words, &["--log", &log, "--trace", &trace]].concat();
        let output = longhaul(scratch.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        assert!(fs::read_to_string(at(&log)).unwrap().contains("1 file"));
    }
}
