//! Command lines however they arrive: together, in pieces, with LF alone, with Telnet in between.

use std::time::Duration;

use socket2::SockRef;

use crate::data_port;
use crate::running::Running;

#[test]
fn commands_in_one_packet_are_answered_in_order() {
    let server = Running::start();
    let mut client = server.anonymous();
    client.raw("NOOP\r\nMKD a\r\nCWD a\r\nPWD\r\nNONSENSE\r\nRMD /a\r\nQUIT\r\n");
    for code in [200, 257, 250, 257, 500, 250, 221] {
        client.next(code);
    }
    client.closed();
}

#[test]
fn a_line_in_pieces_and_a_line_ended_by_lf() {
    let server = Running::start();
    let mut client = server.anonymous();
    for piece in ["NO", "O", "P\r", "\nPW", "D\n"] {
        client.raw(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    client.next(200);
    client.next(257);
    client.raw("NOOP\nNOOP\n\nNOOP\n");
    for code in [200, 200, 500, 200] {
        client.next(code);
    }
}

#[test]
fn telnet_sequences_are_stripped_also_out_of_band() {
    let server = Running::start();
    let mut client = server.anonymous();
    client.raw(b"\xff\xf4\xff\xf2NOOP\r\n");
    client.next(200);
    // IAC IP, then IAC and DM as urgent data: the Synch of RFC 854.
    client.raw(b"\xff\xf4\xff");
    SockRef::from(&client.stream)
        .send_out_of_band(b"\xf2")
        .unwrap();
    client.raw(b"ABOR\r\nNOOP\r\n");
    client.next(226);
    client.next(200);
}

#[test]
fn an_endless_line_is_refused_once_and_costs_nothing() {
    let server = Running::start();
    let mut client = server.anonymous();
    for _ in 0..64 {
        client.raw([b'x'; 16 * 1024]);
    }
    client.raw("\r\nNOOP\r\n");
    client.next(500);
    client.next(200);
}

#[test]
fn commands_sent_behind_a_transfer_wait_for_it() {
    let server = Running::start();
    let bytes = server.file("f", 300_000);
    let mut client = server.anonymous();
    let address = client.pasv();
    client.raw("RETR f\r\nNOOP\r\nPWD\r\nQUIT\r\n");
    client.next(150);
    client.quiet();
    assert_eq!(data_port::drain(data_port::connect(address)), bytes);
    client.next(226);
    for code in [200, 257, 221] {
        client.next(code);
    }
    client.closed();
}

#[test]
fn far_more_commands_than_wait_in_memory_are_all_answered() {
    const COMMANDS: usize = 20_000;
    let server = Running::start();
    let bytes = server.file("f", 100_000);
    let mut client = server.anonymous();
    let address = client.pasv();
    client.send("RETR f");
    client.next(150);
    let mut sender = client.stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all("NOOP\r\n".repeat(COMMANDS).as_bytes())
    });
    assert_eq!(data_port::drain(data_port::connect(address)), bytes);
    client.next(226);
    for _ in 0..COMMANDS {
        client.next(200);
    }
    flood.join().unwrap().unwrap();
}
