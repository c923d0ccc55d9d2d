//! The handshakes of data connections.

use std::sync::Arc;

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::x509::X509;

use super::*;
use crate::test_pki::TestKey;
use crate::tls::tests::{assert_carries, pass, read_all};
use crate::tls::{Handshake, TlsEngine, TlsError};
use crate::x509::{CertifiedKey, DistinguishedName, TrustStore};

use DataHandshakeMode::{AuthenticateOnly, Protected};

fn handshakes(
    pki: &Pki,
    version: TlsVersion,
    mode: DataHandshakeMode,
) -> (DataHandshake, DataHandshake) {
    let (client, server) = grid_options(pki);
    (
        DataHandshake::new(&config(client, version), mode, None).unwrap(),
        DataHandshake::new(&config(server, version), mode, None).unwrap(),
    )
}

/// Runs both ends; the pieces of the wire have this size. Each end sends its raw bytes as soon as it
/// is complete. Returns what each end finds behind the handshake, client first.
fn run(
    client: &mut DataHandshake,
    server: &mut DataHandshake,
    piece: usize,
    raw: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let mut wires = (raw.to_vec(), raw.to_vec());
    let mut found = (Vec::new(), Vec::new());
    while found.0.len() < raw.len() || found.1.len() < raw.len() {
        turn(client, server, piece, &mut wires.0)?;
        turn(server, client, piece, &mut wires.1)?;
        found.0.extend(client.take_raw_input());
        found.1.extend(server.take_raw_input());
    }
    Ok(found)
}

/// Moves what one end has to send, and `raw` once, when the end is complete.
fn turn(
    from: &mut DataHandshake,
    to: &mut DataHandshake,
    piece: usize,
    raw: &mut Vec<u8>,
) -> Result<(), TlsError> {
    let state = from.advance()?;
    let mut wire = from.engine().take_outgoing();
    if state == Handshake::Complete {
        wire.append(raw);
    }
    for bytes in wire.chunks(piece) {
        to.engine().receive(bytes);
        to.advance()?;
    }
    Ok(())
}

#[test]
fn raw_bytes_behind_the_handshake_are_kept() {
    let pki = Pki::new();
    // Bytes that look like a record, and bytes that do not.
    for raw in [
        &b"\x17\x03\x03\x00\x05rawrawraw"[..],
        b"\x08 block of MODE E",
    ] {
        for version in VERSIONS {
            for piece in [1, 7, usize::MAX] {
                let (mut client, mut server) = handshakes(&pki, version, AuthenticateOnly);
                let (at_client, at_server) = run(&mut client, &mut server, piece, raw).unwrap();
                assert_eq!(at_client, raw, "{version:?} {piece}");
                assert_eq!(at_server, raw, "{version:?} {piece}");
                let peer = server.engine().peer().unwrap().identity.clone();
                assert_eq!(peer, pki.user.subject());
                assert!(client.engine().peer().is_some());
            }
        }
    }
}

#[test]
fn protected_connections_go_on_in_tls() {
    let pki = Pki::new();
    for version in VERSIONS {
        let (mut client, mut server) = handshakes(&pki, version, Protected);
        while (client.advance().unwrap(), server.advance().unwrap())
            != (Handshake::Complete, Handshake::Complete)
        {
            pass(client.engine(), server.engine());
            pass(server.engine(), client.engine());
        }
        assert!(client.take_raw_input().is_empty());
        let (mut client, mut server) = (client.into_engine(), server.into_engine());
        assert_carries(&mut client, &mut server, b"data");
        assert_carries(&mut server, &mut client, b"data");
    }
}

#[test]
fn a_server_that_receives_record_by_record_receives_no_byte_of_the_data() {
    let pki = Pki::new();
    for version in VERSIONS {
        let (mut client, mut server) = handshakes(&pki, version, AuthenticateOnly);
        let (mut wire, mut raw) = (Vec::new(), b"\x16\x03\x03\x00\x01x".to_vec());
        let mut state = Handshake::NeedsInput;
        while state == Handshake::NeedsInput {
            let is_complete = client.advance().unwrap() == Handshake::Complete;
            wire.extend(client.engine().take_outgoing());
            if is_complete {
                wire.append(&mut raw);
            }
            state = server.advance().unwrap();
            while state == Handshake::NeedsInput && !wire.is_empty() {
                let count = server.missing_of_record().min(wire.len());
                let received: Vec<u8> = wire.drain(..count).collect();
                server.engine().receive(&received);
                state = server.advance().unwrap();
            }
            pass(server.engine(), client.engine());
        }
        assert!(server.take_raw_input().is_empty());
        assert_eq!(wire, b"\x16\x03\x03\x00\x01x");
    }
}

#[test]
fn a_data_connection_of_another_user_is_refused() {
    let pki = Pki::new();
    for version in VERSIONS {
        let (client, server) = grid_options(&pki);
        let server = TlsOptions {
            expected: ExpectedPeer::Identity(DistinguishedName::from_text("/O=Grid/CN=Other")),
            ..server
        };
        let client = config(client, version);
        let mut client = DataHandshake::new(&client, AuthenticateOnly, None).unwrap();
        let server = config(server, version);
        let mut server = DataHandshake::new(&server, AuthenticateOnly, None).unwrap();
        let refused = run(&mut client, &mut server, usize::MAX, b"raw").unwrap_err();
        assert!(matches!(refused, TlsError::Peer(_)), "{refused:?}");
        assert!(server.take_raw_input().is_empty());
    }
}

#[test]
fn a_delegation_or_another_byte_instead_of_the_flag_is_refused() {
    let pki = Pki::new();
    for version in VERSIONS {
        for flag in [&b"D"[..], b"1", b"00"] {
            let (client, server) = grid_options(&pki);
            let mut client = TlsEngine::new(&config(client, version), None).unwrap();
            let server = config(server, version);
            let mut server = DataHandshake::new(&server, AuthenticateOnly, None).unwrap();
            while client.handshake().unwrap() != Handshake::Complete {
                pass(&mut client, server.engine());
                assert_eq!(server.advance(), Ok(Handshake::NeedsInput));
                pass(server.engine(), &mut client);
            }
            client.write(flag).unwrap();
            pass(&mut client, server.engine());
            assert!(matches!(server.advance(), Err(TlsError::Protocol(_))));
            assert!(server.advance().is_err());
            assert!(server.take_raw_input().is_empty());
        }
    }
}

#[test]
fn bytes_that_are_no_tls_end_the_handshake() {
    let pki = Pki::new();
    for mode in [AuthenticateOnly, Protected] {
        let (_, mut server) = handshakes(&pki, TlsVersion::V1_3, mode);
        server.engine().receive(&[0x08; 100_000]);
        let words = server.advance().unwrap_err().to_string();
        assert!(words.contains("TLS"), "{words}");
        assert_eq!(server.engine().unprocessed(), 0);
    }
}

#[test]
fn a_server_that_gives_tickets_instead_of_the_byte_is_understood() {
    let pki = Pki::new();
    let server = TlsOptions {
        tickets: true,
        ..pki.asking(TlsProfile::Web)
    };
    let mut server = TlsEngine::new(&config(server, TlsVersion::V1_3), None).unwrap();
    let client = config(pki.user(TlsProfile::Grid), TlsVersion::V1_3);
    let mut client = DataHandshake::new(&client, AuthenticateOnly, None).unwrap();
    while client.advance().unwrap() != Handshake::Complete {
        pass(client.engine(), &mut server);
        server.handshake().unwrap();
        pass(&mut server, client.engine());
    }
    pass(client.engine(), &mut server);
    assert_eq!(read_all(&mut server), b"0");
    client.engine().receive(b"raw");
    assert_eq!(client.take_raw_input(), b"raw");
}

/// A credential as globus-url-copy makes it for DCSC: self-signed, with MD5.
fn credential_of_globus() -> CertifiedKey {
    let key = crate::test_pki::key(TestKey::Rsa2048, "DCSC");
    let name = crate::test_pki::name("/C=US/CN=Globus DCSC Cert");
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    let (start, end) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    builder.set_not_before(&start.unwrap()).unwrap();
    builder.set_not_after(&end.unwrap()).unwrap();
    builder.sign(&key, MessageDigest::md5()).unwrap();
    CertifiedKey::from_parts(builder.build(), key, Vec::new()).unwrap()
}

#[test]
fn a_self_signed_credential_serves_both_ends() {
    let pki = Pki::new();
    let credential = credential_of_globus();
    let trust = Arc::new(TrustStore::exactly(vec![credential.leaf().clone()]));
    let with_it = |options: TlsOptions| TlsOptions {
        credential: Some(credential.clone()),
        trust: Some(Arc::clone(&trust)),
        expected: ExpectedPeer::Identity(credential.identity()),
        ..options
    };
    for version in VERSIONS {
        for mode in [AuthenticateOnly, Protected] {
            let (client, server) = grid_options(&pki);
            let client = config(with_it(client), version);
            let server = config(with_it(server), version);
            let mut client = DataHandshake::new(&client, mode, None).unwrap();
            let mut server = DataHandshake::new(&server, mode, None).unwrap();
            let raw: &[u8] = match mode {
                AuthenticateOnly => b"raw",
                Protected => b"",
            };
            run(&mut client, &mut server, usize::MAX, raw).unwrap();
            while server.advance().unwrap() != Handshake::Complete {
                turn(&mut client, &mut server, usize::MAX, &mut Vec::new()).unwrap();
                turn(&mut server, &mut client, usize::MAX, &mut Vec::new()).unwrap();
            }
            let identity = &server.engine().peer().unwrap().identity;
            assert_eq!(*identity, credential.identity());
        }
    }
}
