//! Memory that remains after a burst of logins. The test is alone in its process, because it measures
//! the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "everything in this crate is a test"
)]

mod serving;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use proto::path::VPath;
use proto::server::AccountRights;
use server::ReloadRequests;
use server::config::ServerConfig;
use server::users::{self, UserAccount};

const LOGINS: usize = 40;

/// Largest memory that may remain, bytes: less than two password checks take (19 MiB each).
const MAX_MEMORY: usize = 24 << 20;

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

fn log_in(address: SocketAddr) -> TcpStream {
    let mut control = BufReader::new(TcpStream::connect(address).unwrap());
    let request = b"USER ann\r\nPASS correct horse\r\n";
    control.get_mut().write_all(request).unwrap();
    for code in ["220", "331", "230"] {
        let mut reply = String::new();
        control.read_line(&mut reply).unwrap();
        assert!(reply.starts_with(code), "{reply}");
    }
    control.into_inner()
}

#[test]
fn memory_is_released_after_a_burst_of_password_checks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users");
    let account = UserAccount {
        name: "ann".to_owned(),
        root: None,
        rights: AccountRights {
            write: true,
            third_party: false,
        },
        home: VPath::root(),
    };
    users::add(&file, &account, b"correct horse").unwrap();
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: dir.path().to_owned(),
        users: Some(file),
        // As on a host with many processors: each thread has its own allocator arena.
        max_password_checks: Some(16),
        ..ServerConfig::default()
    };
    let (announcement, shutdown, server) = serving::start_server(config, ReloadRequests::never());
    let address = announcement.address;
    drop(log_in(address));
    let before = resident();
    let burst: Vec<_> = (0..LOGINS)
        .map(|_| thread::spawn(move || log_in(address)))
        .collect();
    let sessions: Vec<TcpStream> = burst.into_iter().map(|t| t.join().unwrap()).collect();
    let left = resident().saturating_sub(before);
    assert!(left < MAX_MEMORY, "{left} bytes after {LOGINS} logins");
    drop(sessions);
    shutdown.request();
    server.join().unwrap().unwrap();
}
