//! Sessions end with the certificate or proxy by which they were logged in.

use std::time::{Duration, SystemTime};

use security::gsi::Delegation;
use security::test_pki::{ProxyForm, ProxyPolicy, TestCertificate, TestProxy, TestUsage};
use security::tls::{ClientCertificates, ExpectedPeer, TlsRole};
use security::x509::CertifiedKey;

use super::super::data_port;
use super::super::in_process_server::{USER, eventually};
use super::client::SecureClient;
use super::server::{SecureServer, TestPki, configure_grid};

/// Validity of a short-lived credential, seconds: enough for logins on a busy machine.
const SHORT: i64 = 6;
const SIZE: usize = 24 << 20;

fn expect_expired(client: &mut SecureClient) {
    let refused = client.expect_code(421);
    assert!(refused.text.contains("expired"), "{refused:?}");
    client.expect_close();
}

/// Both sessions end with their credential, and a download of the second one does not.
fn expect_end_at(end: SystemTime, idle: &mut SecureClient, busy: &mut SecureClient, bytes: &[u8]) {
    let address = busy.pasv();
    busy.send("RETR large");
    let stream = data_port::connect(address);
    busy.expect_code(150);
    expect_expired(idle);
    eventually("the credential expires", || SystemTime::now() > end);
    busy.send("SIZE large");
    assert_eq!(data_port::read_all(stream), bytes);
    busy.expect_code(226);
    expect_expired(busy);
}

#[test]
fn a_session_by_a_certificate_ends_with_it_and_a_running_transfer_does_not() {
    let pki = TestPki::new();
    let server = SecureServer::with_config(&pki, |config| {
        configure_grid(&pki, config);
        config.security.client_certificates = ClientCertificates::Optional;
        config.security.client_authorities = Some(pki.path("ca"));
    });
    let bytes = server.create_file("large", SIZE);
    let mut template = TestCertificate::new("/O=Grid/CN=Ann");
    (template.usages, template.not_after) = (vec![TestUsage::Client], SHORT);
    let end = SystemTime::now() + Duration::from_secs(SHORT as u64 + 1);
    let short: CertifiedKey = pki.authority.issue(&template);
    pki.write_gridmap(&format!("\"{}\" {USER}\n", short.subject()));
    let config = pki.web_client(Some(&short));
    let by_certificate = || {
        let mut client = SecureClient::with_tls(server.address(), &config);
        client.expect(&format!("USER {USER}"), 232);
        client.expect("TYPE I", 200);
        client
    };
    let (mut idle, mut busy) = (by_certificate(), by_certificate());
    // Rights that come from a password do not end.
    let mut with_password = SecureClient::with_tls(server.address(), &config);
    with_password.expect("USER anonymous", 331);
    with_password.expect("PASS x@", 230);
    expect_end_at(end, &mut idle, &mut busy, &bytes);
    with_password.expect("SIZE large", 213);
    // The certificate gives no rights any more.
    with_password.expect("REIN", 220);
    with_password.expect(&format!("USER {USER}"), 232);
    expect_expired(&mut with_password);
}

#[test]
fn a_session_by_a_proxy_ends_with_it() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let bytes = server.create_file("large", SIZE);
    let mut proxy = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::InheritAll);
    proxy.not_after = SHORT;
    let end = SystemTime::now() + Duration::from_secs(SHORT as u64 + 1);
    let proxy = proxy.of(&pki.user);
    let config = pki.grid(TlsRole::Client, &proxy, ExpectedPeer::Trusted);
    let connect = || SecureClient::grid_user(server.address(), &config, Delegation::None);
    let (mut idle, mut busy) = (connect(), connect());
    busy.expect("DCAU N", 200);
    expect_end_at(end, &mut idle, &mut busy, &bytes);
}
