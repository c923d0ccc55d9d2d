//! Memory for a hundred transfers at a time. The test is alone in its process, because it measures the process, which is also that
//! of the clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "everything in this crate is a test"
)]

mod measured_session;
mod serving;

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Barrier;

use server::ReloadRequests;
use server::config::{Anonymous, ServerConfig};

use measured_session::{ask, most_resident, next};

/// Transfers at a time, half of them in each direction.
const TRANSFERS: usize = 100;
/// Bytes of each. Much more than socket buffers hold.
const LENGTH: usize = 12 << 20;
/// Largest memory that a transfer adds to the server's process, bytes (docs/server.md).
const MAX_MEMORY: usize = 2 << 20;
/// Bytes that a client moves before it waits for all others.
const FIRST: usize = 256 << 10;

/// Begins a transfer in a session of its own.
fn begin(address: SocketAddr, command: &str) -> (BufReader<TcpStream>, TcpStream) {
    let mut control = BufReader::new(TcpStream::connect(address).unwrap());
    next(&mut control, "220");
    ask(&mut control, "USER anonymous", "331");
    ask(&mut control, "PASS x@", "230");
    ask(&mut control, "TYPE I", "200");
    let reply = ask(&mut control, "EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let data = TcpStream::connect((address.ip(), port)).unwrap();
    ask(&mut control, command, "150");
    (control, data)
}

/// Fetches the file; returns the number of bytes.
fn get(address: SocketAddr, all_run: &Barrier) -> usize {
    let (mut control, mut data) = begin(address, "RETR f");
    let mut piece = vec![0; 16 << 10];
    let (mut received, mut has_waited) = (0, false);
    loop {
        match data.read(&mut piece).unwrap() {
            0 => break,
            n => received += n,
        }
        if received >= FIRST && !std::mem::replace(&mut has_waited, true) {
            all_run.wait();
        }
    }
    next(&mut control, "226");
    received
}

/// Stores a file; returns the number of bytes.
fn put(address: SocketAddr, number: usize, all_run: &Barrier) -> usize {
    let (mut control, mut data) = begin(address, &format!("STOR up{number}"));
    let piece = vec![7; 16 << 10];
    let (mut sent, mut has_waited) = (0, false);
    while sent < LENGTH {
        data.write_all(&piece).unwrap();
        sent += piece.len();
        if sent >= FIRST && !std::mem::replace(&mut has_waited, true) {
            all_run.wait();
        }
    }
    drop(data);
    next(&mut control, "226");
    sent
}

/// Runs so many transfers at a time.
fn transfer(address: SocketAddr, transfers: usize) {
    let all_run = Barrier::new(transfers);
    std::thread::scope(|scope| {
        let all_run = &all_run;
        let runs: Vec<_> = (0..transfers)
            .map(|number| {
                scope.spawn(move || match number % 2 {
                    0 => get(address, all_run),
                    _ => put(address, number, all_run),
                })
            })
            .collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), LENGTH);
        }
    });
}

#[test]
fn a_hundred_transfers_at_a_time_take_bounded_memory() {
    let root = tempfile::tempdir().unwrap();
    // A hole: nothing is read from the disk.
    let file = std::fs::File::create(root.path().join("f")).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        root: root.path().to_owned(),
        anonymous: Some(Anonymous::Rw),
        ..ServerConfig::default()
    };
    let (announcement, shutdown, server) = serving::start_server(config, ReloadRequests::never());
    let address = announcement.address;
    transfer(address, 2);
    let before = most_resident();
    transfer(address, TRANSFERS);
    let grown = most_resident() - before;
    eprintln!(
        "{TRANSFERS} transfers: {} KiB each",
        grown / TRANSFERS / 1024
    );
    assert!(
        grown < TRANSFERS * MAX_MEMORY,
        "{grown} bytes for {TRANSFERS} transfers"
    );
    for number in (1..TRANSFERS).step_by(2) {
        let stored = std::fs::metadata(root.path().join(format!("up{number}"))).unwrap();
        assert_eq!(stored.len(), LENGTH as u64);
    }
    shutdown.request();
    server.join().unwrap().unwrap();
}
