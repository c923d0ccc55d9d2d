//! Requests that are wrong, hostile or never end.

use std::io::{Read, Write};
use std::time::Duration;

use advisor::http::ServerLimits;
use enable::method::fault;
use enable::xmlrpc::{self, AnswerError, MAX_BODY};

use crate::harness::{HttpAnswer, PATIENCE, TestService};

fn posted(service: &TestService, body: &[u8]) -> HttpAnswer {
    service.request("POST /RPC2 HTTP/1.1\nContent-Type: text/xml\n", body)
}

fn is_alive(service: &TestService) -> bool {
    service.get("/api/v1/tests").status == 200
}

#[test]
fn what_is_no_call_is_a_fault() {
    let service = TestService::start();
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE l [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>\
                <methodCall><methodName>&b;</methodName></methodCall>";
    let external = "<?xml version=\"1.0\"?><!DOCTYPE l [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>\
                    <methodCall><methodName>&a;</methodName></methodCall>";
    let deep = format!(
        "<methodCall><methodName>a</methodName><params><param>{}",
        "<value><array><data>".repeat(10_000)
    );
    let wide = format!(
        "<methodCall><methodName>a</methodName><params>{}</params></methodCall>",
        "<p/>".repeat(60_000)
    );
    let bodies: [&[u8]; 9] = [
        b"",
        b"\xff\xfe",
        b"GET me",
        b"<methodCall>",
        b"{\"method\": 1}",
        bomb.as_bytes(),
        external.as_bytes(),
        deep.as_bytes(),
        wide.as_bytes(),
    ];
    for body in bodies {
        let answer = posted(&service, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let refused = xmlrpc::read_answer(answer.body.as_bytes()).unwrap_err();
        assert!(
            matches!(
                refused,
                AnswerError::Fault {
                    code: fault::MALFORMED,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(
            answer.body.len() < 1000 && !answer.body.contains("root:"),
            "{answer:?}"
        );
    }
    let odd = "<methodCall><methodName>EnableGetBufferSize</methodName><params><param><value>\
               <int>1</int></value></param></params></methodCall>";
    let refused = xmlrpc::read_answer(posted(&service, odd.as_bytes()).body.as_bytes());
    assert!(matches!(
        refused,
        Err(AnswerError::Fault {
            code: fault::ARGUMENTS,
            ..
        })
    ));
}

#[test]
fn a_huge_body_is_refused_before_it_is_read() {
    let service = TestService::start();
    let answer = posted(&service, &vec![b' '; MAX_BODY + 1]);
    assert_eq!(answer.status, 413, "{answer:?}");
    // The length alone is enough.
    let mut stream = service.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b' '; MAX_BODY + 1]).unwrap();
    assert_eq!(HttpAnswer::read(stream).status, 413);
    let mut stream = service.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..5 {
        let _ = stream.write_all(chunk.as_bytes());
    }
    assert_eq!(HttpAnswer::read(stream).status, 413);
    assert!(is_alive(&service));
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let service = TestService::start();
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(1000)
    );
    for bytes in [long.as_bytes(), many.as_bytes()] {
        assert!(
            matches!(service.bytes(bytes).status, 431 | 400),
            "{:?}",
            service.bytes(bytes)
        );
    }
    for junk in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"SSH-2.0-x\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        assert!(matches!(service.bytes(junk).status, 0 | 400), "{junk:?}");
    }
    // Two lengths, by which a proxy and the server could see two different requests (RFC 9112, section 6.3).
    let two = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde";
    assert_eq!(service.bytes(two).status, 400);
    assert!(is_alive(&service));
}

#[test]
fn half_requests_and_idle_connections_end() {
    let limits = ServerLimits {
        header_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let service = TestService::with(limits, |_| {});
    let mut half_header = service.connect();
    half_header.write_all(b"POST / HTTP/1.1\r\nHo").unwrap();
    let silent = service.connect();
    let mut half_body = service.connect();
    half_body
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n<m")
        .unwrap();
    let mut idle = service.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    // Each read ends because the server closes.
    assert!(matches!(HttpAnswer::read(half_header).status, 0 | 408));
    assert_eq!(HttpAnswer::read(silent).status, 0);
    assert_eq!(HttpAnswer::read(half_body).status, 408);
    assert_eq!(HttpAnswer::read(idle).status, 200);
    assert!(is_alive(&service));
}

#[test]
fn a_client_that_sends_byte_by_byte_does_not_outlast_the_limit() {
    let limits = ServerLimits {
        header_time: Duration::from_millis(300),
        ..ServerLimits::default()
    };
    let service = TestService::with(limits, |_| {});
    let mut slow = service.connect();
    slow.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut bytes = b"GET / HTTP/1.1\r\n".iter().chain(std::iter::repeat(&b'x'));
    let closed = (0..2000).any(|_| {
        let sent = slow.write_all(&[*bytes.next().unwrap()]);
        // Nothing has come yet: the read times out.
        let read = slow.read(&mut [0; 512]);
        sent.is_err()
            || read.is_ok()
            || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    });
    assert!(closed, "the server still waits");
}

#[test]
fn an_address_that_asks_too_often_is_refused_for_a_while() {
    let limits = ServerLimits {
        requests_per_second_loopback: 5,
        ..ServerLimits::default()
    };
    let service = TestService::with(limits, |_| {});
    let answers: Vec<u16> = (0..60)
        .map(|_| service.get("/api/v1/tests").status)
        .collect();
    assert_eq!(answers[..10], [200; 10]);
    assert!(answers.contains(&429), "{answers:?}");
    let refused = (0..60)
        .map(|_| service.get("/health"))
        .find(|answer| answer.status == 429);
    assert!(refused.unwrap().head.contains("retry-after"));
}

#[test]
fn text_of_a_peer_is_not_repeated_as_markup() {
    let service = TestService::start();
    for path in [
        "/%3Cscript%3Ealert(1)%3C/script%3E",
        "/api/v1/paths/%3Cscript%3E",
        "/api/v1/advice?client=%3Cscript%3E",
        "/api/v1/paths/..%2f..%2fetc",
    ] {
        let answer = service.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert!(!answer.head.contains("text/html"), "{answer:?}");
        assert!(
            answer.head.contains("x-content-type-options: nosniff"),
            "{answer:?}"
        );
        assert!(
            answer
                .head
                .contains("content-security-policy: default-src 'none'"),
            "{answer:?}"
        );
    }
}

#[test]
fn the_server_stops_while_connections_are_idle_or_half() {
    let mut service = TestService::start();
    let _idle = service.connect();
    let mut half = service.connect();
    half.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le")
        .unwrap();
    let mut live = service.connect();
    live.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut first = [0; 64];
    assert!(live.read(&mut first).unwrap() > 0);
    let taken = service.stop_http();
    // An open event stream would keep it for ever.
    assert!(taken < PATIENCE, "{taken:?}");
    assert!(std::net::TcpStream::connect(service.address).is_err());
}
