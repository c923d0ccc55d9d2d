//! What ns-2 says: the committed table that the simulator is held against.

use std::time::Duration;

use super::report::SimPoint;
use super::request::{Flows, SimRequest};
use crate::LabError;

/// Largest relative deviation from ns-2 in goodput that counts as agreement.
pub const GOODPUT_TOLERANCE: f64 = 0.05;
/// The same for the mean round trip.
pub const RTT_TOLERANCE: f64 = 0.10;

/// The table, as `crates/lab/validation/remake.sh` writes it.
const TABLE: &str = include_str!("../../validation/ns2-static-sweep.csv");

/// One simulation by ns-2; `static-sweep.tcl` says what its columns are.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Parallel connections.
    pub connections: u32,
    /// Largest random time in the sending host, microseconds.
    pub overhead_us: u32,
    /// Seed of the starts and of the random times.
    pub seed: u64,
    /// Payload that was acknowledged, Mbit/s.
    pub goodput_mbps: f64,
    /// Round trip at the mean queueing delay, milliseconds.
    pub mean_rtt_ms: f64,
    /// Packets dropped at the bottleneck.
    pub drops: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Jain's fairness index.
    pub jain: f64,
}

/// Every line of the table.
///
/// # Errors
/// [`LabError::Usage`]: a line that is not one of the table's, which names it.
pub fn ns2() -> Result<Vec<Reference>, LabError> {
    let mut lines = TABLE.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines
        .map(|line| {
            reference(&names, line).ok_or_else(|| {
                LabError::Usage(format!("ns2-static-sweep.csv: cannot be read: '{line}'"))
            })
        })
        .collect()
}

fn reference(names: &[&str], line: &str) -> Option<Reference> {
    let values: Vec<&str> = line.split(',').collect();
    let field = |name: &str| {
        let column = names.iter().position(|n| *n == name)?;
        values.get(column).copied()
    };
    Some(Reference {
        connections: field("connections")?.parse().ok()?,
        overhead_us: field("overhead_us")?.parse().ok()?,
        seed: field("seed")?.parse().ok()?,
        goodput_mbps: field("goodput_mbps")?.parse().ok()?,
        mean_rtt_ms: field("mean_rtt_ms")?.parse().ok()?,
        drops: field("drops")?.parse().ok()?,
        timeouts: field("timeouts")?.parse().ok()?,
        jain: field("jain")?.parse().ok()?,
    })
}

impl Reference {
    /// The same simulation in ours.
    pub fn request(&self) -> SimRequest {
        SimRequest {
            flows: Flows::Counts(vec![self.connections]),
            jitter: Duration::from_micros(self.overhead_us.into()),
            seed: self.seed,
            ..SimRequest::default()
        }
    }

    /// How far `ours` is from this: goodput and mean round trip, relative, positive when ours is
    /// larger.
    pub fn deviations(&self, ours: &SimPoint) -> (f64, f64) {
        let rtt = ours.mean_rtt_ms.unwrap_or(f64::NAN);
        (
            ours.goodput_mbps / self.goodput_mbps - 1.0,
            rtt / self.mean_rtt_ms - 1.0,
        )
    }

    /// Both deviations are within the tolerance.
    pub fn agrees(&self, ours: &SimPoint) -> bool {
        let (goodput, rtt) = self.deviations(ours);
        goodput.abs() <= GOODPUT_TOLERANCE && rtt.abs() <= RTT_TOLERANCE
    }
}
