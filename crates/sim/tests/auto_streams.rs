//! `auto` in a closed loop over simulated paths: what it does to the queue, with losses, beside
//! others, and when the path changes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mover;
mod network;

use std::sync::Arc;
use std::time::Duration;

use mover::{Mover, limits, run};
use network::{flow, link, mbit, ms, seconds};
use sim::link::{Conditions, Loss, Queue};
use sim::tcp::Congestion;
use sim::trace::{Point, Trace};
use sim::world::{Scenario, Simulation};

/// 100 Mbit/s over 24 ms with a queue of 1000 packets.
fn deep() -> Conditions {
    link(Some(mbit(100)), ms(12), Queue::Packets(1000))
}

fn simulation(forward: Conditions) -> Simulation {
    Simulation::new(&Scenario {
        reverse: Conditions {
            rate: None,
            queue: Queue::Unlimited,
            loss: Loss::Never,
            ..forward.clone()
        },
        forward,
        flows: Vec::new(),
        cross: Vec::new(),
        seed: 1,
    })
}

/// A transfer that does not end here.
fn endless(simulation: &mut Simulation, streams: u32) -> Mover {
    Mover::begin(
        simulation,
        limits(64),
        streams,
        1 << 40,
        flow(Congestion::Cubic),
    )
}

/// Payload of each, Mbit/s, and the mean wait at the bottleneck, from now until `until`.
fn measure(
    simulation: &mut Simulation,
    movers: &mut [Mover],
    until: Duration,
) -> (Vec<f64>, Duration) {
    let from = simulation.now();
    let before: Vec<u64> = movers.iter().map(|m| m.delivered(simulation)).collect();
    let queueing = simulation.queueing();
    run(simulation, movers, until);
    let time = (until - from).as_secs_f64();
    let rates = movers
        .iter()
        .zip(before)
        .map(|(mover, before)| (mover.delivered(simulation) - before) as f64 * 8.0 / 1e6 / time);
    (
        rates.collect(),
        simulation.queueing().since(&queueing).mean(),
    )
}

fn tell(movers: &[Mover]) {
    for mover in movers {
        for d in &mover.decisions {
            println!(
                "{:7.2} {:?} {} [{}]",
                d.at.as_secs_f64(),
                d.step,
                d.reason,
                d.limiter
            );
        }
        println!("{:?}", mover.auto().verdict());
    }
}

#[test]
fn a_full_path_keeps_its_rate_and_loses_its_queue() {
    for streams in [1, 4] {
        let mut simulation = simulation(deep());
        let mut movers = [endless(&mut simulation, streams)];
        run(&mut simulation, &mut movers, seconds(10));
        let (rates, wait) = measure(&mut simulation, &mut movers, seconds(40));
        tell(&movers);
        println!("{rates:?} {wait:?} {}", movers[0].open());
        assert!(rates[0] >= 97.0, "{rates:?}");
        assert!(wait <= ms(28), "{wait:?}");
        assert!(movers[0].open() <= 2);
    }
}
