//! AUTH GSSAPI, ADAT, protected commands and the gridmap.

use security::gsi::Delegation;
use security::test_pki::{
    ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestProxy, write_revocation_list,
};
use security::tls::{ExpectedPeer, TlsRole};
use security::x509::{CertifiedKey, TrustStore};
use server::config::UnlistedRights;

use proto::security::SecurityToken;

use super::super::in_process_server::{PASSWORD, USER};
use super::client::SecureClient;
use super::server::{SECOND_ACCOUNT, SecureServer, TestPki, configure_grid, grid_config};

const LIMITED: Delegation = Delegation::Limited { seconds: 3600 };

fn trusted(pki: &TestPki, credential: &CertifiedKey) -> security::tls::TlsConfig {
    pki.grid(TlsRole::Client, credential, ExpectedPeer::Trusted)
}

fn proxy(form: ProxyForm, policy: ProxyPolicy, of: &CertifiedKey) -> CertifiedKey {
    TestProxy::new(form, policy).of(of)
}

#[test]
fn certificates_and_their_proxies_log_in() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let full = proxy(ProxyForm::Rfc, ProxyPolicy::InheritAll, &pki.user);
    let credentials = [
        pki.user.clone(),
        proxy(ProxyForm::Rfc, ProxyPolicy::Limited, &pki.user),
        proxy(ProxyForm::Draft, ProxyPolicy::InheritAll, &pki.user),
        proxy(ProxyForm::Rfc, ProxyPolicy::Limited, &full),
        full,
    ];
    for credential in &credentials {
        for delegation in [Delegation::None, LIMITED] {
            let config = trusted(&pki, credential);
            let mut client = SecureClient::grid_user(server.address(), &config, delegation);
            client.expect("MKD made", 257);
            client.expect("RMD made", 250);
            client.expect("QUIT", 221);
        }
    }
}

#[test]
fn the_gridmap_lists_the_accounts_of_a_subject() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let config = trusted(&pki, &pki.user);
    for account in [USER, SECOND_ACCOUNT] {
        let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
        client.expect(&format!("USER {account}"), 331);
        let welcome = client.expect("PASS dummy", 230);
        assert!(welcome.text.contains(account), "{welcome:?}");
    }
    // The password does not matter, and no other account is entered with one.
    let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
    for user in ["root", "anonymous"] {
        client.expect(&format!("USER {user}"), 331);
        client.expect(&format!("PASS {PASSWORD}"), 530);
    }
    let bob = trusted(&pki, &pki.authority.user("Bob"));
    let mut client = SecureClient::with_grid(server.address(), &bob, Delegation::None);
    for user in [":globus-mapping:", USER] {
        client.expect(&format!("USER {user}"), 331);
        client.expect(&format!("PASS {PASSWORD}"), 530);
    }
}

#[test]
fn accounts_that_only_the_gridmap_names_have_the_configured_rights() {
    let pki = TestPki::new();
    for (rights, code) in [(UnlistedRights::Ro, 550), (UnlistedRights::Rw, 257)] {
        let server = SecureServer::with_config(&pki, |config| {
            configure_grid(&pki, config);
            config.security.gridmap_rights = rights;
        });
        let config = trusted(&pki, &pki.user);
        let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
        client.expect(&format!("USER {SECOND_ACCOUNT}"), 331);
        client.expect("PASS dummy", 230);
        client.expect("MKD made", code);
    }
}

#[test]
fn invalid_credentials_are_refused_and_the_server_serves_on() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let foreign = TestAuthority::new("/O=Elsewhere/CN=Other CA").user("Ann");
    let mut expired = TestCertificate::new("/O=Grid/CN=Ann");
    expired.not_after = -3600;
    let expired_proxy = TestProxy {
        not_after: -60,
        ..TestProxy::default()
    };
    let forged_proxy = TestProxy {
        signer: Some(pki.authority.user("Bob")),
        ..TestProxy::default()
    };
    let bound = TestProxy {
        path_length: Some(0),
        ..TestProxy::default()
    };
    let revoked = pki.authority.user("Carol");
    let list = pki.authority.revocation_list(&[revoked.leaf()]);
    write_revocation_list(&pki.path("certificates"), &pki.authority, &list);
    let cases = [
        ("of another authority", foreign),
        ("expired", pki.authority.issue(&expired)),
        ("expired proxy", expired_proxy.of(&pki.user)),
        ("proxy signed by another key", forged_proxy.of(&pki.user)),
        (
            "beyond the path length",
            TestProxy::default().of(&bound.of(&pki.user)),
        ),
        ("revoked", revoked),
        (
            "full proxy of a limited one",
            TestProxy::default().of(&proxy(ProxyForm::Rfc, ProxyPolicy::Limited, &pki.user)),
        ),
    ];
    for (name, credential) in cases {
        let mut client = SecureClient::connect(server.address());
        client.expect("AUTH GSSAPI", 334);
        let refusal = client
            .authenticate(&trusted(&pki, &credential), Delegation::None)
            .unwrap_or_else(|| panic!("{name} is accepted"));
        assert_eq!(refusal.code, 535, "{name}: {refusal:?}");
        // The client learns nothing about the check that failed.
        assert!(!refusal.text.contains("expired") && !refusal.text.contains("CN="));
        client.expect("USER :globus-mapping:", 331);
    }
    SecureClient::grid_user(server.address(), &trusted(&pki, &pki.user), LIMITED);
}

/// The owner of a certificate chooses the last CN of an independent proxy, and so the whole name of somebody else.
#[test]
fn an_independent_proxy_has_no_account_even_under_the_name_of_another_entry() {
    let pki = TestPki::new();
    let named = |form| {
        let independent = TestProxy {
            common_name: Some("Bob".to_owned()),
            ..TestProxy::new(form, ProxyPolicy::Independent)
        };
        independent.of(&pki.user)
    };
    let name = named(ProxyForm::Rfc).subject().to_string();
    std::fs::write(pki.path("gridmap"), format!("\"{name}\" {USER}\n")).unwrap();
    let server = SecureServer::with_grid(&pki);
    for form in [ProxyForm::Rfc, ProxyForm::Draft] {
        let below = proxy(form, ProxyPolicy::InheritAll, &named(form));
        for credential in [named(form), below] {
            assert_eq!(credential.identity().as_str(), name);
            let config = trusted(&pki, &credential);
            let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
            for user in [":globus-mapping:", USER] {
                client.expect(&format!("USER {user}"), 331);
                client.expect("PASS x", 530);
            }
            let mut client = SecureClient::connect(server.address());
            client.expect("AUTH GSSAPI", 334);
            let refusal = client.authenticate(&config, LIMITED).expect("a refusal");
            assert_eq!(refusal.code, 535, "{refusal:?}");
        }
    }
    // A certificate of that name is another matter.
    let bob = pki.authority.issue(&TestCertificate::new(&name));
    SecureClient::grid_user(server.address(), &trusted(&pki, &bob), Delegation::None);
}

/// The server makes a key for each delegation.
#[test]
fn a_subject_that_the_gridmap_does_not_list_cannot_delegate() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let bob = trusted(&pki, &pki.authority.user("Bob"));
    let mut client = SecureClient::connect(server.address());
    client.expect("AUTH GSSAPI", 334);
    let refusal = client.authenticate(&bob, LIMITED).expect("a refusal");
    assert_eq!(refusal.code, 535, "{refusal:?}");
    assert!(!refusal.text.contains("CN="), "{refusal:?}");
    // Without a delegation the login has the answer that advises.
    let mut client = SecureClient::with_grid(server.address(), &bob, Delegation::None);
    client.expect("USER :globus-mapping:", 331);
    let refusal = client.expect("PASS x", 530);
    assert!(refusal.text.contains("gridmap"), "{refusal:?}");
}

#[test]
fn a_tampered_command_ends_the_session() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let config = trusted(&pki, &pki.user);
    let connect = || SecureClient::grid_user(server.address(), &config, Delegation::None);
    let enc = |token: Vec<u8>| {
        let token = SecurityToken::new(token).unwrap();
        format!("ENC {}\r\n", token.encode()).into_bytes()
    };
    let mut tampered = connect();
    let mut token = tampered.wrapped("MKD made");
    *token.last_mut().unwrap() ^= 1;
    tampered.send_raw(&enc(token));
    let mut replayed = connect();
    let token = replayed.wrapped("MKD made");
    replayed.send_raw(&enc(token.clone()));
    replayed.expect_code(257);
    replayed.expect("RMD made", 250);
    replayed.send_raw(&enc(token));
    let mut dropped = connect();
    let _lost = dropped.wrapped("NOOP");
    let next = dropped.wrapped("MKD made");
    dropped.send_raw(&enc(next));
    for client in [&mut tampered, &mut replayed, &mut dropped] {
        // The records of TLS are a sequence: after a wrong one nothing can be said any more.
        client.expect_close();
    }
    assert!(!server.path("made").exists());
}

#[test]
fn commands_in_the_clear_are_not_carried_out_after_the_exchange() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let config = trusted(&pki, &pki.user);
    let mut client = SecureClient::grid_user(server.address(), &config, Delegation::None);
    client.send_raw(b"MKD made\r\n");
    let reply = client.read_line();
    assert!(reply.is_none_or(|reply| reply.starts_with("533")));
    assert!(!server.path("made").exists());
}

#[test]
fn a_client_refuses_a_server_of_another_authority() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let other = TestAuthority::new("/O=Elsewhere/CN=Other CA");
    let trust = TrustStore::exactly(vec![other.certificate().clone()]);
    let config = grid_config(TlsRole::Client, &pki.user, trust, ExpectedPeer::Trusted);
    let address = server.address();
    let refused = std::thread::spawn(move || {
        let mut client = SecureClient::connect(address);
        client.expect("AUTH GSSAPI", 334);
        client.authenticate(&config, Delegation::None)
    });
    assert!(refused.join().is_err(), "the client's own step fails");
    SecureClient::grid_user(server.address(), &trusted(&pki, &pki.user), LIMITED);
}

#[test]
fn features_of_the_grid_are_offered_inside_it_only() {
    let pki = TestPki::new();
    let server = SecureServer::with_grid(&pki);
    let features = SecureClient::connect(server.address())
        .expect("FEAT", 211)
        .text;
    assert!(features.contains("AUTH GSSAPI"), "{features}");
    assert!(
        !features.contains("DCAU") && !features.contains("DCSC"),
        "{features}"
    );
    let config = trusted(&pki, &pki.user);
    let mut client = SecureClient::with_grid(server.address(), &config, Delegation::None);
    let features = client.expect("FEAT", 211).text;
    assert!(
        features.contains("DCAU") && features.contains("DCSC"),
        "{features}"
    );
}
