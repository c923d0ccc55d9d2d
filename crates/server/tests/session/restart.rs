//! REST with offsets and ranges, ERET and ESTO, in both modes.

use proto::eblock::BlockHeader;

use super::client::{ControlClient, port_argument};
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

fn retrieve(client: &mut ControlClient, command: &str) -> Vec<u8> {
    let address = client.pasv();
    client.send(command);
    let bytes = data_port::read_all(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    bytes
}

/// Sends REST before PASV and the transfer command.
fn retrieve_from(client: &mut ControlClient, rest: &str, command: &str) -> Vec<u8> {
    client.expect_reply(rest, 350);
    retrieve(client, command)
}

fn store(client: &mut ControlClient, command: &str, bytes: &[u8]) {
    let address = client.pasv();
    client.send(command);
    data_port::send_and_close(data_port::connect(address), bytes);
    client.expect_code(150);
    client.expect_code(226);
}

#[test]
fn rest_with_an_offset_applies_to_one_retrieve() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 100_000);
    let mut client = server.anonymous_client();
    assert_eq!(
        retrieve_from(&mut client, "REST 40000", "RETR f"),
        bytes[40_000..]
    );
    // REST applies to one transfer only.
    assert_eq!(retrieve(&mut client, "RETR f"), bytes);
    assert_eq!(retrieve_from(&mut client, "REST 200000", "RETR f"), b"");
    assert_eq!(
        retrieve_from(&mut client, "REST 0-40000", "RETR f"),
        bytes[40_000..]
    );
    for bad in ["REST -5", "REST x", "REST 0-", "REST 9-3"] {
        client.expect_reply(bad, 501);
    }
}

#[test]
fn a_store_from_an_offset_keeps_the_bytes_before_it() {
    let server = InProcessServer::start();
    server.create_file("f", 100_000);
    let bytes = test_bytes(80_000);
    let mut client = server.anonymous_client();
    client.expect_reply("REST 50000", 350);
    store(&mut client, "STOR f", &bytes[50_000..]);
    assert!(server.read_file("f") == bytes);
    store(&mut client, "STOR f", b"short");
    assert_eq!(server.read_file("f"), b"short");
}

#[test]
fn eret_and_esto_transfer_parts_of_a_file() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 100_000);
    let mut client = server.anonymous_client();
    assert_eq!(
        retrieve(&mut client, "ERET P 1000 500 f"),
        bytes[1000..1500]
    );
    assert_eq!(
        retrieve(&mut client, "ERET P 99000 5000 f"),
        bytes[99_000..]
    );
    assert_eq!(retrieve(&mut client, "ERET P 200000 5 f"), b"");
    store(&mut client, "ESTO A 10 f", b"0123456789");
    let mut expected = bytes;
    expected[10..20].copy_from_slice(b"0123456789");
    assert!(server.read_file("f") == expected);
}

#[test]
fn esto_creates_a_missing_file() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    store(&mut client, "ESTO A 0 new", b"0123456789");
    assert_eq!(server.read_file("new"), b"0123456789");
    store(&mut client, "ESTO A 3 new", b"ab");
    assert_eq!(server.read_file("new"), b"012ab56789", "nothing is cut");
    store(&mut client, "ESTO A 4 gap", b"after");
    assert_eq!(server.read_file("gap"), b"\0\0\0\0after");
    store(&mut client, "ESTO A 0 empty", b"");
    assert_eq!(server.read_file("empty"), b"");
}

#[test]
fn rest_with_ranges_skips_them_in_mode_e() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 100_000);
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let listener = data_port::listen(server.ip());
    let argument = port_argument(listener.local_addr().unwrap());
    client.expect_reply(&format!("PORT {argument}"), 200);
    client.expect_reply("REST 0-30000,60000-90000", 350);
    client.send("RETR f");
    let mut stream = data_port::accept(&listener);
    let mut got = Vec::new();
    data_port::read_blocks(&mut stream, &mut got);
    client.expect_code(150);
    client.expect_code(226);
    assert!(got[..30_000].iter().all(|b| *b == 0), "not sent again");
    assert!(got[30_000..60_000] == bytes[30_000..60_000]);
    assert!(
        got[60_000..90_000].iter().all(|b| *b == 0),
        "not sent again"
    );
    assert!(got[90_000..] == bytes[90_000..]);

    // Offsets of ERET count from the start of the part.
    client.send("ERET P 5000 1000 f");
    let mut part = Vec::new();
    data_port::read_blocks(&mut stream, &mut part);
    client.expect_code(125);
    client.expect_code(226);
    assert_eq!(part, bytes[5000..6000]);
}

#[test]
fn offsets_of_esto_in_mode_e_count_from_its_offset() {
    let server = InProcessServer::start();
    let mut expected = server.create_file("f", 10_000);
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    client.send("ESTO A 4000 f");
    let mut stream = data_port::connect(address);
    data_port::send_block(&mut stream, 3, b"three");
    data_port::send_header(&mut stream, BlockHeader::eof(1, false));
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(226);
    expected[4003..4008].copy_from_slice(b"three");
    assert!(server.read_file("f") == expected);
}
