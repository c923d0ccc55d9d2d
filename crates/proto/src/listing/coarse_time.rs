//! Times of listings that are less exact than a second, or whose zone is unknown.

use crate::timestamp::Timestamp;

/// The farthest that a local clock is ahead of UTC, seconds (Kiribati).
const MAX_AHEAD: i64 = 14 * 3600;
/// The farthest that a local clock is behind UTC, seconds.
const MAX_BEHIND: i64 = 12 * 3600;

/// The time of a row of LIST. Servers show minutes or days, by the clock of a zone that they do not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoarseTime {
    /// The beginning of the minute or day, read as UTC.
    pub start: Timestamp,
    /// Length of the minute or day, seconds.
    pub span: u32,
}

impl CoarseTime {
    /// The earliest moment that it can stand for, in whatever zone.
    pub fn earliest(self) -> Timestamp {
        Timestamp(self.start.0.saturating_sub(MAX_AHEAD))
    }

    /// The latest such moment.
    pub fn latest(self) -> Timestamp {
        let end = self.start.0.saturating_add(i64::from(self.span) - 1);
        Timestamp(end.saturating_add(MAX_BEHIND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_time_stands_for_its_span_in_any_zone() {
        let noon = CoarseTime {
            start: Timestamp(12 * 3600),
            span: 60,
        };
        // 12:00 in Kiribati, and 12:00:59 on Baker Island.
        assert_eq!(noon.earliest(), Timestamp(-2 * 3600));
        assert_eq!(noon.latest(), Timestamp(24 * 3600 + 59));
        let far = CoarseTime {
            start: Timestamp(i64::MAX),
            span: 86_400,
        };
        assert_eq!(far.latest(), Timestamp(i64::MAX));
    }
}
