//! Everything that is sent arrives, whichever end is the TLS client and however many streams.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use data::channel::{AllowedPeers, SessionDataChannel};
use data::options::IoMethod;
use data::store::file::{FileSink, FileSource};
use proto::command::TransferMode;
use security::gsi::{DataHandshake, DataHandshakeMode};
use security::tls::Handshake;

use super::ends::{FtpsEnds, grid, protected};
use crate::blocks::receive_with;
use crate::transfer_ends::{
    ANY, LOCALHOST, LoopbackTransfer, listen, pair, pattern, sink, whole_plan,
};

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
                [transfer.sender, transfer.receiver] = ends.sender_and_receiver(mode, client_sends);
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
            [transfer.sender, transfer.receiver] = ends.sender_and_receiver(mode, client_sends);
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

#[test]
fn grid_connections_arrive_complete_by_every_method() {
    let bytes = pattern(2_000_001);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let source = Arc::new(FileSource::new(file, "file").unwrap());
    for form in [
        DataHandshakeMode::Protected,
        DataHandshakeMode::AuthenticateOnly,
    ] {
        let security = grid(form);
        for (mode, io, passive_sender) in [
            (TransferMode::Stream, IoMethod::Auto, false),
            (TransferMode::Stream, IoMethod::Splice, true),
            (TransferMode::Extended, IoMethod::Sendfile, false),
            (TransferMode::Extended, IoMethod::Splice, false),
            (TransferMode::Extended, IoMethod::Zerocopy, true),
        ] {
            let target = Arc::new(FileSink::new(tempfile::tempfile().unwrap(), "to").unwrap());
            let mut transfer = LoopbackTransfer::new(&bytes, target.clone(), mode);
            transfer.source = source.clone();
            transfer.sender = protected(mode, &security);
            transfer.receiver = protected(mode, &security);
            transfer.sender.options.io = io;
            transfer.receiver.options.io = io;
            transfer.sender.streams = if passive_sender { 1 } else { 3 };
            let (passive, at) = listen(AllowedPeers::Only(LOCALHOST));
            let active = SessionDataChannel::connect_to(vec![at], None);
            let (mut sender, mut receiver) = match passive_sender {
                true => (passive, active),
                false => (active, passive),
            };
            let case = format!("{form:?} {mode:?} {io:?}");
            let (sent, received) = transfer.run(&mut sender, &mut receiver);
            sent.unwrap_or_else(|e| panic!("{case}: {e}"));
            received.unwrap_or_else(|e| panic!("{case}: {e}"));
            let mut stored = vec![0; bytes.len()];
            target.file().read_exact_at(&mut stored, 0).unwrap();
            assert!(stored == bytes, "{case}");
        }
    }
}

#[test]
fn after_a_grid_handshake_that_only_authenticates_the_bytes_are_raw() {
    let security = grid(DataHandshakeMode::AuthenticateOnly);
    let (mut channel, at) = listen(AllowedPeers::Only(LOCALHOST));
    let settings = protected(TransferMode::Stream, &security);
    let control = Arc::default();
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let config = security.client.as_ref().unwrap();
        let mode = DataHandshakeMode::AuthenticateOnly;
        let mut handshake = DataHandshake::new(config, mode, None).unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        while handshake.advance().unwrap() == Handshake::NeedsInput {
            send(&mut stream, &mut handshake, b"");
            let mut answer = [0; 20_000];
            let count = stream.read(&mut answer).unwrap();
            handshake.engine().receive(&answer[..count]);
        }
        // The first bytes of the file come in the segment of the last record.
        send(&mut stream, &mut handshake, b"the file ");
        stream.write_all(b"in the clear").unwrap();
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"the file in the clear");
}

fn send(stream: &mut TcpStream, handshake: &mut DataHandshake, more: &[u8]) {
    let all = [handshake.engine().outgoing(), more].concat();
    stream.write_all(&all).unwrap();
    let count = all.len() - more.len();
    handshake.engine().mark_sent(count);
}
