//! `longhaul advisor exec`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::json;

use crate::programs::{advisor, stderr, stdout};
use crate::scripted::ScriptedAdvisor;

/// A program of this name that prints its arguments, one a line, and exits with 23.
fn program(place: &Path, name: &str) -> String {
    let path = place.join(name);
    std::fs::write(&path, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 23\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn exec(arguments: &[&str]) -> Output {
    advisor(&[&["exec"], arguments].concat())
}

fn advising() -> ScriptedAdvisor {
    ScriptedAdvisor::start(Ok(json!({
        "set_buffer_bytes": 4_194_304,
        "streams": 8,
        "rtt_seconds": 0.1,
        "asymmetric": false,
        "confidence": 0.9,
        "why": "A long path.",
    })))
}

#[test]
fn a_wrapped_program_gets_the_flags_first_and_gives_its_own_exit_code() {
    let place = tempfile::tempdir().unwrap();
    let ncftpget = program(place.path(), "ncftpget");
    let server = advising();
    let address = server.server();
    let output = exec(&[
        "--server", &address, "--", &ncftpget, "-u", "ann", "h", ".", "/f",
    ]);
    assert_eq!(stdout(&output), "-B\n4194304\n-u\nann\nh\n.\n/f\n");
    assert_eq!(output.status.code(), Some(23));
    let said = stderr(&output);
    assert!(
        said.contains("the advice is -B 4194304: A long path."),
        "{said}"
    );
    let output = exec(&["-q", "--server", &address, &ncftpget, "h"]);
    assert_eq!(stdout(&output), "-B\n4194304\nh\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn without_an_answer_the_program_runs_unchanged_and_a_message_says_so() {
    let place = tempfile::tempdir().unwrap();
    let curl = program(place.path(), "curl");
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let output = exec(&["--server", &address, "--", &curl, "-O", "http://h/f"]);
    assert_eq!(stdout(&output), "-O\nhttp://h/f\n");
    assert_eq!(output.status.code(), Some(23));
    let said = stderr(&output);
    assert!(
        said.contains("runs without advice: no advice server"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn an_unknown_path_leaves_the_program_unchanged() {
    let place = tempfile::tempdir().unwrap();
    let curl = program(place.path(), "curl");
    let why = "Nothing is known.";
    let server = ScriptedAdvisor::start(Ok(
        json!({"asymmetric": false, "confidence": 0.0, "why": why}),
    ));
    let output = exec(&["--server", &server.server(), "--", &curl, "http://h/f"]);
    assert_eq!(stdout(&output), "http://h/f\n");
    assert!(stderr(&output).contains(why));
}

#[test]
fn a_program_without_known_flags_or_data_server_runs_unchanged() {
    let place = tempfile::tempdir().unwrap();
    let other = program(place.path(), "other");
    let output = exec(&["--", &other, "http://h/f"]);
    assert_eq!(stdout(&output), "http://h/f\n");
    assert!(stderr(&output).contains("it is no program whose flags are known"));
    let curl = program(place.path(), "curl");
    let output = exec(&["--", &curl, "s3://bucket/f"]);
    assert_eq!(stdout(&output), "s3://bucket/f\n");
    assert!(stderr(&output).contains("s3://bucket/f names a bucket and no data server"));
    let rclone = program(place.path(), "rclone");
    let output = exec(&["--", &rclone, "copy", "a:b", "c"]);
    assert_eq!(stdout(&output), "copy\na:b\nc\n");
    assert!(stderr(&output).contains("use --server HOST"));
}

#[test]
fn a_program_that_cannot_run_gives_126_or_127() {
    let output = exec(&["-q", "--", "/nowhere/curl", "x"]);
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("curl");
    std::fs::write(&file, "").unwrap();
    let output = exec(&["-q", "--", file.to_str().unwrap(), "x"]);
    assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
}
