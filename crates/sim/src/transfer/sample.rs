//! What a policy is told.

use std::time::Duration;

use super::Settings;
use crate::world::FlowStats;

/// A transfer at one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Since the start of the run.
    pub at: Duration,
    /// Since the sample before, or since the transfer's start.
    pub interval: Duration,
    /// Payload that has arrived so far, bytes.
    pub delivered_bytes: u64,
    /// Of that, in the interval.
    pub interval_bytes: u64,
    /// What no stream has begun to send, bytes.
    pub left_bytes: u64,
    /// Round trip of a command that was answered in the interval, while data flows: what the
    /// control connection sees. `None`: none was, or it had to be sent again.
    pub control_rtt: Option<Duration>,
    /// Settings in force.
    pub settings: Settings,
    /// Each stream in use, in the order of opening: what it did in the interval
    /// ([`FlowStats::since`]).
    pub streams: Vec<FlowStats>,
}

impl Sample {
    /// Payload per second in the interval, bit/s.
    pub fn goodput(&self) -> f64 {
        let seconds = self.interval.as_secs_f64();
        if seconds > 0.0 {
            self.interval_bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }
}
