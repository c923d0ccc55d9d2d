//! A stream's rate, a round trip at a time.

use std::time::Duration;

use units::bytes_per_second;

use crate::sample::TcpSample;

/// Shorter rounds measure bursts.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);

/// The round trip of a look, without and with queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rtt {
    /// The smallest; zero: unknown.
    pub(crate) min: Duration,
    /// As it is now, at least the smallest.
    pub(crate) smoothed: Duration,
}

impl Rtt {
    pub(crate) fn of_sample(look: &TcpSample) -> Self {
        let base = if look.min_rtt.is_zero() {
            look.smoothed_rtt
        } else {
            look.min_rtt
        };
        Self {
            min: base,
            smoothed: look.smoothed_rtt.max(base),
        }
    }

    /// Within a machine or a rack, where no buffer limits (and unknown ones).
    pub(crate) fn is_local(&self) -> bool {
        self.min < Duration::from_millis(1)
    }

    /// Packets wait on the path: more of them in flight would only wait longer.
    pub(crate) fn has_queue(&self) -> bool {
        self.smoothed > self.min + self.min / 10 + Duration::from_millis(1)
    }

    /// They wait so long that the path must be full.
    pub(crate) fn is_congested(&self) -> bool {
        self.smoothed > self.min * 3 / 2 + Duration::from_millis(1)
    }

    /// Round trip that a window is judged by: a receiver's own estimate where it is plausible. A queue makes
    /// it longer, and then it is not the window that limits.
    pub(crate) fn for_window(&self) -> Duration {
        self.smoothed.min(self.min + self.min / 4)
    }
}

/// Rates over the last rounds, bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateMeter {
    from: Option<(Duration, u64)>,
    recent: [u64; 3],
    best: u64,
}

impl RateMeter {
    /// Takes a look; a round ends when a round trip has passed.
    pub(crate) fn on_sample(&mut self, look: &TcpSample, trip: Rtt) {
        let Some((at, bytes)) = self.from else {
            self.from = Some((look.at, look.bytes));
            return;
        };
        let time = look.at.saturating_sub(at);
        if time < trip.smoothed.max(SHORTEST_ROUND) {
            return;
        }
        let rate = bytes_per_second(look.bytes.saturating_sub(bytes), time);
        self.recent = [rate, self.recent[0], self.recent[1]];
        // Bytes that waited for a lost segment count all at once when it comes.
        self.best = self.best.max(rate.min(self.recent[1]));
        self.from = Some((look.at, look.bytes));
    }

    /// The last round's.
    pub(crate) fn latest(&self) -> u64 {
        self.recent[0]
    }

    /// The best of the last three rounds: one bad round is no reason.
    pub(crate) fn best_recent(&self) -> u64 {
        self.recent.into_iter().max().unwrap_or_default()
    }

    /// The best that two rounds in turn had.
    pub(crate) fn best(&self) -> u64 {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn look(at: Duration, bytes: u64) -> TcpSample {
        TcpSample {
            at,
            bytes,
            smoothed_rtt: ms(100),
            ..TcpSample::default()
        }
    }

    #[test]
    fn a_round_is_a_round_trip() {
        let mut meter = RateMeter::default();
        for (at, bytes) in [
            (0, 0),
            (50, 5_000),
            (100, 10_000),
            (150, 40_000),
            (200, 11_000),
        ] {
            let look = look(ms(at), bytes);
            meter.on_sample(&look, Rtt::of_sample(&look));
        }
        let rates = (meter.latest(), meter.best_recent(), meter.best());
        assert_eq!(rates, (10_000, 100_000, 10_000));
    }

    #[test]
    fn queues_are_told_from_noise() {
        let trip = |now| Rtt {
            min: ms(100),
            smoothed: ms(now),
        };
        assert!(!trip(110).has_queue());
        assert!(trip(112).has_queue() && !trip(150).is_congested());
        assert!(trip(160).is_congested());
        assert_eq!(trip(300).for_window(), ms(125));
        assert_eq!(trip(105).for_window(), ms(105));
    }
}
