//! Which failure gets another attempt, and when.

use std::time::Duration;

use crate::Failure;

/// An attempt that moved this much counts as a fresh start: a long transfer over a bad path is not
/// given up because of many cuts far apart.
const PROGRESS: u64 = 16 << 20;

/// The attempts at one file.
#[derive(Debug)]
pub(crate) struct Retries {
    allowed: u32,
    in_a_row: u32,
    attempt: u32,
    seed: u64,
}

impl Retries {
    /// `allowed` retries in a row without progress; `seed` for the jitter of the waits.
    pub(crate) fn new(allowed: u32, seed: u64) -> Self {
        Self {
            allowed,
            in_a_row: 0,
            attempt: 1,
            seed,
        }
    }

    /// Whether there was an attempt before the running one.
    pub(crate) fn begun(&self) -> bool {
        self.attempt > 1
    }

    /// After a failed attempt that moved `moved` bytes: number of the next attempt (from 2) and
    /// the wait before it, or `None` when this failure is final.
    pub(crate) fn next(&mut self, failure: &Failure, moved: u64) -> Option<(u32, Duration)> {
        if moved >= PROGRESS {
            self.in_a_row = 0;
        }
        if !failure.transient || self.in_a_row >= self.allowed {
            return None;
        }
        self.in_a_row += 1;
        self.attempt += 1;
        let wait = tune::backoff::delay(self.in_a_row, self.seed);
        Some((self.attempt, wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    #[test]
    fn only_transient_failures_and_only_so_often() {
        let lost = Failure::transient(Exit::Unreachable, "lost");
        let missing = Failure::new(Exit::NotFound, "missing");
        let mut retries = Retries::new(2, 1);
        assert_eq!(retries.next(&missing, 0), None);
        assert!(!retries.begun());
        let (attempt, first) = retries.next(&lost, 0).unwrap();
        assert!(retries.begun());
        assert_eq!(attempt, 2);
        let (attempt, second) = retries.next(&lost, 0).unwrap();
        assert_eq!(attempt, 3);
        assert!(first <= Duration::from_secs(1) && second <= Duration::from_secs(2));
        assert_eq!(retries.next(&lost, 0), None);
    }

    #[test]
    fn progress_starts_the_count_anew() {
        let lost = Failure::transient(Exit::Unreachable, "lost");
        let mut retries = Retries::new(1, 1);
        for attempt in 2..10 {
            let next = retries.next(&lost, PROGRESS).unwrap();
            assert_eq!(next.0, attempt);
            assert!(next.1 <= Duration::from_secs(1));
        }
        assert_eq!(retries.next(&lost, 0), None);
    }

    #[test]
    fn none_allowed() {
        let lost = Failure::transient(Exit::Unreachable, "lost");
        assert_eq!(Retries::new(0, 1).next(&lost, u64::MAX), None);
    }
}
