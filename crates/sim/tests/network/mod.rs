//! Small networks for tests.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::time::Duration;

use link::{Conditions, Queue};
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::world::{FlowSpec, FlowStats, Scenario, Simulation};
use units::Rate;

pub(crate) const MSS: u64 = 1460;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn mbit(n: u64) -> Rate {
    Rate::bits_per_second(n * 1_000_000)
}

/// One direction without impairments.
pub(crate) fn link(rate: Option<Rate>, delay: Duration, queue: Queue) -> Conditions {
    Conditions {
        rate,
        delay,
        queue,
        ..Conditions::default()
    }
}

/// 10 Mbit/s with an RTT of 100 ms: the BDP is 83 packets. Acknowledgements have no bottleneck.
pub(crate) fn ten_megabit(queue: u32, flows: Vec<FlowSpec>) -> Scenario {
    Scenario {
        forward: link(Some(mbit(10)), ms(50), Queue::Packets(queue)),
        reverse: link(None, ms(50), Queue::Unlimited),
        flows,
        cross_traffic: Vec::new(),
        seed: 1,
    }
}

pub(crate) fn flow(congestion: CongestionAlgorithm) -> FlowSpec {
    FlowSpec {
        tcp: TcpConfig {
            congestion,
            ..TcpConfig::default()
        },
        ..FlowSpec::default()
    }
}

/// Statistics of each flow between `from` and `to`.
pub(crate) fn stats_between(
    simulation: &mut Simulation,
    from: Duration,
    to: Duration,
) -> Vec<FlowStats> {
    simulation.run_until(from);
    let flows = 0..simulation.flow_count();
    let before: Vec<FlowStats> = flows.map(|f| simulation.flow(f)).collect();
    simulation.run_until(to);
    let since = before.iter().enumerate();
    since.map(|(f, b)| simulation.flow(f).since(b)).collect()
}

pub(crate) fn megabits(flows: &[FlowStats]) -> f64 {
    flows.iter().map(FlowStats::goodput).sum::<f64>() / 1e6
}

/// Jain's fairness index, 1/N..=1.
pub(crate) fn fairness(flows: &[FlowStats]) -> f64 {
    let sum: f64 = flows.iter().map(FlowStats::goodput).sum();
    let squares: f64 = flows.iter().map(|f| f.goodput().powi(2)).sum();
    sum * sum / (flows.len() as f64 * squares)
}
