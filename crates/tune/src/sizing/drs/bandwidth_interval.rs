//! Over how long bandwidth is computed, and how often.

use std::time::Duration;

/// The shortest interval; shorter fixed ones become this.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(5);
/// The longest interval; longer fixed ones become this.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(4);
/// Most time between two looks where the interval adapts.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Scatter below which bandwidth is called steady, in 1/1000.
const STEADY: u32 = 100;

/// How often the bandwidth is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrsInterval {
    /// Follows the round trip and how steady the samples are (the paper's future work, §6): one
    /// round trip, up to twice that where successive samples scatter, looked at two to four times.
    #[default]
    Adaptive,
    /// Always so long, [`SHORTEST_INTERVAL`] to [`LONGEST_INTERVAL`].
    Fixed(Duration),
}

impl DrsInterval {
    /// How long a sample of the bandwidth is, for a `round_trip` and a `scatter` in 1/1000 of the
    /// bandwidth.
    pub(super) fn length(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            Self::Adaptive => {
                let longer = round_trip * scatter.min(1000) / 1000;
                (round_trip + longer).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            }
        }
    }

    /// Time until the next look.
    pub(super) fn pause(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            Self::Adaptive => {
                let looks = if scatter < STEADY { 2 } else { 4 };
                (round_trip / looks).clamp(SHORTEST_INTERVAL, LONGEST_PAUSE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn adaptive_follows_the_round_trip() {
        let a = DrsInterval::Adaptive;
        assert_eq!(
            (a.length(ms(100), 0), a.pause(ms(100), 500)),
            (ms(100), ms(25))
        );
        assert_eq!((a.length(ms(20), 0), a.pause(ms(20), 500)), (ms(20), ms(5)));
        assert_eq!((a.length(ms(1), 0), a.pause(ms(1), 500)), (ms(5), ms(5)));
        let hour = Duration::from_secs(3600);
        assert_eq!(
            (a.length(hour, 0), a.pause(hour, 500)),
            (LONGEST_INTERVAL, LONGEST_PAUSE)
        );
    }

    #[test]
    fn samples_that_scatter_are_longer_and_steady_ones_are_rarer() {
        let a = DrsInterval::Adaptive;
        assert_eq!(
            (a.length(ms(100), 300), a.pause(ms(100), 300)),
            (ms(130), ms(25))
        );
        assert_eq!(
            (a.length(ms(100), u32::MAX), a.pause(ms(100), 50)),
            (ms(200), ms(50))
        );
    }

    #[test]
    fn fixed_is_fixed() {
        let fixed = DrsInterval::Fixed(ms(70));
        for rtt in [ms(1), ms(1000)] {
            assert_eq!(
                (fixed.length(rtt, 900), fixed.pause(rtt, 900)),
                (ms(70), ms(70))
            );
        }
        assert_eq!(DrsInterval::Fixed(Duration::ZERO).pause(ms(1), 0), ms(5));
    }
}
