//! AUTH TLS, PBSZ, PROT and CCC (RFC 4217).

use security::tls::{TlsConfig, TlsOptions};
use server::config::{RequiredProtection, SessionReuse, TlsPolicy};

use super::super::data_port;
use super::client::SecureClient;
use super::data;
use super::server::{SecureServer, TestPki};
use super::tls_stream::TlsStream;

#[test]
fn data_is_in_the_clear_with_prot_c_and_encrypted_with_prot_p() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let bytes = server.create_file("f", 300_000);
    let config = pki.web_client(None);
    let mut client = SecureClient::with_tls(server.address(), &config);
    client.log_in();
    let address = client.pasv();
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_transferred();
    client.protect();
    let session = client.session();
    assert_eq!(
        client.receive("RETR f", &config, Some(&session)).unwrap(),
        bytes
    );
    client.expect_transferred();
    let address = client.pasv();
    client.send("STOR up");
    let stream = data_port::connect(address);
    data::send_all(stream, &config, None, &bytes).unwrap();
    client.expect_transferred();
    assert_eq!(server.read_file("up"), bytes);
    client.expect("QUIT", 221);
    // The record is written before the connection closes.
    client.expect_close();
    let log = server.log();
    let protections: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split("\"protection\":\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(protections, ["clear", "private", "private"]);
}

#[test]
fn a_listing_is_protected_like_a_file() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    server.create_file("f", 10);
    let config = pki.web_client(None);
    let mut client = SecureClient::private_user(server.address(), &config);
    let listing = client.receive("NLST", &config, None).unwrap();
    assert_eq!(listing, b"f\r\n");
    client.expect_transferred();
}

#[test]
fn protection_levels_that_tls_does_not_have_are_refused() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let mut client = SecureClient::with_tls(server.address(), &pki.web_client(None));
    client.log_in();
    client.expect("PROT P", 503);
    client.expect("PBSZ 0", 200);
    for level in ["S", "E"] {
        client.expect(&format!("PROT {level}"), 536);
    }
    client.expect("DCAU A", 504);
    client.expect("AUTH TLS", 503);
    client.expect("CCC", 534);
    let mut clear = SecureClient::connect(server.address());
    clear.log_in();
    clear.expect("PROT P", 503);
}

#[test]
fn an_upload_that_ends_without_close_notify_fails() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let config = pki.web_client(None);
    let old = server.create_file("old", 1000);
    let mut client = SecureClient::private_user(server.address(), &config);
    for (name, part) in [("new", &b"the first half"[..]), ("none", b""), ("old", b"")] {
        let address = client.pasv();
        client.send(&format!("STOR {name}"));
        let stream = data_port::connect(address);
        let mut tls = TlsStream::handshake(stream, &config, None).unwrap();
        std::io::Write::write_all(&mut tls, part).unwrap();
        // A closed socket with unread tickets would reset the connection, and bytes on their way would be lost.
        tls.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_code(150);
        client.expect_code_after_markers(426);
    }
    // Bytes that came stay for a restart; the old file stays where none came.
    assert_eq!(server.read_file("new"), b"the first half");
    assert!(!server.path("none").exists());
    assert_eq!(server.read_file("old"), old);
}

#[test]
fn data_in_the_clear_where_tls_was_agreed_on_is_refused() {
    let pki = TestPki::new();
    let server = SecureServer::impatient(&pki);
    let config = pki.web_client(None);
    let mut client = SecureClient::private_user(server.address(), &config);
    let address = client.pasv();
    client.send("STOR up");
    data_port::send_and_close(data_port::connect(address), b"readable by everybody");
    client.expect_data_refused();
    assert!(!server.path("up").exists() || server.read_file("up").is_empty());
}

#[test]
fn a_server_may_demand_that_data_connections_resume_the_session() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.session_reuse = SessionReuse::Required;
        config.transfer.stall = std::time::Duration::from_secs(2);
    });
    let bytes = server.create_file("f", 100_000);
    let config = pki.web_client(None);
    let mut client = SecureClient::private_user(server.address(), &config);
    let other = SecureClient::private_user(server.address(), &config);
    // The session of another control connection is another client's.
    for session in [None, Some(other.session())] {
        client.expect_theft_refused("f", &config, session.as_ref());
    }
    let session = client.session();
    let read = client.receive("RETR f", &config, Some(&session)).unwrap();
    assert_eq!(read, bytes);
    client.expect_transferred();
    client.expect("QUIT", 221);
    // The records are written before the connection closes.
    client.expect_close();
    let checks = server.failed_checks();
    assert_eq!(checks.len(), 2, "{checks:?}");
    assert!(
        checks.iter().all(|check| check.contains("resume")),
        "{checks:?}"
    );
}

#[test]
fn transfers_without_protection_are_refused_where_it_is_required() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.require_protection = RequiredProtection::Data;
    });
    let bytes = server.create_file("f", 1000);
    let config = pki.web_client(None);
    let mut client = SecureClient::with_tls(server.address(), &config);
    client.log_in();
    client.expect("PASV", 521);
    client.protect();
    let read = client.receive("RETR f", &config, None).unwrap();
    assert_eq!(read, bytes);
    client.expect_transferred();
}

#[test]
fn commands_injected_behind_auth_are_never_carried_out() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let mut client = SecureClient::connect(server.address());
    client.send_bytes(b"AUTH TLS\r\nUSER anonymous\r\n");
    client.expect_code(421);
    client.expect_close();
    // Behind the reply they are not TLS.
    let mut client = SecureClient::connect(server.address());
    client.expect("AUTH TLS", 234);
    client.send_bytes(b"USER anonymous\r\nPASS x\r\n");
    client.send_bytes(&[b'x'; 200]);
    client.read_line();
    client.expect_close();
}

#[test]
fn ccc_returns_commands_to_the_clear_where_it_is_allowed() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.clear_commands = true;
    });
    let bytes = server.create_file("f", 50_000);
    let config = pki.web_client(None);
    let mut client = SecureClient::private_user(server.address(), &config);
    let session = client.session();
    client.expect("CCC", 200);
    client.end_tls();
    client.expect("NOOP", 200);
    // The certificate says nothing about commands in the clear.
    client.expect("REIN", 503);
    client.expect("USER anonymous", 503);
    // Data stays protected.
    assert_eq!(
        client.receive("RETR f", &config, Some(&session)).unwrap(),
        bytes
    );
    client.expect_transferred();
}

#[test]
fn tls_is_neither_offered_nor_accepted_when_it_is_off() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.tls = Some(TlsPolicy::Off);
    });
    let mut client = SecureClient::connect(server.address());
    assert!(!client.expect("FEAT", 211).text.contains("AUTH"));
    client.expect("AUTH TLS", 504);
    client.log_in();
}

#[test]
fn a_self_signed_certificate_has_the_announced_fingerprint() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.certificate = None;
        config.security.key = None;
        config.security.tls = Some(TlsPolicy::SelfSigned);
    });
    let announced = server.announcement.self_signed.clone().unwrap();
    let config = TlsConfig::new(TlsOptions::client().for_host("localhost").unverified()).unwrap();
    let mut client = SecureClient::connect(server.address());
    client.expect("AUTH TLS", 234);
    client.start_tls(&config).unwrap();
    assert_eq!(client.peer_fingerprint(), announced);
    client.log_in();
}

#[test]
fn a_server_without_its_own_hosts_name_is_refused_by_clients() {
    let pki = TestPki::new();
    pki.write_host(&pki.authority.host(&["elsewhere.example"]));
    let server = SecureServer::start(&pki);
    let mut client = SecureClient::connect(server.address());
    client.expect("AUTH TLS", 234);
    assert!(client.start_tls(&pki.web_client(None)).is_err());
    // The server serves on.
    SecureClient::connect(server.address()).log_in();
}
