//! A copy between two servers in MODE S: neither says anything before its end, so the length of
//! the file in the making is asked for over a session of its own, and judged here.

use std::time::{Duration, Instant};

/// Between two looks, at most.
const PERIOD: Duration = Duration::from_secs(2);

/// What the length of the file in the making told so far.
pub(super) struct StallDetector {
    /// Length of the whole file.
    expected: Option<u64>,
    /// Standing still for so long is a stall.
    limit: Duration,
    /// The last length, and since when.
    last: Option<(u64, Instant)>,
    grown: bool,
}

/// What a length means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GrowthSign {
    /// So much is there now.
    Moved(u64),
    /// It stands still, for too long.
    Stalled(u64),
    /// Nothing new.
    Nothing,
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

    /// How long to wait before the next look.
    pub(super) fn period(&self) -> Duration {
        (self.limit / 4).clamp(Duration::from_millis(50), PERIOD)
    }

    /// Judges a length. One that never grew says nothing (a server may write elsewhere first), nor
    /// does the whole length (it may be given at once, and the end of a transfer takes its time).
    pub(super) fn look(&mut self, length: u64, now: Instant) -> GrowthSign {
        if self.expected.is_some_and(|all| length >= all) {
            self.grown = false;
            return GrowthSign::Nothing;
        }
        match self.last {
            Some((last, since)) if last == length => {
                if self.grown && now.saturating_duration_since(since) >= self.limit {
                    return GrowthSign::Stalled(length);
                }
                GrowthSign::Nothing
            }
            before => {
                self.grown |= before.is_some_and(|(last, _)| length > last);
                self.last = Some((length, now));
                GrowthSign::Moved(length)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs of lengths that were seen 10 s apart, with a limit of 30 s and 100 bytes to come.
    fn signs(lengths: &[u64]) -> Vec<GrowthSign> {
        let mut growth = StallDetector::new(Some(100), Duration::from_secs(30));
        let mut now = Instant::now();
        let look = |length: &u64| {
            now += Duration::from_secs(10);
            growth.look(*length, now)
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
            (&GrowthSign::Moved(5), &GrowthSign::Moved(9))
        );
        assert_eq!(
            rest,
            [
                GrowthSign::Nothing,
                GrowthSign::Nothing,
                GrowthSign::Stalled(9)
            ]
        );
    }

    #[test]
    fn lengths_that_mean_nothing_are_no_stall() {
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
