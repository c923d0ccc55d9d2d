//! Limits of sessions, streams and times.

use std::path::PathBuf;
use std::time::Duration;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, PASSWORD, USER, eventually};

fn assert_refused(server: &InProcessServer) {
    let mut client = ControlClient::connect_silently(server.address);
    client.expect_code(421);
    client.expect_close();
}

#[test]
fn the_number_of_sessions_is_limited() {
    let server = InProcessServer::with_config(|config| config.max_sessions = 2);
    let first = server.connect();
    let _second = server.connect();
    assert_refused(&server);
    drop(first);
    eventually("a place is free again", || {
        ControlClient::connect_silently(server.address)
            .read_reply()
            .code
            == 220
    });
}

#[test]
fn the_number_of_sessions_per_address_is_limited() {
    let server = InProcessServer::with_config(|config| config.max_sessions_per_address = 1);
    let _first = server.connect();
    assert_refused(&server);
}

#[test]
fn the_number_of_sessions_per_user_is_limited() {
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
fn an_idle_session_gets_421_and_is_closed() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    // Sent together, so that the session is not idle between them on a busy machine.
    client.send_bytes("SITE IDLE 1\r\nNOOP\r\n");
    client.expect_code(200);
    client.expect_code(200);
    client.expect_code(421);
    client.expect_close();
}

#[test]
fn the_idle_timeout_of_the_server_applies() {
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
fn the_idle_timeout_does_not_apply_during_a_transfer() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let address = client.pasv();
    // Sent together, so that the session is not idle between them on a busy machine.
    client.send_bytes("SITE IDLE 1\r\nSTOR up\r\n");
    client.expect_code(200);
    let data = data_port::connect(address);
    client.expect_code(150);
    std::thread::sleep(Duration::from_millis(1500));
    // NOOP is answered after the transfer.
    client.send("NOOP");
    data_port::send_and_close(data, b"late");
    client.expect_code(226);
    client.expect_code(200);
}

#[test]
fn the_number_of_data_streams_is_limited() {
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
