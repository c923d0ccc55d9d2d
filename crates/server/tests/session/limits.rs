//! Bounds on sessions and on time.

use std::path::PathBuf;
use std::time::Duration;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, PASSWORD, USER, eventually};

fn turned_away(server: &InProcessServer) {
    let mut client = ControlClient::connect_silently(server.address);
    client.expect_code(421);
    client.expect_close();
}

#[test]
fn sessions_in_all() {
    let server = InProcessServer::with_config(|config| config.max_sessions = 2);
    let first = server.connect();
    let _second = server.connect();
    turned_away(&server);
    drop(first);
    eventually("a place is free again", || {
        ControlClient::connect_silently(server.address)
            .read_reply()
            .code
            == 220
    });
}

#[test]
fn sessions_per_address() {
    let server = InProcessServer::with_config(|config| config.max_sessions_per_address = 1);
    let _first = server.connect();
    turned_away(&server);
}

#[test]
fn sessions_per_user() {
    let server = InProcessServer::with_config(|config| {
        config.users = Some(PathBuf::new());
        config.max_sessions_per_user = 1;
    });
    let first = server.user_client();
    let mut second = server.connect();
    second.expect_reply(&format!("USER {USER}"), 331);
    second.expect_reply(&format!("PASS {PASSWORD}"), 421);
    second.expect_close();
    drop(first);
    server.anonymous_client();
}

#[test]
fn an_idle_session_is_told_and_closed() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    // In one go, so that it is not idle in between on however busy a machine.
    client.send_bytes("SITE IDLE 1\r\nNOOP\r\n");
    client.expect_code(200);
    client.expect_code(200);
    client.expect_code(421);
    client.expect_close();
}

#[test]
fn a_server_may_have_a_shorter_idle_time() {
    let server =
        InProcessServer::with_config(|config| config.idle_timeout = Duration::from_secs(1));
    let mut client = server.connect();
    client.send_bytes("USER anonymous\r\nPASS test@\r\n");
    client.expect_code(331);
    client.expect_code(230);
    client.expect_code(421);
    client.expect_close();
}

#[test]
fn a_transfer_is_not_idle() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let address = client.pasv();
    // In one go, so that it is not idle in between on however busy a machine.
    client.send_bytes("SITE IDLE 1\r\nSTOR up\r\n");
    client.expect_code(200);
    let data = data_port::connect(address);
    client.expect_code(150);
    std::thread::sleep(Duration::from_millis(1500));
    // Its turn comes after the transfer.
    client.send("NOOP");
    data_port::send_and_close(data, b"late");
    client.expect_code(226);
    client.expect_code(200);
}

#[test]
fn data_streams_in_all() {
    let server = InProcessServer::with_config(|config| {
        config.max_streams = 1;
        config.queue_timeout = Duration::ZERO;
    });
    server.create_file("f", 10);
    let mut first = server.anonymous_client();
    let address = first.pasv();
    first.send("STOR up");
    let data = data_port::connect(address);
    first.expect_code(150);
    let mut second = server.anonymous_client();
    second.pasv();
    let refused = second.command("RETR f");
    assert_eq!(refused.code / 100, 4, "{refused:?}");
    data_port::send_and_close(data, b"x");
    first.expect_code(226);
    let address = second.pasv();
    second.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)).len(), 10);
}
