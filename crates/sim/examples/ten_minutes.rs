//! Measures the speed of the simulator: ten simulated minutes of 32 flows at 100 Mbit/s.
//!
//!     cargo run --release -p sim --example ten_minutes

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a stopwatch for people"
)]

use std::time::{Duration, Instant};

use link::{Conditions, Queue};
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::world::{AccessLink, FlowSpec, Scenario, Simulation};
use units::Rate;

const FLOWS: usize = 32;
const MINUTES: u64 = 10;

fn main() {
    let bottleneck = Conditions {
        rate: Some(Rate::bits_per_second(100_000_000)),
        delay: Duration::from_millis(10),
        queue: Queue::Packets(1000),
        ..Conditions::default()
    };
    let access = AccessLink {
        rate: Some(Rate::bits_per_second(1_000_000_000)),
        delay: Duration::from_millis(1),
        shared: false,
    };
    let flow = FlowSpec {
        tcp: TcpConfig {
            congestion: CongestionAlgorithm::NewReno,
            initial_window: 2,
            ..TcpConfig::default()
        },
        sender_access: access,
        receiver_access: access,
        ..FlowSpec::default()
    };
    let mut simulation = Simulation::new(&Scenario {
        forward: bottleneck.clone(),
        reverse: bottleneck,
        flows: vec![flow; FLOWS],
        cross_traffic: Vec::new(),
        seed: 1,
    });
    let stopwatch = Instant::now();
    simulation.run_until(Duration::from_secs(MINUTES * 60));
    let seconds = stopwatch.elapsed().as_secs_f64();
    let bits: f64 = (0..FLOWS).map(|f| simulation.flow(f).goodput()).sum();
    let events = simulation.event_count();
    println!(
        "{MINUTES} minutes of {FLOWS} flows, {:.1} Mbit/s: {seconds:.2} s ({events} events, {:.1} million a second)",
        bits / 1e6,
        events as f64 / seconds / 1e6,
    );
}
