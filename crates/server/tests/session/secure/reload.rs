//! New certificates and gridmaps while transfers run.

use std::io::{Read, Write};

use security::gsi::Delegation;
use security::test_pki::{TestProxy, write_revocation_list};
use security::tls::{ClientCertificates, ExpectedPeer, TlsRole};

use super::super::data_port;
use super::super::in_process_server::{USER, eventually};
use super::client::SecureClient;
use super::server::{SecureServer, TestPki, configure_grid};
use super::tls_stream::TlsStream;

#[test]
fn a_transfer_goes_on_while_the_certificate_is_replaced() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    let config = pki.web_client(None);
    let mut client = SecureClient::private_user(server.address(), &config);
    let before = client.peer_fingerprint();
    let address = client.pasv();
    client.send("STOR up");
    let stream = data_port::connect(address);
    let mut data = TlsStream::handshake(stream, &config, None).unwrap();
    data.write_all(b"before ").unwrap();
    client.expect_code(150);
    let renewed = pki.authority.host(&["localhost", "renewed.example"]);
    pki.write_host(&renewed);
    server.reloads.blocking_send(server.config.clone()).unwrap();
    eventually("new sessions have the new certificate", || {
        let mut other = SecureClient::with_tls(server.address(), &config);
        other.log_in();
        other.peer_fingerprint() != before
    });
    data.write_all(b"and after").unwrap();
    data.close();
    let mut rest = Vec::new();
    let _ = data.read_to_end(&mut rest);
    client.expect_code_after_markers(226);
    assert_eq!(server.read_file("up"), b"before and after");
    // The old session's data connections have its certificate.
    let session = client.session();
    let read = client.receive("RETR up", &config, Some(&session));
    assert_eq!(read.unwrap(), b"before and after");
    client.expect_transferred();
}

#[test]
fn a_certificate_that_cannot_be_used_changes_nothing() {
    let pki = TestPki::new();
    let server = SecureServer::start(&pki);
    std::fs::write(pki.path("host.pem"), "no certificate").unwrap();
    let mut settings = server.config.clone();
    settings.security.clear_commands = true;
    // When the second one is taken, the first one has been refused.
    for _ in 0..2 {
        server.reloads.blocking_send(settings.clone()).unwrap();
    }
    eventually("both are taken", || {
        server.reloads.capacity() == server.reloads.max_capacity()
    });
    let mut client = SecureClient::with_tls(server.address(), &pki.web_client(None));
    client.log_in();
    client.expect("CCC", 534);
}

#[test]
fn a_session_ends_when_a_reload_finds_its_certificate_revoked() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        configure_grid(&pki, config);
        config.security.client_authorities = Some(pki.path("certificates"));
        config.security.client_certificates = ClientCertificates::Optional;
    });
    let bob = pki.authority.user("Bob");
    let names = [pki.user.subject(), bob.subject()];
    pki.write_gridmap(&names.map(|name| format!("\"{name}\" {USER}\n")).concat());
    server.reloads.blocking_send(server.config.clone()).unwrap();
    let grid = |credential| pki.grid(TlsRole::Client, credential, ExpectedPeer::Trusted);
    let proxy = TestProxy::default().of(&pki.user);
    let grid_client =
        |credential| SecureClient::grid_user(server.address(), &grid(credential), Delegation::None);
    eventually("Bob is listed", || {
        let mut client = SecureClient::with_grid(server.address(), &grid(&bob), Delegation::None);
        client.expect("USER :globus-mapping:", 331);
        client.command("PASS x").code == 230
    });
    let (mut revoked, mut below, mut other) = (
        grid_client(&pki.user),
        grid_client(&proxy),
        grid_client(&bob),
    );
    let mut web = SecureClient::with_tls(server.address(), &pki.web_client(Some(&pki.user)));
    web.expect(&format!("USER {USER}"), 232);
    let mut anonymous = SecureClient::with_tls(server.address(), &pki.web_client(None));
    anonymous.log_in();
    let list = pki.authority.revocation_list(&[pki.user.leaf()]);
    write_revocation_list(&pki.path("certificates"), &pki.authority, &list);
    server.reloads.blocking_send(server.config.clone()).unwrap();
    // Also sessions that say nothing.
    for client in [&mut revoked, &mut below, &mut web] {
        let closed = client.expect_code(421);
        assert!(
            closed.text.contains("certificate is no longer accepted"),
            "{closed:?}"
        );
        client.expect_close();
    }
    other.expect("NOOP", 200);
    anonymous.expect("NOOP", 200);
}

#[test]
fn the_gridmap_is_read_again() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let config = pki.grid(TlsRole::Client, &pki.user, ExpectedPeer::Trusted);
    let mut before = SecureClient::grid_user(server.address(), &config, Delegation::None);
    pki.write_gridmap("");
    server.reloads.blocking_send(server.config.clone()).unwrap();
    eventually("the user is no longer listed", || {
        let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
        client.expect("USER :globus-mapping:", 331);
        client.command("PASS x").code == 530
    });
    before.expect("NOOP", 200);
}
