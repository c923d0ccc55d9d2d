//! A MODE E receiver that may read fewer connections at once than its sender opens.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;

use data::channel::AllowedPeers;
use data::job::TransferControl;
use proto::command::TransferMode;

use crate::blocks::{DATA, EOD, EOF, block, connect, receive_with};
use crate::transfer_ends::{ANY, LOCALHOST, listen, settings, until};

/// Sends what ends a transfer of that many streams, on all of them.
fn end_all(streams: &mut [TcpStream]) -> io::Result<()> {
    let eof = block(EOF, streams.len() as u64, b"");
    let mut streams = streams.iter_mut();
    if let Some(first) = streams.next() {
        first.write_all(&[eof, block(EOD, 0, b"")].concat())?;
    }
    streams.try_for_each(|stream| stream.write_all(&block(EOD, 0, b"")))
}

#[test]
fn connections_beyond_the_limit_are_read_in_turn() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let mut settings = settings(TransferMode::Extended);
    settings.max_connections = 2;
    let control = Arc::new(TransferControl::new());
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let mut streams: Vec<_> = (0..6)
            .map(|n| connect(address, &block(DATA, n, b"x")))
            .collect();
        // None ends before the bytes of all have been stored, and each sends again.
        until("a block of each", || control.stored().contains(0, 6));
        for (offset, stream) in (6..).zip(&mut streams) {
            stream.write_all(&block(DATA, offset, b"y")).unwrap();
        }
        until("another block of each", || control.stored().contains(0, 12));
        end_all(&mut streams).unwrap();
        streams
    });
    let report = outcome.unwrap();
    assert_eq!(stored.bytes(), b"xxxxxxyyyyyy");
    assert!(report.evidence.peak_streams <= 2, "{:?}", report.evidence);
}

#[test]
fn a_connection_that_always_has_bytes_gives_up_its_turn() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let mut settings = settings(TransferMode::Extended);
    settings.max_connections = 1;
    let control = Arc::new(TransferControl::new());
    let (_, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let mut busy = connect(address, &block(DATA, 1, b"x"));
        until("the first block", || control.stored().contains(1, 2));
        let other = connect(address, &block(DATA, 0, b"x"));
        let piece = vec![0; 64 << 10];
        let mut offset = 2;
        while !control.stored().contains(0, 1) {
            assert!(offset < 1 << 28, "the other connection is not read");
            busy.write_all(&block(DATA, offset, &piece)).unwrap();
            offset += piece.len() as u64;
        }
        let mut streams = [busy, other];
        end_all(&mut streams).unwrap();
        streams
    });
    outcome.unwrap();
}

#[test]
fn a_connection_that_waits_within_a_block_gives_up_its_turn() {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let mut settings = settings(TransferMode::Extended);
    settings.max_connections = 1;
    let control = Arc::new(TransferControl::new());
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let (first, second) = (block(DATA, 0, b"abcd"), block(DATA, 4, b"efgh"));
        let cut = first.len() - 2;
        let half = |whole: &[u8]| connect(address, &whole[..cut]);
        let mut streams = [half(&first), half(&second)];
        // A reader tells what it has stored of an unfinished block when it gives up its turn.
        until("the first half", || control.stored().contains(0, 2));
        streams[0].write_all(&first[cut..]).unwrap();
        until("the first block", || control.stored().contains(0, 4));
        until("half of the second", || control.stored().contains(4, 6));
        streams[1].write_all(&second[cut..]).unwrap();
        end_all(&mut streams).unwrap();
        streams
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"abcdefgh");
}
