//! Command lines that arrive together, in pieces, with LF alone, or with Telnet sequences.

use std::time::Duration;

use socket2::SockRef;

use super::data_port;
use super::in_process_server::InProcessServer;

#[test]
fn commands_in_one_packet_are_answered_in_order() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.send_bytes("NOOP\r\nMKD a\r\nCWD a\r\nPWD\r\nNONSENSE\r\nRMD /a\r\nQUIT\r\n");
    for code in [200, 257, 250, 257, 500, 250, 221] {
        client.expect_code(code);
    }
    client.expect_close();
}

#[test]
fn lines_may_arrive_in_pieces_and_end_with_lf() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    for piece in ["NO", "O", "P\r", "\nPW", "D\n"] {
        client.send_bytes(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    client.expect_code(200);
    client.expect_code(257);
    client.send_bytes("NOOP\nNOOP\n\nNOOP\n");
    for code in [200, 200, 500, 200] {
        client.expect_code(code);
    }
}

#[test]
fn telnet_sequences_are_stripped_even_in_urgent_data() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.send_bytes(b"\xff\xf4\xff\xf2NOOP\r\n");
    client.expect_code(200);
    // IAC IP, then IAC and DM as urgent data: the Telnet Synch (RFC 854).
    client.send_bytes(b"\xff\xf4\xff");
    SockRef::from(&client.stream)
        .send_out_of_band(b"\xf2")
        .unwrap();
    client.send_bytes(b"ABOR\r\nNOOP\r\n");
    client.expect_code(226);
    client.expect_code(200);
}

#[test]
fn an_endless_line_gets_one_500() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    for _ in 0..64 {
        client.send_bytes([b'x'; 16 * 1024]);
    }
    client.send_bytes("\r\nNOOP\r\n");
    client.expect_code(500);
    client.expect_code(200);
}

#[test]
fn pipelined_commands_wait_for_the_transfer() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 300_000);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send_bytes("RETR f\r\nNOOP\r\nPWD\r\nQUIT\r\n");
    client.expect_code(150);
    client.expect_silence();
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(226);
    for code in [200, 257, 221] {
        client.expect_code(code);
    }
    client.expect_close();
}

#[test]
fn more_commands_than_fit_in_memory_are_all_answered() {
    const COMMANDS: usize = 20_000;
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 100_000);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("RETR f");
    client.expect_code(150);
    let mut sender = client.stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all("NOOP\r\n".repeat(COMMANDS).as_bytes())
    });
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(226);
    for _ in 0..COMMANDS {
        client.expect_code(200);
    }
    flood.join().unwrap().unwrap();
}
