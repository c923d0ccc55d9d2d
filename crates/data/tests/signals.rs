//! Transfers under signals: a handler without SA_RESTART makes system calls fail with EINTR
//! (signal(7)), which must not affect the moved bytes. A separate test program, because every
//! thread of it gets the signals.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "everything in this crate is a test"
)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::options::{IoMethod, TransferOptions};
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use units::splitmix;

/// Pause between two rounds of signals, one to every thread.
const GAP: Duration = Duration::from_micros(200);

/// More than the buffers of sockets and pipes hold, so that every thread waits at times.
const LENGTH: usize = 24 << 20;

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Interrupts every other thread of this process repeatedly while `work` runs.
fn interrupted<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: an all-zero sigaction is valid: no flags, thus no SA_RESTART, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing but add to an atomic, which is async-signal-safe.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let before = HANDLED.load(Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                signal_others();
                std::thread::sleep(GAP);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done
    });
    let handled = HANDLED.load(Ordering::Relaxed) - before;
    println!("{handled} signals handled");
    assert!(handled > 0, "no thread got a signal");
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sends one signal to every thread but this one.
fn signal_others() {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let process = rustix::process::getpid().as_raw_nonzero().get();
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let name = thread.unwrap().file_name();
        let thread: libc::pid_t = name.to_str().unwrap().parse().unwrap();
        if thread != own {
            // SAFETY: tgkill(2) takes three integers and touches no memory; a thread that has ended
            // is an error that changes nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
        }
    }
}

/// Bytes in which every block differs from every other.
fn content() -> Vec<u8> {
    splitmix::bytes(1, LENGTH)
}

fn settings(mode: TransferMode, io: IoMethod) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            io,
            block: 256 << 10,
            ..TransferOptions::default()
        },
        mode,
        streams: if mode == TransferMode::Extended { 3 } else { 1 },
        connect_timeout: Duration::from_secs(60),
        ..TransferSettings::default()
    }
}

/// Sends `source` to `sink`. Both ends must succeed.
fn pass(
    source: &Arc<dyn Source>,
    sink: &Arc<dyn Sink>,
    [sender, receiver]: [&TransferSettings; 2],
) -> [TransferReport; 2] {
    let mut receiving = SessionDataChannel::listen(&ListenOptions {
        ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        ports: None,
        accept: AllowedPeers::Any,
        buffers: SocketBuffers::sized_by(receiver.options.buffers.sizing),
    })
    .unwrap();
    let mut sending = SessionDataChannel::connect_to(vec![receiving.local_addr().unwrap()], None);
    let mut ranges = RangeSet::new();
    // A pipe is sent to its end.
    if let Some(length) = source.len().unwrap() {
        ranges.insert(0, length);
    }
    let send = SendPlan::new(ranges, 0);
    let receive = ReceivePlan {
        origin: 0,
        stream_start: 0,
        limit: None,
    };
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let control = Arc::new(TransferControl::new());
            data::send::run(&mut sending, source, &send, sender, &control)
        });
        let control = Arc::new(TransferControl::new());
        let received = data::recv::run(&mut receiving, sink, &receive, receiver, &control);
        [sent.join().unwrap().unwrap(), received.unwrap()]
    })
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Checks a transfer with these methods of sender and receiver.
fn check(
    bytes: &[u8],
    mode: TransferMode,
    sender: IoMethod,
    receiver: IoMethod,
    checksum: Option<ChecksumAlgorithm>,
) {
    let case = format!("{mode:?} {sender:?} {receiver:?} {checksum:?}");
    let stored = tempfile::tempfile().unwrap();
    let source: Arc<dyn Source> = Arc::new(FileSource::new(file_of(bytes), "from").unwrap());
    let to = stored.try_clone().unwrap();
    let sink: Arc<dyn Sink> = Arc::new(FileSink::new(to, "to").unwrap());
    let ends = [sender, receiver].map(|io| TransferSettings {
        checksum,
        ..settings(mode, io)
    });
    let [sent, received] = pass(&source, &sink, [&ends[0], &ends[1]]);
    let moved = (sent.evidence.bytes, received.evidence.bytes);
    assert_eq!(moved, (LENGTH as u64, LENGTH as u64), "{case}");
    assert_eq!(sent.checksum, received.checksum, "{case}");
    assert_eq!(sent.checksum.is_some(), checksum.is_some(), "{case}");
    let mut got = vec![0; LENGTH];
    stored.read_exact_at(&mut got, 0).unwrap();
    assert!(got == bytes, "{case}: bytes differ");
    assert_eq!(stored.metadata().unwrap().len(), LENGTH as u64, "{case}");
}

#[test]
fn every_method_moves_every_byte_under_signals() {
    let bytes = content();
    interrupted(|| {
        for mode in [TransferMode::Stream, TransferMode::Extended] {
            for (sender, receiver) in [
                (IoMethod::Auto, IoMethod::Auto),
                (IoMethod::Copy, IoMethod::Copy),
                (IoMethod::Sendfile, IoMethod::Splice),
                (IoMethod::Splice, IoMethod::Splice),
                (IoMethod::Zerocopy, IoMethod::Copy),
                (IoMethod::Zerocopy, IoMethod::Splice),
            ] {
                check(&bytes, mode, sender, receiver, None);
            }
            let checksum = Some(ChecksumAlgorithm::Md5);
            check(&bytes, mode, IoMethod::Zerocopy, IoMethod::Splice, checksum);
        }
    });
}

#[test]
fn buffers_and_streams_are_sized_under_signals() {
    let bytes = content();
    interrupted(|| {
        for sizing in BufferSizing::ALL {
            let source: Arc<dyn Source> =
                Arc::new(FileSource::new(file_of(&bytes), "from").unwrap());
            let stored = tempfile::tempfile().unwrap();
            let to = stored.try_clone().unwrap();
            let sink: Arc<dyn Sink> = Arc::new(FileSink::new(to, "to").unwrap());
            let mut adapting = TransferSettings {
                adapt: true,
                max_streams: 6,
                ..settings(TransferMode::Extended, IoMethod::Auto)
            };
            adapting.options.buffers.sizing = sizing;
            pass(&source, &sink, [&adapting, &adapting]);
            let mut got = vec![0; LENGTH];
            stored.read_exact_at(&mut got, 0).unwrap();
            assert!(got == bytes, "{sizing:?}: bytes differ");
        }
    });
}

/// Reads and writes of a pipe block, and a signal may end them after a part.
#[test]
fn pipes_move_every_byte_under_signals() {
    let bytes = content();
    let pipe = || rustix::pipe::pipe().unwrap();
    let ((from, mut into), (mut out, to)) = {
        let ((from, into), (out, to)) = (pipe(), pipe());
        ((from, File::from(into)), (File::from(out), to))
    };
    let got = interrupted(|| {
        std::thread::scope(|scope| {
            let bytes = &bytes;
            // In pieces, with pauses, so that the other end waits within a call.
            scope.spawn(move || {
                for piece in bytes.chunks(3 << 20) {
                    into.write_all(piece).unwrap();
                    std::thread::sleep(2 * GAP);
                }
            });
            let reader = scope.spawn(move || {
                let mut got = Vec::new();
                while Read::take(&mut out, 3 << 20).read_to_end(&mut got).unwrap() > 0 {
                    std::thread::sleep(2 * GAP);
                }
                got
            });
            let source: Arc<dyn Source> = Arc::new(FileSource::new(from.into(), "in").unwrap());
            let sink: Arc<dyn Sink> = Arc::new(FileSink::new(to.into(), "out").unwrap());
            let end = settings(TransferMode::Stream, IoMethod::Auto);
            pass(&source, &sink, [&end, &end]);
            // The reader's end of file.
            drop(sink);
            reader.join().unwrap()
        })
    });
    assert!(got == bytes, "{} bytes came", got.len());
}
