//! DCAU, PROT and DCSC of sessions with GSI.

use proto::security::SecurityToken;
use security::gsi::{DataHandshakeMode, Delegation};
use security::tls::{ExpectedPeer, TlsConfig, TlsRole};
use security::x509::{CertifiedKey, TrustStore};

use super::super::client::port_argument;
use super::super::data_port;
use super::client::SecureClient;
use super::data::GridData;
use super::server::{SecureServer, TestPki, grid_config};

const LIMITED: Delegation = Delegation::Limited { seconds: 3600 };
const RAW: DataHandshakeMode = DataHandshakeMode::AuthenticateOnly;
const PROTECTED: DataHandshakeMode = DataHandshakeMode::Protected;

fn log_in(server: &SecureServer, pki: &TestPki, delegation: Delegation) -> SecureClient {
    let config = pki.grid(TlsRole::Client, &pki.user, ExpectedPeer::Trusted);
    let mut client = SecureClient::grid_user(server.address(), &config, delegation);
    client.expect("PBSZ 1048576", 200);
    client
}

/// The user's own end of a data connection, which expects the user's identity at the other.
fn own_end(pki: &TestPki, role: TlsRole) -> TlsConfig {
    let same = ExpectedPeer::Identity(pki.user.identity());
    pki.grid(role, &pki.user, same)
}

fn retrieve(
    client: &mut SecureClient,
    config: &TlsConfig,
    mode: DataHandshakeMode,
) -> Option<Vec<u8>> {
    let address = client.pasv();
    client.send("RETR f");
    let stream = data_port::connect(address);
    let data = GridData::handshake(stream, config, mode).ok()?;
    data.read_all().ok()
}

/// A thief takes the data connection, gets no byte, and the client a refusal that names nobody.
fn expect_theft_refused(client: &mut SecureClient, thief: &TlsConfig, mode: DataHandshakeMode) {
    let address = client.pasv();
    client.send("RETR f");
    let stream = data_port::connect(address);
    let stolen = GridData::handshake(stream, thief, mode).map(GridData::read_some);
    assert_eq!(
        stolen.unwrap_or_default().len(),
        0,
        "bytes of the file are stolen"
    );
    let reply = client.expect_data_refused();
    assert!(!reply.text.contains("CN="), "{reply:?}");
}

#[test]
fn every_level_of_protection_moves_files_both_ways() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let bytes = server.create_file("f", 200_000);
    let mut client = log_in(&server, &pki, LIMITED);
    let config = own_end(&pki, TlsRole::Client);
    for (level, mode) in [
        ("C", RAW),
        ("S", PROTECTED),
        ("E", PROTECTED),
        ("P", PROTECTED),
    ] {
        client.expect(&format!("PROT {level}"), 200);
        assert_eq!(
            retrieve(&mut client, &config, mode).unwrap(),
            bytes,
            "{level}"
        );
        client.expect_transferred();
        let address = client.pasv();
        client.send("STOR up");
        let stream = data_port::connect(address);
        let data = GridData::handshake(stream, &config, mode).unwrap();
        data.send_all(&bytes).unwrap();
        client.expect_transferred();
        assert_eq!(server.read_file("up"), bytes, "{level}");
    }
    client.expect("QUIT", 221);
    // The record is written before the connection closes.
    client.expect_close();
    let log = server.log();
    assert!(log.contains("\"identity\":\"/O=Grid/CN=Ann\""), "{log}");
    assert!(log.contains("\"protection\":\"authenticated\""), "{log}");
}

/// The peers end a stream without close_notify, so its end proves nothing; ALLO does.
#[test]
fn an_upload_that_ends_before_its_announced_size_fails() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let mut client = log_in(&server, &pki, LIMITED);
    let config = own_end(&pki, TlsRole::Client);
    for (level, mode) in [("C", RAW), ("P", PROTECTED)] {
        client.expect(&format!("PROT {level}"), 200);
        for (announced, code) in [(9, 426), (8, 226)] {
            client.expect(&format!("ALLO {announced}"), 200);
            let address = client.pasv();
            client.send("STOR up");
            let stream = data_port::connect(address);
            let data = GridData::handshake(stream, &config, mode).unwrap();
            data.send_all(b"8 bytes.").unwrap();
            client.expect_code(150);
            client.expect_code_after_markers(code);
        }
    }
}

#[test]
fn the_end_that_connects_is_the_tls_client() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let bytes = server.create_file("f", 100_000);
    let mut client = log_in(&server, &pki, LIMITED);
    let config = own_end(&pki, TlsRole::Server);
    for (level, mode) in [("C", RAW), ("P", PROTECTED)] {
        client.expect(&format!("PROT {level}"), 200);
        let listener = data_port::listen(server.address().ip());
        let argument = port_argument(listener.local_addr().unwrap());
        client.expect(&format!("PORT {argument}"), 200);
        client.send("RETR f");
        let stream = data_port::accept(&listener);
        let data = GridData::handshake(stream, &config, mode).unwrap();
        assert_eq!(data.read_all().unwrap(), bytes);
        client.expect_transferred();
    }
}

#[test]
fn dcau_n_is_in_the_clear_and_cannot_be_protected() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let bytes = server.create_file("f", 100_000);
    let mut client = log_in(&server, &pki, Delegation::None);
    client.expect("DCAU N", 200);
    let address = client.pasv();
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_transferred();
    client.expect("PROT P", 200);
    assert!(client.command("PASV").code >= 500);
}

#[test]
fn dcau_a_refuses_other_identities() {
    let pki = TestPki::new();
    let server = SecureServer::impatient(&pki);
    let bytes = server.create_file("f", 100_000);
    let mut client = log_in(&server, &pki, LIMITED);
    let bob = pki.authority.user("Bob");
    let other = pki.grid(TlsRole::Client, &bob, ExpectedPeer::Trusted);
    for (level, mode) in [("C", RAW), ("P", PROTECTED)] {
        client.expect(&format!("PROT {level}"), 200);
        expect_theft_refused(&mut client, &other, mode);
    }
    let own = own_end(&pki, TlsRole::Client);
    assert_eq!(retrieve(&mut client, &own, PROTECTED).unwrap(), bytes);
    client.expect_transferred();
    client.expect("QUIT", 221);
    // The record is written before the connection closes.
    client.expect_close();
    // The log names the check and both values; the reply does not.
    let log = server.log();
    assert!(log.contains("CN=Bob") && log.contains("CN=Ann"), "{log}");
}

#[test]
fn dcau_s_accepts_the_named_subject_only() {
    let pki = TestPki::new();
    let server = SecureServer::impatient(&pki);
    let bytes = server.create_file("f", 100_000);
    let mut client = log_in(&server, &pki, LIMITED);
    let bob = pki.authority.user("Bob");
    client.expect(&format!("DCAU S {}", bob.identity()), 200);
    client.expect("PROT P", 200);
    let named = pki.grid(TlsRole::Client, &bob, ExpectedPeer::Trusted);
    assert_eq!(retrieve(&mut client, &named, PROTECTED).unwrap(), bytes);
    client.expect_transferred();
    let own = own_end(&pki, TlsRole::Client);
    expect_theft_refused(&mut client, &own, PROTECTED);
}

#[test]
fn dcsc_gives_both_ends_a_credential_of_the_clients_choice() {
    let pki = TestPki::new();
    let server = SecureServer::impatient(&pki);
    let bytes = server.create_file("f", 100_000);
    let mut client = log_in(&server, &pki, Delegation::None);
    let validity = std::time::Duration::from_secs(3600);
    let thrown_away = CertifiedKey::self_signed(&["dcsc.example".to_owned()], validity).unwrap();
    let pem = SecurityToken::new(thrown_away.to_pem().unwrap().to_vec()).unwrap();
    client.expect("DCSC P AAAA", 500);
    client.expect(&format!("DCSC p {}", pem.encode()), 250);
    client.expect("DCAU A", 200);
    let trust = || TrustStore::exactly(vec![thrown_away.leaf().clone()]);
    let same = || ExpectedPeer::Identity(thrown_away.identity());
    let own = grid_config(TlsRole::Client, &thrown_away, trust(), same());
    for (level, mode) in [("C", RAW), ("P", PROTECTED)] {
        client.expect(&format!("PROT {level}"), 200);
        assert_eq!(retrieve(&mut client, &own, mode).unwrap(), bytes, "{level}");
        client.expect_transferred();
    }
    // The user's own certificate is no longer that of data connections.
    let user = grid_config(TlsRole::Client, &pki.user, trust(), same());
    expect_theft_refused(&mut client, &user, PROTECTED);
    client.expect("DCSC D", 250);
    expect_theft_refused(&mut client, &own, PROTECTED);
}
