//! One copy at a time writes an object: of the same server.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

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

/// Has no object, and never answers a store, so that it goes on.
fn answer(connection: &TcpStream, tell: &Sender<()>) {
    let mut connection = connection;
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let is_store = line.starts_with("PUT");
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        line.clear();
        if is_store {
            let _ = tell.send(());
            std::thread::sleep(Duration::from_secs(300));
        }
        let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        connection.write_all(missing.as_bytes()).unwrap();
    }
}

#[test]
fn buckets_of_one_name_at_two_servers_are_written_at_the_same_time() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), "x").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let (tell, storing) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let tell = tell.clone();
            std::thread::spawn(move || answer(&connection.unwrap(), &tell));
        }
    });
    let mut first = put(place.path(), &endpoint).spawn().unwrap();
    storing.recv_timeout(Duration::from_secs(60)).unwrap();
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
