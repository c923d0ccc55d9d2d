//! Decides which failures are retried, and when.

use std::time::Duration;

use crate::options::RetryOptions;
use ftp::Failure;

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
    pub(crate) fn new(options: RetryOptions, seed: u64) -> Self {
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
        failure: &Failure,
        moved: u64,
        away: Option<Duration>,
    ) -> Option<(u32, Duration)> {
        // The count starts again, since the path evidently works for a while.
        if moved >= FRESH_START_BYTES {
            self.consecutive = 0;
        }
        if !failure.may_retry() {
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
mod tests;
