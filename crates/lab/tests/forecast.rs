//! The promise of the forecast on the paths of the lab: simulated transfers that `auto` tunes.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the parts that another test uses")]
#[path = "../../sim/tests/auto_transfer/mod.rs"]
mod auto_transfer;

use std::time::Duration;

use auto_transfer::{AutoTransfer, run, stream_limits};
use link::{Conditions, Loss, Queue};
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::world::{CrossTraffic, FlowSpec, Scenario, Simulation};
use tune::forecast::{Forecaster, ProgressSample};
use tune::streams::prior_from_rtt;
use units::Rate;

/// Time between two samples.
const TICK: Duration = Duration::from_millis(200);
/// Rate of the bottleneck, bit/s.
const RATE: u64 = 20_000_000;

#[derive(Debug, Clone, Copy)]
struct Path {
    rtt_ms: u64,
    loss: f64,
    /// Queue, BDPs.
    queue: f64,
    cross_flows: usize,
    /// Rate of bursts, as a part of the link's.
    bursts: f64,
}

fn flow() -> FlowSpec {
    FlowSpec {
        tcp: TcpConfig {
            congestion: CongestionAlgorithm::Cubic,
            ..TcpConfig::default()
        },
        ..FlowSpec::default()
    }
}

/// Time and amount of each sample.
fn transfer(path: Path, bytes: u64, seed: u64) -> Vec<(Duration, u64)> {
    let delay = Duration::from_micros(path.rtt_ms * 500);
    let bdp = RATE as f64 / 8.0 / 1500.0 * path.rtt_ms as f64 / 1e3;
    let bursts = CrossTraffic {
        rate: Rate::bits_per_second((path.bursts * RATE as f64) as u64),
        packet_bytes: 1500,
        start: Duration::ZERO,
        stop: None,
        bursts: Some((Duration::from_secs(3), Duration::from_secs(3))),
    };
    let mut simulation = Simulation::new(&Scenario {
        forward: Conditions {
            rate: Some(Rate::bits_per_second(RATE)),
            delay,
            queue: Queue::Packets((bdp * path.queue).max(20.0) as u32),
            loss: Loss::Independent(path.loss),
            ..Conditions::default()
        },
        reverse: Conditions {
            delay,
            ..Conditions::default()
        },
        flows: vec![flow(); path.cross_flows],
        cross_traffic: if path.bursts > 0.0 {
            vec![bursts]
        } else {
            Vec::new()
        },
        seed,
    });
    let prior = prior_from_rtt(delay * 2, Some(bytes), 256 << 10, 64);
    let mut transfers = [AutoTransfer::begin(
        &mut simulation,
        stream_limits(64),
        prior,
        bytes,
        flow(),
    )];
    let mut samples = Vec::new();
    while transfers[0].delivered(&simulation) < bytes && simulation.now() < Duration::from_secs(900)
    {
        let until = simulation.now() + TICK;
        run(&mut simulation, &mut transfers, until);
        samples.push((until, transfers[0].delivered(&simulation)));
    }
    samples
}

#[test]
fn print_paths() {
    let path = |rtt_ms, loss, queue, cross_flows, bursts| Path {
        rtt_ms,
        loss,
        queue,
        cross_flows,
        bursts,
    };
    let all = [
        path(20, 0.0, 1.0, 0, 0.0),
        path(100, 0.0, 1.0, 0, 0.0),
        path(100, 0.0, 0.2, 0, 0.0),
        path(200, 0.0, 1.0, 0, 0.0),
        path(100, 1e-4, 1.0, 0, 0.0),
        path(100, 1e-3, 1.0, 0, 0.0),
        path(200, 1e-3, 0.5, 0, 0.0),
        path(100, 1e-2, 1.0, 0, 0.0),
        path(50, 0.0, 1.0, 1, 0.0),
        path(100, 0.0, 1.0, 3, 0.0),
        path(100, 0.0, 1.0, 0, 0.4),
        path(50, 1e-4, 1.0, 1, 0.3),
    ];
    let (mut early, mut late) = ((0, 0), (0, 0));
    for path in all {
        let mut line = String::new();
        let mut held_all = (0, 0, 0, 0);
        let mut widths = Vec::new();
        for seed in 1..=3 {
            for bytes in [100_000_000_u64, 300_000_000] {
                let samples = transfer(path, bytes, seed);
                let end = samples.last().unwrap().0;
                let mut forecaster = Forecaster::default();
                for (at, moved) in &samples {
                    forecaster.add(ProgressSample {
                        at: *at,
                        bytes_moved: *moved,
                        bytes_left: bytes - moved,
                        ..ProgressSample::default()
                    });
                    let left = end - *at;
                    if left < Duration::from_secs(3) || at.as_millis() % 2000 != 0 {
                        continue;
                    }
                    let Some(f) = forecaster.forecast() else {
                        continue;
                    };
                    let held = u32::from(f.earliest <= left && left <= f.latest);
                    if at.as_secs() < 30 {
                        held_all.0 += held;
                        held_all.1 += 1;
                    } else {
                        held_all.2 += held;
                        held_all.3 += 1;
                        widths.push(
                            (f.latest - f.earliest).as_secs_f64() / 2.0 / f.expected.as_secs_f64(),
                        );
                    }
                }
                line += &format!(" {:.0}", end.as_secs_f64());
            }
        }
        early = (early.0 + held_all.0, early.1 + held_all.1);
        late = (late.0 + held_all.2, late.1 + held_all.3);
        widths.sort_by(f64::total_cmp);
        let w = |q: f64| {
            widths
                .get((widths.len() as f64 * q) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        println!(
            "{path:?} early {:.2} late {:.2} n {} widths {:.3} {:.3} {:.3} ends{line}",
            f64::from(held_all.0) / f64::from(held_all.1),
            f64::from(held_all.2) / f64::from(held_all.3.max(1)),
            held_all.3,
            w(0.1),
            w(0.5),
            w(0.9)
        );
    }
    println!("early {early:?} late {late:?}");
}
