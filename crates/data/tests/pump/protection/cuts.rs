//! The end of a connection, and what is no end.

use std::net::Shutdown;
use std::sync::Arc;

use data::channel::AllowedPeers;
use data::error::DataError;
use data::job::TransferControl;
use data::recv::ReceivePlan;
use data::security::{DataSecurity, ProtectedEnd};
use proto::command::TransferMode;
use security::tls::TlsSession;

use super::ends::{FtpsEnds, WirePeer, protected};
use crate::blocks::{CLOSE, DATA, EOD, EOF, block, receive_with};
use crate::transfer_ends::{
    ANY, LOCALHOST, LoopbackTransfer, listen, pair, pattern, sink, until, whole_plan,
};

fn session(security: &DataSecurity) -> Option<&TlsSession> {
    security.resume.as_ref()
}

/// The stored bytes and the outcome of a receiver, of a connection on which `send` is done.
fn received(
    security: &DataSecurity,
    ends: &FtpsEnds,
    mode: TransferMode,
    send: impl FnOnce(&mut WirePeer) + Send,
) -> (Vec<u8>, Result<(), DataError>) {
    received_up_to(ANY, security, ends, mode, send)
}

/// The same, by this plan.
fn received_up_to(
    plan: ReceivePlan,
    security: &DataSecurity,
    ends: &FtpsEnds,
    mode: TransferMode,
    send: impl FnOnce(&mut WirePeer) + Send,
) -> (Vec<u8>, Result<(), DataError>) {
    let (mut channel, at) = listen(AllowedPeers::Only(LOCALHOST));
    let settings = protected(mode, security);
    let (stored, outcome, _) = receive_with(&mut channel, plan, &settings, &Arc::default(), || {
        let config = ends.client.client.as_ref().unwrap();
        let mut peer = WirePeer::connect(at, config, session(&ends.client));
        send(&mut peer);
        peer.stream.shutdown(Shutdown::Write).unwrap();
        peer.read_to_end();
    });
    (stored.bytes(), outcome.map(drop))
}

#[test]
fn in_mode_s_a_fin_without_close_notify_is_no_end_of_the_file() {
    let ends = FtpsEnds::new();
    let (stored, outcome) = received(&ends.server, &ends, TransferMode::Stream, |peer| {
        peer.send(b"half of the file");
    });
    let error = outcome.unwrap_err();
    assert!(
        matches!(&error, DataError::Security { reason, .. } if reason.contains("close_notify")),
        "{error}"
    );
    // The bytes before are stored, for a restart.
    assert_eq!(stored, b"half of the file");
}

#[test]
fn in_mode_s_a_file_of_known_length_is_whole_without_close_notify() {
    let ends = FtpsEnds::new();
    let up_to = |length| ReceivePlan {
        limit: Some(length),
        ..ANY
    };
    let send = |peer: &mut WirePeer| peer.send(b"the file");
    let (stored, outcome) =
        received_up_to(up_to(8), &ends.server, &ends, TransferMode::Stream, send);
    outcome.unwrap();
    assert_eq!(stored, b"the file");
    let longer = received_up_to(up_to(9), &ends.server, &ends, TransferMode::Stream, send);
    let error = longer.1.unwrap_err();
    assert!(matches!(&error, DataError::Security { .. }), "{error}");
}

#[test]
fn in_mode_s_close_notify_is_the_end_of_the_file() {
    let ends = FtpsEnds::new();
    let (stored, outcome) = received(&ends.server, &ends, TransferMode::Stream, |peer| {
        peer.send(b"the file");
        peer.engine.close().unwrap();
        peer.flush();
    });
    outcome.unwrap();
    assert_eq!(stored, b"the file");
}

#[test]
fn peers_that_never_send_close_notify_end_with_a_fin_where_that_is_permitted() {
    let ends = FtpsEnds::new();
    for lenient in [ProtectedEnd::Fin, ProtectedEnd::Announced] {
        let lenient = ends.server.clone().ending(lenient);
        let (stored, outcome) = received(&lenient, &ends, TransferMode::Stream, |peer| {
            peer.send(b"the file");
        });
        outcome.unwrap();
        assert_eq!(stored, b"the file");
    }
}

#[test]
fn in_mode_e_the_end_marks_decide() {
    let ends = FtpsEnds::new();
    let whole = [block(DATA, 0, b"abc"), block(EOF | EOD | CLOSE, 1, b"")].concat();
    let (stored, outcome) = received(&ends.server, &ends, TransferMode::Extended, |peer| {
        peer.send(&whole);
    });
    outcome.unwrap();
    assert_eq!(stored, b"abc");
    let (_, outcome) = received(&ends.server, &ends, TransferMode::Extended, |peer| {
        peer.send(&block(DATA, 0, b"abc"));
        peer.engine.close().unwrap();
        peer.flush();
    });
    assert!(
        matches!(outcome, Err(DataError::Block { .. })),
        "{outcome:?}"
    );
}

#[test]
fn bytes_that_are_no_tls_end_a_protected_connection() {
    use std::io::Write;
    let ends = FtpsEnds::new();
    let (stored, outcome) = received(&ends.server, &ends, TransferMode::Stream, |peer| {
        peer.send(b"begin");
        peer.stream.write_all(&[0; 100]).unwrap();
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, DataError::Security { .. }), "{error}");
    assert_eq!(stored, b"begin");
}

#[test]
fn a_sender_ends_a_file_with_close_notify() {
    let ends = FtpsEnds::new();
    let (mut sender, at) = listen(AllowedPeers::Only(LOCALHOST));
    let config = ends.client.client.clone().unwrap();
    let resume = ends.client.resume.clone();
    let reading =
        std::thread::spawn(move || WirePeer::connect(at, &config, resume.as_ref()).read_to_end());
    let bytes = pattern(1_000_000);
    let sent = data::send::run(
        &mut sender,
        &crate::transfer_ends::memory(&bytes),
        &whole_plan(1_000_000),
        &protected(TransferMode::Stream, &ends.server),
        &Arc::default(),
    );
    let (read, closed) = reading.join().unwrap();
    assert!(read == bytes && closed);
    sent.unwrap();
}

#[test]
fn a_sender_that_is_stopped_ends_no_file() {
    let ends = FtpsEnds::new();
    for (mode, streams) in [(TransferMode::Stream, 1), (TransferMode::Extended, 3)] {
        let (_, target) = sink();
        let mut transfer = LoopbackTransfer::new(&pattern(20_000_000), target, mode);
        [transfer.sender, transfer.receiver] = ends.settings(mode);
        transfer.sender.streams = streams;
        // Slow enough to be stopped half-way.
        transfer.sender.options.rate = Some(data::rate::RateLimit::new(2_000_000));
        let controls = [(); 2].map(|()| Arc::new(TransferControl::new()));
        let (mut sender, mut receiver) = pair();
        let (sent, received) = std::thread::scope(|scope| {
            let [at_sender, at_receiver] = &controls;
            scope.spawn(|| {
                until("bytes have arrived", || at_receiver.bytes() > 100_000);
                at_sender.cancel();
            });
            transfer.run_with(&mut sender, &mut receiver, &controls)
        });
        assert!(matches!(sent, Err(DataError::Aborted)), "{mode:?}");
        let error = received.unwrap_err();
        let broken = matches!(
            error,
            DataError::Wire { .. } | DataError::Security { .. } | DataError::Block { .. }
        );
        assert!(broken, "{mode:?} {error}");
    }
}
