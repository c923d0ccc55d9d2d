//! Decides which failures are retried, and when.

use std::time::Duration;

use crate::{CopyFailure, CopyOptions};

/// Bytes that make an attempt count as a fresh start, so that a long transfer over a bad path is
/// not given up because of many interruptions far apart.
const FRESH_START_BYTES: u64 = 16 << 20;

/// The retries left for one file.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    max_retries: u32,
    /// Longest time for which a peer may be away. Zero: that counts like any other failure.
    patience: Duration,
    consecutive: u32,
    /// Retries in a row since the peer is away.
    while_away: u32,
    attempt_number: u32,
    seed: u64,
}

impl RetryBudget {
    /// The retries that the options permit; `seed` for the jitter of the waits.
    pub(crate) fn new(options: &CopyOptions, seed: u64) -> Self {
        Self {
            max_retries: options.retries,
            patience: options.patience,
            consecutive: 0,
            while_away: 0,
            attempt_number: 1,
            seed,
        }
    }

    /// Whether the current attempt is not the first.
    pub(crate) fn is_retry(&self) -> bool {
        self.attempt_number > 1
    }

    /// Call after a failed attempt that transferred `moved` bytes. `away`: for how long no connection could be made with a
    /// peer that was reached before. Returns the number of the next attempt (from 2) and the wait before it; `None` when
    /// the failure is final.
    pub(crate) fn next_attempt(
        &mut self,
        failure: &CopyFailure,
        moved: u64,
        away: Option<Duration>,
    ) -> Option<(u32, Duration)> {
        // The count starts again, since the path evidently works for a while.
        if moved >= FRESH_START_BYTES {
            self.consecutive = 0;
        }
        if !failure.transient {
            return None;
        }
        let wait = match away.filter(|_| !self.patience.is_zero()) {
            Some(away) => {
                let left = self.patience.saturating_sub(away);
                if left.is_zero() {
                    return None;
                }
                self.while_away += 1;
                // The last try is at the end of the time.
                tune::backoff::delay(self.while_away, self.seed).min(left)
            }
            None => {
                self.while_away = 0;
                if self.consecutive >= self.max_retries {
                    return None;
                }
                self.consecutive += 1;
                tune::backoff::delay(self.consecutive, self.seed)
            }
        };
        self.attempt_number += 1;
        Some((self.attempt_number, wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;
    use crate::batch::tests::options;

    const PATIENCE: Duration = Duration::from_secs(600);

    fn budget(retries: u32, patience: Duration) -> RetryBudget {
        let options = CopyOptions {
            retries,
            patience,
            ..options()
        };
        RetryBudget::new(&options, 1)
    }

    fn lost() -> CopyFailure {
        CopyFailure::transient(Exit::Unreachable, "lost")
    }

    #[test]
    fn transient_failures_are_retried_up_to_the_limit() {
        let missing = CopyFailure::new(Exit::NotFound, "missing");
        let mut retries = budget(2, PATIENCE);
        assert_eq!(retries.next_attempt(&missing, 0, None), None);
        assert!(!retries.is_retry());
        let (attempt, first) = retries.next_attempt(&lost(), 0, None).unwrap();
        assert!(retries.is_retry());
        assert_eq!(attempt, 2);
        let (attempt, second) = retries.next_attempt(&lost(), 0, None).unwrap();
        assert_eq!(attempt, 3);
        assert!(first <= Duration::from_secs(1) && second <= Duration::from_secs(2));
        assert_eq!(retries.next_attempt(&lost(), 0, None), None);
    }

    #[test]
    fn progress_resets_the_retry_count() {
        let mut retries = budget(1, PATIENCE);
        for attempt in 2..10 {
            let next = retries
                .next_attempt(&lost(), FRESH_START_BYTES, None)
                .unwrap();
            assert_eq!(next.0, attempt);
            assert!(next.1 <= Duration::from_secs(1));
        }
        assert_eq!(retries.next_attempt(&lost(), 0, None), None);
    }

    #[test]
    fn zero_retries_makes_every_failure_final() {
        let mut retries = budget(0, Duration::ZERO);
        assert_eq!(retries.next_attempt(&lost(), u64::MAX, None), None);
        let away = Some(Duration::from_secs(1));
        assert_eq!(retries.next_attempt(&lost(), 0, away), None);
    }

    #[test]
    fn a_peer_that_is_away_is_waited_for_until_its_time_is_over() {
        let mut retries = budget(1, PATIENCE);
        // The connection broke.
        assert!(retries.next_attempt(&lost(), 0, None).is_some());
        let (mut away, mut tries) = (Duration::ZERO, 0);
        while let Some((_, wait)) = retries.next_attempt(&lost(), 0, Some(away)) {
            assert!(wait <= tune::backoff::MAX_DELAY);
            away += wait;
            tries += 1;
        }
        assert_eq!(away, PATIENCE);
        assert!((15..60).contains(&tries), "{tries}");
    }

    #[test]
    fn a_peer_that_is_back_and_fails_has_the_retries_of_others() {
        let mut retries = budget(2, PATIENCE);
        let mut waits = Vec::new();
        for away in [
            None,
            Some(Duration::ZERO),
            Some(Duration::from_secs(60)),
            None,
        ] {
            waits.push(retries.next_attempt(&lost(), 0, away).unwrap().1);
        }
        assert_eq!(retries.next_attempt(&lost(), 0, None), None);
        // After the next outage the first tries follow soon again.
        let (_, wait) = retries
            .next_attempt(&lost(), 0, Some(Duration::ZERO))
            .unwrap();
        assert!(wait <= Duration::from_secs(1), "{waits:?} {wait:?}");
    }
}
