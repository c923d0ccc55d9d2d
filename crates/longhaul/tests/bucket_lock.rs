//! One copy at a time writes an object: of the same server.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

fn put(place: &Path, endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .args(["cp", "--retries", "0", "f", "s3://bucket/f"])
        .current_dir(place)
        .env_remove("RUST_LOG")
        .env("LONGHAUL_CONFIG", "off")
        .env("LONGHAUL_HISTORY", "off")
        .env("XDG_STATE_HOME", place.join("state"))
        .env("HOME", place)
        .env("AWS_NO_SIGN_REQUEST", "true")
        .env("AWS_ENDPOINT_URL", endpoint)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

#[test]
fn buckets_of_one_name_at_two_servers_are_written_at_the_same_time() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), "x").unwrap();
    // Never answers, so that the first copy keeps its lock.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut first = put(place.path(), &endpoint).spawn().unwrap();
    let _connection = silent.accept().unwrap();
    let same = put(place.path(), &endpoint).output().unwrap();
    let closed = {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", other.local_addr().unwrap())
    };
    let other = put(place.path(), &closed).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let text = String::from_utf8_lossy(&same.stderr);
    assert_eq!(same.status.code(), Some(7), "{text}");
    assert!(text.contains("another copy"), "{text}");
    let text = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(5), "{text}");
}
