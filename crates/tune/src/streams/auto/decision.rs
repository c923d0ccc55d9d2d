//! Settings that the tuner chooses, and their bounds.

use std::time::Duration;

use crate::limiter::Limiter;
use crate::sample::StreamId;

/// Bounds on the settings that the tuner may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoLimits {
    /// Smallest number of streams, at least 1.
    pub min_streams: u32,
    /// Largest number of streams. If it equals `min_streams`, the number stays fixed.
    pub max_streams: u32,
    /// Congestion controls that may be set on a live stream, by their kernel names. If empty, the one in
    /// force stays.
    pub congestion_controls: Vec<String>,
    /// Whether streams may be paced (SO_MAX_PACING_RATE).
    pub may_pace: bool,
}

/// A setting for the whole transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferSetting {
    /// Number of streams: open more, or let the surplus streams end after their current block.
    Streams(u32),
    /// Congestion control of all streams, including those opened later.
    CongestionControl(String),
    /// Congestion control of these streams alone, beside the others. A later [`CongestionControl`](Self::CongestionControl) is
    /// for all streams again.
    StreamCongestionControl {
        /// The streams.
        streams: Vec<StreamId>,
        /// Kernel name.
        name: String,
    },
    /// Largest rate of all streams together, bytes per second; `None` leaves the rate to TCP.
    PacingRate(Option<u64>),
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferDecision {
    /// Time since the transfer began.
    pub at: Duration,
    /// The setting to apply; `None` if the decision is to change nothing.
    pub setting: Option<TransferSetting>,
    /// Limiter of the transfer at that time.
    pub limiter: Limiter,
    /// Explanation for people.
    pub reason: String,
}
