//! ABOR and clients that disconnect: the transfer ends; the session or at least the server goes on.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use socket2::SockRef;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually, test_bytes};

/// More bytes than all socket buffers between both ends hold.
const LARGE: usize = 64 << 20;

fn assert_usable(server: &InProcessServer, client: &mut ControlClient) {
    let bytes = server.create_file("small", 1000);
    let address = client.pasv();
    client.send("RETR small");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(150);
    client.expect_code(226);
}

fn begin_retrieve(server: &InProcessServer, client: &mut ControlClient) -> std::net::TcpStream {
    server.create_file("large", LARGE);
    let address = client.pasv();
    client.send("RETR large");
    let mut data = data_port::connect(address);
    client.expect_code(150);
    data.read_exact(&mut [0; 100_000]).unwrap();
    data
}

#[test]
fn abor_during_retr_replies_426_then_226() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let data = begin_retrieve(&server, &mut client);
    client.send("ABOR");
    client.expect_code(426);
    client.expect_code(226);
    drop(data);
    assert_usable(&server, &mut client);
}

#[test]
fn abor_with_a_telnet_synch_overtakes_waiting_commands() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let _data = begin_retrieve(&server, &mut client);
    client.send_bytes(b"NOOP\r\n\xff\xf4\xff");
    SockRef::from(&client.stream)
        .send_out_of_band(b"\xf2")
        .unwrap();
    client.send("ABOR");
    client.expect_code(426);
    client.expect_code(226);
    client.expect_code(200);
    assert_usable(&server, &mut client);
}

#[test]
fn abor_during_stor_keeps_the_received_bytes() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("STOR up");
    let mut data = data_port::connect(address);
    client.expect_code(150);
    let part = test_bytes(200_000);
    data.write_all(&part).unwrap();
    eventually("the part is stored", || {
        std::fs::metadata(server.path("up")).is_ok_and(|m| m.len() == 200_000)
    });
    client.send("ABOR");
    client.expect_code(426);
    client.expect_code(226);
    assert_eq!(server.read_file("up"), part);
    assert_usable(&server, &mut client);
}

#[test]
fn abor_ends_the_wait_for_a_data_connection() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let _address = client.pasv();
    client.send("STOR up");
    std::thread::sleep(Duration::from_millis(100));
    client.send("STAT");
    client.expect_code_after_150(213);
    client.send("ABOR");
    client.expect_code(426);
    client.expect_code(226);
    assert_usable(&server, &mut client);
}

#[test]
fn abor_ends_a_store_in_mode_e() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    client.send("STOR up");
    let mut data = data_port::connect(address);
    data_port::send_block(&mut data, 0, &test_bytes(50_000));
    client.expect_code_after_markers(150);
    client.send("ABOR");
    client.expect_code_after_markers(426);
    client.expect_code(226);
    client.expect_reply("MODE S", 200);
    assert_usable(&server, &mut client);
}

#[test]
fn abor_stops_running_and_waiting_checksums() {
    let server = InProcessServer::start();
    // A sparse file: nothing is read from the disk, but the checksum takes minutes.
    File::create(server.path("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    // More clients than processors, so some checksums wait for a permit.
    let permits = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut clients: Vec<_> = (0..=permits).map(|_| server.anonymous_client()).collect();
    for client in &mut clients {
        client.send_bytes("CKSM MD5 0 -1 huge\r\nNOOP\r\n");
    }
    for client in clients.iter_mut().rev() {
        client.send("STAT");
        client.expect_code(213);
        client.send("ABOR");
        client.expect_code(426);
        client.expect_code(226);
        client.expect_code(200);
    }
    std::fs::remove_file(server.path("huge")).unwrap();
    assert_usable(&server, &mut clients[0]);
}

#[test]
fn abor_without_a_transfer_replies_226() {
    let server = InProcessServer::start();
    server.anonymous_client().expect_reply("ABOR", 226);
}

#[test]
fn a_transfer_ends_when_its_client_disconnects() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let mut data = begin_retrieve(&server, &mut client);
    drop(client);
    let mut rest = Vec::new();
    let _ = data.read_to_end(&mut rest); // a reset is an end, too
    assert!(rest.len() < LARGE - 100_000, "{}", rest.len());
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn quit_during_a_transfer_waits_for_its_end() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let mut data = begin_retrieve(&server, &mut client);
    client.send("QUIT");
    let mut rest = Vec::new();
    data.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), LARGE - 100_000);
    client.expect_code(226);
    client.expect_code(221);
    client.expect_close();
}
