//! Handshakes that are never completed.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::super::client::ControlClient;
use super::client::SecureClient;
use super::server::{SecureServer, TestPki};

#[test]
fn a_thousand_half_open_handshakes_leave_the_server_serving() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let mut open = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"AUTH TLS\r\n").unwrap();
        // Every other one has begun its handshake: the first bytes of a record.
        if number % 2 == 0 {
            let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
            for _ in 0..2 {
                std::io::BufRead::read_line(&mut reader, &mut String::new()).unwrap();
            }
            stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
        }
        open.push(stream);
    }
    let config = pki.web_client(None);
    for _ in 0..3 {
        let mut client = SecureClient::with_tls(server.address(), &config);
        client.log_in();
        client.expect("NOOP", 200);
    }
    drop(open);
}

#[test]
fn a_handshake_that_stalls_ends_with_the_login_timeout() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.login_timeout = Duration::from_millis(300);
    });
    let mut client = ControlClient::connect(server.address());
    client.expect_reply("AUTH TLS", 234);
    client.send_bytes([22, 3, 1, 2, 0, 1]);
    client.expect_close();
}
