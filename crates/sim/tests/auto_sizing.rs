//! Buffer sizing by `auto` compared with the kernel's autotuning over simulated paths.
//!
//! The simulator has no buffer autotuning, so the driver here does it as Linux does: the send buffer
//! follows the congestion window up to `tcp_wmem`, of which two thirds hold payload. A receive buffer
//! without autotuning does not change.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use std::time::Duration;

use link::Queue;
use network::{MSS, flow, link, mbit, ms, seconds};
use sim::tcp::CongestionAlgorithm;
use sim::world::{FlowSpec, FlowStats, Scenario, Simulation};
use tune::limiter::Role;
use tune::sample::TcpSample;
use tune::sample::{max_in_flight, window_of_buffer};
use tune::sizing::auto::BufferTuner;
use tune::sizing::host_limits::HostBufferLimits;
use tune::sizing::{BufferDecision, BufferSetting};

const MB: u64 = 1 << 20;
/// Most bytes that may wait unsent (`TCP_NOTSENT_LOWAT`), as the crate `data` and the simulator's default
/// set it.
const UNSENT: u64 = MB;

/// The defaults of Linux 6.18.
fn linux_defaults() -> HostBufferLimits {
    HostBufferLimits {
        max_autotuned_send: 4 * MB,
        max_settable_send: 8 * MB,
        max_autotuned_receive: 32 * MB,
        max_settable_receive: 8 * MB,
        ..HostBufferLimits::default()
    }
}

/// A path with a queue of one bandwidth-delay product.
#[derive(Clone, Copy)]
struct SizingPath {
    megabits: u64,
    rtt: u64,
}

impl SizingPath {
    fn bdp(self) -> u64 {
        self.megabits * 125 * self.rtt
    }

    fn simulation(self, spec: FlowSpec) -> Simulation {
        let queue = u32::try_from((self.bdp() / 1500).max(64)).unwrap();
        let half = Duration::from_micros(self.rtt * 500);
        Simulation::new(&Scenario {
            forward: link(Some(mbit(self.megabits)), half, Queue::Packets(queue)),
            reverse: link(None, half, Queue::Unlimited),
            flows: vec![spec],
            cross_traffic: Vec::new(),
            seed: 1,
        })
    }
}

/// The socket of one end.
struct SizedHost {
    buffer: u64,
    /// The program has set the size, so autotuning no longer changes it (`SOCK_SNDBUF_LOCK`).
    locked: bool,
    before: FlowStats,
    rtt: Duration,
    decisions: Vec<BufferDecision>,
    /// Largest number of bytes in flight or unsent.
    memory: u64,
}

impl SizedHost {
    fn new(buffer: u64) -> Self {
        Self {
            buffer,
            locked: false,
            before: FlowStats::default(),
            rtt: Duration::ZERO,
            decisions: Vec::new(),
            memory: 0,
        }
    }

    /// `tcp_sndbuf_expand` of Linux: twice the congestion window, at 2.3 KB of memory per segment.
    fn autotune(&mut self, stats: &FlowStats, caps: &HostBufferLimits) {
        if !self.locked {
            let window = carried_bytes(stats.cwnd) / 10 * 32;
            self.buffer = self.buffer.max(window.min(caps.max_autotuned_send));
        }
    }

    fn sample(&mut self, stats: &FlowStats) -> TcpSample {
        let sent = stats.sender.segments - stats.sender.retransmits;
        let in_flight = (sent * MSS).saturating_sub(stats.sender.acked_bytes);
        let unsent = max_in_flight(self.buffer)
            .saturating_sub(in_flight)
            .min(UNSENT);
        self.memory = self.memory.max(in_flight + unsent);
        // Linux reports the smoothed RTT.
        if let Some(rtt) = stats.since(&self.before).mean_rtt() {
            self.rtt = if self.rtt.is_zero() {
                rtt
            } else {
                (self.rtt * 3 + rtt) / 4
            };
        }
        self.before = *stats;
        TcpSample {
            at: stats.at,
            bytes_acked: stats.sender.acked_bytes,
            smoothed_rtt: self.rtt,
            min_rtt: stats.sender.rtt_min,
            send_buffer: self.buffer,
            send_queue_memory: (in_flight + unsent) / 2 * 3,
            unsent,
            in_flight,
            cwnd: carried_bytes(stats.cwnd),
            in_slow_start: stats.ssthresh.is_infinite(),
            peer_window: 1 << 30,
            busy_time: stats.sender.limited_times.busy,
            rwnd_limited: stats.sender.limited_times.rwnd_limited,
            retransmits: stats.sender.retransmits,
            ..TcpSample::default()
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a window of segments")]
fn carried_bytes(cwnd: f64) -> u64 {
    cwnd as u64 * MSS
}

/// The result of a sender.
struct SizingOutcome {
    delivered: u64,
    host: SizedHost,
    auto: BufferTuner,
}

/// Sends for `time`, with buffers sized by the kernel alone, or also by `auto` (`with_auto`).
fn send(
    cell: SizingPath,
    time: Duration,
    caps: HostBufferLimits,
    with_auto: bool,
) -> SizingOutcome {
    let mut host = SizedHost::new(87_380);
    let mut auto = BufferTuner::new(Role::Sender, caps);
    let mut simulation = cell.simulation(flow(CongestionAlgorithm::Cubic));
    let tick = Duration::from_micros(cell.rtt * 1000 / 8).max(ms(1));
    let mut due = Duration::ZERO;
    while simulation.now() < time {
        let stats = simulation.flow(0);
        host.autotune(&stats, &caps);
        if simulation.now() >= due {
            let sample = host.sample(&stats);
            let decision = auto.on_sample(&sample).filter(|_| with_auto);
            if let Some(BufferSetting::SendBuffer(size)) = decision.as_ref().and_then(|d| d.setting)
            {
                (host.buffer, host.locked) = ((2 * size).min(caps.max_settable_send), true);
            }
            host.decisions.extend(decision);
            due = simulation.now() + auto.next_sample_in();
        }
        simulation.set_buffers(0, max_in_flight(host.buffer), 1 << 40);
        simulation.run_until(simulation.now() + tick);
    }
    SizingOutcome {
        delivered: simulation.flow(0).delivered_bytes,
        host,
        auto,
    }
}

fn ratio(auto: &SizingOutcome, kernel: &SizingOutcome) -> f64 {
    auto.delivered as f64 / kernel.delivered as f64
}

#[test]
fn auto_changes_nothing_if_the_kernels_buffer_is_large_enough() {
    let cells = [
        (100, 1),
        (100, 10),
        (100, 50),
        (100, 100),
        (100, 200),
        (1000, 1),
        (1000, 10),
    ];
    for (megabits, rtt) in cells {
        let cell = SizingPath { megabits, rtt };
        let time = seconds(if megabits == 100 { 10 } else { 2 });
        let kernel = send(cell, time, linux_defaults(), false);
        let auto = send(cell, time, linux_defaults(), true);
        let gain = ratio(&auto, &kernel);
        assert!(gain >= 0.98, "{megabits} Mbit/s, {rtt} ms: {gain}");
        assert!(
            auto.host.memory * 100 <= kernel.host.memory * 102,
            "{megabits} Mbit/s, {rtt} ms: {} against {} bytes",
            auto.host.memory,
            kernel.host.memory
        );
        assert_eq!(auto.auto.remark(), None, "{megabits} Mbit/s, {rtt} ms");
    }
}

#[test]
fn auto_is_faster_if_the_kernels_buffer_is_too_small() {
    for (rtt, least) in [(50, 1.5), (100, 1.6), (200, 1.5)] {
        let cell = SizingPath {
            megabits: 1000,
            rtt,
        };
        let kernel = send(cell, seconds(10), linux_defaults(), false);
        let auto = send(cell, seconds(10), linux_defaults(), true);
        let gain = ratio(&auto, &kernel);
        assert!(gain >= least, "{rtt} ms: {gain}");
        // The remark names the limit that remains.
        let remark = auto.auto.remark().unwrap();
        assert!(remark.contains("net.ipv4.tcp_wmem"), "{remark}");
        assert!(auto.auto.host_bound().is_some());
    }
}

#[test]
fn a_privileged_sender_fills_a_long_path() {
    let caps = HostBufferLimits {
        max_settable_send: 256 * MB,
        may_force: true,
        ..linux_defaults()
    };
    let cell = SizingPath {
        megabits: 1000,
        rtt: 100,
    };
    let auto = send(cell, seconds(10), caps, true);
    let line = 1_250_000_000.0 * 1460.0 / 1500.0;
    let share = auto.delivered as f64 / line;
    assert!(share > 0.85, "{share}");
    assert!(auto.host.decisions.len() < 30, "{:#?}", auto.host.decisions);
    assert_eq!(auto.auto.remark(), None);
}

#[test]
fn auto_sets_no_buffer_below_the_autotuning_limit() {
    let cell = SizingPath {
        megabits: 1000,
        rtt: 50,
    };
    let auto = send(cell, seconds(3), HostBufferLimits::default(), true);
    assert!(auto.host.decisions.iter().all(|d| d.setting.is_none()));
    assert!(!auto.host.locked);
}

/// Receives for `time` from an unlimited sender, with a buffer of 64 KB and no autotuning.
fn receive(cell: SizingPath, time: Duration, with_auto: bool) -> (u64, Vec<u64>) {
    let caps = HostBufferLimits {
        receive_autotuning: false,
        max_settable_receive: 32 * MB,
        rmem_first_two: [4096, 131_072],
        ..HostBufferLimits::default()
    };
    let mut buffer = caps.rmem_first_two[1];
    let mut spec = flow(CongestionAlgorithm::Cubic);
    spec.tcp.receive_buffer = window_of_buffer(buffer);
    let mut auto = BufferTuner::new(Role::Receiver, caps);
    let mut simulation = cell.simulation(spec);
    let (mut before, mut sizes) = (FlowStats::default(), Vec::new());
    while simulation.now() < time {
        let stats = simulation.flow(0);
        let sample = TcpSample {
            at: stats.at,
            bytes_received: stats.delivered_bytes,
            receiver_rtt: stats.since(&before).mean_rtt().unwrap_or_default(),
            min_rtt: stats.sender.rtt_min,
            receive_buffer: buffer,
            receive_window: window_of_buffer(buffer),
            max_receive_window: 65_535 << 10,
            ..TcpSample::default()
        };
        before = stats;
        let change = auto
            .on_sample(&sample)
            .and_then(|d| d.setting)
            .filter(|_| with_auto);
        if let Some(BufferSetting::ReceiveBuffer(size)) = change {
            buffer = (2 * size).min(caps.max_settable_receive);
            sizes.push(buffer);
            simulation.set_buffers(0, 1 << 40, window_of_buffer(buffer));
        }
        simulation.run_until(simulation.now() + auto.next_sample_in());
    }
    (simulation.flow(0).delivered_bytes, sizes)
}

#[test]
fn without_autotuning_auto_sizes_the_receiver_by_the_path() {
    let cell = SizingPath {
        megabits: 100,
        rtt: 100,
    };
    let (fixed, _) = receive(cell, seconds(10), false);
    let (sized, sizes) = receive(cell, seconds(10), true);
    let gain = sized as f64 / fixed as f64;
    assert!(gain > 10.0, "{gain} with {sizes:?}");
    assert!(sizes.is_sorted(), "{sizes:?}");
    // A setsockopt argument of twice the BDP is reported as four times the BDP; the queue during slow
    // start adds some.
    let last = *sizes.last().unwrap();
    assert!(last <= 8 * cell.bdp(), "{sizes:?}");
}
