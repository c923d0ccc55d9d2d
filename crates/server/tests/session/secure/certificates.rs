//! Client certificates of FTPS.

use security::test_pki::{TestAuthority, TestCertificate, TestUsage};
use security::tls::ClientCertificates;
use security::x509::CertifiedKey;

use super::super::in_process_server::{PASSWORD, USER};
use super::client::SecureClient;
use super::server::{SECOND_ACCOUNT, SecureServer, TestPki, configure_grid};

fn with_certificates(pki: &TestPki, policy: ClientCertificates) -> SecureServer {
    SecureServer::with_config(pki, |config| {
        configure_grid(pki, config);
        config.security.client_certificates = policy;
        config.transfer.stall = std::time::Duration::from_secs(2);
        config.security.client_authorities = Some(pki.path("ca"));
    })
}

#[test]
fn a_certificate_that_the_gridmap_lists_needs_no_password() {
    let pki = TestPki::new();
    let server = with_certificates(&pki, ClientCertificates::Optional);
    let config = pki.web_client(Some(&pki.user));
    for user in [USER, SECOND_ACCOUNT, ":globus-mapping:"] {
        let mut client = SecureClient::with_tls(server.address(), &config);
        client.expect(&format!("USER {user}"), 232);
        client.expect("MKD made", 257);
        client.expect("RMD made", 250);
    }
    // Another account needs its password, and so does a client without a certificate.
    let mut client = SecureClient::with_tls(server.address(), &config);
    client.expect("USER anonymous", 331);
    client.expect("PASS x@", 230);
    let mut client = SecureClient::with_tls(server.address(), &pki.web_client(None));
    client.expect(&format!("USER {USER}"), 331);
    client.expect(&format!("PASS {PASSWORD}"), 230);
}

#[test]
fn a_certificate_that_the_gridmap_does_not_list_needs_a_password() {
    let pki = TestPki::new();
    let server = with_certificates(&pki, ClientCertificates::Required);
    let bob = pki.authority.user("Bob");
    let config = pki.web_client(Some(&bob));
    let mut client = SecureClient::with_tls(server.address(), &config);
    client.expect(&format!("USER {USER}"), 331);
    client.expect("PASS wrong", 530);
    client.expect(&format!("USER {USER}"), 331);
    client.expect(&format!("PASS {PASSWORD}"), 230);
}

#[test]
fn invalid_client_certificates_are_refused() {
    let pki = TestPki::new();
    let server = with_certificates(&pki, ClientCertificates::Required);
    let user = |change: fn(&mut TestCertificate)| {
        let mut template = TestCertificate::new("/O=Grid/CN=Ann");
        template.usages = vec![TestUsage::Client];
        change(&mut template);
        pki.authority.issue(&template)
    };
    let others = TestAuthority::new("/O=Elsewhere/CN=Other CA").user("Ann");
    let cases: [(&str, Option<CertifiedKey>); 5] = [
        ("none", None),
        ("expired", Some(user(|t| t.not_after = -3600))),
        ("not yet valid", Some(user(|t| t.not_before = 3600))),
        (
            "for servers",
            Some(user(|t| t.usages = vec![TestUsage::Server])),
        ),
        ("of another authority", Some(others)),
    ];
    for (name, credential) in cases {
        let config = pki.web_client(credential.as_ref());
        let mut client = SecureClient::connect(server.address());
        client.expect("AUTH TLS", 234);
        // With TLS 1.3 the client's handshake is complete before the server refuses its certificate.
        if client.start_tls(&config).is_ok() {
            client.try_send("NOOP");
            assert_eq!(client.read_line(), None, "{name}");
        }
    }
    SecureClient::with_tls(server.address(), &pki.web_client(Some(&pki.user)))
        .expect(&format!("USER {USER}"), 232);
}

#[test]
fn data_connections_have_the_certificate_of_the_control_connection() {
    let pki = TestPki::new();
    let server = with_certificates(&pki, ClientCertificates::Optional);
    let bytes = server.create_file("f", 70_000);
    let config = pki.web_client(Some(&pki.user));
    let mut client = SecureClient::with_tls(server.address(), &config);
    client.expect(&format!("USER {USER}"), 232);
    client.expect("TYPE I", 200);
    client.protect();
    // The same certificate, and the session in which it was shown.
    for session in [None, Some(client.session())] {
        let read = client.receive("RETR f", &config, session.as_ref()).unwrap();
        assert_eq!(read, bytes);
        client.expect_transferred();
    }
    let bob = pki.authority.user("Bob");
    for other in [None, Some(&bob)] {
        client.expect_theft_refused("f", &pki.web_client(other), None);
    }
    client.expect("QUIT", 221);
    // The records are written before the connection closes.
    client.expect_close();
    let checks = server.failed_checks();
    assert_eq!(checks.len(), 2, "{checks:?}");
    assert!(checks[0].contains("certificate"), "{checks:?}");
    assert!(checks[1].contains("CN=Bob"), "{checks:?}");
}
