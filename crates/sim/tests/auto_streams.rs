//! `auto` in a closed loop over simulated paths: what it does to the queue, with losses, beside
//! others, and when the path changes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auto_transfer;
mod network;

use std::sync::Arc;
use std::time::Duration;

use auto_transfer::{AutoTransfer, run, stream_limits};
use network::{flow, link, mbit, ms, seconds};
use sim::link::{Conditions, Loss, Queue};
use sim::tcp::CongestionAlgorithm;
use sim::trace::{PathTrace, TracePoint};
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
        cross_traffic: Vec::new(),
        seed: 1,
    })
}

/// A transfer that does not end here.
fn endless(simulation: &mut Simulation, streams: u32) -> AutoTransfer {
    AutoTransfer::begin(
        simulation,
        stream_limits(64),
        streams,
        1 << 40,
        flow(CongestionAlgorithm::Cubic),
    )
}

/// Payload of each, Mbit/s, and the mean wait at the bottleneck, from now until `until`.
fn measure(
    simulation: &mut Simulation,
    movers: &mut [AutoTransfer],
    until: Duration,
) -> (Vec<f64>, Duration) {
    let from = simulation.now();
    let before: Vec<u64> = movers.iter().map(|m| m.delivered(simulation)).collect();
    let queueing = simulation.queueing_delay();
    run(simulation, movers, until);
    let time = (until - from).as_secs_f64();
    let rates = movers
        .iter()
        .zip(before)
        .map(|(mover, before)| (mover.delivered(simulation) - before) as f64 * 8.0 / 1e6 / time);
    (
        rates.collect(),
        simulation.queueing_delay().since(&queueing).mean(),
    )
}

#[test]
fn a_full_path_keeps_its_rate_and_loses_its_queue() {
    for streams in [1, 4] {
        let mut simulation = simulation(deep());
        let mut movers = [endless(&mut simulation, streams)];
        run(&mut simulation, &mut movers, seconds(10));
        let (rates, wait) = measure(&mut simulation, &mut movers, seconds(40));
        assert!(rates[0] >= 97.0, "{rates:?}");
        assert!(wait <= ms(28), "{wait:?}");
        assert!(movers[0].open() <= 2);
    }
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn transfers_that_share_a_path_share_it() {
    for (count, gap) in [(2, 0), (2, 10), (4, 3)] {
        let mut simulation = simulation(deep());
        let mut movers = Vec::new();
        for n in 0..count {
            run(&mut simulation, &mut movers, seconds(n * gap) + ms(130 * n));
            movers.push(endless(&mut simulation, 2));
        }
        run(&mut simulation, &mut movers, seconds(40));
        let (rates, _) = measure(&mut simulation, &mut movers, seconds(110));
        assert!(jain(&rates) >= 0.95, "{rates:?}");
        assert!(rates.iter().sum::<f64>() >= 96.0, "{rates:?}");
    }
}

#[test]
fn beside_stock_flows_it_takes_a_share() {
    for stock in [1, 4] {
        let mut simulation = simulation(deep());
        let flows: Vec<_> = (0..stock)
            .map(|_| simulation.add_flow(flow(CongestionAlgorithm::Cubic)))
            .collect();
        run(&mut simulation, &mut [], seconds(5));
        let mut movers = [endless(&mut simulation, 4)];
        run(&mut simulation, &mut movers, seconds(40));
        let before: Vec<u64> = flows
            .iter()
            .map(|f| simulation.flow(*f).delivered_bytes)
            .collect();
        let (mut rates, _) = measure(&mut simulation, &mut movers, seconds(120));
        rates.extend(flows.iter().zip(before).map(|(f, before)| {
            (simulation.flow(*f).delivered_bytes - before) as f64 * 8.0 / 1e6 / 80.0
        }));
        assert!(jain(&rates) >= 0.85, "{rates:?}");
    }
}

#[test]
fn losses_are_answered_with_streams() {
    for loss in [0.0005, 0.01] {
        let lossy = Conditions {
            loss: Loss::Independent(loss),
            ..link(Some(mbit(100)), ms(25), Queue::Packets(300))
        };
        let mut simulation = simulation(lossy);
        let mut movers = [endless(&mut simulation, 4)];
        run(&mut simulation, &mut movers, seconds(20));
        let (rates, _) = measure(&mut simulation, &mut movers, seconds(40));
        assert!(rates[0] >= 88.0, "{loss}: {rates:?}");
        assert!(movers[0].open() > 4);
    }
}

#[test]
fn windows_are_answered_with_as_many_streams_as_it_takes() {
    let mut simulation = simulation(link(Some(mbit(100)), ms(50), Queue::Packets(200)));
    let mut spec = flow(CongestionAlgorithm::Cubic);
    // Half of the bandwidth-delay product, somewhat less.
    spec.tcp.receive_buffer = 600_000;
    let mut movers = [AutoTransfer::begin(
        &mut simulation,
        stream_limits(64),
        1,
        1 << 40,
        spec,
    )];
    run(&mut simulation, &mut movers, seconds(10));
    let (rates, _) = measure(&mut simulation, &mut movers, seconds(30));
    assert!(rates[0] >= 93.0, "{rates:?}");
    assert!(
        (2..=4).contains(&movers[0].open()),
        "{:#?}",
        movers[0].decisions
    );
}

/// A path that is one thing for 30 s and another from then on.
fn step(before: TracePoint, after: TracePoint) -> Conditions {
    let points = vec![
        before,
        TracePoint {
            at: seconds(30),
            ..after
        },
        TracePoint {
            at: seconds(300),
            ..after
        },
    ];
    Conditions {
        trace: Some(Arc::new(PathTrace::new(points).unwrap())),
        ..deep()
    }
}

#[test]
fn steps_are_answered() {
    let point = |rate: u64, rtt: u64, loss: f64| TracePoint {
        at: Duration::ZERO,
        rate: Some(mbit(rate)),
        rtt: Some(ms(rtt)),
        loss: Some(loss),
    };
    for (name, before, after, oracle) in [
        ("slower", point(100, 24, 0.0), point(25, 24, 0.0), 24.3),
        ("faster", point(25, 24, 0.0), point(100, 24, 0.0), 97.3),
        ("longer", point(100, 24, 0.0), point(100, 96, 0.0), 97.3),
        ("lossy", point(100, 24, 0.0), point(100, 24, 0.01), 96.3),
    ] {
        let mut simulation = simulation(step(before, after));
        let mut movers = [endless(&mut simulation, 2)];
        run(&mut simulation, &mut movers, seconds(45));
        let (rates, _) = measure(&mut simulation, &mut movers, seconds(75));
        assert!(rates[0] >= 0.9 * oracle, "{name}: {rates:?}");
    }
}
