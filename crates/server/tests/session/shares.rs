//! One client cannot take the transfers, checksums or streams of the others. Two addresses of this
//! host are two clients.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A file that nobody sums to its end: a hole of many tebibytes.
fn endless(server: &InProcessServer) {
    let file = File::create(server.path("endless")).unwrap();
    file.set_len(8 << 40).unwrap();
}

#[test]
fn checksums_without_end_do_not_hold_up_another_clients_checksum() {
    let server = InProcessServer::with_config(|config| config.max_checksums = Some(1));
    endless(&server);
    server.create_file("small", 100_000);
    let mut greedy: Vec<ControlClient> = (0..20).map(|_| server.anonymous_client()).collect();
    for client in &mut greedy {
        client.expect_reply("OPTS CKSM Markers=1;", 200);
        client.send("CKSM MD5 0 -1 endless");
    }
    // It is under way, and the others wait.
    greedy[0].expect_code(113);
    let mut other = ControlClient::anonymous_from(OTHER, server.address);
    other.expect_reply("CKSM MD5 0 -1 small", 213);
    // Also one of the same client has its turn: a long one yields.
    server
        .anonymous_client()
        .expect_reply("CKSM MD5 0 -1 small", 213);
    for client in &mut greedy {
        client.send("ABOR");
        client.expect_code_after_markers(426);
    }
}

#[test]
fn requests_of_one_client_that_may_wait_are_bounded() {
    let server = InProcessServer::with_config(|config| {
        config.max_checksums = Some(1);
        config.max_waiting_per_address = 1;
    });
    endless(&server);
    let mut both = [server.anonymous_client(), server.anonymous_client()];
    for client in &mut both {
        client.expect_reply("OPTS CKSM Markers=1;", 200);
        client.send("CKSM MD5 0 -1 endless");
        client.expect_code(113);
    }
    // In turn one runs and one waits, and what has begun is not refused its next turn.
    server
        .anonymous_client()
        .expect_reply("CKSM MD5 0 -1 endless", 450);
    for client in &mut both {
        client.expect_code(113);
    }
    let mut other = ControlClient::anonymous_from(OTHER, server.address);
    server.create_file("small", 10);
    other.expect_reply("CKSM MD5 0 -1 small", 213);
}

#[test]
fn transfers_of_one_client_leave_places_to_others() {
    let server = InProcessServer::with_config(|config| {
        config.max_streams = 2;
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
    second.expect_reply("RETR f", 450);
    let mut other = ControlClient::anonymous_from(OTHER, server.address);
    let address = other.pasv();
    other.send("RETR f");
    let bytes = data_port::read_all(data_port::connect_from(OTHER, address));
    assert_eq!(bytes.len(), 10);
    other.expect_code(150);
    other.expect_code(226);
    data_port::send_and_close(data, b"x");
    first.expect_code(226);
}

#[test]
fn a_transfer_waits_for_its_place_and_may_be_aborted_meanwhile() {
    let server = InProcessServer::with_config(|config| config.max_streams = 1);
    server.create_file("f", 10);
    let mut first = server.anonymous_client();
    let address = first.pasv();
    first.send("STOR up");
    let data = data_port::connect(address);
    first.expect_code(150);
    let mut aborted = server.anonymous_client();
    aborted.pasv();
    aborted.send_bytes("RETR f\r\nABOR\r\n");
    aborted.expect_code(426);
    aborted.expect_code(226);
    let mut second = server.anonymous_client();
    let address = second.pasv();
    second.send("RETR f");
    second.expect_silence();
    data_port::send_and_close(data, b"x");
    first.expect_code(226);
    let bytes = data_port::read_all(data_port::connect(address));
    assert_eq!(bytes.len(), 10);
    second.expect_code(150);
    second.expect_code(226);
}
