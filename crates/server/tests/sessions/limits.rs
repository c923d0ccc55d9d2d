//! Bounds on sessions and on time.

use std::path::PathBuf;
use std::time::Duration;

use crate::client::Client;
use crate::data_port;
use crate::running::{PASSWORD, Running, USER, eventually};

fn turned_away(server: &Running) {
    let mut client = Client::silent(server.address);
    client.next(421);
    client.closed();
}

#[test]
fn sessions_in_all() {
    let server = Running::with(|config| config.max_sessions = 2);
    let first = server.connect();
    let _second = server.connect();
    turned_away(&server);
    drop(first);
    eventually("a place is free again", || {
        Client::silent(server.address).reply().code == 220
    });
}

#[test]
fn sessions_per_address() {
    let server = Running::with(|config| config.max_sessions_per_address = 1);
    let _first = server.connect();
    turned_away(&server);
}

#[test]
fn sessions_per_user() {
    let server = Running::with(|config| {
        config.users = Some(PathBuf::new());
        config.max_sessions_per_user = 1;
    });
    let first = server.user();
    let mut second = server.connect();
    second.expect(&format!("USER {USER}"), 331);
    second.expect(&format!("PASS {PASSWORD}"), 421);
    second.closed();
    drop(first);
    server.anonymous();
}

#[test]
fn an_idle_session_is_told_and_closed() {
    let server = Running::start();
    let mut client = server.anonymous();
    // In one go, so that it is not idle in between on however busy a machine.
    client.raw("SITE IDLE 1\r\nNOOP\r\n");
    client.next(200);
    client.next(200);
    client.next(421);
    client.closed();
}

#[test]
fn a_server_may_have_a_shorter_idle_time() {
    let server = Running::with(|config| config.idle_timeout = Duration::from_secs(1));
    let mut client = server.connect();
    client.raw("USER anonymous\r\nPASS test@\r\n");
    client.next(331);
    client.next(230);
    client.next(421);
    client.closed();
}

#[test]
fn a_transfer_is_not_idle() {
    let server = Running::start();
    let mut client = server.anonymous();
    let address = client.pasv();
    // In one go, so that it is not idle in between on however busy a machine.
    client.raw("SITE IDLE 1\r\nSTOR up\r\n");
    client.next(200);
    let data = data_port::connect(address);
    client.next(150);
    std::thread::sleep(Duration::from_millis(1500));
    // Its turn comes after the transfer.
    client.send("NOOP");
    data_port::pour(data, b"late");
    client.next(226);
    client.next(200);
}

#[test]
fn data_streams_in_all() {
    let server = Running::with(|config| {
        config.max_streams = 1;
        config.queue_timeout = Duration::ZERO;
    });
    server.file("f", 10);
    let mut first = server.anonymous();
    let address = first.pasv();
    first.send("STOR up");
    let data = data_port::connect(address);
    first.next(150);
    let mut second = server.anonymous();
    second.pasv();
    let refused = second.ask("RETR f");
    assert_eq!(refused.code / 100, 4, "{refused:?}");
    data_port::pour(data, b"x");
    first.next(226);
    let address = second.pasv();
    second.send("RETR f");
    assert_eq!(data_port::drain(data_port::connect(address)).len(), 10);
}
