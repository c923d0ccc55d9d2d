//! Preliminary replies to a command that may run for hours and reports progress: a checksum (113),
//! or the end of a transfer after its data (111, 112).

use std::time::{Duration, Instant};

use units::message_rate::MessageRateLimiter;

/// Burst of markers allowed above one per [`MARKER_INTERVAL`]. A server that sends more would keep
/// the client waiting for ever.
pub(super) const MAX_MARKER_BURST: u32 = 10_000;
/// Servers send one marker every few seconds per stripe for as long as their work takes, so the
/// rate is bounded and not the number.
const MARKER_INTERVAL: Duration = Duration::from_millis(100);

/// Limits the rate of markers in reply to one command.
#[derive(Debug)]
pub(crate) struct MarkerRateLimit {
    since: Instant,
    pace: MessageRateLimiter,
}

impl MarkerRateLimit {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            pace: MessageRateLimiter::new(MARKER_INTERVAL, MAX_MARKER_BURST),
        }
    }

    /// Counts a marker that arrives now; returns whether it exceeds the limit.
    pub(crate) fn count_marker(&mut self) -> bool {
        self.count_marker_at(self.since.elapsed())
    }

    fn count_marker_at(&mut self, since: Duration) -> bool {
        !self.pace.try_take(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_at_a_normal_rate_are_accepted_for_a_day() {
        let mut markers = MarkerRateLimit::new();
        // Sixteen stripes send one marker each every five seconds.
        for at in (0..86_400).step_by(5).map(Duration::from_secs) {
            for stripe in 0..16 {
                assert!(!markers.count_marker_at(at), "{stripe} at {at:?}");
            }
        }
    }

    #[test]
    fn markers_without_pause_exceed_the_limit() {
        let mut markers = MarkerRateLimit::new();
        let mut times = (0..=MAX_MARKER_BURST).map(|n| Duration::from_micros(u64::from(n)));
        let last = Duration::from_micros(u64::from(MAX_MARKER_BURST));
        assert_eq!(times.find(|at| markers.count_marker_at(*at)), Some(last));
    }
}
