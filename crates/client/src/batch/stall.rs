//! Stall detection for third-party copies in MODE S. Neither server reports progress before the
//! end, so a separate session asks for the length of the file, and this module judges it.

use std::time::{Duration, Instant};

/// Longest interval between two queries.
const PERIOD: Duration = Duration::from_secs(2);

/// What the file's length has shown so far.
pub(super) struct StallDetector {
    /// Length of the complete file.
    expected: Option<u64>,
    /// No growth for this long is a stall.
    limit: Duration,
    /// The last length and the time since when it is unchanged.
    last: Option<(u64, Instant)>,
    grown: bool,
}

/// Meaning of an observed length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GrowthSign {
    /// The file has this length now.
    Grown(u64),
    /// It stands still, for too long.
    Stalled(u64),
    /// The length shows nothing new.
    Inconclusive,
}

impl StallDetector {
    pub(super) fn new(expected: Option<u64>, limit: Duration) -> Self {
        Self {
            expected,
            limit,
            last: None,
            grown: false,
        }
    }

    /// Interval until the next query.
    pub(super) fn poll_interval(&self) -> Duration {
        (self.limit / 4).clamp(Duration::from_millis(50), PERIOD)
    }

    /// Judges a length. A length that never grew proves nothing, because a server may write
    /// elsewhere first. Nor does the full length, because a server may allocate it at once, and
    /// finishing a transfer takes time.
    pub(super) fn observe(&mut self, length: u64, now: Instant) -> GrowthSign {
        if self.expected.is_some_and(|all| length >= all) {
            self.grown = false;
            return GrowthSign::Inconclusive;
        }
        match self.last {
            Some((last, since)) if last == length => {
                if self.grown && now.saturating_duration_since(since) >= self.limit {
                    return GrowthSign::Stalled(length);
                }
                GrowthSign::Inconclusive
            }
            before => {
                self.grown |= before.is_some_and(|(last, _)| length > last);
                self.last = Some((length, now));
                GrowthSign::Grown(length)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs for lengths observed 10 s apart, with a limit of 30 s and a file of 100 bytes.
    fn signs(lengths: &[u64]) -> Vec<GrowthSign> {
        let mut growth = StallDetector::new(Some(100), Duration::from_secs(30));
        let mut now = Instant::now();
        let look = |length: &u64| {
            now += Duration::from_secs(10);
            growth.observe(*length, now)
        };
        lengths.iter().map(look).collect()
    }

    #[test]
    fn a_file_that_grew_and_stopped_has_stalled() {
        let seen = signs(&[5, 9, 9, 9, 9]);
        let [first, second, rest @ ..] = seen.as_slice() else {
            panic!("{seen:?}")
        };
        assert_eq!(
            (first, second),
            (&GrowthSign::Grown(5), &GrowthSign::Grown(9))
        );
        assert_eq!(
            rest,
            [
                GrowthSign::Inconclusive,
                GrowthSign::Inconclusive,
                GrowthSign::Stalled(9)
            ]
        );
    }

    #[test]
    fn inconclusive_lengths_are_not_a_stall() {
        for lengths in [
            [0, 0, 0, 0, 0, 0],
            [50, 5, 5, 5, 5, 5],
            [100, 100, 100, 100, 100, 100],
            [5, 9, 100, 100, 100, 100],
            [5, 9, 9, 9, 10, 10],
        ] {
            let seen = signs(&lengths);
            let stalled = |sign: &GrowthSign| matches!(sign, GrowthSign::Stalled(_));
            assert!(!seen.iter().any(stalled), "{lengths:?}: {seen:?}");
        }
    }
}
