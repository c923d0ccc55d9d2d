//! Over how long bandwidth is computed, and how often.

use std::time::Duration;

/// The longest interval.
const LONGEST: Duration = Duration::from_secs(4);
/// Least and most time between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// Scatter below which bandwidth is called steady, in 1/1000.
const STEADY: u32 = 100;

/// How often the bandwidth is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interval {
    /// Follows the round trip and how steady the samples are (the paper's future work, §6): one
    /// round trip, up to twice that where successive samples scatter, looked at two to four times.
    #[default]
    Adaptive,
    /// Always so long, 5 ms to 4 s.
    Fixed(Duration),
}

impl Interval {
    /// How long a sample of the bandwidth is, for a `round_trip` and a `scatter` in 1/1000 of the
    /// bandwidth.
    pub(super) fn length(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(PAUSES.0, LONGEST),
            Self::Adaptive => {
                let longer = round_trip * scatter.min(1000) / 1000;
                (round_trip + longer).clamp(PAUSES.0, LONGEST)
            }
        }
    }

    /// Time until the next look.
    pub(super) fn pause(self, round_trip: Duration, scatter: u32) -> Duration {
        match self {
            Self::Fixed(length) => length.clamp(PAUSES.0, LONGEST),
            Self::Adaptive => {
                let looks = if scatter < STEADY { 2 } else { 4 };
                (round_trip / looks).clamp(PAUSES.0, PAUSES.1)
            }
        }
    }
}
