//! Streams that join and leave on request of the test.

mod handshakes;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proto::checksum::ChecksumAlgorithm;
use proto::eblock::{BlockDecoder, BlockEvent};
use units::splitmix;

use super::*;
use crate::budget::StreamBudget;
use crate::options::TransferOptions;
use crate::rate::RateLimit;
use crate::recv::{self, ReceivePlan};
use crate::store::Sink;
use crate::store::memory::{MemorySink, MemorySource};

/// Bytes that take 0.3 s at [`RATE`].
const FILE_SIZE: usize = 3_000_000;
const RATE: u64 = 7_000_000;

fn test_bytes(len: usize) -> Vec<u8> {
    splitmix::bytes(1, len)
}

fn connect_to(address: SocketAddr) -> SessionDataChannel {
    SessionDataChannel::connect_to(vec![address], None)
}

/// Settings of a slow sender whose streams may join and leave.
fn slow_settings(streams: usize) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            block: 64 << 10,
            rate: Some(RateLimit::new(RATE)),
            stall: Duration::from_secs(60),
            ..TransferOptions::default()
        },
        mode: TransferMode::Extended,
        streams,
        max_streams: 64,
        adapt: true,
        checksum: Some(ChecksumAlgorithm::Md5),
        connect_timeout: Duration::from_secs(60),
        ..TransferSettings::default()
    }
}

/// Sends `bytes` while `act` acts on the transfer.
fn send(
    channel: &mut SessionDataChannel,
    bytes: &[u8],
    settings: &TransferSettings,
    act: impl FnOnce(&ActiveTransfer) + Send,
) -> Result<TransferReport, DataError> {
    let control = Arc::new(TransferControl::new());
    let transfer = ActiveTransfer::new(Role::Sender, settings, &control).unwrap();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(bytes.to_vec(), "source"));
    let mut ranges = RangeSet::new();
    ranges.insert(0, bytes.len() as u64);
    let plan = SendPlan::new(ranges, 0);
    let result = SendTask::new(&source, &plan, settings, &transfer).and_then(|task| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until(|| transfer.control().streams() > 0 || over.load(Ordering::SeqCst));
                act(&transfer);
            });
            let sent = modes::extended(channel, task);
            over.store(true, Ordering::SeqCst);
            sent
        })
    });
    transfer.finish(result)
}

/// Receives everything that arrives at a channel.
fn receive(
    channel: &mut SessionDataChannel,
    sink: &MemorySink,
) -> Result<TransferReport, DataError> {
    let mut settings = slow_settings(1);
    settings.options.rate = None;
    let plan = ReceivePlan {
        origin: 0,
        stream_start: 0,
        limit: None,
    };
    let sink: Arc<dyn Sink> = Arc::new(sink.clone());
    recv::run(channel, &sink, &plan, &settings, &Arc::default())
}

fn sink() -> MemorySink {
    MemorySink::new(64 << 20, "sink")
}

/// Sends and receives. Both ends must succeed with the same bytes and checksums.
fn pass(
    [sender, receiver]: [&mut SessionDataChannel; 2],
    bytes: &[u8],
    settings: &TransferSettings,
    act: impl FnOnce(&ActiveTransfer) + Send,
) -> (TransferReport, TransferReport) {
    let stored = sink();
    let (sent, received) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(receiver, &stored));
        let sent = send(sender, bytes, settings, act);
        (sent.unwrap(), receiving.join().unwrap().unwrap())
    });
    assert!(stored.bytes() == bytes, "bytes differ");
    assert!(sent.checksum.is_some());
    assert_eq!(sent.checksum, received.checksum);
    (sent, received)
}

fn wait_until(condition: impl Fn() -> bool) {
    // Longer than anything here takes on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sets the wanted number of streams and waits until they exist.
fn set_and_await(transfer: &ActiveTransfer, streams: usize) {
    transfer.stream_set().set_wanted(streams);
    wait_until(|| transfer.control().streams() == streams as u64);
}

#[test]
fn streams_join_while_data_moves() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let channels = [&mut connect_to(address), &mut receiver];
    let (sent, received) = pass(channels, &test_bytes(FILE_SIZE), &slow_settings(1), |t| {
        set_and_await(t, 4);
    });
    assert_eq!((sent.evidence.streams, received.evidence.streams), (4, 4));
    assert_eq!(
        (sent.evidence.peak_streams, sent.evidence.final_streams),
        (4, 4)
    );
}

#[test]
fn streams_leave_and_join_again() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let mut sender = connect_to(address);
    let channels = [&mut sender, &mut receiver];
    let (sent, received) = pass(
        channels,
        &test_bytes(2 * FILE_SIZE),
        &slow_settings(3),
        |t| {
            for streams in [3, 1, 4, 2] {
                set_and_await(t, streams);
            }
        },
    );
    // 3 at first, and 3 more later.
    assert_eq!((sent.evidence.streams, received.evidence.streams), (6, 6));
    assert_eq!(
        (sent.evidence.peak_streams, sent.evidence.final_streams),
        (4, 2)
    );
    // Streams that left are not reused.
    let channels = [&mut sender, &mut receiver];
    let (sent, _) = pass(channels, &test_bytes(FILE_SIZE), &slow_settings(2), |_| {});
    assert_eq!(sent.evidence.streams, 2);
}

#[test]
fn a_fixed_number_of_streams_holds_with_any_cached_streams() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let mut sender = connect_to(address);
    for streams in [3, 1, 4, 2] {
        let mut settings = slow_settings(streams);
        settings.adapt = false;
        settings.max_streams = streams;
        let channels = [&mut sender, &mut receiver];
        let (sent, _) = pass(channels, &test_bytes(FILE_SIZE), &settings, |_| {});
        assert_eq!(sent.evidence.final_streams, streams as u64);
    }
}

#[test]
fn an_adapting_transfer_continues_with_the_cached_streams() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let mut sender = connect_to(address);
    for streams in [3, 1] {
        let channels = [&mut sender, &mut receiver];
        let (sent, _) = pass(
            channels,
            &test_bytes(500_000),
            &slow_settings(streams),
            |_| {},
        );
        assert_eq!((sent.evidence.streams, sent.evidence.final_streams), (3, 3));
    }
}

#[test]
fn the_unsent_limit_is_low_near_the_end_and_restored_on_reuse() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let mut sender = connect_to(address);
    for (streams, unsent) in [(2, 128 << 10), (1, 1 << 20)] {
        let mut settings = slow_settings(streams);
        settings.adapt = false;
        settings.options.block = 1 << 20;
        let channels = [&mut sender, &mut receiver];
        pass(channels, &test_bytes(FILE_SIZE), &settings, |t| {
            // Every stream has had its turn by then.
            wait_until(|| t.moved() > FILE_SIZE as u64 / 3);
            let stream = t.stream_set().streams().remove(0);
            wait_until(|| stream.transport().socket().tcp_notsent_lowat().unwrap() == unsent);
        });
    }
}

#[test]
fn new_streams_are_spread_over_the_targets() {
    let (mut left, left_at) = SessionDataChannel::listen_on_loopback();
    let (mut right, right_at) = SessionDataChannel::listen_on_loopback();
    let mut sender = SessionDataChannel::connect_to(vec![left_at, right_at], None);
    let stored = sink();
    let bytes = test_bytes(FILE_SIZE);
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| receive(&mut left, &stored).unwrap());
        let right = scope.spawn(|| receive(&mut right, &stored).unwrap());
        let sent = send(&mut sender, &bytes, &slow_settings(1), |t| {
            set_and_await(t, 6);
            // One stream stays at each target.
            t.stream_set().set_wanted(1);
            wait_until(|| t.control().streams() == 2);
        });
        assert_eq!(sent.unwrap().evidence.streams, 6);
        (left.join().unwrap(), right.join().unwrap())
    });
    assert!(stored.bytes() == bytes, "bytes differ");
    assert_eq!((left.evidence.streams, right.evidence.streams), (3, 3));
}

#[test]
fn an_exhausted_budget_refuses_streams_and_the_transfer_continues() {
    let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
    let mut sender = connect_to(address);
    let budget = StreamBudget::new(2);
    sender.set_budget(budget.clone());
    let channels = [&mut sender, &mut receiver];
    let (sent, _) = pass(channels, &test_bytes(FILE_SIZE), &slow_settings(1), |t| {
        t.stream_set().set_wanted(4);
        wait_until(|| t.stream_set().take_open_failure());
        wait_until(|| t.control().streams() == 2);
        wait_until(|| t.stream_set().wanted() == 2);
    });
    // Both are cached.
    assert_eq!((sent.evidence.streams, budget.used()), (2, 2));
    drop(sender);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_passive_sender_cannot_add_streams() {
    let (mut sender, address) = SessionDataChannel::listen_on_loopback();
    let mut receiver = connect_to(address);
    let channels = [&mut sender, &mut receiver];
    let (sent, _) = pass(channels, &test_bytes(FILE_SIZE), &slow_settings(1), |t| {
        t.stream_set().set_wanted(2);
        wait_until(|| t.stream_set().take_open_failure());
    });
    assert_eq!(sent.evidence.streams, 1);
}

/// Blocks that arrived over one connection.
#[derive(Debug, Default)]
struct ReceivedBlocks {
    stored: RangeSet,
    eods: u64,
    eof: Option<u64>,
}

/// Reads a connection to its end, or until nothing came for a second.
fn read(mut stream: TcpStream) -> ReceivedBlocks {
    let quiet = Duration::from_secs(1);
    stream.set_read_timeout(Some(quiet)).unwrap();
    let mut received = ReceivedBlocks::default();
    let (mut decoder, mut buffer) = (BlockDecoder::new(), vec![0; 1 << 16]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        let mut input = &buffer[..n];
        loop {
            let (used, event) = decoder.decode(input).unwrap();
            input = &input[used..];
            match event {
                Some(BlockEvent::Data { offset, len }) => {
                    received.stored.insert(offset, offset + len as u64);
                }
                Some(BlockEvent::Eod { .. }) => received.eods += 1,
                Some(BlockEvent::Eof { streams }) => received.eof = Some(streams),
                Some(BlockEvent::Skip { .. }) => {}
                None => break,
            }
        }
    }
    received
}

/// A receiver that accepts one connection, closes its listener, and reports that.
fn accept_one_only<'scope>(
    scope: &'scope Scope<'scope, '_>,
    listener: TcpListener,
    closed: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, ReceivedBlocks> {
    scope.spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        closed.store(true, Ordering::SeqCst);
        read(stream)
    })
}

#[test]
fn a_refused_connection_is_not_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    let bytes = test_bytes(FILE_SIZE);
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = accept_one_only(scope, listener, &closed);
        let mut settings = slow_settings(1);
        settings.close_after = true;
        let sent = send(&mut sender, &bytes, &settings, |t| {
            wait_until(|| t.moved() > 0 && closed.load(Ordering::SeqCst));
            t.stream_set().set_wanted(3);
            wait_until(|| t.stream_set().take_open_failure());
            wait_until(|| t.stream_set().wanted() == 1);
        });
        assert_eq!(sent.unwrap().evidence.streams, 1);
        let received = receiver.join().unwrap();
        assert_eq!((received.eods, received.eof), (1, Some(1)));
        assert_eq!(received.stored.byte_count(), FILE_SIZE as u64);
    });
}

#[test]
fn the_start_does_not_wait_for_a_slow_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Only one connection fits; the SYN of the others is retransmitted after a second.
    rustix::net::listen(&listener, 0).unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    let mut settings = slow_settings(3);
    settings.close_after = true;
    std::thread::scope(|scope| {
        let (accept, accepted) = std::sync::mpsc::channel::<()>();
        let at_receiver = &listener;
        let receiver = scope.spawn(move || {
            accepted.recv().unwrap();
            read(at_receiver.accept().unwrap().0)
        });
        // Nobody accepts before the start is over, so a start that waits never ends.
        let sent = send(&mut sender, &test_bytes(FILE_SIZE), &settings, |t| {
            assert_eq!(t.stream_set().opening_count(), 2);
            accept.send(()).unwrap();
        });
        assert_eq!(sent.unwrap().evidence.streams, 1);
        let received = receiver.join().unwrap();
        assert_eq!((received.eods, received.eof), (1, Some(1)));
    });
}

/// A listener whose backlog is full: connections to it stay half open.
fn fill_backlog(listener: &TcpListener) -> Vec<socket2::Socket> {
    rustix::net::listen(listener, 0).unwrap();
    let dial = |_| crate::opening::start_connect(listener.local_addr().unwrap(), None, |_| Ok(()));
    (0..4).map(|n| dial(n).unwrap()).collect()
}

/// Asks for a second stream, whose connection nobody completes for as long as the returned ones exist. `accepted`: the
/// receiver has the first one, which would leave its place in the backlog to the second if it were accepted later.
fn leave_a_second_stream_pending(
    transfer: &ActiveTransfer,
    listener: &TcpListener,
    accepted: &AtomicBool,
) -> Vec<socket2::Socket> {
    wait_until(|| transfer.control().streams() == 1 && transfer.moved() > 0);
    wait_until(|| accepted.load(Ordering::Acquire));
    let crowd = fill_backlog(listener);
    transfer.stream_set().set_wanted(2);
    wait_until(|| transfer.stream_set().opening_count() == 1);
    crowd
}

#[test]
fn the_end_does_not_wait_for_a_pending_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    let bytes = test_bytes(FILE_SIZE);
    let accepted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (at_receiver, accepted) = (&listener, &accepted);
        let mut settings = slow_settings(1);
        settings.close_after = true;
        settings.connect_timeout = Duration::from_secs(3600);
        let receiver = scope.spawn(move || {
            let stream = at_receiver.accept().unwrap().0;
            accepted.store(true, Ordering::Release);
            read(stream)
        });
        let sent = send(&mut sender, &bytes, &settings, |t| {
            let _crowd = leave_a_second_stream_pending(t, &listener, accepted);
            wait_until(|| t.stream_set().opening_count() == 0);
        });
        assert_eq!(sent.unwrap().evidence.streams, 1);
        let received = receiver.join().unwrap();
        assert_eq!((received.eods, received.eof), (1, Some(1)));
    });
}

#[test]
fn a_cancel_does_not_wait_for_a_pending_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    let accepted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (at_receiver, accepted) = (&listener, &accepted);
        scope.spawn(move || {
            let stream = at_receiver.accept().unwrap().0;
            accepted.store(true, Ordering::Release);
            read(stream)
        });
        let mut settings = slow_settings(1);
        settings.connect_timeout = Duration::from_secs(3600);
        let sent = send(&mut sender, &test_bytes(3 * FILE_SIZE), &settings, |t| {
            let _crowd = leave_a_second_stream_pending(t, &listener, accepted);
            t.control().cancel();
        });
        assert!(matches!(sent, Err(DataError::Aborted)), "{sent:?}");
        assert!(!sender.has_cached(true));
    });
}

#[test]
fn a_broken_stream_fails_the_transfer_and_adds_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    std::thread::scope(|scope| {
        let at_receiver = &listener;
        scope.spawn(move || {
            let (first, _) = at_receiver.accept().unwrap();
            let (second, _) = at_receiver.accept().unwrap();
            let went_on = scope.spawn(move || read(first));
            wait_until(|| rustix::io::ioctl_fionread(&second).is_ok_and(|unread| unread > 0));
            // Closed with unread bytes: a reset.
            drop(second);
            assert_eq!(went_on.join().unwrap().eof, None);
        });
        let sent = send(
            &mut sender,
            &test_bytes(3 * FILE_SIZE),
            &slow_settings(1),
            |t| {
                t.stream_set().set_wanted(2);
            },
        );
        assert!(matches!(sent, Err(DataError::Wire { .. })), "{sent:?}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// For any quick sequence of wanted numbers the receiver gets every byte once and detects the
    /// end.
    #[test]
    fn any_sequence_of_stream_counts_delivers_every_byte_once(
        streams in 1_usize..4,
        aims in proptest::collection::vec((0_usize..9, 0_u64..4), 0..40),
        bytes in 70_000_usize..900_000,
    ) {
        let (mut receiver, address) = SessionDataChannel::listen_on_loopback();
        let channels = [&mut connect_to(address), &mut receiver];
        let mut settings = slow_settings(streams);
        settings.options.rate = None;
        let bytes = test_bytes(bytes);
        let (sent, received) = pass(channels, &bytes, &settings, |t| {
            for (streams, pause) in aims {
                t.stream_set().set_wanted(streams);
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
        prop_assert_eq!(sent.evidence.bytes, bytes.len() as u64);
        prop_assert_eq!(received.evidence.bytes, bytes.len() as u64);
    }
}
