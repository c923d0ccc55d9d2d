//! Faults: incomplete data must not be taken for complete, and strangers must not be taken for the
//! peer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data::channel::AllowedPeers;
use data::error::DataError;
use data::job::TransferControl;
use data::options::IoMethod;
use data::recv::ReceivePlan;
use data::store::file::FileSource;
use proto::command::TransferMode;

use crate::blocks::{DATA, EOD, EOF, block, connect, receive_with};
use crate::transfer_ends::{
    ANY, LOCALHOST, LoopbackTransfer, PATIENCE, listen, pair, pattern, settings, sink, until,
    whole_plan,
};

#[test]
fn a_shrunk_source_fails_the_transfer_at_both_ends() {
    let bytes = pattern(300_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        for io in [
            IoMethod::Auto,
            IoMethod::Copy,
            IoMethod::Sendfile,
            IoMethod::Splice,
            IoMethod::Zerocopy,
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let (_, target) = sink();
            let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
            transfer.source = Arc::new(FileSource::new(file, "shrunk").unwrap());
            transfer.send = whole_plan(400_000);
            transfer.sender.options.io = io;
            transfer.sender.streams = 2;
            let (mut sender, mut receiver) = pair();
            let (sent, received) = transfer.run(&mut sender, &mut receiver);
            let case = format!("{mode:?} {io:?}");
            assert!(
                matches!(
                    &sent,
                    Err(DataError::Shrunk { at: 300_000, expected: 400_000, what }) if what == "shrunk"
                ),
                "{case}: {sent:?}"
            );
            assert!(
                matches!(
                    received,
                    Err(DataError::Wire { .. } | DataError::Block { .. })
                ),
                "{case}: {received:?}"
            );
            assert!(!sender.has_cached(true) && !receiver.has_cached(false));
        }
    }
}

/// Connects from another address of this host.
fn stranger(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from: SocketAddr = ([127, 0, 0, 2], 0).into();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn a_connection_from_another_host_is_closed_and_the_transfer_continues() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
        let good = match mode {
            TransferMode::Stream => b"good".to_vec(),
            TransferMode::Extended => {
                let end = block(EOF | EOD, 1, b"");
                [block(DATA, 0, b"good"), end].concat()
            }
        };
        let bad = [block(DATA, 0, b"evil"), block(EOF | EOD, 1, b"")].concat();
        let settings = settings(mode);
        let (stored, outcome, _) =
            receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
                let mut evil = stranger(address, &bad);
                evil.set_read_timeout(Some(PATIENCE)).unwrap();
                let ended = evil.read(&mut [0; 1]);
                assert!(
                    matches!(&ended, Ok(0))
                        || ended.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
                );
                drop(connect(address, &good));
            });
        outcome.unwrap();
        assert_eq!(stored.bytes(), b"good");
    }
}

#[test]
fn any_host_may_be_allowed() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let settings = settings(TransferMode::Stream);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
        drop(stranger(address, b"third party"));
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"third party");
}

#[test]
fn a_reset_in_mode_s_is_not_the_end_of_the_file() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let settings = settings(TransferMode::Stream);
    let control = Arc::new(TransferControl::new());
    let (_, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let peer = connect(address, b"half");
        until("the receiver has it", || control.bytes() == 4);
        socket2::SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    });
    assert!(
        matches!(outcome, Err(DataError::Wire { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_mode_s_stream_may_reach_the_limit_but_not_exceed_it() {
    let plan = ReceivePlan {
        stream_start: 2,
        limit: Some(8),
        ..ANY
    };
    for (text, fits) in [(&b"123456"[..], true), (b"1234567", false), (b"1", true)] {
        let (mut channel, address) = listen(AllowedPeers::Any);
        let settings = settings(TransferMode::Stream);
        let (stored, outcome, _) =
            receive_with(&mut channel, plan, &settings, &Arc::default(), || {
                drop(connect(address, text));
            });
        let outside = matches!(
            outcome,
            Err(DataError::OutOfRange {
                offset: 8,
                count: 1,
                limit: 8
            })
        );
        assert_eq!((outcome.is_ok(), outside), (fits, !fits));
        let kept = text.len().min(6);
        assert_eq!(stored.bytes()[2..], text[..kept]);
    }
}

#[test]
fn a_full_store_is_a_write_error() {
    let target = Arc::new(data::store::memory::MemorySink::new(100_000, "small"));
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let mut transfer = LoopbackTransfer::new(&pattern(8_000_000), target.clone(), mode);
        transfer.sender.streams = 3;
        let (mut sender, mut receiver) = pair();
        let (sent, received) = transfer.run(&mut sender, &mut receiver);
        let full = matches!(&received, Err(DataError::Write { what, .. }) if what == "small");
        assert!(full, "{received:?}");
        assert!(sent.is_err());
    }
}

#[test]
fn a_full_device_is_reported_by_every_method() {
    for io in [IoMethod::Copy, IoMethod::Splice] {
        let file = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let target = data::store::file::FileSink::new(file.unwrap(), "/dev/full").unwrap();
        let mut transfer =
            LoopbackTransfer::new(&pattern(100_000), Arc::new(target), TransferMode::Stream);
        transfer.receiver.options.io = io;
        let (mut sender, mut receiver) = pair();
        let (_, received) = transfer.run(&mut sender, &mut receiver);
        assert!(
            matches!(&received, Err(DataError::Write { source, .. })
                if source.kind() == io::ErrorKind::StorageFull),
            "{received:?}"
        );
    }
}

#[test]
fn an_unknown_congestion_control_is_refused() {
    let (_, target) = sink();
    let mut transfer = LoopbackTransfer::new(b"x", target, TransferMode::Stream);
    transfer.sender.options.congestion = data::options::CongestionChoice::Named("warpdrive".into());
    transfer.receiver.connect_timeout = Duration::from_millis(50);
    let (mut sender, mut receiver) = pair();
    let (sent, _) = transfer.run(&mut sender, &mut receiver);
    assert!(matches!(sent, Err(DataError::Setup { .. })), "{sent:?}");
}
