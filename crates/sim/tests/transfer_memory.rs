//! Transfers that begin with what an earlier one taught: over the same path, and over one that has become
//! another.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use std::time::Duration;

use link::{Conditions, Loss, Queue};
use network::{flow, link, mbit, ms};
use sim::auto::{AutoTransfer, stream_limits};
use sim::sessions::{SimSession, run_sessions};
use sim::tcp::CongestionAlgorithm;
use sim::world::{Scenario, Simulation};
use tune::limiter::Role;
use tune::path::prior_from_evidence;
use tune::streams::prior_from_rtt;
use tune::{Evidence, Prior};

/// Bytes of each transfer.
const BYTES: u64 = 150_000_000;
/// Queue of the bottleneck, packets.
const QUEUE: u32 = 600;

/// A path: rate in Mbit/s, round trip in milliseconds, loss ratio.
type TestPath = (u64, u64, f64);

/// A finished transfer.
struct RememberedTransfer {
    elapsed: Duration,
    /// Measurements for the next transfer.
    evidence: Evidence,
    reasons: Vec<String>,
}

fn simulation((rate, rtt, loss): TestPath) -> Simulation {
    let forward = Conditions {
        loss: Loss::Independent(loss),
        ..link(Some(mbit(rate)), ms(rtt / 2), Queue::Packets(QUEUE))
    };
    Simulation::new(&Scenario {
        reverse: link(None, ms(rtt / 2), Queue::Unlimited),
        forward,
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        seed: 7,
    })
}

/// Start of a transfer without memory.
fn no_memory(path: TestPath) -> Prior {
    prior_from_rtt(ms(path.1), Some(BYTES), 256 << 10, 64)
}

fn transfer(path: TestPath, prior: Prior) -> RememberedTransfer {
    let mut simulation = simulation(path);
    let spec = flow(CongestionAlgorithm::Cubic);
    let limits = stream_limits(64);
    let mut transfers = [AutoTransfer::begin(
        &mut simulation,
        limits,
        prior,
        BYTES,
        spec,
    )];
    let (mut final_streams, mut peak_streams) = (0, 0);
    while transfers[0].delivered(&simulation) < BYTES {
        // Streams end when nothing is left to hand out.
        if transfers[0].delivered(&simulation) < BYTES / 10 * 9 {
            final_streams = transfers[0].open() as u64;
            peak_streams = final_streams.max(peak_streams);
        }
        let until = simulation.now() + ms(10);
        run_sessions(&mut simulation, &mut transfers, until);
        assert!(until < Duration::from_secs(600));
    }
    let elapsed = simulation.now();
    RememberedTransfer {
        elapsed,
        evidence: Evidence {
            bytes: BYTES,
            elapsed,
            streams: peak_streams,
            peak_streams,
            final_streams,
            min_rtt: ms(path.1),
            retransmits: u64::from(path.2 > 0.0),
            wire_time: elapsed * u32::try_from(final_streams).unwrap(),
            congestion_control: Some("cubic".to_owned()),
            ..Evidence::for_role(Role::Sender)
        },
        reasons: transfers[0]
            .decisions()
            .iter()
            .map(|d| format!("{:?} {}", d.at, d.reason))
            .collect(),
    }
}

/// The second transfer's time as a part of that of a transfer without memory, where the first went over
/// `then` and the second over `now`.
fn relative_time(then: TestPath, now: TestPath) -> (f64, RememberedTransfer) {
    let first = transfer(then, no_memory(then));
    let known = prior_from_evidence(&first.evidence, Duration::ZERO);
    let without = if then == now {
        first
    } else {
        transfer(now, no_memory(now))
    };
    let with = transfer(now, known);
    let ratio = with.elapsed.as_secs_f64() / without.elapsed.as_secs_f64();
    (ratio, with)
}

#[test]
fn a_lossy_path_is_filled_no_later_by_the_second_transfer() {
    // The first transfer finds its streams within a second, so that little is left to gain. More than 64 would be needed to fill
    // the second path all the time.
    for (loss, expected) in [(0.005, 0.98), (0.01, 1.0)] {
        let path = (100, 100, loss);
        let (ratio, second) = relative_time(path, path);
        assert!(ratio < expected, "{loss}: {ratio} {:#?}", second.reasons);
    }
}

#[test]
fn a_lossless_path_is_no_slower_with_memory() {
    for path in [(100, 24, 0.0), (100, 100, 0.0), (20, 100, 0.0)] {
        let (ratio, second) = relative_time(path, path);
        assert!(ratio <= 1.02, "{path:?}: {ratio} {:#?}", second.reasons);
    }
}

#[test]
fn a_path_that_has_become_another_costs_at_most_a_twentieth() {
    let lossy = (100, 100, 0.01);
    let clean = (100, 100, 0.0);
    let (slow, short) = ((20, 100, 0.0), (100, 10, 0.0));
    for (then, now) in [
        (lossy, clean),
        (clean, lossy),
        (lossy, slow),
        (lossy, short),
        (short, lossy),
        (slow, clean),
    ] {
        let (ratio, second) = relative_time(then, now);
        assert!(
            ratio <= 1.05,
            "{then:?} {now:?}: {ratio} {:#?}",
            second.reasons
        );
    }
}
