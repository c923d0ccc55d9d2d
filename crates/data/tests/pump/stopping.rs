//! Cancellation, stalls and the rate limit.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::channel::{AllowedPeers, SessionDataChannel};
use data::error::DataError;
use data::job::{TransferControl, TransferSettings};
use data::rate::RateLimit;
use data::store::Sink;
use proto::command::TransferMode;

use crate::blocks::{DATA, EOD, EOF, block, connect};
use crate::transfer_ends::{
    ANY, LoopbackTransfer, PumpResult, bounded, listen, memory, pattern, settings, sink, until,
    whole_plan,
};

const BOTH: [TransferMode; 2] = [TransferMode::Stream, TransferMode::Extended];

/// Sends far more than any socket buffer holds.
fn send_large(
    channel: &mut SessionDataChannel,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> PumpResult {
    let source = memory(&[7; 48 << 20]);
    data::send::run(channel, &source, &whole_plan(48 << 20), settings, control)
}

fn receive(
    channel: &mut SessionDataChannel,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> PumpResult {
    let (_, target) = sink();
    data::recv::run(channel, &target, &ANY, settings, control)
}

/// No timeout ends the transfer: only the cancel does.
fn settings_without_timeouts(mode: TransferMode) -> TransferSettings {
    let hour = Duration::from_secs(3600);
    let mut settings = TransferSettings {
        connect_timeout: hour,
        ..settings(mode)
    };
    settings.options.stall = hour;
    settings
}

/// Waits until a thread of this process sleeps in the kernel.
fn until_asleep(thread: rustix::thread::Pid) {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    until("the thread sleeps", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        // After the name in parentheses, which may contain spaces: proc_pid_stat(5).
        stat.rsplit_once(')').unwrap().1.starts_with(" S")
    });
}

/// Cancels a transfer once `has_begun` returns true and it waits for something. The transfer must
/// end.
fn check_cancel(
    has_begun: impl Fn(&TransferControl) -> bool,
    transfer: impl FnOnce(&Arc<TransferControl>) -> PumpResult + Send,
) {
    let control = Arc::new(TransferControl::new());
    let (send_id, thread_id) = std::sync::mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            send_id.send(rustix::thread::gettid()).unwrap();
            transfer(&control)
        });
        let thread = thread_id.recv().unwrap();
        until("the transfer begins", || has_begun(&control));
        until_asleep(thread);
        control.cancel();
        until("the transfer ends", || running.is_finished());
        running.join().unwrap()
    });
    assert!(matches!(outcome, Err(DataError::Aborted)), "{outcome:?}");
    assert_eq!(control.streams(), 0);
}

#[test]
fn cancel_ends_a_wait_for_a_peer() {
    bounded(|| {
        for mode in BOTH {
            check_cancel(
                |_| true,
                |c| {
                    receive(
                        &mut listen(AllowedPeers::Any).0,
                        &settings_without_timeouts(mode),
                        c,
                    )
                },
            );
            check_cancel(
                |_| true,
                |c| {
                    send_large(
                        &mut listen(AllowedPeers::Any).0,
                        &settings_without_timeouts(mode),
                        c,
                    )
                },
            );
        }
    });
}

#[test]
fn cancel_ends_a_wait_for_data() {
    bounded(|| {
        for (mode, bytes) in [
            (TransferMode::Stream, b"some".to_vec()),
            (TransferMode::Extended, Vec::new()),
            (
                TransferMode::Extended,
                block(DATA, 0, &[1; 40])[..30].to_vec(),
            ),
        ] {
            let (mut channel, address) = listen(AllowedPeers::Any);
            let _peer = connect(address, &bytes);
            check_cancel(
                |_| true,
                |c| receive(&mut channel, &settings_without_timeouts(mode), c),
            );
        }
    });
}

#[test]
fn cancel_stops_a_sender_whose_peer_does_not_read() {
    bounded(|| {
        for (mode, streams) in [
            (TransferMode::Stream, 1),
            (TransferMode::Extended, 1),
            (TransferMode::Extended, 4),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut channel =
                SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
            let mut settings = settings_without_timeouts(mode);
            settings.streams = streams;
            settings.options.buffers.send = Some(100_000);
            check_cancel(
                |c| c.streams() == streams as u64,
                |c| send_large(&mut channel, &settings, c),
            );
        }
    });
}

#[test]
fn cancel_ends_a_pause_of_the_rate_limit() {
    bounded(|| {
        let (mut receiver, address) = listen(AllowedPeers::Any);
        let mut channel = SessionDataChannel::connect_to(vec![address], None);
        let mut slow = settings_without_timeouts(TransferMode::Stream);
        slow.options.rate = Some(RateLimit::new(1000));
        let received = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                receive(
                    &mut receiver,
                    &settings_without_timeouts(TransferMode::Stream),
                    &Arc::default(),
                )
            });
            // The sender must have reached the receiver, or that would wait for ever.
            check_cancel(
                |c| c.streams() == 1 && c.bytes() > 0,
                |c| send_large(&mut channel, &slow, c),
            );
            receiving.join().unwrap()
        });
        // An aborted MODE S sender must not look like a complete one.
        assert!(
            matches!(received, Err(DataError::Wire { .. })),
            "{received:?}"
        );
    });
}

#[test]
fn a_cancelled_control_prevents_the_start() {
    let control = Arc::new(TransferControl::new());
    control.cancel();
    let outcome = receive(
        &mut listen(AllowedPeers::Any).0,
        &settings(TransferMode::Stream),
        &control,
    );
    assert!(matches!(outcome, Err(DataError::Aborted)));
}

#[test]
fn a_silent_peer_is_a_stall() {
    for mode in BOTH {
        let mut settings = settings(mode);
        settings.options.stall = Duration::from_millis(200);
        settings.connect_timeout = Duration::from_millis(200);
        settings.options.buffers.send = Some(100_000);
        let (mut channel, address) = listen(AllowedPeers::Any);
        let _silent = connect(address, b"");
        let outcome = receive(&mut channel, &settings, &Arc::default());
        assert!(
            matches!(outcome, Err(DataError::Stalled { seconds: 1 })),
            "{outcome:?}"
        );

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut channel =
            SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
        settings.connect_timeout = Duration::from_secs(60);
        let outcome = send_large(&mut channel, &settings, &Arc::default());
        assert!(
            matches!(outcome, Err(DataError::Stalled { .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_transfer_without_a_connection_ends_with_no_peer() {
    for mode in BOTH {
        let mut settings = settings(mode);
        settings.connect_timeout = Duration::from_millis(50);
        let outcome = receive(&mut listen(AllowedPeers::Any).0, &settings, &Arc::default());
        assert!(
            matches!(outcome, Err(DataError::NoPeer { .. })),
            "{outcome:?}"
        );
    }
}

/// Longer than a busy machine keeps a thread from running.
const STALL_TIME: Duration = Duration::from_secs(1);

/// A disk that takes far longer than the stall time for the first block, while another stream,
/// whose block is stored, waits for its end mark.
#[derive(Debug)]
struct SlowSink {
    other_is_stored: AtomicBool,
    other: TcpStream,
}

impl Sink for SlowSink {
    fn name(&self) -> String {
        "slow".into()
    }
    fn write_at(&self, offset: u64, _: &[u8]) -> io::Result<()> {
        if offset > 0 {
            self.other_is_stored.store(true, Ordering::SeqCst);
            return Ok(());
        }
        until("the other stream waits", || {
            self.other_is_stored.load(Ordering::SeqCst)
        });
        std::thread::sleep(3 * STALL_TIME);
        (&self.other).write_all(&block(EOD, 0, b""))
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn is_seekable(&self) -> bool {
        true
    }
}

#[test]
fn a_slow_disk_is_not_a_stall() {
    let (mut channel, address) = listen(AllowedPeers::Any);
    // Everything but the end mark is there before the clock runs: only the disk takes time.
    let first = [block(DATA, 0, b"abc"), block(EOF | EOD, 2, b"")].concat();
    let _first = connect(address, &first);
    let target: Arc<dyn Sink> = Arc::new(SlowSink {
        other_is_stored: AtomicBool::new(false),
        other: connect(address, &block(DATA, 3, b"def")),
    });
    let mut settings = settings(TransferMode::Extended);
    settings.options.stall = STALL_TIME;
    let outcome = data::recv::run(&mut channel, &target, &ANY, &settings, &Arc::default());
    assert_eq!(outcome.unwrap().evidence.bytes, 6);
}

#[test]
fn a_pause_of_the_rate_limit_is_not_a_stall() {
    // The smallest step, 1024 bytes, takes half a second. The data fits into the socket buffers, so
    // the pauses are the only waits.
    let bytes = pattern(1500);
    let limited = || {
        let mut settings = settings(TransferMode::Stream);
        settings.options.stall = Duration::from_millis(150);
        settings.options.rate = Some(RateLimit::new(2000));
        settings
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut channel = SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
    let (source, plan) = (memory(&bytes), whole_plan(1500));
    let sent = data::send::run(&mut channel, &source, &plan, &limited(), &Arc::default());
    assert_eq!(sent.unwrap().evidence.bytes, 1500);
    let (mut channel, address) = listen(AllowedPeers::Any);
    drop(connect(address, &bytes));
    let received = receive(&mut channel, &limited(), &Arc::default());
    assert_eq!(received.unwrap().evidence.bytes, 1500);
}

#[test]
fn the_rate_limit_holds_at_either_end() {
    let bytes = pattern(300_000);
    for (limit_sender, mode) in [
        (true, TransferMode::Extended),
        (false, TransferMode::Extended),
        (true, TransferMode::Stream),
    ] {
        let (stored, target) = sink();
        let mut transfer = LoopbackTransfer::new(&bytes, target, mode);
        transfer.sender.streams = 2;
        let limited = if limit_sender {
            &mut transfer.sender
        } else {
            &mut transfer.receiver
        };
        limited.options.rate = Some(RateLimit::new(600_000));
        let begin = Instant::now();
        transfer.succeed();
        let elapsed = begin.elapsed();
        // Half a second, less a burst of a tenth. A busy machine may take any time longer.
        assert!(elapsed > Duration::from_millis(350), "{elapsed:?}");
        assert_eq!(stored.bytes(), bytes);
    }
}

#[test]
fn a_receiver_that_closes_early_is_a_wire_error_at_the_sender() {
    for mode in BOTH {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut channel =
            SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut peer, _) = listener.accept().unwrap();
                peer.read_exact(&mut [0; 1000]).unwrap();
            });
            send_large(&mut channel, &settings(mode), &Arc::default())
        });
        assert!(
            matches!(outcome, Err(DataError::Wire { .. })),
            "{outcome:?}"
        );
    }
}
