//! Report on the network, and whether it can be believed.

use serde::{Deserialize, Serialize};

/// One direction of one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Packets that entered (segments, not super-packets).
    pub packets: u64,
    /// Bytes of them (IP packets).
    pub bytes: u64,
    /// Packets dropped at the full queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets that arrived, copies not counted; those still under way at the end did not.
    pub delivered: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets whose payload was changed.
    pub corrupted: u64,
    /// Packets that were overtaken on purpose.
    pub reordered: u64,
    /// Most packets that ever waited.
    pub peak_queue_packets: u64,
    /// Most bytes that ever waited.
    pub peak_queue_bytes: u64,
    /// How late packets were delivered, microseconds: median. On a fast path packets wait up to a
    /// quarter of a millisecond to be delivered together; that is in it.
    pub late_p50_us: f64,
    /// 99th percentile.
    pub late_p99_us: f64,
    /// Worst.
    pub late_max_us: f64,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetReport {
    /// Seconds that the network was up.
    pub seconds: f64,
    /// Share of one core that the emulator's own thread used, 0..=1.
    pub emulator_cpu: f64,
    /// Share of all cores used by processes outside the lab, 0..=1.
    pub foreign_cpu: f64,
    /// Share of all cores taken by the host of this virtual machine, 0..=1.
    pub stolen_cpu: f64,
    /// Packets that were lost between a host and the emulator because it read too slowly.
    pub overruns: u64,
    /// Why this run must not be used as a result; empty: it may.
    pub invalid: Vec<String>,
    /// Notes worth reading that do not spoil the run.
    pub notes: Vec<String>,
    /// Directions that carried packets, in topology order.
    pub directions: Vec<DirectionReport>,
}
