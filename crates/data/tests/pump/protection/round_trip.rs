//! Everything that is sent arrives, whichever end is the TLS client and however many streams.

use std::io::{Read, Write};
use std::net::TcpListener;

use data::channel::{AllowedPeers, SessionDataChannel};
use data::options::IoMethod;
use data::store::file::FileSource;
use proto::command::TransferMode;
use std::sync::Arc;

use super::ends::{FtpsEnds, protected};
use crate::transfer_ends::{LOCALHOST, LoopbackTransfer, listen, pair, pattern, sink, whole_plan};

const SIZES: [usize; 5] = [0, 1, 16_384, 300_000, 3_000_001];

#[test]
fn files_arrive_complete_in_every_mode_and_direction() {
    let ends = FtpsEnds::new();
    for (mode, streams) in [
        (TransferMode::Stream, 1),
        (TransferMode::Extended, 1),
        (TransferMode::Extended, 4),
    ] {
        for client_sends in [true, false] {
            for len in SIZES {
                let bytes = pattern(len);
                let (stored, target) = sink();
                let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
                let [client, server] = ends.settings(mode);
                (transfer.sender, transfer.receiver) = match client_sends {
                    true => (client, server),
                    false => (server, client),
                };
                transfer.sender.streams = streams;
                let (sent, received) = transfer.succeed();
                let case = format!("{mode:?} {streams} {client_sends} {len}");
                assert!(stored.bytes() == bytes, "{case}");
                assert_eq!(sent.evidence.bytes, len as u64, "{case}");
                assert_eq!(received.stored, whole_plan(len as u64).ranges, "{case}");
            }
        }
    }
}

#[test]
fn a_passive_sender_is_protected_too() {
    let ends = FtpsEnds::new();
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        for client_sends in [true, false] {
            let bytes = pattern(700_000);
            let (stored, target) = sink();
            let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
            let [client, server] = ends.settings(mode);
            (transfer.sender, transfer.receiver) = match client_sends {
                true => (client, server),
                false => (server, client),
            };
            let (mut sender, at) = listen(AllowedPeers::Only(LOCALHOST));
            let mut receiver = SessionDataChannel::connect_to(vec![at], None);
            let (sent, received) = transfer.run(&mut sender, &mut receiver);
            sent.unwrap();
            received.unwrap();
            assert!(stored.bytes() == bytes, "{mode:?} {client_sends}");
        }
    }
}

#[test]
fn no_method_takes_the_bytes_past_the_protection() {
    let ends = FtpsEnds::new();
    let bytes = pattern(2_000_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let source = Arc::new(FileSource::new(file, "file").unwrap());
    let methods = [
        IoMethod::Auto,
        IoMethod::Copy,
        IoMethod::Sendfile,
        IoMethod::Splice,
        IoMethod::Zerocopy,
    ];
    for io in methods {
        for mode in [TransferMode::Stream, TransferMode::Extended] {
            let (stored, target) = sink();
            let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
            transfer.source = source.clone();
            [transfer.sender, transfer.receiver] = ends.settings(mode);
            transfer.sender.options.io = io;
            transfer.receiver.options.io = io;
            transfer.succeed();
            assert!(stored.bytes() == bytes, "{io:?} {mode:?}");
        }
    }
}

#[test]
fn kept_connections_carry_several_transfers_with_one_handshake() {
    let ends = FtpsEnds::new();
    let (mut sender, mut receiver) = pair();
    for len in [300_000, 0, 1_000_000] {
        let bytes = pattern(len);
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, TransferMode::Extended);
        [transfer.sender, transfer.receiver] = ends.settings(TransferMode::Extended);
        transfer.sender.streams = 3;
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        sent.unwrap();
        assert_eq!(received.unwrap().evidence.streams, 3);
        assert!(stored.bytes() == bytes, "{len}");
        assert!(sender.has_cached(true) && receiver.has_cached(false));
    }
}

#[test]
fn a_connection_begins_with_a_handshake() {
    let ends = FtpsEnds::new();
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let mut sender = SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 2];
        stream.read_exact(&mut first).unwrap();
        first
    });
    let bytes = pattern(1000);
    let settings = protected(TransferMode::Stream, &ends.client);
    let failed = data::send::run(
        &mut sender,
        &crate::transfer_ends::memory(&bytes),
        &whole_plan(1000),
        &settings,
        &Arc::default(),
    );
    // Content type handshake, major version 3.
    assert_eq!(peer.join().unwrap(), [22, 3]);
    assert!(failed.is_err());
}
