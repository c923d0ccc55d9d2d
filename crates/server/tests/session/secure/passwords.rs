//! Passwords in the clear.

use std::net::{IpAddr, Ipv4Addr};

use server::config::TlsPolicy;

use super::super::client::ControlClient;
use super::super::in_process_server::{PASSWORD, USER};
use super::client::SecureClient;
use super::server::{SecureServer, TestPki};

/// An address of this host that is not on the loopback interface; `None`: there is none.
fn other_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn passwords_in_the_clear_are_refused_off_the_loopback_interface() {
    let Some(ip) = other_address() else {
        eprintln!("SKIPPED: this host has no address outside of the loopback interface");
        return;
    };
    let pki = TestPki::new();
    let start = |clear_passwords| {
        SecureServer::with_config(&pki, |config| {
            config.listen = (ip, 0).into();
            config.security.clear_passwords = clear_passwords;
        })
    };
    let server = start(false);
    let mut client = ControlClient::connect(server.address());
    let refusal = client.expect_reply(&format!("USER {USER}"), 530);
    assert!(refusal.text.contains("AUTH TLS"), "{refusal:?}");
    client.expect_reply(&format!("PASS {PASSWORD}"), 503);
    client.log_in("anonymous", "x@");
    let mut secured = SecureClient::with_tls(server.address(), &pki.web_client(None));
    secured.log_in();
    ControlClient::connect(start(true).address()).log_in(USER, PASSWORD);
}

#[test]
fn nobody_logs_in_without_tls_where_it_is_required() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        config.security.tls = Some(TlsPolicy::Required);
    });
    let mut client = ControlClient::connect(server.address());
    for user in [USER, "anonymous"] {
        client.expect_reply(&format!("USER {user}"), 530);
        client.expect_reply(&format!("PASS {PASSWORD}"), 503);
    }
    SecureClient::with_tls(server.address(), &pki.web_client(None)).log_in();
}
