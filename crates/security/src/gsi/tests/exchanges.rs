//! Exchanges, with and without delegation.

use super::*;
use crate::test_pki::{ProxyForm, ProxyPolicy, TestCertificate, TestKey, TestProxy};
use crate::tls::{ClientCertificates, Handshake, TlsEngine, TlsError};
use crate::x509::DistinguishedName;

const LIMITED: Delegation = Delegation::Limited { seconds: 3600 };
const FULL: Delegation = Delegation::Full { seconds: 3600 };

#[test]
fn both_ends_agree_with_every_version_and_delegation() {
    let pki = Pki::new();
    for version in VERSIONS {
        for (delegation, tokens) in [(Delegation::None, 3), (LIMITED, 4), (FULL, 4)] {
            let (mut initiator, mut acceptor) = ends(&pki, version, delegation.clone());
            let mut both = exchange(&mut initiator, &mut acceptor);
            assert_eq!(both.tokens, tokens);
            assert_eq!(both.client.peer().identity, pki.host.subject());
            assert_eq!(both.server.peer().identity, pki.user.subject());
            assert_eq!(both.client.description(), both.server.description());
            let delegated = both.server.take_delegated();
            assert!(both.server.take_delegated().is_none());
            assert!(both.client.take_delegated().is_none());
            let Some(delegated) = delegated else {
                assert_eq!(delegation, Delegation::None);
                continue;
            };
            assert_eq!(delegated.identity(), pki.user.subject());
            assert_eq!(delegated.chain()[0], *pki.user.leaf());
            let again = TlsOptions {
                credential: Some(delegated),
                ..pki.user(TlsProfile::Grid)
            };
            let server = config(pki.asking(TlsProfile::Grid), version);
            let mut again = GsiInitiator::new(&config(again, version), LIMITED).unwrap();
            let mut acceptor = GsiAcceptor::new(&server, true).unwrap();
            let both = exchange(&mut again, &mut acceptor);
            assert_eq!(both.server.peer().identity, pki.user.subject());
            assert_eq!(both.server.peer().limited, delegation == LIMITED);
        }
    }
}

#[test]
fn a_proxy_logs_in_as_its_owner() {
    let pki = Pki::new();
    let proxy = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::InheritAll).of(&pki.user);
    for version in VERSIONS {
        let (client, server) = grid_options(&pki);
        let client = TlsOptions {
            credential: Some(proxy.clone()),
            ..client
        };
        let mut initiator = GsiInitiator::new(&config(client, version), LIMITED).unwrap();
        let mut acceptor = GsiAcceptor::new(&config(server, version), true).unwrap();
        let mut both = exchange(&mut initiator, &mut acceptor);
        assert_eq!(both.server.peer().identity, pki.user.subject());
        assert_eq!(both.server.peer().subject, proxy.subject());
        let delegated = both.server.take_delegated().unwrap();
        assert_eq!(delegated.chain().len(), 2);
    }
}

#[test]
fn a_delegation_that_is_not_accepted_ends_the_exchange() {
    let pki = Pki::new();
    for version in VERSIONS {
        let (client, server) = grid_options(&pki);
        let mut initiator = GsiInitiator::new(&config(client, version), FULL).unwrap();
        let mut acceptor = GsiAcceptor::new(&config(server, version), false).unwrap();
        let refused = try_exchange(&mut initiator, &mut acceptor).err().unwrap();
        assert!(refused.to_string().contains("not accepted"), "{refused}");
        assert!(acceptor.step(b"\x17\x03\x03\x00\x00").is_err());
    }
}

#[test]
fn only_some_clients_may_delegate() {
    let pki = Pki::new();
    let user = pki.user.subject();
    for version in VERSIONS {
        for (listed, delegation) in [
            (user.clone(), FULL),
            (DistinguishedName::from_text("/O=Grid/CN=Another"), FULL),
            (
                DistinguishedName::from_text("/O=Grid/CN=Another"),
                Delegation::None,
            ),
        ] {
            let is_accepted = listed == user || delegation == Delegation::None;
            let (mut initiator, acceptor) = ends(&pki, version, delegation);
            let mut acceptor = acceptor.with_delegators(move |peer| peer.identity == listed);
            let result = try_exchange(&mut initiator, &mut acceptor);
            if is_accepted {
                result.unwrap();
                continue;
            }
            let refused = result.err().unwrap();
            assert!(matches!(refused, GsiError::NotDelegator(_)), "{refused}");
            assert!(refused.to_string().starts_with(user.as_str()), "{refused}");
        }
    }
    // A rule gives no rights that the first argument denies.
    let (client, server) = grid_options(&pki);
    let client = config(client, TlsVersion::V1_3);
    let mut initiator = GsiInitiator::new(&client, FULL).unwrap();
    let acceptor = GsiAcceptor::new(&config(server, TlsVersion::V1_3), false).unwrap();
    let mut acceptor = acceptor.with_delegators(|_| true);
    assert!(try_exchange(&mut initiator, &mut acceptor).is_err());
}

#[test]
fn the_size_of_a_delegated_key_is_not_the_clients_choice() {
    let pki = Pki::new();
    for key in [TestKey::Rsa4096, TestKey::P256] {
        let mut template = TestCertificate::new("/O=Grid/CN=Large");
        template.key = key;
        let (client, server) = grid_options(&pki);
        let client = TlsOptions {
            credential: Some(pki.authority.issue(&template)),
            ..client
        };
        let client = config(client, TlsVersion::V1_3);
        let mut initiator = GsiInitiator::new(&client, LIMITED).unwrap();
        let mut acceptor = GsiAcceptor::new(&config(server, TlsVersion::V1_3), true).unwrap();
        let mut both = exchange(&mut initiator, &mut acceptor);
        let delegated = both.server.take_delegated().unwrap();
        assert_eq!(delegated.key().bits(), 2048, "{key:?}");
    }
}

#[test]
fn a_server_of_another_name_gets_no_flag() {
    let pki = Pki::new();
    for version in VERSIONS {
        let (client, server) = grid_options(&pki);
        let client = TlsOptions {
            expected: ExpectedPeer::Identity(DistinguishedName::from_text("/CN=Another")),
            ..client
        };
        let mut initiator = GsiInitiator::new(&config(client, version), FULL).unwrap();
        let mut acceptor = GsiAcceptor::new(&config(server, version), true).unwrap();
        let refused = try_exchange(&mut initiator, &mut acceptor).err().unwrap();
        assert!(
            matches!(refused, GsiError::Tls(TlsError::Peer(_))),
            "{refused}"
        );
        assert!(refused.to_string().contains("/CN=Another"), "{refused}");
        assert!(initiator.step(None).is_err());
    }
}

#[test]
fn a_server_that_gives_tickets_instead_of_the_byte_is_understood() {
    let pki = Pki::new();
    let server = TlsOptions {
        tickets: true,
        client_certificates: ClientCertificates::Required,
        ..pki.asking(TlsProfile::Web)
    };
    let mut server = TlsEngine::new(&config(server, TlsVersion::V1_3), None).unwrap();
    let client = config(pki.user(TlsProfile::Grid), TlsVersion::V1_3);
    let mut initiator = GsiInitiator::new(&client, Delegation::None).unwrap();
    let mut answer = None;
    let mut context = loop {
        match initiator.step(answer.as_deref()).unwrap() {
            GsiStep::Continue(token) => server.receive(&token),
            GsiStep::Complete(token, context) => {
                server.receive(&token.unwrap());
                break context;
            }
        }
        server.handshake().unwrap();
        answer = Some(server.take_outgoing());
    };
    assert_eq!(server.handshake(), Ok(Handshake::Complete));
    assert_eq!(crate::tls::tests::read_all(&mut server), b"0");
    server.write(b"220 ready\r\n").unwrap();
    let token = server.take_outgoing();
    assert_eq!(context.unwrap(&token).unwrap(), b"220 ready\r\n");
}

#[test]
fn tokens_that_are_empty_truncated_or_late_end_the_exchange() {
    let pki = Pki::new();
    for cut in [0, 1, 4, 5, 100] {
        let (mut initiator, mut acceptor) = ends(&pki, TlsVersion::V1_3, Delegation::None);
        let GsiStep::Continue(first) = initiator.step(None).unwrap() else {
            panic!()
        };
        assert!(acceptor.step(&first[..cut]).is_err());
        assert!(acceptor.step(&first).is_err(), "the exchange has failed");
        assert!(initiator.step(Some(&[])).is_err());
        assert!(initiator.step(Some(&first)).is_err());
    }
    let (mut initiator, mut acceptor) = ends(&pki, TlsVersion::V1_3, Delegation::None);
    exchange(&mut initiator, &mut acceptor);
    assert!(initiator.step(Some(b"\x17\x03\x03\x00\x01x")).is_err());
    assert!(acceptor.step(b"\x17\x03\x03\x00\x01x").is_err());
}

#[test]
fn a_replayed_or_altered_token_ends_the_exchange() {
    let pki = Pki::new();
    for version in VERSIONS {
        for attack in ["replay", "alter"] {
            let (mut initiator, mut acceptor) = ends(&pki, version, Delegation::None);
            let GsiStep::Continue(first) = initiator.step(None).unwrap() else {
                panic!()
            };
            let GsiStep::Continue(answer) = acceptor.step(&first).unwrap() else {
                panic!()
            };
            let GsiStep::Continue(mut second) = initiator.step(Some(&answer)).unwrap() else {
                panic!()
            };
            if attack == "replay" {
                second = first;
            } else {
                *second.last_mut().unwrap() ^= 1;
            }
            assert!(acceptor.step(&second).is_err(), "{version:?} {attack}");
        }
    }
}

#[test]
fn gsi_needs_a_credential_a_role_and_a_verified_peer() {
    let pki = Pki::new();
    let (client, server) = grid_options(&pki);
    let unverified = TlsOptions {
        expected: ExpectedPeer::Unverified,
        ..client.clone()
    };
    for options in [unverified, server, pki.user(TlsProfile::Web)] {
        let config = config(options, TlsVersion::V1_3);
        let refused = GsiInitiator::new(&config, Delegation::None).err().unwrap();
        assert!(
            matches!(refused, GsiError::Tls(TlsError::Config(_))),
            "{refused}"
        );
    }
    let client = config(client, TlsVersion::V1_3);
    assert!(GsiAcceptor::new(&client, true).is_err());
}
