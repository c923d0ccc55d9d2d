//! The receive window that follows the data: right-sizing in the kernel as published in 2003, and Linux's autotuning.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use link::Queue;
use network::{flow, link, mbit, ms, seconds};
use sim::tcp::{CongestionAlgorithm, WindowGrowth};
use sim::world::{FlowSpec, FlowStats, Scenario, Simulation, TrafficSource};
use units::Rate;

/// A flow of `bytes` with a window that grows to 16 MiB, or is all of 32 KiB.
fn sending(growth: WindowGrowth, bytes: u64) -> FlowSpec {
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.window_growth = growth;
    spec.tcp.initial_window = 2;
    spec.tcp.handshake = true;
    spec.tcp.receive_buffer = match growth {
        WindowGrowth::Fixed => 32 << 10,
        WindowGrowth::RightSizing | WindowGrowth::LinuxAutotuning => 16 << 20,
    };
    spec.source = TrafficSource::Bytes(bytes);
    spec
}

fn over(rate: Rate, rtt: u64, queue: u32, flow: FlowSpec) -> Simulation {
    Simulation::new(&Scenario {
        forward: link(Some(rate), ms(rtt / 2), Queue::Packets(queue)),
        reverse: link(Some(rate), ms(rtt / 2), Queue::Unlimited),
        flows: vec![flow],
        cross_traffic: Vec::new(),
        seed: 1,
    })
}

/// The flow at its end.
fn finished(mut simulation: Simulation) -> FlowStats {
    let done = simulation.run_until_done(seconds(3600), |s| s.flow(0).finished.is_some());
    assert!(done);
    simulation.flow(0)
}

#[test]
fn right_sizing_is_no_limit_over_a_wan() {
    let took = |growth| {
        let stats = finished(over(mbit(100), 100, 2000, sending(growth, 20_000_000)));
        stats.finished.unwrap().as_secs_f64()
    };
    let fixed = took(WindowGrowth::Fixed);
    // 22 segments a round trip.
    assert!((58.0..70.0).contains(&fixed), "{fixed}");
    let drs = took(WindowGrowth::RightSizing);
    assert!(fixed / drs > 7.0, "{fixed} {drs}");
    let linux = took(WindowGrowth::LinuxAutotuning);
    assert!((linux / drs - 1.0).abs() < 0.1, "{linux} {drs}");
}

/// Figure 7: the window is never below the flight, at most about twice the largest one, and hardly ever the limit.
#[test]
fn the_right_sized_window_is_above_the_flight() {
    let spec = sending(WindowGrowth::RightSizing, 60_000_000);
    let mut simulation = over(mbit(100), 100, 100, spec);
    let mut largest = 0;
    for tenth in 1..50 {
        simulation.run_until(ms(100 * tenth));
        let stats = simulation.flow(0);
        assert!(stats.receive_window >= stats.in_flight, "{stats:?}");
        largest = largest.max(stats.in_flight);
    }
    let stats = simulation.flow(0);
    // The largest flight is that of the first loss, which counts what waits behind the gap.
    let ratio = stats.receive_window as f64 / largest as f64;
    assert!((1.0..2.1).contains(&ratio), "{ratio}");
    let waits = stats.sender.limited_times;
    assert!(waits.rwnd_limited < waits.busy / 5, "{waits:?}");
}

/// Figures 8 to 10: over a modem right-sizing keeps the window near twice the bandwidth-delay product, and the queue does
/// not overflow. Linux counts the queue into the round trip, and its window grows with it.
#[test]
fn right_sizing_does_not_overflow_the_queue_of_a_modem() {
    let modem = Rate::bits_per_second(56_000);
    let ends = |growth| finished(over(modem, 200, 15, sending(growth, 300_000)));
    let (fixed, drs) = (ends(WindowGrowth::Fixed), ends(WindowGrowth::RightSizing));
    assert!(fixed.sender.retransmits > 0, "{fixed:?}");
    assert_eq!(drs.sender.retransmits, 0, "{drs:?}");
    assert!(drs.receive_window < 32 << 10, "{drs:?}");
    // As fast, as in the paper.
    let seconds = |stats: &FlowStats| stats.finished.unwrap().as_secs_f64();
    assert!(seconds(&drs) < 1.1 * seconds(&fixed), "{drs:?} {fixed:?}");
    let linux = ends(WindowGrowth::LinuxAutotuning);
    assert!(linux.receive_window > 32 << 10, "{linux:?}");
    assert!(
        linux.sender.retransmits >= fixed.sender.retransmits,
        "{linux:?}"
    );
}

#[test]
fn a_larger_buffer_only_lifts_the_limit_of_a_growing_window() {
    let spec = sending(WindowGrowth::RightSizing, 60_000_000);
    let mut simulation = over(mbit(100), 100, 2000, spec);
    simulation.set_buffers(0, 1 << 40, 64 << 10);
    simulation.run_until(seconds(3));
    let limited = simulation.flow(0).receive_window;
    assert_eq!(limited, (64 << 10) / 1460 * 1460);
    simulation.set_buffers(0, 1 << 40, 16 << 20);
    assert_eq!(simulation.flow(0).receive_window, limited);
    simulation.run_until(seconds(6));
    assert!(simulation.flow(0).receive_window > 4 * limited);
}
