//! Buffers that are sized while data moves: all bytes arrive, and the buffers grow as decided.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::drs::DrsEndpoint;
use data::error::DataError;
use data::job::{TransferControl, TransferSettings};
use data::os::sockopt::{self, SocketBuffer};
use proto::command::TransferMode;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use tune::Evidence;
use tune::sample::TcpSample;
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use crate::blocks::{DATA, block, connect};
use crate::transfer_ends::{LOCALHOST, LoopbackTransfer, bounded, pattern, settings, sink, until};

const BOTH: [TransferMode; 2] = [TransferMode::Stream, TransferMode::Extended];

/// The papers' initial size as the kernel reports it.
const INITIAL: u64 = 128 << 10;

fn listen(sizing: BufferSizing) -> (SessionDataChannel, SocketAddr) {
    let channel = SessionDataChannel::listen(&ListenOptions {
        ip: LOCALHOST,
        ports: None,
        accept: AllowedPeers::Only(LOCALHOST),
        buffers: SocketBuffers::sized_by(sizing),
    })
    .unwrap();
    let address = channel.local_addr().unwrap();
    (channel, address)
}

fn pair(sizing: BufferSizing) -> (SessionDataChannel, SessionDataChannel) {
    let (receiver, address) = listen(sizing);
    (
        SessionDataChannel::connect_to(vec![address], None),
        receiver,
    )
}

/// The largest size that this host allows for a buffer.
fn max_buffer(buffer: SocketBuffer) -> u64 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let largest = BufferBounds::default().largest;
    sockopt::set_buffer(socket.as_fd(), buffer, largest).unwrap() / 2
}

/// The handles of both ends; the receiver's sizes go to the sender, as the control channel
/// transports them.
fn controls() -> [Arc<TransferControl>; 2] {
    let [sender, receiver] = [(); 2].map(|()| Arc::new(TransferControl::new()));
    let follower = Arc::clone(&sender);
    receiver.on_resize(move |bytes| follower.follow_peer_size(bytes));
    [sender, receiver]
}

/// Both ends under a policy, with a DRS channel between them if it needs one.
fn sized(mut transfer: LoopbackTransfer, sizing: BufferSizing) -> LoopbackTransfer {
    transfer.sender.options.buffers.sizing = sizing;
    transfer.receiver.options.buffers.sizing = sizing;
    if sizing.uses_drs_channel() {
        let listening = DrsEndpoint::listen(LOCALHOST, None).unwrap();
        let address = listening.address();
        transfer.receiver.drs = Some(Arc::new(DrsEndpoint::connect(
            address.socket,
            address.nonce,
        )));
        transfer.sender.drs = Some(Arc::new(listening));
    }
    transfer
}

#[test]
fn every_policy_moves_every_byte() {
    for sizing in BufferSizing::ALL {
        for (mode, streams) in [
            (TransferMode::Stream, 1),
            (TransferMode::Extended, 1),
            (TransferMode::Extended, 4),
        ] {
            let (mut sender, mut receiver) = pair(sizing);
            for len in [0, 10_000, 3_000_001] {
                let bytes = pattern(len);
                let (stored, target) = sink();
                let mut transfer = sized(LoopbackTransfer::new(&bytes, target, mode), sizing);
                transfer.sender.streams = streams;
                let controls = controls();
                let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
                let case = format!("{sizing:?} {mode:?} {streams} streams {len} bytes");
                let (sent, received) = (sent.expect(&case), received.expect(&case));
                assert!(stored.bytes() == bytes, "{case}");
                assert_eq!(
                    (sent.evidence.bytes, received.evidence.bytes),
                    (len as u64, len as u64),
                    "{case}"
                );
                if mode == TransferMode::Stream {
                    (sender, receiver) = pair(sizing);
                }
            }
        }
    }
}

#[test]
fn a_drs1_receiver_grows_its_buffer_and_the_sender_follows() {
    for (mode, streams) in [(TransferMode::Stream, 1), (TransferMode::Extended, 4)] {
        let (mut sender, mut receiver) = pair(BufferSizing::Drs1);
        let bytes = pattern(1 << 20).repeat(48);
        let (stored, target) = sink();
        let mut transfer = sized(
            LoopbackTransfer::new(&bytes, target, mode),
            BufferSizing::Drs1,
        );
        transfer.sender.streams = streams;
        let controls = controls();
        let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert!(stored.bytes() == bytes);
        let [at_sender, at_receiver] = controls.map(|c| c.take_decisions());
        let four_times = 4 * BufferBounds::default().initial;
        assert!(sizes(&at_receiver).contains(&four_times), "{at_receiver:?}");
        // A sender that is late for a size may find the next one already.
        let max_buffer = max_buffer(SocketBuffer::Receive);
        let announced: Vec<u64> = sizes(&at_receiver)
            .iter()
            .map(|n| max_buffer.min(*n))
            .collect();
        let followed = sizes(&at_sender);
        assert!(!followed.is_empty(), "{at_sender:?}");
        assert!(
            followed.iter().all(|size| announced.contains(size)),
            "{at_sender:?} {announced:?}"
        );
        assert!(received.evidence.buffer_bytes > INITIAL, "{received:?}");
        assert!(sent.evidence.buffer_bytes > INITIAL, "{sent:?}");
    }
}

/// Receives from a peer that sends a little and then waits. Passes the live stream's sample to
/// `check` meanwhile.
fn while_receiving(sizing: BufferSizing, mode: TransferMode, check: impl Fn(&TcpSample)) {
    let (mut channel, address) = listen(sizing);
    let control = Arc::new(TransferControl::new());
    let mut settings = settings(mode);
    settings.options.buffers.sizing = sizing;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (_, target) = sink();
            data::recv::run(
                &mut channel,
                &target,
                &crate::transfer_ends::ANY,
                &settings,
                &control,
            )
        });
        let peer = match mode {
            TransferMode::Stream => connect(address, b"some"),
            TransferMode::Extended => connect(address, &block(DATA, 0, b"some")),
        };
        check(&one_sample(&control));
        control.cancel();
        assert!(matches!(receiving.join().unwrap(), Err(DataError::Aborted)));
        drop(peer);
    });
}

fn one_sample(control: &TransferControl) -> TcpSample {
    let mut sample = None;
    until("there is a stream", || {
        sample = control.sample_streams().pop();
        sample.is_some()
    });
    sample.unwrap()
}

#[test]
fn small_initial_buffers_keep_a_large_window_scale() {
    let granted = max_buffer(SocketBuffer::Receive);
    for mode in BOTH {
        for sizing in [BufferSizing::Drs1, BufferSizing::Drs, BufferSizing::Drs2004] {
            while_receiving(sizing, mode, |sample| {
                // The kernel advertises half of a buffer at first, and scales for that.
                let ceiling = sample.max_receive_window / 65_535 * 65_536;
                assert!(ceiling >= granted, "{sample:?} {granted}");
                assert_eq!(sample.receive_buffer, INITIAL);
                // A window larger than the buffer would make the kernel drop arriving data.
                assert!(sample.receive_window <= INITIAL, "{sample:?}");
            });
        }
    }
}

#[test]
fn auto_sets_no_buffer_before_the_handshake() {
    let untouched = AtomicU64::new(0);
    while_receiving(BufferSizing::Kernel, TransferMode::Stream, |sample| {
        untouched.store(sample.max_receive_window, Ordering::SeqCst);
    });
    while_receiving(BufferSizing::Auto, TransferMode::Stream, |sample| {
        assert_eq!(sample.max_receive_window, untouched.load(Ordering::SeqCst));
    });
}

/// Sends to a peer that does not read, calls `meanwhile`, and cancels the transfer. Returns the
/// evidence.
fn while_sending(
    settings: &TransferSettings,
    streams: usize,
    meanwhile: impl Fn(&TransferControl),
) -> Evidence {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut channel = SessionDataChannel::connect_to(vec![listener.local_addr().unwrap()], None);
    let control = Arc::new(TransferControl::new());
    let mut settings = settings.clone();
    settings.streams = streams;
    let source = crate::transfer_ends::memory(&[7; 48 << 20]);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let plan = crate::transfer_ends::whole_plan(48 << 20);
            data::send::run(&mut channel, &source, &plan, &settings, &control)
        });
        until("all streams are there", || {
            control.streams() == streams as u64
        });
        meanwhile(&control);
        control.cancel();
        assert!(matches!(sending.join().unwrap(), Err(DataError::Aborted)));
    });
    control.evidence()
}

/// Waits until the reported send buffers of all streams have this size.
fn await_send_buffers(control: &TransferControl, reported: u64) {
    until(&format!("all send buffers are {reported}"), || {
        let samples = control.sample_streams();
        let mut sizes = samples.iter().map(|s| s.send_buffer);
        sizes.all(|size| size == reported)
    });
}

#[test]
fn a_sender_sets_the_sizes_of_its_peer() {
    for (mode, streams) in [(TransferMode::Stream, 1), (TransferMode::Extended, 4)] {
        let mut settings = settings(mode);
        settings.options.buffers.sizing = BufferSizing::Drs1;
        while_sending(&settings, streams, |control| {
            await_send_buffers(control, INITIAL);
            control.follow_peer_size(512 << 10);
            await_send_buffers(control, 2 * max_buffer(SocketBuffer::Send).min(512 << 10));
            // Sizes may shrink, too.
            control.follow_peer_size(100_000);
            await_send_buffers(control, 200_000);
        });
    }
}

#[test]
fn a_pinned_buffer_ignores_the_sizes_of_the_peer() {
    let mut settings = settings(TransferMode::Stream);
    settings.options.buffers.sizing = BufferSizing::Drs1;
    settings.options.buffers.send = Some(150_000);
    while_sending(&settings, 1, |control| {
        control.follow_peer_size(512 << 10);
        std::thread::sleep(Duration::from_millis(50));
        await_send_buffers(control, 300_000);
        assert!(control.take_decisions().is_empty());
    });
}

#[test]
fn a_transfer_without_streams_ends_with_no_peer() {
    for mode in BOTH {
        for sizing in BufferSizing::ALL {
            let mut settings = settings(mode);
            settings.options.buffers.sizing = sizing;
            settings.connect_timeout = Duration::from_millis(30);
            let (_, target) = sink();
            let control = Arc::default();
            let outcome = data::recv::run(
                &mut listen(sizing).0,
                &target,
                &crate::transfer_ends::ANY,
                &settings,
                &control,
            );
            assert!(
                matches!(outcome, Err(DataError::NoPeer { .. })),
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn the_sizing_thread_does_not_delay_a_cancel() {
    bounded(|| {
        for sizing in BufferSizing::ALL {
            let mut settings = settings(TransferMode::Extended);
            settings.options.buffers.sizing = sizing;
            // Only the cancel ends it.
            settings.options.stall = Duration::from_secs(3600);
            while_sending(&settings, 2, |_| ());
        }
    });
}

#[test]
fn memory_is_measured_while_data_moves() {
    for sizing in BufferSizing::ALL {
        let mut settings = settings(TransferMode::Stream);
        settings.options.buffers.sizing = sizing;
        // The queue is full by the second sample; a busy machine samples late.
        let max_buffer = [150, 1000, 5000].into_iter().find(|pause| {
            let pause = Duration::from_millis(*pause);
            let wire = while_sending(&settings, 1, |_| std::thread::sleep(pause));
            wire.socket_memory_bytes >= 64 << 10
        });
        assert!(max_buffer.is_some(), "{sizing:?}");
    }
}

#[test]
fn a_sender_without_a_channel_sizes_its_own_buffers() {
    let bytes = pattern(1 << 20).repeat(48);
    let (stored, target) = sink();
    let mut transfer = sized(
        LoopbackTransfer::new(&bytes, target, TransferMode::Stream),
        BufferSizing::Drs,
    );
    transfer.sender.drs = None;
    transfer.receiver.drs = None;
    let (mut sender, mut receiver) = pair(BufferSizing::Drs);
    let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls());
    assert!(stored.bytes() == bytes);
    for report in [sent.unwrap(), received.unwrap()] {
        assert!(report.evidence.buffer_bytes > INITIAL, "{report:?}");
    }
}

#[test]
fn the_drs_channel_carries_sizes_to_the_sender() {
    for (sizing, mode, streams) in [
        (BufferSizing::Drs, TransferMode::Stream, 1),
        (BufferSizing::Drs, TransferMode::Extended, 4),
        (BufferSizing::Drs2004, TransferMode::Stream, 1),
    ] {
        let bytes = pattern(1 << 20).repeat(48);
        let (stored, target) = sink();
        let mut transfer = sized(LoopbackTransfer::new(&bytes, target, mode), sizing);
        transfer.sender.streams = streams;
        let (mut sender, mut receiver) = pair(sizing);
        let controls = controls();
        let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
        sent.unwrap();
        received.unwrap();
        assert!(stored.bytes() == bytes);
        let [set, decided] = controls.map(|c| sizes(&c.take_decisions()));
        assert!(
            !set.is_empty() && !decided.is_empty(),
            "{set:?} {decided:?}"
        );
        // Only the newest of several sizes is set. Every connection has the initial one from the
        // start.
        let initial = BufferBounds::default().initial;
        let known = |size: &&u64| **size == initial || decided.contains(*size);
        // A receiver that has everything closes its channel; a sender that still samples sizes its
        // buffers alone from then on.
        let mut followed = set.iter().take_while(known);
        assert!(
            followed.any(|size| decided.contains(size)),
            "{set:?} {decided:?}"
        );
    }
}

#[test]
fn a_cached_connection_keeps_its_buffers() {
    let (mut sender, mut receiver) = pair(BufferSizing::Drs);
    let bytes = pattern(1 << 20).repeat(48);
    let mut kept = 0;
    for _ in 0..2 {
        let (stored, target) = sink();
        let transfer = sized(
            LoopbackTransfer::new(&bytes, target, TransferMode::Extended),
            BufferSizing::Drs,
        );
        let controls = controls();
        let (sent, received) = transfer.run_with(&mut sender, &mut receiver, &controls);
        sent.unwrap();
        received.unwrap();
        assert!(stored.bytes() == bytes);
        let [set, decided] = controls.map(|c| sizes(&c.take_decisions()));
        assert!(
            set.iter().chain(&decided).all(|size| *size >= kept),
            "{kept}: {set:?} {decided:?}"
        );
        kept = decided.last().copied().unwrap_or(kept);
    }
    assert!(kept > BufferBounds::default().initial, "{kept}");
}

fn sizes(decisions: &[BufferDecision]) -> Vec<u64> {
    let changes = decisions.iter().filter_map(|d| d.setting);
    changes
        .filter_map(|change| match change {
            BufferSetting::SendBuffer(size) | BufferSetting::ReceiveBuffer(size) => Some(size),
            BufferSetting::WindowClamp(_) | BufferSetting::RestoreAutotuning(_) => None,
        })
        .collect()
}
