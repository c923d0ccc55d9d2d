//! A burst of PASV commands starts few threads. The test is alone in its process, because it counts the
//! threads of the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "everything in this crate is a test"
)]

mod serving;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use server::ReloadRequests;
use server::config::{Anonymous, ServerConfig};

const SESSIONS: usize = 400;
/// Number of PASV commands per session.
const EACH: usize = 20;
/// Largest number of new threads. The runtime starts a few more threads than run at the same time;
/// without a limit there are over a hundred.
const MAX_THREADS: usize = 40;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn read_until(stream: &mut TcpStream, mark: &[u8], times: usize) {
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    while received.windows(mark.len()).filter(|w| *w == mark).count() < times {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&chunk[..n]);
    }
}

fn log_in(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(b"USER ftp\r\nPASS x@\r\n").unwrap();
    read_until(&mut stream, b"230 ", 1);
    stream
}

#[test]
fn a_burst_of_pasv_starts_few_threads() {
    let root = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: root.path().to_owned(),
        anonymous: Some(Anonymous::Ro),
        ..ServerConfig::default()
    };
    let (announcement, shutdown, server) = serving::start_server(config, ReloadRequests::never());
    let address = announcement.address;
    let mut sessions: Vec<TcpStream> = (0..SESSIONS).map(|_| log_in(address)).collect();
    let before = threads();
    for session in &mut sessions {
        session.write_all(&b"PASV\r\n".repeat(EACH)).unwrap();
    }
    for session in &mut sessions {
        read_until(session, b"227 ", EACH);
    }
    // Idle threads live for seconds, so every thread that was started is counted.
    let made = threads().saturating_sub(before);
    assert!(made <= MAX_THREADS, "{made} threads");
    drop(sessions);
    shutdown.request();
    server.join().unwrap().unwrap();
}
