//! `auto` in a closed loop over simulated paths: its effect on the queue, its reaction to losses, its
//! fairness to other flows, and its reaction to changes of the path.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use std::sync::Arc;
use std::time::Duration;

use link::trace::{PathTrace, TracePoint};
use link::{Conditions, Loss, Queue};
use network::{flow, link, mbit, ms, seconds};
use sim::auto::{AutoTransfer, stream_limits};
use sim::sessions::{SimSession, run_sessions};
use sim::tcp::CongestionAlgorithm;
use sim::world::{Scenario, Simulation};
use tune::Prior;

/// A path of 100 Mbit/s and 24 ms RTT with a queue of 1000 packets.
fn deep_queue_path() -> Conditions {
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

/// A transfer that does not end during a test.
fn endless_transfer(simulation: &mut Simulation, streams: u32) -> AutoTransfer {
    AutoTransfer::begin(
        simulation,
        stream_limits(64),
        Prior::with_streams(streams),
        1 << 40,
        flow(CongestionAlgorithm::Cubic),
    )
}

/// Runs until `until`; returns the goodput of each transfer, Mbit/s, and the mean queueing delay.
fn measure(
    simulation: &mut Simulation,
    transfers: &mut [AutoTransfer],
    until: Duration,
) -> (Vec<f64>, Duration) {
    let from = simulation.now();
    let before: Vec<u64> = transfers.iter().map(|m| m.delivered(simulation)).collect();
    let queueing = simulation.queueing_delay();
    run_sessions(simulation, transfers, until);
    let time = (until - from).as_secs_f64();
    let rates = transfers.iter().zip(before).map(|(transfer, before)| {
        (transfer.delivered(simulation) - before) as f64 * 8.0 / 1e6 / time
    });
    (
        rates.collect(),
        simulation.queueing_delay().since(&queueing).mean(),
    )
}

#[test]
fn auto_fills_the_path_with_a_short_queue() {
    for streams in [1, 4] {
        let mut simulation = simulation(deep_queue_path());
        let mut transfers = [endless_transfer(&mut simulation, streams)];
        run_sessions(&mut simulation, &mut transfers, seconds(10));
        let (rates, wait) = measure(&mut simulation, &mut transfers, seconds(40));
        assert!(rates[0] >= 97.0, "{rates:?}");
        assert!(wait <= ms(28), "{wait:?}");
        assert!(transfers[0].open() <= 2);
    }
}

fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn transfers_share_a_path_fairly() {
    for (count, gap) in [(2, 0), (2, 10), (4, 3)] {
        let mut simulation = simulation(deep_queue_path());
        let mut transfers = Vec::new();
        for n in 0..count {
            run_sessions(
                &mut simulation,
                &mut transfers,
                seconds(n * gap) + ms(130 * n),
            );
            transfers.push(endless_transfer(&mut simulation, 2));
        }
        run_sessions(&mut simulation, &mut transfers, seconds(40));
        let (rates, _) = measure(&mut simulation, &mut transfers, seconds(110));
        assert!(fairness(&rates) >= 0.95, "{rates:?}");
        assert!(rates.iter().sum::<f64>() >= 96.0, "{rates:?}");
    }
}

#[test]
fn auto_shares_a_path_fairly_with_stock_flows() {
    for stock in [1, 4] {
        let mut simulation = simulation(deep_queue_path());
        let flows: Vec<_> = (0..stock)
            .map(|_| simulation.add_flow(flow(CongestionAlgorithm::Cubic)))
            .collect();
        simulation.run_until(seconds(5));
        let mut transfers = [endless_transfer(&mut simulation, 4)];
        run_sessions(&mut simulation, &mut transfers, seconds(40));
        let before: Vec<u64> = flows
            .iter()
            .map(|f| simulation.flow(*f).delivered_bytes)
            .collect();
        let (mut rates, _) = measure(&mut simulation, &mut transfers, seconds(120));
        rates.extend(flows.iter().zip(before).map(|(f, before)| {
            (simulation.flow(*f).delivered_bytes - before) as f64 * 8.0 / 1e6 / 80.0
        }));
        assert!(fairness(&rates) >= 0.85, "{rates:?}");
    }
}

#[test]
fn auto_opens_streams_on_a_lossy_path() {
    for loss in [0.0005, 0.01] {
        let lossy = Conditions {
            loss: Loss::Independent(loss),
            ..link(Some(mbit(100)), ms(25), Queue::Packets(300))
        };
        let mut simulation = simulation(lossy);
        let mut transfers = [endless_transfer(&mut simulation, 4)];
        run_sessions(&mut simulation, &mut transfers, seconds(20));
        let (rates, _) = measure(&mut simulation, &mut transfers, seconds(40));
        assert!(rates[0] >= 88.0, "{loss}: {rates:?}");
        assert!(transfers[0].open() > 4);
    }
}

#[test]
fn auto_opens_enough_streams_for_small_windows() {
    let mut simulation = simulation(link(Some(mbit(100)), ms(50), Queue::Packets(200)));
    let mut spec = flow(CongestionAlgorithm::Cubic);
    // Somewhat less than half of the bandwidth-delay product.
    spec.tcp.receive_buffer = 600_000;
    let mut transfers = [AutoTransfer::begin(
        &mut simulation,
        stream_limits(64),
        Prior::with_streams(1),
        1 << 40,
        spec,
    )];
    run_sessions(&mut simulation, &mut transfers, seconds(10));
    let (rates, _) = measure(&mut simulation, &mut transfers, seconds(30));
    assert!(rates[0] >= 93.0, "{rates:?}");
    assert!(
        (2..=4).contains(&transfers[0].open()),
        "{:#?}",
        transfers[0].decisions()
    );
}

#[test]
fn transfers_with_small_windows_share_a_path_fairly() {
    // Two of these windows hold less than half of what is on the way when nothing queues.
    let mut spec = flow(CongestionAlgorithm::NewReno);
    spec.tcp.receive_buffer = 64 << 10;
    spec.jitter = Duration::from_micros(120);
    for (count, most_streams) in [(1, 6), (2, 20), (4, 24), (8, 40)] {
        let mut simulation = simulation(deep_queue_path());
        let mut transfers = Vec::new();
        for n in 0..count {
            run_sessions(&mut simulation, &mut transfers, seconds(5 * n));
            transfers.push(AutoTransfer::begin(
                &mut simulation,
                stream_limits(128),
                Prior::with_streams(16),
                1 << 40,
                spec,
            ));
        }
        run_sessions(&mut simulation, &mut transfers, seconds(80));
        let (rates, _) = measure(&mut simulation, &mut transfers, seconds(200));
        assert!(fairness(&rates) >= 0.9, "{rates:?}");
        // Two of them leave up to a ninth of the path empty each time after they have given way.
        assert!(rates.iter().sum::<f64>() >= 0.88 * 97.3, "{rates:?}");
        let open: usize = transfers.iter().map(AutoTransfer::open).sum();
        assert!(open <= most_streams, "{count} transfers: {open} streams");
    }
}

/// A path whose conditions change after 30 s.
fn path_with_a_step(before: TracePoint, after: TracePoint) -> Conditions {
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
        ..deep_queue_path()
    }
}

#[test]
fn auto_adapts_to_changes_of_the_path() {
    let point = |rate: u64, rtt: u64, loss: f64| TracePoint {
        at: Duration::ZERO,
        rate: Some(mbit(rate)),
        rtt: Some(ms(rtt)),
        loss: Some(loss),
    };
    for (name, before, after, best_goodput) in [
        ("slower", point(100, 24, 0.0), point(25, 24, 0.0), 24.3),
        ("faster", point(25, 24, 0.0), point(100, 24, 0.0), 97.3),
        ("longer", point(100, 24, 0.0), point(100, 96, 0.0), 97.3),
        ("lossy", point(100, 24, 0.0), point(100, 24, 0.01), 96.3),
    ] {
        let mut simulation = simulation(path_with_a_step(before, after));
        let mut transfers = [endless_transfer(&mut simulation, 2)];
        run_sessions(&mut simulation, &mut transfers, seconds(45));
        let (rates, _) = measure(&mut simulation, &mut transfers, seconds(75));
        assert!(rates[0] >= 0.9 * best_goodput, "{name}: {rates:?}");
    }
}
