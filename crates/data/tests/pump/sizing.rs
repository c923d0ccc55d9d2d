//! Buffers that are sized while data moves: what is sent arrives, and the buffers follow.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::drs::DrsEndpoint;
use data::error::DataError;
use data::job::{StreamSample, TransferControl, TransferSettings};
use data::os::sockopt::{self, SocketBuffer};
use proto::command::TransferMode;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use tune::Evidence;
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use crate::blocks::{DATA, block, connect};
use crate::transfer_ends::{LOCALHOST, LoopbackTransfer, bounded, pattern, settings, sink, until};

const BOTH: [TransferMode; 2] = [TransferMode::Stream, TransferMode::Extended];

/// As the kernel reports the papers' first size.
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

/// The most that this host lets a buffer be set to.
fn most(buffer: SocketBuffer) -> u64 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let largest = BufferBounds::default().largest;
    sockopt::set_buffer(socket.as_fd(), buffer, largest).unwrap() / 2
}

/// Both ends' handles, the receiver's sizes going to the sender as the control channel takes them.
fn controls() -> [Arc<TransferControl>; 2] {
    let [sender, receiver] = [(); 2].map(|()| Arc::new(TransferControl::new()));
    let follower = Arc::clone(&sender);
    receiver.on_resize(move |bytes| follower.follow_peer_size(bytes));
    [sender, receiver]
}

/// Both ends under a policy, with a channel between them where that needs one.
fn sized(mut transfer: LoopbackTransfer, sizing: BufferSizing) -> LoopbackTransfer {
    transfer.sender.options.buffers.sizing = sizing;
    transfer.receiver.options.buffers.sizing = sizing;
    if sizing == BufferSizing::Drs {
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
fn a_receiver_of_the_first_drsftp_grows_and_its_sender_follows() {
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
        // A sender that comes late to a size may find the next one already.
        let most = most(SocketBuffer::Receive);
        let told: Vec<u64> = sizes(&at_receiver).iter().map(|n| most.min(*n)).collect();
        let followed = sizes(&at_sender);
        assert!(!followed.is_empty(), "{at_sender:?}");
        assert!(
            followed.iter().all(|size| told.contains(size)),
            "{at_sender:?} {told:?}"
        );
        assert!(received.evidence.buffer_bytes > INITIAL, "{received:?}");
        assert!(sent.evidence.buffer_bytes > INITIAL, "{sent:?}");
    }
}

/// Receives from a peer that sends a little and then waits; hands the live stream's sample to
/// `check` before the peer goes on.
fn while_receiving(sizing: BufferSizing, mode: TransferMode, check: impl Fn(&StreamSample)) {
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

fn one_sample(control: &TransferControl) -> StreamSample {
    let mut sample = None;
    until("there is a stream", || {
        sample = control.sample_streams().pop();
        sample.is_some()
    });
    sample.unwrap()
}

#[test]
fn small_buffers_to_begin_with_do_not_cost_the_window_scale() {
    let granted = most(SocketBuffer::Receive);
    for mode in BOTH {
        for sizing in [BufferSizing::Drs1, BufferSizing::Drs] {
            while_receiving(sizing, mode, |sample| {
                // The kernel makes a window of half of a buffer at first, and scales for that.
                let ceiling = 65_536 << sample.info.rcv_wscale;
                assert!(ceiling >= granted, "{sample:?} {granted}");
                assert_eq!(u64::from(sample.memory.rcvbuf), INITIAL);
                // No more is promised than the buffer holds, or arriving data would be dropped.
                assert!(u64::from(sample.info.rcv_wnd) <= INITIAL, "{sample:?}");
            });
        }
    }
}

#[test]
fn auto_sets_nothing_before_the_handshake() {
    let untouched = AtomicU64::new(0);
    while_receiving(BufferSizing::Kernel, TransferMode::Stream, |sample| {
        untouched.store(sample.info.rcv_wscale.into(), Ordering::SeqCst);
    });
    while_receiving(BufferSizing::Auto, TransferMode::Stream, |sample| {
        assert_eq!(
            u64::from(sample.info.rcv_wscale),
            untouched.load(Ordering::SeqCst)
        );
    });
}

/// Sends to a peer that does not read, and calls `meanwhile`; the transfer is then cancelled. Returns
/// what it measured.
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
            let plan = crate::transfer_ends::whole(48 << 20);
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

/// Waits until all streams' send buffers are reported as this large.
fn await_send_buffers(control: &TransferControl, reported: u64) {
    until(&format!("all send buffers are {reported}"), || {
        let samples = control.sample_streams();
        let mut sizes = samples.iter().map(|s| u64::from(s.memory.sndbuf));
        sizes.all(|size| size == reported)
    });
}

#[test]
fn a_sender_follows_what_it_is_told() {
    for (mode, streams) in [(TransferMode::Stream, 1), (TransferMode::Extended, 4)] {
        let mut settings = settings(mode);
        settings.options.buffers.sizing = BufferSizing::Drs1;
        while_sending(&settings, streams, |control| {
            await_send_buffers(control, INITIAL);
            control.follow_peer_size(512 << 10);
            await_send_buffers(control, 2 * most(SocketBuffer::Send).min(512 << 10));
            // Sizes may fall, too.
            control.follow_peer_size(100_000);
            await_send_buffers(control, 200_000);
        });
    }
}

#[test]
fn a_pinned_buffer_stays_whatever_the_peer_tells() {
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
fn a_transfer_without_streams_ends_for_its_own_reason() {
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
fn cancelling_is_not_held_up() {
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
        // The queue is full by the second look; a busy machine looks late.
        let most = [150, 1000, 5000].into_iter().find(|pause| {
            let pause = Duration::from_millis(*pause);
            let wire = while_sending(&settings, 1, |_| std::thread::sleep(pause));
            wire.socket_memory_bytes >= 64 << 10
        });
        assert!(most.is_some(), "{sizing:?}");
    }
}

#[test]
fn a_sender_that_nobody_tells_sizes_its_buffers_itself() {
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
fn the_channel_carries_sizes_to_the_sender() {
    for (mode, streams) in [(TransferMode::Stream, 1), (TransferMode::Extended, 4)] {
        let bytes = pattern(1 << 20).repeat(48);
        let (stored, target) = sink();
        let mut transfer = sized(
            LoopbackTransfer::new(&bytes, target, mode),
            BufferSizing::Drs,
        );
        transfer.sender.streams = streams;
        let (mut sender, mut receiver) = pair(BufferSizing::Drs);
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
        // Of sizes that come together only the newest is set; the first one every connection has
        // from the start.
        let initial = BufferBounds::default().initial;
        let known = |size: &u64| *size == initial || decided.contains(size);
        assert!(set.iter().all(known), "{set:?} {decided:?}");
    }
}

#[test]
fn a_kept_connection_goes_on_with_its_buffers() {
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
