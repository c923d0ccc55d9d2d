//! The right-sizing loops after the two papers, and that of 2004 as published, on simulated paths.
//!
//! A size is a setsockopt argument. In the simulator the window is the whole receive buffer, and the
//! sender fills the whole send buffer, both in payload. Linux provides a window of one to four thirds
//! of the argument; by default the tests use the least of these, 1/1. The loops see twice the size, as
//! Linux reports it. Sizes reach the sender half a round trip later. RTTs are measured by messages on
//! another connection, which pass the same queue as the data.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes and numbers of streams are small"
)]

mod drs_transfer;
mod network;

use std::sync::Arc;
use std::time::Duration;

use drs_transfer::{DrsPolicy, DrsRun, DrsSetup, DrsTransfer, run};
use link::trace::{PathTrace, TracePoint, built_in_trace};
use link::{Conditions, Queue};
use network::{fairness, flow, link, mbit, megabits, ms, seconds};
use sim::tcp::CongestionAlgorithm;
use sim::world::{FlowSpec, FlowStats, Scenario, Simulation};
use tune::sizing::drs::DrsInterval;
use units::Rate;

const MB: u64 = 1 << 20;
/// Buffers of a stock FTP server.
const STOCK: DrsPolicy = DrsPolicy::Static(64 << 10);
/// The over-provisioned buffers of the papers.
const LARGE: DrsPolicy = DrsPolicy::Static(16 * MB);
/// The highest BDP that ping and iperf measured on the live WAN of the papers.
const BEST_STATIC: DrsPolicy = DrsPolicy::Static(268_000);
const DRS1: DrsPolicy = DrsPolicy::Drs1;
const DRS: DrsPolicy = DrsPolicy::Drs(DrsInterval::Adaptive);
const DRS2004: DrsPolicy = DrsPolicy::Published2004;

fn setup(bytes: u64, streams: u64, policy: DrsPolicy) -> DrsSetup {
    DrsSetup {
        bytes,
        streams,
        policy,
        window: (1, 1),
        jitter: Duration::from_micros(100),
    }
}

/// A network with a bottleneck in the forward direction only.
fn one_bottleneck(forward: Conditions) -> Scenario {
    Scenario {
        reverse: Conditions {
            rate: None,
            queue: Queue::Unlimited,
            ..forward.clone()
        },
        forward,
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        seed: 1,
    }
}

/// A path of `rate` with an RTT of `rtt` milliseconds and a queue of `queue` bandwidth-delay products.
fn path(rate: Rate, rtt: u64, queue: f64) -> Scenario {
    let product = rate.bytes_in(ms(rtt)) as f64;
    let queue = Queue::Bytes((product * queue) as u64);
    one_bottleneck(link(Some(rate), ms(rtt) / 2, queue))
}

/// The emulated WAN of the papers.
fn emulated() -> Scenario {
    path(mbit(100), 100, 1.0)
}

/// A path that follows a trace, with a queue of one mean bandwidth-delay product.
fn varying(trace: Arc<PathTrace>) -> Scenario {
    let (rate, rtt) = (trace.mean_rate().unwrap(), trace.mean_rtt().unwrap());
    one_bottleneck(Conditions {
        queue: Queue::Bytes(rate.bytes_in(rtt)),
        trace: Some(trace),
        ..Conditions::default()
    })
}

/// Runs an endless transfer for `time`.
fn endless(scenario: &Scenario, policy: DrsPolicy, time: Duration) -> DrsRun {
    let mut simulation = Simulation::new(scenario);
    let mut transfer = DrsTransfer::begin(&mut simulation, setup(1 << 40, 1, policy));
    transfer.run_until(&mut simulation, time);
    transfer.report(&simulation)
}

/// Ratio of the elapsed times of two runs.
fn times(a: &DrsRun, b: &DrsRun) -> f64 {
    a.elapsed.as_secs_f64() / b.elapsed.as_secs_f64()
}

#[test]
fn a_long_transfer_with_drs_fills_the_path_with_little_memory() {
    let of = |policy| run(&emulated(), setup(128 * MB, 1, policy));
    let (stock, large, drs) = (of(STOCK), of(LARGE), of(DRS));
    assert!(drs.goodput() > 15.0 * stock.goodput(), "{}", drs.goodput());
    let steady = drs.goodput_between(seconds(2), seconds(11));
    assert!(steady > 92.0, "{steady}");
    assert!(times(&drs, &large) < 1.03, "{}", times(&drs, &large));
    assert!(drs.largest_buffer < 3_000_000, "{}", drs.largest_buffer);
    assert!(drs.efficiency() > 5.0 * large.efficiency());
}

#[test]
fn a_short_transfer_with_drs_is_as_fast_as_with_large_buffers() {
    for megabytes in [1, 2, 4] {
        let of = |policy| run(&emulated(), setup(megabytes * MB, 1, policy));
        let (large, drs) = (of(LARGE), of(DRS));
        assert!(times(&drs, &large) < 1.01, "{megabytes} MB");
        assert!(drs.largest_buffer < 2_500_000, "{}", drs.largest_buffer);
        if megabytes == 1 {
            assert!(drs.largest_buffer < 2_000_000, "{}", drs.largest_buffer);
            assert!(drs.efficiency() > 20.0 * large.efficiency());
        }
    }
}

/// The cost of the loss that ends slow start varies: a window of two bandwidth-delay products leaves
/// little room for new data while the loss is repaired.
#[test]
fn drs_is_about_as_fast_as_large_buffers_at_every_size() {
    for window in [(1, 1), (4, 3)] {
        for queue in [0.5, 1.5] {
            let path = path(mbit(100), 100, queue);
            for megabytes in [8, 16, 32] {
                let drs = run(
                    &path,
                    DrsSetup {
                        window,
                        ..setup(megabytes * MB, 1, DRS)
                    },
                );
                let large = run(&path, setup(megabytes * MB, 1, LARGE));
                let times = times(&drs, &large);
                assert!(times < 1.05, "{megabytes} MB, {window:?}, {queue}: {times}");
            }
        }
    }
}

#[test]
fn drs1_fills_the_path_in_steps_of_a_round_trip() {
    let of = |policy| run(&emulated(), setup(100 * MB, 1, policy));
    let (stock, large, drs1) = (of(STOCK), of(LARGE), of(DRS1));
    assert!(drs1.goodput() > 15.0 * stock.goodput());
    assert!(times(&drs1, &large) < 1.03, "{}", times(&drs1, &large));
    // 64 KB, multiplied by four until the size exceeds the BDP.
    assert_eq!(drs1.largest_buffer, 4 * MB);
}

#[test]
fn drs1_stops_growing_when_the_path_does_not_fill_the_buffer() {
    let sizes = [
        (10, 50, 256 << 10),
        (10, 200, MB),
        (100, 20, MB),
        (1000, 20, 4 * MB),
    ];
    for (rate, rtt, size) in sizes {
        // The queue holds the whole window; it must not be taken for path capacity.
        let run = endless(&path(mbit(rate), rtt, 10.0), DRS1, seconds(5));
        let largest = run.largest_buffer;
        assert!(largest <= size, "{rate} Mbit/s, {rtt} ms: {largest}");
        let share = run.goodput_between(seconds(3), seconds(5)) / rate as f64;
        assert!(share > 0.95, "{rate} Mbit/s, {rtt} ms: {share}");
    }
}

#[test]
fn streams_share_the_buffer_that_the_path_needs() {
    for policy in [DRS, DRS1] {
        let of = |policy| run(&emulated(), setup(64 * MB, 4, policy));
        let (large, sized) = (of(LARGE), of(policy));
        assert!(times(&sized, &large) < 1.03, "{}", times(&sized, &large));
        // Four streams with 16 MB each would have 64 MB.
        assert!(sized.largest_buffer < 6_500_000, "{}", sized.largest_buffer);
    }
}

#[test]
fn drs_fits_its_buffers_to_paths_of_all_sizes() {
    for (rate, rtt) in [
        (10, 50),
        (10, 200),
        (100, 10),
        (100, 200),
        (1000, 10),
        (1000, 50),
    ] {
        let path = path(mbit(rate), rtt, 1.0);
        let (large, drs) = (
            endless(&path, LARGE, seconds(8)),
            endless(&path, DRS, seconds(8)),
        );
        let share = drs.bytes as f64 / large.bytes as f64;
        assert!(share > 0.97, "{rate} Mbit/s, {rtt} ms: {share}");
        let most = (mbit(rate).bytes_in(ms(rtt)) * 9 / 4).max(250_000);
        let largest = drs.largest_buffer;
        assert!(largest < most, "{rate} Mbit/s, {rtt} ms: {largest}");
    }
}

/// Figure 5 of the 2004 paper: 55 Mbit/s compared with 33 Mbit/s for the best static buffer.
#[test]
fn drs_beats_the_best_static_buffer_on_the_live_wan() {
    let path = varying(built_in_trace("drsftp-wan").unwrap());
    let of = |policy| endless(&path, policy, seconds(120));
    let (best, large, drs) = (of(BEST_STATIC), of(LARGE), of(DRS));
    let gain = drs.goodput() / best.goodput();
    assert!(gain > 1.5, "{gain}");
    assert!(drs.goodput() > 0.97 * large.goodput());
    assert!(drs.efficiency() > 5.0 * large.efficiency());
}

/// On this path large buffers give 1.25 times the goodput of the best static buffer.
#[test]
fn drs_is_never_below_the_best_static_buffer_on_the_varying_path() {
    let path = varying(built_in_trace("drsftp-path").unwrap());
    let of = |policy| endless(&path, policy, seconds(400));
    let (best, large, drs) = (of(BEST_STATIC), of(LARGE), of(DRS));
    assert!(drs.goodput() > 0.98 * large.goodput());
    assert!(drs.goodput() > 1.2 * best.goodput());
    assert!(drs.mean_buffer < 1_000_000.0, "{}", drs.mean_buffer);
    // The conditions change every 20 s.
    for interval in 0..20 {
        let (from, to) = (seconds(20 * interval), seconds(20 * interval + 20));
        let (best, drs) = (
            best.goodput_between(from, to),
            drs.goodput_between(from, to),
        );
        assert!(drs > 0.97 * best, "interval {interval}: {drs} and {best}");
    }
}

#[test]
fn a_path_that_becomes_longer_is_filled_again() {
    for (before, after) in [
        ((20, 119), (20, 475)),
        ((20, 119), (20, 300)),
        ((80, 50), (20, 200)),
    ] {
        let point = |at, (rate, rtt)| TracePoint {
            at: seconds(at),
            rate: Some(mbit(rate)),
            rtt: Some(ms(rtt)),
            loss: None,
        };
        let points = vec![point(0, before), point(20, after), point(50, after)];
        let path = one_bottleneck(Conditions {
            queue: Queue::Bytes(mbit(20).bytes_in(ms(150))),
            trace: Some(Arc::new(PathTrace::new(points).unwrap())),
            ..Conditions::default()
        });
        let of = |policy| endless(&path, policy, seconds(50));
        let (large, drs) = (of(LARGE), of(DRS));
        let after = |run: &DrsRun| run.goodput_between(seconds(20), seconds(50));
        let share = after(&drs) / after(&large);
        assert!(share > 0.9, "{share}");
        assert!(drs.largest_buffer < 4 * MB, "{}", drs.largest_buffer);
    }
}

/// Total time and mean buffer of ten transfers at ten times of a varying path.
fn ten_transfers(path: &Scenario, bytes: u64, policy: DrsPolicy) -> (f64, f64) {
    let mut simulation = Simulation::new(path);
    let (mut time, mut buffer_seconds) = (0.0, 0.0);
    for n in 0..10 {
        simulation.run_until(seconds(100 * n));
        let mut transfer = DrsTransfer::begin(&mut simulation, setup(bytes, 1, policy));
        transfer.run_until(&mut simulation, seconds(100 * n + 100));
        let run = transfer.report(&simulation);
        time += run.elapsed.as_secs_f64();
        buffer_seconds += run.mean_buffer * run.elapsed.as_secs_f64();
    }
    (time, buffer_seconds / time)
}

/// The future work of the 2004 paper (section 6): each fixed interval costs either memory, if it is
/// too short, or speed, if it is too long, at least slightly (30 ms). An adaptive interval costs neither.
#[test]
fn an_adaptive_interval_beats_fixed_ones() {
    for name in ["drsftp-path", "drsftp-wan"] {
        let path = varying(built_in_trace(name).unwrap());
        let of = |policy| ten_transfers(&path, MB, policy);
        let (large, _) = of(LARGE);
        let (time, buffer) = of(DRS);
        assert!(time < 1.02 * large, "{name}: {time} and {large}");
        for short in [10, 20] {
            let (_, fixed) = of(DrsPolicy::Drs(DrsInterval::Fixed(ms(short))));
            assert!(
                fixed > 1.2 * buffer,
                "{name}, {short} ms: {fixed} and {buffer}"
            );
        }
        // Intervals in between cost a little of one or the other.
        for middle in [30, 50, 70] {
            let (slower, larger) = of(DrsPolicy::Drs(DrsInterval::Fixed(ms(middle))));
            assert!(
                slower > 1.05 * time || larger > 1.05 * buffer,
                "{name}, {middle} ms: {slower} and {time}, {larger} and {buffer}"
            );
        }
        for long in [100, 200, 500, 1000] {
            let (fixed, _) = of(DrsPolicy::Drs(DrsInterval::Fixed(ms(long))));
            assert!(fixed > 1.08 * time, "{name}, {long} ms: {fixed} and {time}");
        }
    }
}

/// Statistics of four stock flows and of the four streams of a transfer on one path, from 10 s to
/// 70 s.
fn beside_stock(policy: DrsPolicy, seed: u64) -> Vec<FlowStats> {
    // Jitter desynchronizes the hosts: drop-tail queues favour some of synchronized ones.
    let jitter = ms(3);
    let stock = (0..4).map(|n| {
        let mut spec = flow(CongestionAlgorithm::Cubic);
        (spec.tcp.send_buffer, spec.tcp.receive_buffer) = (64 << 10, 64 << 10);
        (spec.start, spec.jitter) = (ms(130 * n), jitter);
        spec
    });
    let mut scenario = path(mbit(20), 50, 1.0);
    scenario.flows = stock.collect::<Vec<FlowSpec>>();
    scenario.seed = seed;
    let mut simulation = Simulation::new(&scenario);
    let sized = DrsSetup {
        jitter,
        ..setup(1 << 40, 4, policy)
    };
    let mut transfer = DrsTransfer::begin(&mut simulation, sized);
    transfer.run_until(&mut simulation, seconds(10));
    let flows: Vec<_> = (0..4).chain(transfer.flows()).collect();
    let before: Vec<FlowStats> = flows.iter().map(|f| simulation.flow(*f)).collect();
    transfer.run_until(&mut simulation, seconds(70));
    let since = flows.iter().zip(&before);
    since.map(|(f, b)| simulation.flow(*f).since(b)).collect()
}

/// Section 3.5: on a full path each of N flows gets 1/N, right-sized or not.
#[test]
fn right_sized_and_stock_flows_share_a_full_path() {
    for policy in [DRS, DRS1] {
        for seed in 1..=3 {
            let flows = beside_stock(policy, seed);
            let index = fairness(&flows);
            assert!(index > 0.95, "{policy:?}, seed {seed}: {index}");
            let full = megabits(&flows);
            assert!(full > 18.0, "{policy:?}, seed {seed}: {full} Mbit/s");
        }
    }
}

/// The estimates of the 2004 paper contain the queue: the buffer fills it, and stays as large as the longest one.
#[test]
fn the_published_estimates_take_more_memory_for_the_same_goodput() {
    let path = path(mbit(100), 100, 4.0);
    let of = |policy| endless(&path, policy, seconds(60));
    let (published, drs) = (of(DRS2004), of(DRS));
    assert!(
        drs.goodput() > 0.97 * published.goodput(),
        "{published:?} {drs:?}"
    );
    let memory = published.mean_buffer / drs.mean_buffer;
    assert!(memory > 1.5, "{memory}");
}
