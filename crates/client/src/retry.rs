//! Decides which failures are retried, and when.

use std::time::Duration;

use crate::CopyFailure;

/// Bytes that make an attempt count as a fresh start, so that a long transfer over a bad path is
/// not given up because of many interruptions far apart.
const FRESH_START_BYTES: u64 = 16 << 20;

/// The retries left for one file.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    max_retries: u32,
    consecutive: u32,
    attempt_number: u32,
    seed: u64,
}

impl RetryBudget {
    /// `allowed` retries in a row without progress; `seed` for the jitter of the waits.
    pub(crate) fn new(allowed: u32, seed: u64) -> Self {
        Self {
            max_retries: allowed,
            consecutive: 0,
            attempt_number: 1,
            seed,
        }
    }

    /// Whether the current attempt is not the first.
    pub(crate) fn is_retry(&self) -> bool {
        self.attempt_number > 1
    }

    /// Call after a failed attempt that transferred `moved` bytes. Returns the number of the next
    /// attempt (from 2) and the wait before it; `None` when the failure is final.
    pub(crate) fn next_attempt(
        &mut self,
        failure: &CopyFailure,
        moved: u64,
    ) -> Option<(u32, Duration)> {
        // The count starts again, since the path evidently works for a while.
        if moved >= FRESH_START_BYTES {
            self.consecutive = 0;
        }
        if !failure.transient || self.consecutive >= self.max_retries {
            return None;
        }
        self.consecutive += 1;
        self.attempt_number += 1;
        let wait = tune::backoff::delay(self.consecutive, self.seed);
        Some((self.attempt_number, wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    #[test]
    fn transient_failures_are_retried_up_to_the_limit() {
        let lost = CopyFailure::transient(Exit::Unreachable, "lost");
        let missing = CopyFailure::new(Exit::NotFound, "missing");
        let mut retries = RetryBudget::new(2, 1);
        assert_eq!(retries.next_attempt(&missing, 0), None);
        assert!(!retries.is_retry());
        let (attempt, first) = retries.next_attempt(&lost, 0).unwrap();
        assert!(retries.is_retry());
        assert_eq!(attempt, 2);
        let (attempt, second) = retries.next_attempt(&lost, 0).unwrap();
        assert_eq!(attempt, 3);
        assert!(first <= Duration::from_secs(1) && second <= Duration::from_secs(2));
        assert_eq!(retries.next_attempt(&lost, 0), None);
    }

    #[test]
    fn progress_resets_the_retry_count() {
        let lost = CopyFailure::transient(Exit::Unreachable, "lost");
        let mut retries = RetryBudget::new(1, 1);
        for attempt in 2..10 {
            let next = retries.next_attempt(&lost, FRESH_START_BYTES).unwrap();
            assert_eq!(next.0, attempt);
            assert!(next.1 <= Duration::from_secs(1));
        }
        assert_eq!(retries.next_attempt(&lost, 0), None);
    }

    #[test]
    fn zero_retries_makes_every_failure_final() {
        let lost = CopyFailure::transient(Exit::Unreachable, "lost");
        assert_eq!(RetryBudget::new(0, 1).next_attempt(&lost, u64::MAX), None);
    }
}
