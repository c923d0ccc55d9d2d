//! Stall detection for third-party copies in MODE S. Neither server reports progress before the
//! end, so a separate session asks for the length of the file, and this module judges it.

use std::time::{Duration, Instant};

/// Longest interval between two queries.
const PERIOD: Duration = Duration::from_secs(2);

/// Observations of the file's length so far.
pub(crate) struct StallDetector {
    /// Length of the complete file.
    full_length: Option<u64>,
    /// No growth for this long is a stall.
    limit: Duration,
    /// The last length and the time since when it is unchanged.
    last_length: Option<(u64, Instant)>,
    has_grown: bool,
}

/// Meaning of an observed length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GrowthSign {
    /// The file has this length now.
    Grown(u64),
    /// The file has stopped at this length for too long.
    Stalled(u64),
    /// The length shows nothing new.
    Inconclusive,
}

impl StallDetector {
    pub(crate) fn new(full_length: Option<u64>, limit: Duration) -> Self {
        Self {
            full_length,
            limit,
            last_length: None,
            has_grown: false,
        }
    }

    /// Interval until the next query.
    pub(crate) fn poll_interval(&self) -> Duration {
        // Several queries within the limit, so that one late reply does not look like a stall.
        (self.limit / 4).clamp(Duration::from_millis(50), PERIOD)
    }

    /// Judges a length. A length that never grew proves nothing, because a server may write
    /// elsewhere first. Nor does the full length, because a server may allocate it at once, and
    /// finishing a transfer takes time.
    pub(crate) fn observe(&mut self, length: u64, now: Instant) -> GrowthSign {
        if self.full_length.is_some_and(|all| length >= all) {
            self.has_grown = false;
            return GrowthSign::Inconclusive;
        }
        match self.last_length {
            Some((last_length, since)) if last_length == length => {
                if self.has_grown && now.saturating_duration_since(since) >= self.limit {
                    return GrowthSign::Stalled(length);
                }
                GrowthSign::Inconclusive
            }
            before => {
                self.has_grown |= before.is_some_and(|(last_length, _)| length > last_length);
                self.last_length = Some((length, now));
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
        let observe = |length: &u64| {
            now += Duration::from_secs(10);
            growth.observe(*length, now)
        };
        lengths.iter().map(observe).collect()
    }

    #[test]
    fn a_file_that_grew_and_stopped_has_stalled() {
        let signs = signs(&[5, 9, 9, 9, 9]);
        let [first, second, rest @ ..] = signs.as_slice() else {
            panic!("{signs:?}")
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
            let signs = signs(&lengths);
            let stalled = |sign: &GrowthSign| matches!(sign, GrowthSign::Stalled(_));
            assert!(!signs.iter().any(stalled), "{lengths:?}: {signs:?}");
        }
    }
}
