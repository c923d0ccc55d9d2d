//! One client cannot take the transfers, checksums or streams of the others. Two addresses of this
//! host are two clients.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::client::Client;
use crate::data_port;
use crate::running::Running;

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A file that nobody sums to its end: a hole of many tebibytes.
fn endless(server: &Running) {
    let file = File::create(server.path("endless")).unwrap();
    file.set_len(8 << 40).unwrap();
}

#[test]
fn checksums_without_end_do_not_hold_up_another_clients_checksum() {
    let server = Running::with(|config| config.max_checksums = Some(1));
    endless(&server);
    server.file("small", 100_000);
    let mut greedy: Vec<Client> = (0..20).map(|_| server.anonymous()).collect();
    for client in &mut greedy {
        client.expect("OPTS CKSM Markers=1;", 200);
        client.send("CKSM MD5 0 -1 endless");
    }
    // It is under way, and the others wait.
    greedy[0].next(113);
    let mut other = Client::anonymous_from(OTHER, server.address);
    other.expect("CKSM MD5 0 -1 small", 213);
    // Also one of the same client has its turn: a long one yields.
    server.anonymous().expect("CKSM MD5 0 -1 small", 213);
    for client in &mut greedy {
        client.send("ABOR");
        client.next_but_markers(426);
    }
}

#[test]
fn requests_of_one_client_that_may_wait_are_bounded() {
    let server = Running::with(|config| {
        config.max_checksums = Some(1);
        config.max_waiting_per_address = 1;
    });
    endless(&server);
    let mut both = [server.anonymous(), server.anonymous()];
    for client in &mut both {
        client.expect("OPTS CKSM Markers=1;", 200);
        client.send("CKSM MD5 0 -1 endless");
        client.next(113);
    }
    // In turn one runs and one waits, and what has begun is not refused its next turn.
    server.anonymous().expect("CKSM MD5 0 -1 endless", 450);
    for client in &mut both {
        client.next(113);
    }
    let mut other = Client::anonymous_from(OTHER, server.address);
    server.file("small", 10);
    other.expect("CKSM MD5 0 -1 small", 213);
}

#[test]
fn transfers_of_one_client_leave_places_to_others() {
    let server = Running::with(|config| {
        config.max_streams = 2;
        config.queue_timeout = Duration::ZERO;
    });
    server.file("f", 10);
    let mut first = server.anonymous();
    let address = first.pasv();
    first.send("STOR up");
    let data = data_port::connect(address);
    first.next(150);
    let mut second = server.anonymous();
    second.pasv();
    second.expect("RETR f", 450);
    let mut other = Client::anonymous_from(OTHER, server.address);
    let address = other.pasv();
    other.send("RETR f");
    let bytes = data_port::drain(data_port::connect_from(OTHER, address));
    assert_eq!(bytes.len(), 10);
    other.next(150);
    other.next(226);
    data_port::pour(data, b"x");
    first.next(226);
}

#[test]
fn a_transfer_waits_for_its_place_and_may_be_aborted_meanwhile() {
    let server = Running::with(|config| config.max_streams = 1);
    server.file("f", 10);
    let mut first = server.anonymous();
    let address = first.pasv();
    first.send("STOR up");
    let data = data_port::connect(address);
    first.next(150);
    let mut aborted = server.anonymous();
    aborted.pasv();
    aborted.raw("RETR f\r\nABOR\r\n");
    aborted.next(426);
    aborted.next(226);
    let mut second = server.anonymous();
    let address = second.pasv();
    second.send("RETR f");
    second.quiet();
    data_port::pour(data, b"x");
    first.next(226);
    let bytes = data_port::drain(data_port::connect(address));
    assert_eq!(bytes.len(), 10);
    second.next(150);
    second.next(226);
}
