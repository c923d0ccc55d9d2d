//! The handshakes of data connections.

use super::*;
use crate::tls::tests::{assert_carries, pass};
use crate::tls::{Handshake, TlsEngine, TlsError};
use crate::x509::DistinguishedName;

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
