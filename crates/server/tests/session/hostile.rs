//! Clients that mean harm or are broken: the server stays up and others' transfers go on.

use std::io::{Read, Write};
use std::time::Duration;

use proto::eblock::{BlockFlags, BlockHeader};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually};

#[test]
fn a_hundred_thousand_junk_lines_do_not_disturb_a_transfer() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 8 << 20);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("RETR f");
    let mut data = data_port::connect(address);
    let mut got = vec![0; 4 << 20];
    data.read_exact(&mut got).unwrap();

    let mut junk = ControlClient::connect(server.address);
    let lines = "gibberish \u{7f}\u{1} \r\n".repeat(100_000);
    let _ = junk.stream.write_all(lines.as_bytes()); // ends when the server has had enough
    let mut codes = std::iter::from_fn(|| junk.try_read_reply()).map(|reply| reply.code);
    assert!(codes.all(|code| code == 500 || code == 421));

    data.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
    client.expect_code(150);
    client.expect_code(226);
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn a_client_that_never_reads_is_dropped() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(300));
    let mut client = server.anonymous_client();
    // HELP says far more than it is asked: replies fill every buffer between, then the server
    // waits, then it closes, and a closed connection takes no more.
    let lines = "HELP\r\n".repeat(20_000);
    eventually("the client is dropped", || {
        client.stream.write_all(lines.as_bytes()).is_err()
    });
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn a_half_open_client_and_a_silent_one_cost_nothing() {
    let server =
        InProcessServer::with_config(|config| config.login_timeout = Duration::from_millis(300));
    let half = ControlClient::connect(server.address);
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut silent = ControlClient::connect(server.address);
    silent.send_bytes("USER anon"); // and no more
    silent.expect_code(421);
    silent.expect_close();
    drop(server.connect());
}

#[test]
fn lines_do_not_put_off_the_login_time_out() {
    let server =
        InProcessServer::with_config(|config| config.login_timeout = Duration::from_millis(400));
    let mut client = ControlClient::connect(server.address);
    eventually("it is out of time", || client.command("NOOP").code != 200);
    client.expect_close();
}

#[test]
fn blocks_beyond_any_file_are_refused() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    for header in [
        BlockHeader::data(u64::MAX - 5, 100),
        BlockHeader::data(0, u64::MAX),
        BlockHeader::data(i64::MAX as u64, 1),
        BlockHeader {
            flags: BlockFlags(BlockFlags::EOF | BlockFlags::EOD),
            count: 0,
            offset: u64::MAX,
        },
    ] {
        let address = client.pasv();
        client.send("STOR up");
        let mut stream = data_port::connect(address);
        // A connection that begins with nonsense is taken for a stranger's and dropped; this one
        // is the sender's.
        data_port::send_block(&mut stream, 0, b"sense");
        data_port::send_header(&mut stream, header);
        client.expect_code_after_markers(150);
        let refused = client.reply_and_markers().0;
        assert!(
            (400..600).contains(&refused.code),
            "{header:?}: {refused:?}"
        );
    }
    client.expect_reply("NOOP", 200);
}

#[test]
fn a_stalled_transfer_ends() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(500));
    let mut client = server.anonymous_client();
    let address = client.pasv();
    // There before the clock runs.
    let mut data = data_port::connect(address);
    data.write_all(b"some").unwrap();
    client.send("STOR up");
    client.expect_code(150);
    client.expect_code(426);
    assert_eq!(server.read_file("up"), b"some");
    client.expect_reply("NOOP", 200);
}

#[test]
fn an_end_of_data_count_that_never_comes_ends_with_the_stall_time() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(500));
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    // There before the clock runs.
    let mut stream = data_port::connect(address);
    data_port::send_block(&mut stream, 0, b"all there is");
    data_port::send_header(&mut stream, BlockHeader::eof(2, false));
    client.send("STOR up");
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(426);
    assert_eq!(server.read_file("up"), b"all there is");
}
