//! Cached connections, and the limit on streams.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use data::budget::StreamBudget;
use data::channel::{AllowedPeers, SessionDataChannel};
use data::error::DataError;
use proto::command::TransferMode;

use crate::blocks::{DATA, EOD, EOF, block, connect, receive_with};
use crate::transfer_ends::{
    ANY, LOCALHOST, LoopbackTransfer, listen, pair, pattern, settings, sink, until,
};

#[test]
fn three_transfers_use_the_same_connections() {
    let (mut sender, mut receiver) = pair();
    assert!(!sender.has_cached(true) && !receiver.has_cached(false));
    for len in [300_000, 0, 1_000_000] {
        let bytes = pattern(len);
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        transfer.sender.streams = 4;
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        assert_eq!(received.unwrap().evidence.streams, 4);
        sent.unwrap();
        assert_eq!(stored.bytes(), bytes);
        assert!(sender.has_cached(true) && receiver.has_cached(false));
        assert!(!sender.has_cached(false) && !receiver.has_cached(true));
    }
    drop(sender);
    until("the receiver sees that the sender has gone", || {
        !receiver.has_cached(false)
    });
}

#[test]
fn close_ends_the_connections_and_new_ones_are_made() {
    let (mut sender, mut receiver) = pair();
    for _ in 0..2 {
        let bytes = pattern(200_000);
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        transfer.sender.streams = 3;
        transfer.sender.close_after = true;
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        assert_eq!(stored.bytes(), bytes);
        assert!(!sender.has_cached(true) && !receiver.has_cached(false));
        assert!(sender.is_usable() && receiver.is_usable());
    }
}

#[test]
fn the_sender_may_add_connections_and_leave_some_idle() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let settings = settings(TransferMode::Extended);
    let mut first = connect(
        address,
        &[block(DATA, 0, b"abc"), block(EOF | EOD, 2, b"")].concat(),
    );
    let second = connect(
        address,
        &[block(DATA, 3, b"def"), block(EOD, 0, b"")].concat(),
    );
    let control = Arc::default();
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {});
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"abcdef");

    // The second stays idle; a third joins.
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        first
            .write_all(&[block(DATA, 0, b"uvw"), block(EOD, 0, b"")].concat())
            .unwrap();
        let third = connect(
            address,
            &[block(DATA, 3, b"xyz"), block(EOF | EOD, 2, b"")].concat(),
        );
        drop(third);
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"uvwxyz");

    // The idle and the closed connection are no obstacle.
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        first
            .write_all(&[block(EOF | EOD, 1, b"")].concat())
            .unwrap();
    });
    outcome.unwrap();
    assert!(stored.bytes().is_empty());
    drop(second);
}

#[test]
fn the_next_transfer_may_follow_at_once_on_the_same_connection() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let bytes = [
        block(DATA, 0, b"first"),
        block(EOF | EOD, 1, b""),
        block(DATA, 0, b"second"),
        block(EOF | EOD, 1, b""),
    ]
    .concat();
    let _peer = connect(address, &bytes);
    for expected in [&b"first"[..], b"second"] {
        let settings = settings(TransferMode::Extended);
        let (stored, outcome, _) =
            receive_with(&mut channel, ANY, &settings, &Arc::default(), || {});
        outcome.unwrap();
        assert_eq!(stored.bytes(), expected);
    }
}

#[test]
fn tiny_transfers_over_cached_connections_are_fast() {
    let (mut sender, mut receiver) = pair();
    let bytes = pattern(1000);
    let times = (0..50).map(|_| {
        let begin = std::time::Instant::now();
        let (_, target) = sink();
        let transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        received.unwrap();
        begin.elapsed()
    });
    // A delay that affects every transfer (a delayed acknowledgement: 40 ms) affects the shortest,
    // too; a busy machine delays only some.
    let shortest = times.min().unwrap();
    assert!(shortest < Duration::from_millis(20), "{shortest:?}");
}

#[test]
fn mode_s_uses_a_channel_once() {
    let (mut sender, mut receiver) = pair();
    let (_, target) = sink();
    let transfer = LoopbackTransfer::new(b"x", target, TransferMode::Stream);
    transfer.run(&mut sender, &mut receiver).1.unwrap();
    assert!(!sender.is_usable() && !receiver.is_usable());
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    assert!(sent.is_err() && received.is_err());
}

#[test]
fn without_a_permit_a_transfer_is_refused() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut sender, mut receiver) = pair();
        for channel in [&mut sender, &mut receiver] {
            channel.set_budget(StreamBudget::new(0));
        }
        let (_, target) = sink();
        let (sent, received) =
            LoopbackTransfer::new(b"x", target, mode).run(&mut sender, &mut receiver);
        for outcome in [sent, received] {
            let refused = matches!(outcome, Err(DataError::TooManyStreams { limit: 0 }));
            assert!(refused, "{outcome:?}");
        }
    }
}

#[test]
fn at_the_limit_fewer_streams_complete_the_transfer() {
    let bytes = pattern(500_000);
    for (at_sender, at_receiver, used) in [(2, 100, 2), (100, 1, 4)] {
        let (mut sender, mut receiver) = pair();
        let budgets = [at_sender, at_receiver].map(StreamBudget::new);
        sender.set_budget(budgets[0].clone());
        receiver.set_budget(budgets[1].clone());
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        transfer.sender.streams = 4;
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        received.unwrap();
        assert_eq!(sent.unwrap().evidence.streams, used);
        assert_eq!(stored.bytes(), bytes);
        drop((sender, receiver));
        assert_eq!(budgets.map(|b| b.used()), [0, 0]);
    }
}

#[test]
fn a_refused_connection_names_its_address() {
    // Bound and not listening: no other process can get the port and answer there.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any_port: std::net::SocketAddr = (LOCALHOST, 0).into();
    deaf.bind(&any_port.into()).unwrap();
    let address = deaf.local_addr().unwrap().as_socket().unwrap();
    let mut sender = SessionDataChannel::connect_to(vec![address], None);
    let (_, target) = sink();
    let (mut receiver, _) = listen(AllowedPeers::Any);
    let mut transfer = LoopbackTransfer::new(b"x", target, TransferMode::Extended);
    transfer.sender.streams = 3;
    transfer.receiver.connect_timeout = Duration::from_millis(10);
    let (sent, received) = transfer.run(&mut sender, &mut receiver);
    assert!(matches!(sent, Err(DataError::Connect { to, .. }) if to == address));
    assert!(matches!(received, Err(DataError::NoPeer { .. })));
}
