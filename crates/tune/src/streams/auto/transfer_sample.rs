//! One sample of all streams of a transfer.

use std::time::Duration;

use units::bytes_in;

use super::thresholds::LIMITS;
use crate::observation::Rtt;
use crate::sample::TcpSample;

/// Share of a rate limit from which on the limit explains the rate, per cent.
const RATE_LIMIT_REACHED: u64 = 85;

/// All streams of a sending transfer at one moment.
#[derive(Debug, Clone, Copy)]
pub struct TransferSample<'a> {
    /// Time since the transfer began.
    pub at: Duration,
    /// Payload acknowledged so far over all streams, including closed ones, bytes.
    pub bytes_moved: u64,
    /// Bytes that no stream has taken yet; `None` if unknown (a pipe).
    pub bytes_left: Option<u64>,
    /// Samples of the open streams.
    pub streams: &'a [TcpSample],
    /// Streams whose connections are being opened.
    pub streams_opening: u32,
    /// Congestion control in force.
    pub congestion_control: &'a str,
    /// Rate limit that the user set, bytes per second.
    pub rate_limit: Option<u64>,
}

impl TransferSample<'_> {
    /// Whether the user's rate limit explains this rate, bytes per second.
    pub(super) fn is_rate_limited(&self, rate: u64) -> bool {
        self.rate_limit
            .is_some_and(|limit| rate >= limit / 100 * RATE_LIMIT_REACHED)
    }

    /// Whether too little is left for a change to pay off, at this rate in bytes per second.
    pub(super) fn is_nearly_over(&self, rate: u64, rtt: Rtt) -> bool {
        self.bytes_left
            .is_some_and(|left| left < bytes_in(rate, LIMITS.left_for_change.at(rtt.smoothed)))
    }
}
