//! Goodput of parallel flows for various numbers of flows, losses and buffers, as a table that is
//! compared with the committed one. A change that moves a number must be explained.
//!
//!     UPDATE_SNAPSHOTS=1 cargo test -p sim --test netsim

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "the committed table is written anew when asked for"
)]

mod network;

use std::fmt::Write;

use link::Loss;
use network::{fairness, flow, megabits, ms, seconds, stats_between, ten_megabit};
use sim::tcp::CongestionAlgorithm;
use sim::world::{FlowSpec, Simulation};

const COMMITTED: &str = include_str!("snapshots/netsim.txt");
const SEED: u64 = 1;
const WINDOWS: [(&str, u64); 2] = [("16 KiB", 16 << 10), ("1 MiB", 1 << 20)];
const LOSSES: [f64; 4] = [0.0, 0.0001, 0.001, 0.01];
const FLOWS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Simulates `count` flows that start 50 ms apart, at 10 Mbit/s and 100 ms with a queue of 83 packets.
fn simulate(congestion: CongestionAlgorithm, count: u64, window: u64, loss: f64) -> Simulation {
    let flows = (0..count).map(|n| {
        let mut spec = flow(congestion);
        spec.tcp.receive_buffer = window;
        FlowSpec {
            start: ms(50 * n),
            jitter: ms(1),
            ..spec
        }
    });
    let mut scenario = ten_megabit(83, flows.collect());
    scenario.seed = SEED;
    if loss > 0.0 {
        scenario.forward.loss = Loss::Independent(loss);
    }
    Simulation::new(&scenario)
}

fn table() -> String {
    let mut text = format!(
        "10 Mbit/s, round trip 100 ms, queue 83 packets (1 BDP), seed {SEED}; from 10 s to 30 s.\n\
         goodput of all flows, Mbit/s (at most 9.73):\n"
    );
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        for (name, window) in WINDOWS {
            let _ = write!(text, "\n{:<22}", format!("{congestion:?}, {name}"));
            for count in FLOWS {
                let _ = write!(text, "{count:>7}");
            }
            for loss in LOSSES {
                let _ = write!(text, "\n  loss {:<15}", format!("{} %", loss * 100.0));
                for count in FLOWS {
                    let mut simulation = simulate(congestion, count, window, loss);
                    let flows = stats_between(&mut simulation, seconds(10), seconds(30));
                    let _ = write!(text, "{:>7.2}", megabits(&flows));
                }
            }
            text.push('\n');
        }
    }
    text.push_str("\nwithout loss and with 1 MiB:\n\n");
    text.push_str(
        "flows             aggregate  min    max  fairness  drops  timeouts  mean RTT, ms\n",
    );
    for congestion in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
        for count in FLOWS {
            text.push_str(&line(congestion, count));
        }
    }
    text
}

fn line(congestion: CongestionAlgorithm, count: u64) -> String {
    let mut simulation = simulate(congestion, count, 1 << 20, 0.0);
    let flows = stats_between(&mut simulation, seconds(10), seconds(30));
    let each = || flows.iter().map(|f| f.goodput() / 1e6);
    let rtt: f64 = flows.iter().map(|f| f.sender.rtt_total.as_secs_f64()).sum();
    let samples: u64 = flows.iter().map(|f| f.sender.rtt_samples).sum();
    format!(
        "{:<8} {count:>3} {:>13.2} {:>6.2} {:>6.2} {:>9.3} {:>6} {:>9} {:>13.1}\n",
        format!("{congestion:?}"),
        megabits(&flows),
        each().fold(f64::INFINITY, f64::min),
        each().fold(0.0, f64::max),
        fairness(&flows),
        flows.iter().map(|f| f.drops).sum::<u64>(),
        flows.iter().map(|f| f.sender.timeouts).sum::<u64>(),
        1e3 * rtt / samples as f64,
    )
}

#[test]
fn the_goodput_table_is_unchanged() {
    let now = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/netsim.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    for (committed, now) in COMMITTED.lines().zip(now.lines()) {
        assert_eq!(committed, now);
    }
    assert_eq!(COMMITTED, now);
}
