//! Preliminary replies to a command whose work may take hours and tells that it goes on: a checksum
//! (113), the end of a transfer whose data is through (111, 112).

use std::time::{Duration, Instant};

use proto::message_rate::MessageRateLimiter;

/// Most that come faster than one each [`MARKER_INTERVAL`]: one who sends them without end answers never.
pub(super) const MAX_MARKER_BURST: u32 = 10_000;
/// Servers send one every few seconds for each stripe, for as long as their work takes: their number
/// proves nothing against them.
const MARKER_INTERVAL: Duration = Duration::from_millis(100);

/// Limits how fast markers to one command may come.
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

    /// Counts one that comes now; whether it is one too many.
    pub(crate) fn is_exceeded(&mut self) -> bool {
        self.is_exceeded_at(self.since.elapsed())
    }

    fn is_exceeded_at(&mut self, since: Duration) -> bool {
        !self.pace.try_take(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_a_long_day_are_not_too_many() {
        let mut markers = MarkerRateLimit::new();
        // Those of sixteen stripes, every five seconds.
        for at in (0..86_400).step_by(5).map(Duration::from_secs) {
            for stripe in 0..16 {
                assert!(!markers.is_exceeded_at(at), "{stripe} at {at:?}");
            }
        }
    }

    #[test]
    fn markers_without_pause_are_too_many() {
        let mut markers = MarkerRateLimit::new();
        let mut times = (0..=MAX_MARKER_BURST).map(|n| Duration::from_micros(u64::from(n)));
        let last = Duration::from_micros(u64::from(MAX_MARKER_BURST));
        assert_eq!(times.find(|at| markers.is_exceeded_at(*at)), Some(last));
    }
}
