//! The port with implicit TLS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use server::config::ServerConfig;

use super::client::SecureClient;
use super::server::{SecureServer, TestPki};

fn with_implicit(pki: &TestPki) -> (SecureServer, SocketAddr) {
    let server = SecureServer::with_config(pki, |config: &mut ServerConfig| {
        config.security.implicit_tls = Some((Ipv4Addr::LOCALHOST, 0).into());
    });
    let address = server.announcement.implicit_tls.unwrap();
    (server, address)
}

#[test]
fn the_handshake_precedes_the_greeting() {
    let pki = TestPki::new();
    let (server, address) = with_implicit(&pki);
    let bytes = server.create_file("f", 100_000);
    let config = pki.web_client(None);
    let mut client = SecureClient::connect_implicit(address, &config).unwrap();
    client.log_in();
    client.protect();
    let read = client
        .receive("RETR f", &config, Some(&client.session()))
        .unwrap();
    assert_eq!(read, bytes);
    client.expect_transferred();
    client.expect("AUTH TLS", 503);
    // The control port is served in the clear as before.
    SecureClient::connect(server.address()).log_in();
}

#[test]
fn a_client_that_speaks_in_the_clear_gets_no_reply() {
    let pki = TestPki::new();
    let (_server, address) = with_implicit(&pki);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&b"USER anonymous\r\n".repeat(20)).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!said.starts_with(b"220"), "{said:?}");
    assert!(SecureClient::connect_implicit(address, &pki.web_client(None)).is_ok());
}
