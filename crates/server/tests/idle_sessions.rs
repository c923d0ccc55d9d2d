//! Memory of an idle session. The test is alone in its process, because it measures the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "everything in this crate is a test"
)]

mod serving;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use server::ReloadRequests;
use server::config::{Anonymous, ServerConfig};

const SESSIONS: usize = 3000;

/// Number of sessions before the first measurement.
const WARM_UP: usize = 200;

/// Largest memory per session, bytes. The requirement is 500 MB for ten thousand sessions; the aim is
/// a quarter of that.
const MAX_PER_SESSION: usize = 12 * 1024;

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Logs in and sends some commands, so that the session has allocated its buffers.
fn log_in(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"USER anonymous\r\nPASS x@\r\nTYPE I\r\nFEAT\r\nPWD\r\n")
        .unwrap();
    let mut received = Vec::new();
    let mut chunk = [0; 2048];
    while !received.windows(4).any(|w| w == b"257 ") {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&chunk[..n]);
    }
    stream
}

#[test]
fn an_idle_session_takes_little_memory() {
    let root = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: root.path().to_owned(),
        anonymous: Some(Anonymous::Ro),
        max_sessions_per_address: SESSIONS + WARM_UP,
        ..ServerConfig::default()
    };
    let (announcement, shutdown, server) = serving::start_server(config, ReloadRequests::never());
    let address = announcement.address;
    // Threads, allocator arenas and tables exist before the first measurement.
    let mut sessions: Vec<TcpStream> = (0..WARM_UP).map(|_| log_in(address)).collect();
    let before = resident();
    sessions.extend((0..SESSIONS).map(|_| log_in(address)));
    let each = (resident() - before) / SESSIONS;
    assert!(each < MAX_PER_SESSION, "{each} bytes per session");
    println!("{each} bytes per session");
    drop(sessions);
    shutdown.request();
    server.join().unwrap().unwrap();
}
