//! Connections that are not the peer's close only themselves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use data::channel::{AllowedPeers, SessionDataChannel};
use data::error::DataError;
use data::security::DataSecurity;
use proto::command::TransferMode;
use security::gsi::DataHandshakeMode;
use security::test_pki::{TestAuthority, write_grid_directory};
use security::tls::{ExpectedPeer, TlsConfig, TlsEngine, TlsOptions};
use security::x509::{CertifiedKey, TrustStore};

use super::ends::{FtpsEnds, protected};
use crate::transfer_ends::{
    LOCALHOST, LoopbackTransfer, PATIENCE, listen, memory, pattern, sink, whole_plan,
};

/// Waits until the other end has closed the connection.
fn await_close(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    // An alert, then the end or a reset.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn strangers_without_tls_neither_fail_nor_delay_a_transfer() {
    let ends = FtpsEnds::new();
    let bytes = pattern(500_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut receiver, at) = listen(AllowedPeers::Only(LOCALHOST));
        // Silent ones, and ones that speak something else.
        let said: [&[u8]; 3] = [b"", b"GET / HTTP/1.0\r\n\r\n", &[0; 40]];
        let strangers: Vec<_> = said
            .iter()
            .map(|said| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(said).unwrap();
                stream
            })
            .collect();
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
        [transfer.sender, transfer.receiver] = ends.settings(mode);
        let mut sender = SessionDataChannel::connect_to(vec![at], None);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert!(stored.bytes() == bytes, "{mode:?}");
        drop(strangers);
    }
}

#[test]
fn a_stranger_of_a_passive_sender_gets_nothing() {
    let ends = FtpsEnds::new();
    let bytes = pattern(500_000);
    let (mut sender, at) = listen(AllowedPeers::Only(LOCALHOST));
    let silent = TcpStream::connect(at).unwrap();
    let mut other = TcpStream::connect(at).unwrap();
    other.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let (stored, target) = sink();
    let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Stream);
    [transfer.receiver, transfer.sender] = ends.settings(TransferMode::Stream);
    let mut receiver = SessionDataChannel::connect_to(vec![at], None);
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    sent.unwrap();
    received.unwrap();
    assert!(stored.bytes() == bytes);
    await_close(&silent);
    await_close(&other);
}

#[test]
fn a_connection_must_resume_the_control_connections_session_if_that_is_required() {
    let mut ends = FtpsEnds::new();
    ends.server.require_resumption = true;
    let bytes = pattern(200_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut receiver, at) = listen(AllowedPeers::Only(LOCALHOST));
        let config = TlsConfig::new(TlsOptions::client().unverified()).unwrap();
        let stranger = std::thread::spawn(move || {
            // It gets no answer: the end of the handshake would give it a session.
            let mut engine = TlsEngine::new(&config, None).unwrap();
            engine.handshake().unwrap();
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(engine.outgoing()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert_eq!(answer, b"");
        });
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
        [transfer.sender, transfer.receiver] = ends.settings(mode);
        let mut sender = SessionDataChannel::connect_to(vec![at], None);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                data::recv::run(
                    &mut receiver,
                    &transfer.sink,
                    &transfer.receive,
                    &transfer.receiver,
                    &Arc::default(),
                )
            });
            stranger.join().unwrap();
            let sent = data::send::run(
                &mut sender,
                &transfer.source,
                &transfer.send,
                &transfer.sender,
                &Arc::default(),
            );
            sent.unwrap();
            receiving.join().unwrap().unwrap();
        });
        assert!(stored.bytes() == bytes, "{mode:?}");
    }
}

#[test]
fn the_error_names_the_check_that_the_only_connection_failed() {
    let mut ends = FtpsEnds::new();
    ends.server.require_resumption = true;
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut receiver, at) = listen(AllowedPeers::Only(LOCALHOST));
        let (_, target) = sink();
        let mut transfer = LoopbackTransfer::new(&pattern(1000), target, mode);
        [transfer.sender, transfer.receiver] = ends.settings(mode);
        transfer.receiver.connect_timeout = Duration::from_secs(2);
        let unresumed = ends.client.clone().resuming(None);
        transfer.sender = protected(mode, &unresumed);
        let mut sender = SessionDataChannel::connect_to(vec![at], None);
        let (_, received) = transfer.run(&mut sender, &mut receiver);
        let error = received.unwrap_err();
        assert!(
            matches!(&error, DataError::Security { reason, .. } if reason.contains("resume")),
            "{mode:?} {error}"
        );
    }
}

#[test]
fn a_sender_reports_a_peer_that_speaks_no_tls() {
    let ends = FtpsEnds::new();
    let listener = std::net::TcpListener::bind((LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 this is something else\r\n").unwrap();
        await_close(&stream);
    });
    let mut sender = SessionDataChannel::connect_to(vec![at], None);
    let failed = data::send::run(
        &mut sender,
        &memory(&pattern(1000)),
        &whole_plan(1000),
        &protected(TransferMode::Stream, &ends.client),
        &Arc::default(),
    );
    let error = failed.unwrap_err();
    assert!(matches!(error, DataError::Security { .. }), "{error}");
    drop(sender);
    peer.join().unwrap();
}

#[test]
fn a_peer_with_another_identity_is_refused_and_named() {
    let authority = TestAuthority::new("/O=Grid/CN=Authority");
    let folder = tempfile::tempdir().unwrap();
    write_grid_directory(folder.path(), &[&authority]);
    let trust = Arc::new(TrustStore::from_path(folder.path()).unwrap());
    let (alice, mallory) = (authority.user("Alice"), authority.user("Mallory"));
    for form in [
        DataHandshakeMode::Protected,
        DataHandshakeMode::AuthenticateOnly,
    ] {
        for mode in [TransferMode::Stream, TransferMode::Extended] {
            let end = |credential: &CertifiedKey| {
                let options = |role| {
                    TlsOptions::grid(role)
                        .with_credential(credential.clone())
                        .with_trust(Arc::clone(&trust))
                        .expecting(ExpectedPeer::Identity(alice.identity()))
                };
                DataSecurity::grid(form, options).unwrap()
            };
            let bytes = pattern(100_000);
            for (credential, succeeds) in [(&alice, true), (&mallory, false)] {
                let (mut receiver, at) = listen(AllowedPeers::Only(LOCALHOST));
                let (stored, target) = sink();
                let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
                transfer.sender = protected(mode, &end(credential));
                transfer.receiver = protected(mode, &end(&alice));
                if !succeeds {
                    transfer.receiver.connect_timeout = Duration::from_secs(2);
                }
                let mut sender = SessionDataChannel::connect_to(vec![at], None);
                let (sent, received) = transfer.run(&mut sender, &mut receiver);
                let case = format!("{form:?} {mode:?} {succeeds}");
                if succeeds {
                    sent.unwrap();
                    received.unwrap();
                    assert!(stored.bytes() == bytes, "{case}");
                    continue;
                }
                let error = received.unwrap_err();
                let named = matches!(&error, DataError::Security { reason, .. }
                    if reason.contains("/O=Grid/CN=Mallory") && reason.contains("/O=Grid/CN=Alice"));
                assert!(named, "{case} {error}");
                // The sender may have ended before it was refused (TLS 1.3): the receiver's reply tells
                // it.
                drop(sent);
                assert!(stored.bytes().is_empty(), "{case}");
            }
        }
    }
}
