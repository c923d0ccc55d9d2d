//! One client cannot take the shares of other clients. Two addresses of this host are two clients.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Creates a sparse file of 8 TiB, whose checksum never finishes during a test.
fn endless(server: &InProcessServer) {
    let file = File::create(server.path("endless")).unwrap();
    file.set_len(8 << 40).unwrap();
}

#[test]
fn endless_checksums_do_not_delay_those_of_other_clients() {
    let server = InProcessServer::with_config(|config| config.max_checksums = Some(1));
    endless(&server);
    server.create_file("small", 100_000);
    let mut greedy: Vec<ControlClient> = (0..20).map(|_| server.anonymous_client()).collect();
    for client in &mut greedy {
        client.expect_reply("OPTS CKSM Markers=1;", 200);
        client.send("CKSM MD5 0 -1 endless");
    }
    // One checksum is running, and the others wait.
    greedy[0].expect_code(113);
    let mut other = ControlClient::anonymous_from(OTHER, server.address);
    other.expect_reply("CKSM MD5 0 -1 small", 213);
    // A checksum of the same client runs, too, because a long one yields.
    server
        .anonymous_client()
        .expect_reply("CKSM MD5 0 -1 small", 213);
    for client in &mut greedy {
        client.send("ABOR");
        client.expect_code_after_markers(426);
    }
}

#[test]
fn the_number_of_waiting_requests_per_client_is_limited() {
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
    // One runs and one waits, alternately. Work that has begun is not refused.
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
fn transfers_of_one_client_leave_permits_to_others() {
    let server = InProcessServer::with_config(|config| {
        config.max_streams = 2;
        config.queue_timeout = Duration::ZERO;
        config.metrics = Some((Ipv4Addr::LOCALHOST, 0).into());
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
    let mut monitor = TcpStream::connect(server.announcement.metrics.unwrap()).unwrap();
    monitor.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    monitor.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("longhaul_server_transfers_refused_total 1\n"),
        "{text}"
    );
}

#[test]
fn a_transfer_waits_for_its_permit_and_can_be_aborted() {
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
