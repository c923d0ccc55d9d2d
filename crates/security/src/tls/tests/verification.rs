//! Peers that are refused, and what each end learns.

use super::*;
use crate::test_pki::{TestCertificate, TestUsage};
use crate::x509::{DistinguishedName, TrustError};

/// The client refuses the server's certificate, and the server sees an alert.
fn assert_server_refused(results: &Results) {
    let (client, server) = results;
    assert!(matches!(client, Err(TlsError::Peer(_))), "{client:?}");
    assert!(matches!(server, Err(TlsError::Alert(_))), "{server:?}");
}

/// The server refuses the client's certificate, and the client sees an alert.
fn assert_client_refused(results: &Results) {
    let (client, server) = results;
    assert!(matches!(client, Err(TlsError::Alert(_))), "{client:?}");
    assert!(matches!(server, Err(TlsError::Peer(_))), "{server:?}");
}

#[test]
fn a_certificate_for_another_host_is_refused_with_an_alert() {
    let pki = Pki::new();
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let client = TlsOptions {
            expected: ExpectedPeer::Host("other.example".to_owned()),
            ..pki.client()
        };
        let mut client = TlsEngine::new(&config(client, version), None).unwrap();
        let mut server = engine(pki.server());
        let results = shake(&mut client, &mut server);
        assert_server_refused(&results);
        assert!(matches!(
            results.0,
            Err(TlsError::Peer(TrustError::Name(_)))
        ));
        assert_eq!(client.peer_certificates()[0], *pki.host.leaf());
    }
}

#[test]
fn an_unknown_authority_is_refused_with_an_alert() {
    let (pki, other) = (Pki::new(), Pki::new());
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let client = TlsOptions {
            trust: Some(Arc::new(TrustStore::exactly(vec![
                other.user.leaf().clone(),
            ]))),
            ..pki.client()
        };
        let mut client = TlsEngine::new(&config(client, version), None).unwrap();
        let results = shake(&mut client, &mut engine(pki.server()));
        assert_server_refused(&results);
        let refusal = results.0.unwrap_err();
        assert!(
            matches!(refusal, TlsError::Peer(TrustError::UnknownAuthority { .. })),
            "{refusal:?}"
        );
        let Err(TlsError::Alert(alert)) = results.1 else {
            panic!()
        };
        assert!(
            alert.to_string().contains("does not know the authority"),
            "{alert}"
        );
    }
}

#[test]
fn an_expired_certificate_is_refused_and_its_owner_is_told_so() {
    let pki = Pki::new();
    let expired = pki.authority.issue(&TestCertificate {
        alternative_names: vec!["host.example".to_owned()],
        not_after: -60,
        ..TestCertificate::new("/O=Grid/CN=host.example")
    });
    let server = TlsOptions {
        credential: Some(expired),
        ..pki.server()
    };
    let results = attempted(pki.client(), server);
    assert_server_refused(&results);
    let Err(TlsError::Alert(alert)) = results.1 else {
        panic!()
    };
    assert!(alert.to_string().contains("has expired"), "{alert}");
}

#[test]
fn a_certificate_for_clients_is_none_for_a_server() {
    let pki = Pki::new();
    let client_alone = pki.authority.issue(&TestCertificate {
        alternative_names: vec!["host.example".to_owned()],
        usages: vec![TestUsage::Client],
        ..TestCertificate::new("/O=Grid/CN=host.example")
    });
    let server = TlsOptions {
        credential: Some(client_alone),
        ..pki.server()
    };
    assert_server_refused(&attempted(pki.client(), server));
}

#[test]
fn a_required_certificate_must_be_shown() {
    let pki = Pki::new();
    let (client, server) = attempted(pki.client(), pki.asking(TlsProfile::Web));
    assert_eq!(server, Err(TlsError::Peer(TrustError::NoCertificate)));
    let Err(TlsError::Alert(alert)) = client else {
        panic!("{client:?}")
    };
    assert!(
        alert.to_string().contains("requires a certificate"),
        "{alert}"
    );
}

#[test]
fn an_optional_certificate_may_be_absent_but_not_invalid() {
    let (pki, other) = (Pki::new(), Pki::new());
    let optional = || TlsOptions {
        client_certificates: ClientCertificates::Optional,
        ..pki.asking(TlsProfile::Web)
    };
    let (_, server) = connected(pki.client(), optional());
    assert!(server.peer().is_none());
    let (_, server) = connected(pki.user(TlsProfile::Web), optional());
    assert_eq!(server.peer().unwrap().subject, pki.user.subject());
    let self_made = pki.authority.issue(&TestCertificate {
        not_after: -60,
        ..TestCertificate::new("/O=Grid/CN=User")
    });
    let _ = other;
    let invalid = TlsOptions {
        credential: Some(self_made),
        ..pki.client()
    };
    assert_client_refused(&attempted(invalid, optional()));
}

#[test]
fn a_client_of_another_identity_is_refused_and_reads_nothing() {
    let pki = Pki::new();
    for profile in [TlsProfile::Web, TlsProfile::Grid] {
        let server = |name: &str| TlsOptions {
            expected: ExpectedPeer::Identity(DistinguishedName::from_text(name)),
            ..pki.asking(profile)
        };
        connected(pki.user(profile), server("/O=Grid/CN=User"));
        let mut client = engine(pki.user(profile));
        let mut server = engine(server("/O=Grid/CN=Another"));
        client.handshake().unwrap();
        pass(&mut client, &mut server);
        server.handshake().unwrap();
        pass(&mut server, &mut client);
        // TLS 1.3: the client may write before the server has verified it.
        assert_eq!(client.handshake(), Ok(Handshake::Complete));
        client.write(b"unverified").unwrap();
        pass(&mut client, &mut server);
        let refused = server.handshake().unwrap_err();
        assert!(
            matches!(refused, TlsError::Peer(TrustError::Name(_))),
            "{refused}"
        );
        assert_eq!(server.read(&mut [0; 100]), Err(refused.clone()));
        assert_eq!(server.write(b"answer"), Err(refused));
        assert!(server.peer().is_none());
    }
}

#[test]
fn a_server_that_the_grid_refuses_never_sees_the_clients_certificate() {
    let pki = Pki::new();
    let client = TlsOptions {
        expected: ExpectedPeer::Host("other.example".to_owned()),
        ..pki.user(TlsProfile::Grid)
    };
    let mut client = engine(client);
    let mut server = engine(pki.asking(TlsProfile::Grid));
    let (result, _) = shake_until_error(&mut client, &mut server);
    assert!(
        matches!(result, Err(TlsError::Peer(TrustError::Name(_)))),
        "{result:?}"
    );
    assert!(client.outgoing().is_empty());
    assert!(server.peer_certificates().is_empty());
}

#[test]
fn exactly_one_certificate_can_be_expected_without_authorities() {
    let pki = Pki::new();
    let client = |certificate: &CertifiedKey| TlsOptions {
        trust: None,
        expected: ExpectedPeer::Certificate(certificate.leaf().to_der().unwrap()),
        ..pki.client()
    };
    let (client_end, _) = connected(client(&pki.host), pki.server());
    assert_eq!(client_end.peer().unwrap().subject, pki.host.subject());
    assert_server_refused(&attempted(client(&pki.user), pki.server()));
}

#[test]
fn a_key_of_1024_bits_is_refused() {
    let pki = Pki::new();
    let weak = pki.authority.issue(&TestCertificate {
        key: crate::test_pki::TestKey::Rsa1024,
        ..TestCertificate::new("/O=Grid/CN=host.example")
    });
    let server = TlsOptions {
        credential: Some(weak),
        ..pki.server()
    };
    let Err(TlsError::Config(words)) = TlsConfig::new(server) else {
        panic!()
    };
    assert!(words.contains("2048"), "{words}");
}

#[test]
fn the_ends_need_a_version_in_common() {
    let pki = Pki::new();
    let server = TlsOptions {
        oldest: TlsVersion::V1_3,
        ..pki.server()
    };
    let client = config(pki.client(), TlsVersion::V1_2);
    let mut client = TlsEngine::new(&client, None).unwrap();
    let (client, server) = shake(&mut client, &mut engine(server));
    let Err(TlsError::Protocol(words)) = server else {
        panic!("{server:?}")
    };
    assert!(words.contains("TLS version"), "{words}");
    let Err(TlsError::Alert(alert)) = client else {
        panic!("{client:?}")
    };
    assert!(alert.to_string().contains("TLS versions"), "{alert}");
}
