//! A MODE E receiver against hand-made senders.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::channel::{AllowedPeers, SessionDataChannel};
use data::error::DataError;
use data::job::{TransferControl, TransferSettings};
use data::recv::ReceivePlan;
use data::store::memory::MemorySink;
use proto::command::TransferMode;
use proto::eblock::{BlockError, BlockFlags, BlockHeader};

use crate::transfer_ends::{ANY, LOCALHOST, PumpResult, bounded, listen, settings, sink, until};

/// A header with its data.
pub(crate) fn block(flags: u8, offset: u64, data: &[u8]) -> Vec<u8> {
    let header = BlockHeader {
        flags: BlockFlags(flags),
        count: data.len() as u64,
        offset,
    };
    [&header.encode()[..], data].concat()
}

pub(crate) const DATA: u8 = 0;
pub(crate) const EOD: u8 = BlockFlags::EOD;
pub(crate) const EOF: u8 = BlockFlags::EOF;
pub(crate) const CLOSE: u8 = BlockFlags::CLOSE;

pub(crate) fn connect(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Receives while `peer` acts; also returns the duration. The result of `peer`, such as its
/// connections, lives until the transfer has ended.
pub(crate) fn receive_with<T: Send>(
    channel: &mut SessionDataChannel,
    plan: ReceivePlan,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
    peer: impl FnOnce() -> T + Send,
) -> (MemorySink, PumpResult, Duration) {
    let (stored, target) = sink();
    let begin = Instant::now();
    let (outcome, elapsed) = std::thread::scope(|scope| {
        let peer = scope.spawn(peer);
        let outcome = data::recv::run(channel, &target, &plan, settings, control);
        let elapsed = begin.elapsed();
        drop(peer.join().unwrap());
        (outcome, elapsed)
    });
    (stored, outcome, elapsed)
}

pub(crate) fn receive<T: Send>(
    plan: ReceivePlan,
    peer: impl FnOnce(SocketAddr) -> T + Send,
) -> (MemorySink, PumpResult) {
    let (mut channel, address) = listen(AllowedPeers::Only(LOCALHOST));
    let control = Arc::default();
    let (stored, outcome, _) = receive_with(
        &mut channel,
        plan,
        &settings(TransferMode::Extended),
        &control,
        || peer(address),
    );
    (stored, outcome)
}

/// Runs senders that each write all their bytes and then close.
fn receive_all(senders: &[Vec<Vec<u8>>]) -> (MemorySink, PumpResult) {
    receive(ANY, |to| {
        let streams: Vec<_> = senders.iter().map(|s| connect(to, &s.concat())).collect();
        drop(streams);
    })
}

#[test]
fn every_valid_end_sequence_completes_the_transfer() {
    let ways: Vec<(&str, Vec<Vec<Vec<u8>>>)> = vec![
        (
            "EOF before data and EOD",
            vec![vec![
                block(EOF, 1, b""),
                block(DATA, 0, b"abcdef"),
                block(EOD, 0, b""),
            ]],
        ),
        (
            "EOD on the last data block",
            vec![vec![block(EOF, 1, b""), block(EOD, 0, b"abcdef")]],
        ),
        (
            "EOF and EOD in one header",
            vec![vec![block(DATA, 0, b"abcdef"), block(EOF | EOD, 1, b"")]],
        ),
        (
            "CLOSE, on two connections",
            vec![
                vec![block(DATA, 0, b"abc"), block(EOF | EOD | CLOSE, 2, b"")],
                vec![block(DATA, 3, b"def"), block(EOD | CLOSE, 0, b"")],
            ],
        ),
        (
            "out of order, with empty and legacy blocks",
            vec![vec![
                block(DATA, 3, b"def"),
                block(DATA, 77, b""),
                block(BlockFlags::RESTART, 9, b"ignore me"),
                block(BlockFlags::EOR | BlockFlags::ERROR, 0, b"abc"),
                block(EOF | EOD, 1, b""),
            ]],
        ),
        (
            "three connections, one without data",
            vec![
                vec![block(DATA, 0, b"abc"), block(EOD, 0, b"")],
                vec![block(EOF | EOD, 3, b"")],
                vec![block(DATA, 3, b"def"), block(EOD, 0, b"")],
            ],
        ),
    ];
    for (way, senders) in ways {
        let (stored, outcome) = receive_all(&senders);
        let report = outcome.unwrap_or_else(|e| panic!("{way}: {e}"));
        assert_eq!(stored.bytes(), b"abcdef", "{way}");
        assert_eq!(report.evidence.bytes, 6, "{way}");
    }
}

#[test]
fn headers_may_be_split_at_any_byte() {
    let bytes = [
        block(DATA, 3, b"def"),
        block(DATA, 0, b"abc"),
        block(EOF | EOD, 1, b""),
    ]
    .concat();
    let (stored, outcome) = receive(ANY, |to| {
        let mut stream = connect(to, b"");
        stream.set_nodelay(true).unwrap();
        for byte in bytes {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"abcdef");
}

#[test]
fn eof_with_a_count_of_zero_ends_at_once() {
    let (_, outcome) = receive(ANY, |to| connect(to, &block(EOF, 0, b"")));
    assert_eq!(outcome.unwrap().evidence.bytes, 0);
}

/// The second connection arrives after the first one has ended. Returns whether it was in time.
fn with_a_late_connection() -> bool {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let control = Arc::new(TransferControl::new());
    let settings = settings(TransferMode::Extended);
    let (stored, outcome, _) = receive_with(&mut channel, ANY, &settings, &control, || {
        let first = [block(DATA, 0, b"abc"), block(EOD, 0, b"")].concat();
        drop(connect(address, &first));
        until("the first connection has ended", || {
            control.bytes() == 3 && control.streams() == 0
        });
        let second = [block(DATA, 3, b"def"), block(EOF | EOD, 2, b"")].concat();
        // The listener is closed after the grace period.
        let stream = TcpStream::connect(address);
        stream.and_then(|mut stream| stream.write_all(&second)).ok();
    });
    if let Err(error) = outcome {
        assert!(matches!(error, DataError::Block { .. }), "{error:?}");
        return false;
    }
    assert_eq!(stored.bytes(), b"abcdef");
    true
}

#[test]
fn a_late_connection_is_accepted() {
    // The grace period is a second: a busy machine may use it up, but not every time.
    assert!((0..10).any(|_| with_a_late_connection()));
}

#[test]
fn invalid_and_silent_connections_do_not_fail_a_transfer() {
    let (stored, outcome) = receive(ANY, |to| {
        let http = connect(to, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let ssh = connect(to, b"SSH-2.0-scanner\r\n\r\n\r\n");
        drop(connect(to, b""));
        drop(connect(to, b"half a head"));
        let silent = connect(to, b"");
        let peer = connect(to, &[block(EOD, 0, b"abc"), block(EOF, 1, b"")].concat());
        let end = connect(to, &block(EOF, 1, b""));
        (http, ssh, silent, peer, end)
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"abc");
}

/// Asserts that a connection ended within a block.
fn assert_truncated(outcome: &PumpResult) {
    let truncated = matches!(
        outcome,
        Err(DataError::Block {
            source: BlockError::Truncated,
            ..
        })
    );
    assert!(truncated, "{outcome:?}");
}

/// No timeout ends a transfer: if the test ends, something else did.
fn settings_without_timeouts() -> TransferSettings {
    let hour = Duration::from_secs(3600);
    let mut settings = TransferSettings {
        connect_timeout: hour,
        ..settings(TransferMode::Extended)
    };
    settings.options.stall = hour;
    settings
}

#[test]
fn a_connection_broken_after_data_fails_and_keeps_the_stored_ranges() {
    bounded(|| {
        let (mut channel, address) = listen(AllowedPeers::Any);
        let control = Arc::new(TransferControl::new());
        let (_, outcome, _) = receive_with(
            &mut channel,
            ANY,
            &settings_without_timeouts(),
            &control,
            || {
                let short = &block(DATA, 100, &[7; 1000])[..517];
                connect(address, &[&block(DATA, 0, b"abcdef"), short].concat());
            },
        );
        assert_truncated(&outcome);
        let safe: Vec<_> = control.stored().iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(safe, [(0, 6), (100, 600)]);
        assert!(!channel.has_cached(false));
    });
}

#[test]
fn a_transfer_without_eof_fails_after_the_grace_period() {
    bounded(|| {
        let (mut channel, address) = listen(AllowedPeers::Any);
        let (_, outcome, _) = receive_with(
            &mut channel,
            ANY,
            &settings_without_timeouts(),
            &Arc::default(),
            || {
                let bytes = [block(DATA, 0, b"abc"), block(EOD, 0, b"")].concat();
                drop(connect(address, &bytes));
            },
        );
        assert_truncated(&outcome);
    });
}

#[test]
fn a_missing_eod_is_a_stall() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    let mut settings = settings(TransferMode::Extended);
    settings.options.stall = Duration::from_millis(300);
    for end in [block(EOF | EOD, 2, b""), block(EOD, 0, b"")] {
        let (_, outcome, elapsed) =
            receive_with(&mut channel, ANY, &settings, &Arc::default(), || {
                connect(address, &end)
            });
        assert!(
            matches!(outcome, Err(DataError::Stalled { .. })),
            "{outcome:?}"
        );
        assert!(elapsed > Duration::from_millis(290));
    }
}

#[test]
fn contradicting_eofs_and_excessive_eod_counts_fail() {
    let (_, outcome) = receive(ANY, |to| {
        connect(to, &[block(EOF, 2, b""), block(EOF, 3, b"")].concat())
    });
    assert!(
        matches!(
            &outcome,
            Err(DataError::Block {
                source: BlockError::EodCountMismatch(2, 3),
                ..
            })
        ),
        "{outcome:?}"
    );
    let (_, outcome) = receive(ANY, |to| {
        connect(
            to,
            &[block(DATA, 0, b"x"), block(EOF, 1 << 40, b"")].concat(),
        )
    });
    assert!(
        matches!(
            &outcome,
            Err(DataError::Block {
                source: BlockError::EodCountTooLarge(_),
                ..
            })
        ),
        "{outcome:?}"
    );
}

#[test]
fn a_block_beyond_the_limit_is_refused_before_it_is_stored() {
    let plan = ReceivePlan {
        limit: Some(6),
        ..ANY
    };
    let (stored, outcome) = receive(plan, |to| {
        connect(
            to,
            &[block(DATA, 0, b"abc"), block(DATA, 4, b"efg")].concat(),
        )
    });
    assert!(
        matches!(
            outcome,
            Err(DataError::OutOfRange {
                offset: 4,
                count: 3,
                limit: 6
            })
        ),
        "{outcome:?}"
    );
    assert_eq!(stored.bytes(), b"abc");
    let (stored, outcome) = receive(plan, |to| {
        connect(
            to,
            &[block(DATA, 3, b"def"), block(EOF | EOD, 1, b"")].concat(),
        )
    });
    outcome.unwrap();
    assert_eq!(stored.bytes(), b"\0\0\0def");
}

#[test]
fn a_sequential_sink_refuses_blocks_out_of_order() {
    let (_, write) = rustix::pipe::pipe().unwrap();
    let target = data::store::file::FileSink::new(write.into(), "pipe").unwrap();
    let target: Arc<dyn data::store::Sink> = Arc::new(target);
    let (mut channel, address) = listen(AllowedPeers::Any);
    let outcome = std::thread::scope(|scope| {
        let peer = scope.spawn(|| connect(address, &block(DATA, 3, b"def")));
        let settings = settings(TransferMode::Extended);
        let outcome = data::recv::run(&mut channel, &target, &ANY, &settings, &Arc::default());
        drop(peer.join().unwrap());
        outcome
    });
    assert!(
        matches!(outcome, Err(DataError::Write { .. })),
        "{outcome:?}"
    );
}

/// One byte, one hole, one byte ...: the range set would grow with every block.
#[test]
fn scattered_blocks_fail_at_a_limit() {
    let (_, outcome) = receive(ANY, |to| {
        let mut stream = TcpStream::connect(to).unwrap();
        for batch in 0..2_000_u64 {
            let first = batch * 1_000;
            let blocks: Vec<u8> = (first..first + 1_000)
                .flat_map(|n| block(DATA, 2 * n, b"x"))
                .collect();
            // The receiver closes the connection once the limit is reached.
            if stream.write_all(&blocks).is_err() {
                return;
            }
        }
    });
    assert!(
        matches!(outcome, Err(DataError::Scattered { .. })),
        "{outcome:?}"
    );
}
