//! Report on a run: counters of the network, and whether the run is valid.

use serde::{Deserialize, Serialize};

/// Counters of one direction of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// Packets that entered (segments, not super-packets).
    pub packets: u64,
    /// Bytes that entered (IP packets).
    pub bytes: u64,
    /// Packets dropped at the full queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets that arrived, without duplicates. Packets in flight at the end are not counted.
    pub delivered: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Duplicates created.
    pub duplicated: u64,
    /// Packets whose payload was changed.
    pub corrupted: u64,
    /// Packets delayed to be overtaken by later ones.
    pub reordered: u64,
    /// Longest queue, packets.
    pub peak_queue_packets: u64,
    /// Longest queue, bytes.
    pub peak_queue_bytes: u64,
    /// Median lateness of deliveries, microseconds. On fast paths it includes up to 250 us that packets
    /// wait to be delivered together.
    pub late_p50_us: f64,
    /// 99th percentile of the lateness, microseconds.
    pub late_p99_us: f64,
    /// Maximum lateness, microseconds.
    pub late_max_us: f64,
}

/// Report on a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetReport {
    /// Seconds that the network was up.
    pub seconds: f64,
    /// Share of one core that the emulator's thread used, 0..=1.
    pub emulator_cpu: f64,
    /// Share of all cores used by processes outside the lab, 0..=1.
    pub foreign_cpu: f64,
    /// Share of all cores stolen by the hypervisor, 0..=1.
    pub stolen_cpu: f64,
    /// Packets lost between a host and the emulator because the emulator read too slowly.
    pub overruns: u64,
    /// Reasons why the run is invalid; empty if it is valid.
    pub invalid: Vec<String>,
    /// Notes that do not make the run invalid.
    pub notes: Vec<String>,
    /// Directions that carried packets, in topology order.
    pub directions: Vec<DirectionReport>,
}
