//! Interval over which bandwidth is measured.

use std::time::Duration;

/// Shortest interval; shorter fixed ones are raised to it.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(5);
/// Longest interval; longer fixed ones are lowered to it.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(4);
/// Longest time between two samples of an adaptive interval.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Scatter below which the bandwidth is steady, in 1/1000.
const STEADY: u32 = 100;

/// Interval over which bandwidth is measured (`--drs-interval`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrsInterval {
    /// Follows the round trip and the scatter of the measurements (future work in the paper's §6): one round
    /// trip, up to two where successive measurements scatter, with two to four samples in it.
    #[default]
    Adaptive,
    /// Fixed length, [`SHORTEST_INTERVAL`] to [`LONGEST_INTERVAL`].
    Fixed(Duration),
}

impl DrsInterval {
    /// Length of the interval for this round trip and scatter (in 1/1000 of the bandwidth).
    pub(super) fn length(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            Self::Adaptive => {
                let longer = round_trip * scatter.min(1000) / 1000;
                (round_trip + longer).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            }
        }
    }

    /// Time until the next sample.
    pub(super) fn pause(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            Self::Adaptive => {
                let samples = if scatter < STEADY { 2 } else { 4 };
                (round_trip / samples).clamp(SHORTEST_INTERVAL, LONGEST_PAUSE)
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
    fn an_adaptive_interval_follows_the_round_trip() {
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
    fn scatter_lengthens_the_interval_and_steadiness_the_pause() {
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
    fn a_fixed_interval_ignores_round_trip_and_scatter() {
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
