//! Memory for listing and for removing a large directory. The test is alone in its process, because
//! it measures the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "everything in this crate is a test"
)]

mod measured_session;
mod serving;

use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use server::ReloadRequests;
use server::config::{Anonymous, ServerConfig};

use measured_session::{ask, most_resident, next};

const NAMES: usize = 200_000;

/// Largest memory, bytes. The text of the listing has some 50 MB, the names alone 20 MB.
const MAX_MEMORY: usize = 12 << 20;

/// Opens a session and logs in.
fn log_in(address: SocketAddr) -> BufReader<TcpStream> {
    let mut control = BufReader::new(TcpStream::connect(address).unwrap());
    next(&mut control, "220");
    ask(&mut control, "USER anonymous", "331");
    ask(&mut control, "PASS x@", "230");
    control
}

/// Lists `directory`; returns the number of bytes received.
fn list(address: SocketAddr, directory: &str) -> usize {
    let mut control = log_in(address);
    let reply = ask(&mut control, "EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = TcpStream::connect((address.ip(), port)).unwrap();
    ask(&mut control, &format!("MLSD {directory}"), "150");
    let mut bytes = 0;
    let mut chunk = [0; 16 << 10];
    loop {
        match data.read(&mut chunk).unwrap() {
            0 => break,
            n => bytes += n,
        }
    }
    next(&mut control, "226");
    bytes
}

#[test]
fn a_large_directory_is_listed_and_removed_in_bounded_memory() {
    // In memory (tmpfs) so many names are created and removed in seconds.
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let root = root.unwrap();
    for directory in ["small", "large"] {
        std::fs::create_dir(root.path().join(directory)).unwrap();
    }
    let file = root.path().join("large/file");
    std::fs::File::create(&file).unwrap();
    for n in 1..NAMES {
        let name = root.path().join(format!("large/{n:0>60}"));
        // A hard link is cheaper than another file, until the file system's limit of links.
        if std::fs::hard_link(&file, &name).is_err() {
            std::fs::File::create(&name).unwrap();
        }
    }
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: root.path().to_owned(),
        anonymous: Some(Anonymous::Rw),
        ..ServerConfig::default()
    };
    let (announcement, shutdown, server) = serving::start_server(config, ReloadRequests::never());
    let address = announcement.address;
    list(address, "small");
    let before = most_resident();
    let bytes = list(address, "large");
    let grown = most_resident() - before;
    assert!(bytes > NAMES * 100, "{bytes}");
    assert!(grown < MAX_MEMORY, "{grown} bytes for a listing of {bytes}");
    ask(&mut log_in(address), "SITE RDEL large", "250");
    assert!(!root.path().join("large").exists());
    let grown = most_resident() - before;
    assert!(grown < MAX_MEMORY, "{grown} bytes for a removal");
    shutdown.request();
    server.join().unwrap().unwrap();
}
