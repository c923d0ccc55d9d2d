//! A stream's rate, a round trip at a time.

use std::time::Duration;

use units::bytes_per_second;

use crate::look::Look;

/// Shorter rounds measure bursts.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);

/// The round trip of a look, without and with queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trip {
    /// The smallest; zero: unknown.
    pub(crate) base: Duration,
    /// As it is now, at least the smallest.
    pub(crate) now: Duration,
}

impl Trip {
    pub(crate) fn of(look: &Look) -> Self {
        let base = if look.min_rtt.is_zero() {
            look.rtt
        } else {
            look.min_rtt
        };
        Self {
            base,
            now: look.rtt.max(base),
        }
    }

    /// Within a machine or a rack, where no buffer limits (and unknown ones).
    pub(crate) fn is_short(&self) -> bool {
        self.base < Duration::from_millis(1)
    }

    /// Packets wait on the path: more of them in flight would only wait longer.
    pub(crate) fn has_queue(&self) -> bool {
        self.now > self.base + self.base / 10 + Duration::from_millis(1)
    }

    /// They wait so long that the path must be full.
    pub(crate) fn is_congested(&self) -> bool {
        self.now > self.base * 3 / 2 + Duration::from_millis(1)
    }

    /// Round trip that a window is judged by: a receiver's own estimate where it is plausible. A queue makes
    /// it longer, and then it is not the window that limits.
    pub(crate) fn judged(&self) -> Duration {
        self.now.min(self.base + self.base / 4)
    }
}

/// Rates over the last rounds, bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    from: Option<(Duration, u64)>,
    recent: [u64; 3],
    best: u64,
}

impl Meter {
    /// Takes a look; a round ends when a round trip has passed.
    pub(crate) fn on_look(&mut self, look: &Look, trip: Trip) {
        let Some((at, bytes)) = self.from else {
            self.from = Some((look.at, look.bytes));
            return;
        };
        let time = look.at.saturating_sub(at);
        if time < trip.now.max(SHORTEST_ROUND) {
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
    pub(crate) fn lately(&self) -> u64 {
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

    fn look(at: Duration, bytes: u64) -> Look {
        Look {
            at,
            bytes,
            rtt: ms(100),
            ..Look::default()
        }
    }

    #[test]
    fn a_round_is_a_round_trip() {
        let mut meter = Meter::default();
        for (at, bytes) in [
            (0, 0),
            (50, 5_000),
            (100, 10_000),
            (150, 40_000),
            (200, 11_000),
        ] {
            let look = look(ms(at), bytes);
            meter.on_look(&look, Trip::of(&look));
        }
        let rates = (meter.latest(), meter.lately(), meter.best());
        assert_eq!(rates, (10_000, 100_000, 10_000));
    }

    #[test]
    fn queues_are_told_from_noise() {
        let trip = |now| Trip {
            base: ms(100),
            now: ms(now),
        };
        assert!(!trip(110).has_queue());
        assert!(trip(112).has_queue() && !trip(150).is_congested());
        assert!(trip(160).is_congested());
        assert_eq!(trip(300).judged(), ms(125));
        assert_eq!(trip(105).judged(), ms(105));
    }
}
