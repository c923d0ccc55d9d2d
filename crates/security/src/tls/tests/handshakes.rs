//! Handshakes that succeed, and what follows them.

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVersion};

use super::*;
use crate::tls::memory::MemoryWire;

/// A client that verifies nothing, and a server that asks for nothing.
fn unverified(pki: &Pki) -> (TlsOptions, TlsOptions) {
    (TlsOptions::client().unverified(), pki.server())
}

#[test]
fn bytes_of_any_number_arrive_in_both_directions() {
    let pki = Pki::new();
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let client = config(pki.client(), version);
        let server = config(pki.server(), TlsVersion::V1_3);
        let mut client = TlsEngine::new(&client, None).unwrap();
        let mut server = TlsEngine::new(&server, None).unwrap();
        assert_eq!(shake(&mut client, &mut server), (Ok(()), Ok(())));
        for count in [1, 5, 16_384, 16_385, 1_000_000] {
            let bytes: Vec<u8> = (0..count).map(|n| (n % 251) as u8).collect();
            assert_carries(&mut client, &mut server, &bytes);
            assert_carries(&mut server, &mut client, &bytes);
        }
        let expected = match version {
            TlsVersion::V1_2 => "TLSv1.2 ECDHE-RSA-AES256-GCM-SHA384",
            TlsVersion::V1_3 => "TLSv1.3 TLS_AES_256_GCM_SHA384",
        };
        assert_eq!(client.description(), expected);
        assert_eq!(server.description(), expected);
        assert!(client.is_encrypted() && server.is_encrypted());
        assert!(server.peer().is_none());
        assert_eq!(client.peer().unwrap().subject, pki.host.subject());
        assert_eq!(client.peer_certificates()[0], *pki.host.leaf());
    }
}

#[test]
fn a_client_with_a_certificate_is_known_to_the_server() {
    let pki = Pki::new();
    for profile in [TlsProfile::Web, TlsProfile::Grid] {
        for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
            let client = config(pki.user(profile), version);
            let mut client = TlsEngine::new(&client, None).unwrap();
            let mut server = engine(pki.asking(profile));
            assert_eq!(shake(&mut client, &mut server), (Ok(()), Ok(())));
            assert_eq!(server.peer().unwrap().identity, pki.user.subject());
            assert_eq!(server.peer_certificates()[0], *pki.user.leaf());
        }
    }
}

#[test]
fn a_direction_ends_while_the_other_goes_on() {
    let pki = Pki::new();
    let (client, server) = unverified(&pki);
    let (mut client, mut server) = connected(client, server);
    client.write(b"last").unwrap();
    client.close().unwrap();
    client.close().unwrap();
    pass(&mut client, &mut server);
    let mut space = [0; 100];
    assert_eq!(server.read(&mut space), Ok(ReadResult::Bytes(4)));
    assert_eq!(server.read(&mut space), Ok(ReadResult::Closed));
    assert_eq!(server.read(&mut space), Ok(ReadResult::Closed));
    assert_carries(&mut server, &mut client, b"still");
    assert!(client.write(b"more").is_err());
}

#[test]
fn a_connection_carries_nothing_before_its_handshake() {
    let pki = Pki::new();
    let (client, _) = unverified(&pki);
    let mut client = engine(client);
    assert!(client.write(b"secret").is_err());
    assert!(client.outgoing().is_empty());
    assert!(client.read(&mut [0; 10]).is_err());
}

#[test]
fn grid_connections_have_no_tickets_and_web_servers_only_if_they_give_them() {
    let pki = Pki::new();
    for (tickets, expected) in [(false, false), (true, true)] {
        for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
            let client = config(pki.client(), version);
            let mut client = TlsEngine::new(&client, None).unwrap();
            let mut server = engine(TlsOptions {
                tickets,
                ..pki.server()
            });
            assert_eq!(shake(&mut client, &mut server), (Ok(()), Ok(())));
            assert_carries(&mut server, &mut client, b"first");
            assert_eq!(client.session().is_some(), expected, "{version:?}");
        }
    }
}

#[test]
fn options_that_cannot_work_are_refused() {
    let pki = Pki::new();
    let server = TlsOptions {
        credential: None,
        ..pki.server()
    };
    let blind = TlsOptions {
        trust: None,
        ..pki.client()
    };
    let asks_nothing = TlsOptions {
        expected: ExpectedPeer::Host("host.example".to_owned()),
        ..pki.server()
    };
    let anonymous = TlsOptions {
        profile: TlsProfile::Grid,
        ..pki.client()
    };
    for options in [server, blind, asks_nothing, anonymous] {
        assert!(matches!(TlsConfig::new(options), Err(TlsError::Config(_))));
    }
}

#[test]
fn an_unverified_client_sees_the_certificate_and_no_identity() {
    let pki = Pki::new();
    let (client, server) = unverified(&pki);
    let (mut client, mut server) = connected(client, server);
    assert!(client.peer().is_none());
    assert_eq!(client.peer_certificates()[0], *pki.host.leaf());
    assert_carries(&mut server, &mut client, b"bytes");
}

#[test]
fn connections_and_sessions_move_between_threads() {
    fn is_sendable<T: Send + 'static>() {}
    is_sendable::<TlsEngine>();
    is_sendable::<TlsConfig>();
    is_sendable::<TlsSession>();
    is_sendable::<crate::gsi::GsiContext>();
    is_sendable::<crate::gsi::GsiAcceptor>();
    is_sendable::<crate::gsi::DataHandshake>();
}

/// An end of TLS 1.2 that has these suites alone, with the host's certificate.
fn bare_end(pki: &Pki, suites: &str) -> SslStream<MemoryWire> {
    let mut context = SslContext::builder(SslMethod::tls()).unwrap();
    context
        .set_max_proto_version(Some(SslVersion::TLS1_2))
        .unwrap();
    context.set_cipher_list(suites).unwrap();
    context.set_certificate(pki.host.leaf()).unwrap();
    context.set_private_key(pki.host.key()).unwrap();
    SslStream::new(Ssl::new(&context.build()).unwrap(), MemoryWire::default()).unwrap()
}

/// Without ephemeral keys, who learns the server's key later can read recorded connections.
#[test]
fn suites_without_ephemeral_keys_are_neither_offered_nor_accepted() {
    let pki = Pki::new();
    let (ephemeral, fixed) = (
        "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-SHA",
        "AES256-GCM-SHA384:AES128-GCM-SHA256:AES256-SHA256:AES128-SHA:PSK:SRP",
    );
    for profile in [TlsProfile::Web, TlsProfile::Grid] {
        for (suites, is_accepted) in [(ephemeral, true), (fixed, false)] {
            let mut client = bare_end(&pki, suites);
            assert!(client.connect().is_err(), "waits for the server");
            let mut server = engine(pki.asking(profile));
            server.receive(client.get_ref().outgoing());
            let answer = server.handshake();
            assert_eq!(answer.is_ok(), is_accepted, "{profile:?} {answer:?}");

            let mut client = engine(pki.user(profile));
            client.handshake().unwrap();
            let mut server = bare_end(&pki, suites);
            server.get_mut().receive(client.outgoing());
            let answer = server.accept().unwrap_err();
            let waits = answer.code() == ErrorCode::WANT_READ;
            assert_eq!(waits, is_accepted, "{profile:?} {answer}");
        }
    }
}
