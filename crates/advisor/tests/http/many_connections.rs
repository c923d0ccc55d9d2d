//! Thousands of connections at one time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use crate::harness::{HttpAnswer, PATIENCE, TestService, until};

/// Descriptors that this process needs: both ends of each connection.
const DESCRIPTORS: u64 = 6000;

#[test]
fn two_thousand_half_requests_leave_room_for_others_and_for_more_of_the_same_address() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|now| now < DESCRIPTORS) {
        limit.current = limit
            .maximum
            .map_or(Some(DESCRIPTORS), |most| Some(most.min(DESCRIPTORS)));
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    }
    let service = TestService::start();
    let mut held = Vec::new();
    for _ in 0..2000 {
        let mut stream = TcpStream::connect(service.address).unwrap();
        // Those beyond the bound are closed at once.
        let _ = stream.write_all(b"POST /RPC2 HTTP/1.1\r\nHost: a\r\n");
        held.push(stream);
    }
    let answer = get_from("127.0.0.2", service.address);
    assert_eq!(answer.status, 200, "{answer:?}");
    // Bodies that do not arrive hold no place either.
    for stream in &mut held {
        let _ = stream.write_all(b"Content-Length: 9\r\n\r\n");
    }
    until("the slow ones give their places", || {
        get_path("127.0.0.1", service.address, "/health").status == 200
    });
    drop(held);
    let metrics = get_path("127.0.0.1", service.address, "/metrics").body;
    let line = "longhaul_advisor_refused_connections_total ";
    let refused = metrics
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .unwrap();
    assert!(refused.parse::<u64>().unwrap() > 1000, "{refused}");
}

#[test]
fn refused_connections_are_told_to_come_back() {
    let limits = advisor::http::ServerLimits {
        connections_per_loopback: 1,
        ..Default::default()
    };
    let service = TestService::with(limits, |_| {});
    let mut held = service.connect();
    held.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(held.read(&mut [0; 16]).unwrap() > 0);
    let mut second = service.connect();
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"),
        "{answer}"
    );
}

fn get_from(source: &str, server: SocketAddr) -> HttpAnswer {
    get_path(source, server, "/api/v1/tests")
}

/// One request from an address of this host.
fn get_path(source: &str, server: SocketAddr, path: &str) -> HttpAnswer {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = format!("{source}:0").parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // A refused connection may be closed by now.
    let _ = stream.write_all(request.as_bytes());
    HttpAnswer::read(stream)
}
