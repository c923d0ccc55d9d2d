//! Preliminary replies to a command whose work may take hours and tells that it goes on: a checksum
//! (113), the end of a transfer whose data is through (111, 112).

use std::time::{Duration, Instant};

use proto::pace::Pace;

/// Most that come faster than one each [`EVERY`]: one who sends them without end answers never.
pub(super) const MOST_MARKERS: u32 = 10_000;
/// Servers send one every few seconds for each stripe, for as long as their work takes: their number
/// proves nothing against them.
const EVERY: Duration = Duration::from_millis(100);

/// Limits how fast markers to one command may come.
#[derive(Debug)]
pub(crate) struct MarkerPace {
    since: Instant,
    pace: Pace,
}

impl MarkerPace {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            pace: Pace::new(EVERY, MOST_MARKERS),
        }
    }

    /// Counts one that comes now; whether it is one too many.
    pub(crate) fn too_many(&mut self) -> bool {
        self.too_many_at(self.since.elapsed())
    }

    fn too_many_at(&mut self, since: Duration) -> bool {
        !self.pace.take(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_a_long_day_are_not_too_many() {
        let mut markers = MarkerPace::new();
        // Those of sixteen stripes, every five seconds.
        for at in (0..86_400).step_by(5).map(Duration::from_secs) {
            for stripe in 0..16 {
                assert!(!markers.too_many_at(at), "{stripe} at {at:?}");
            }
        }
    }

    #[test]
    fn markers_without_pause_are_too_many() {
        let mut markers = MarkerPace::new();
        let mut times = (0..=MOST_MARKERS).map(|n| Duration::from_micros(u64::from(n)));
        let last = Duration::from_micros(u64::from(MOST_MARKERS));
        assert_eq!(times.find(|at| markers.too_many_at(*at)), Some(last));
    }
}
