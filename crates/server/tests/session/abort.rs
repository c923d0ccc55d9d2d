//! ABOR, and clients that go away: the transfer ends, the session or the server stays.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use socket2::SockRef;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually, test_bytes};

/// More than all socket buffers between both ends hold.
const LARGE: usize = 64 << 20;

fn still_usable(server: &InProcessServer, client: &mut ControlClient) {
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
fn abor_during_retr_is_426_then_226() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let data = begin_retrieve(&server, &mut client);
    client.send("ABOR");
    client.expect_code(426);
    client.expect_code(226);
    drop(data);
    still_usable(&server, &mut client);
}

#[test]
fn abor_with_a_telnet_synch_and_commands_before_it() {
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
    still_usable(&server, &mut client);
}

#[test]
fn abor_during_stor_keeps_what_came() {
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
    still_usable(&server, &mut client);
}

#[test]
fn abor_while_no_data_connection_comes() {
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
    still_usable(&server, &mut client);
}

#[test]
fn abor_in_mode_e() {
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
    still_usable(&server, &mut client);
}

#[test]
fn abor_stops_a_checksum() {
    let server = InProcessServer::start();
    // A hole: nothing to read from the disk, and minutes to sum.
    File::create(server.path("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    // More than there are processors, so that some wait for their turn.
    let places = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut clients: Vec<_> = (0..=places).map(|_| server.anonymous_client()).collect();
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
    still_usable(&server, &mut clients[0]);
}

#[test]
fn abor_when_idle() {
    let server = InProcessServer::start();
    server.anonymous_client().expect_reply("ABOR", 226);
}

#[test]
fn a_client_that_goes_away_ends_its_transfer() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let mut data = begin_retrieve(&server, &mut client);
    drop(client);
    let mut rest = Vec::new();
    let _ = data.read_to_end(&mut rest); // a reset is as good as an end
    assert!(rest.len() < LARGE - 100_000, "{}", rest.len());
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn quit_during_a_transfer_waits_for_it() {
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
