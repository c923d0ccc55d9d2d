//! Hostile and broken clients: the server survives, and transfers of other clients go on.

use std::io::{Read, Write};
use std::time::Duration;

use proto::eblock::{BlockFlags, BlockHeader};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually};

#[test]
fn a_hundred_thousand_invalid_lines_do_not_disturb_a_transfer() {
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
    let _ = junk.stream.write_all(lines.as_bytes()); // fails when the server closes the session
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
    // The replies to HELP are much longer than the command. They fill all buffers, then the
    // server waits for the stall time and closes the connection.
    let lines = "HELP\r\n".repeat(20_000);
    eventually("the client is dropped", || {
        client.stream.write_all(lines.as_bytes()).is_err()
    });
    server.anonymous_client().expect_reply("NOOP", 200);
}

#[test]
fn half_open_and_silent_clients_are_closed_at_the_login_timeout() {
    let server =
        InProcessServer::with_config(|config| config.login_timeout = Duration::from_millis(300));
    let half = ControlClient::connect(server.address);
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut silent = ControlClient::connect(server.address);
    silent.send_bytes("USER anon"); // an unfinished line
    silent.expect_code(421);
    silent.expect_close();
    drop(server.connect());
}

#[test]
fn commands_do_not_extend_the_login_timeout() {
    let server =
        InProcessServer::with_config(|config| config.login_timeout = Duration::from_millis(400));
    let mut client = ControlClient::connect(server.address);
    eventually("it is out of time", || client.command("NOOP").code != 200);
    client.expect_close();
}

#[test]
fn blocks_with_impossible_offsets_are_refused() {
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
        // A connection whose first block is invalid is dropped as a stranger's, so a valid block comes
        // first.
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
fn a_stalled_transfer_ends_after_the_stall_timeout() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(500));
    let mut client = server.anonymous_client();
    let address = client.pasv();
    // Connected before the stall time begins.
    let mut data = data_port::connect(address);
    data.write_all(b"some").unwrap();
    client.send("STOR up");
    client.expect_code(150);
    client.expect_code(426);
    assert_eq!(server.read_file("up"), b"some");
    client.expect_reply("NOOP", 200);
}

#[test]
fn a_store_with_a_missing_stream_ends_after_the_stall_timeout() {
    let server =
        InProcessServer::with_config(|config| config.transfer.stall = Duration::from_millis(500));
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    // Connected before the stall time begins.
    let mut stream = data_port::connect(address);
    data_port::send_block(&mut stream, 0, b"all there is");
    data_port::send_header(&mut stream, BlockHeader::eof(2, false));
    client.send("STOR up");
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(426);
    assert_eq!(server.read_file("up"), b"all there is");
}
