//! Cooldowns after trials without gain. They double with every failure.

use std::time::Duration;

/// Cooldown of one kind of trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cooldown {
    until: Duration,
    failures: u32,
    /// Largest number of doublings.
    doublings: u32,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self::new(5)
    }
}

impl Cooldown {
    /// A cooldown that is over. It doubles at most `doublings` times.
    pub(super) fn new(doublings: u32) -> Self {
        Self {
            until: Duration::ZERO,
            failures: 0,
            doublings,
        }
    }

    /// Whether the trial may be repeated.
    pub(super) fn is_over(&self, at: Duration) -> bool {
        at >= self.until
    }

    /// Starts the cooldown after a trial without gain: `first`, doubled for every failure before.
    pub(super) fn fail(&mut self, at: Duration, first: Duration) {
        self.until = at + first * (1 << self.failures.min(self.doublings));
        self.failures = self.failures.saturating_add(1);
    }

    /// Extends the cooldown to at least `time` from `at`, without counting a failure.
    pub(super) fn extend(&mut self, at: Duration, time: Duration) {
        self.until = self.until.max(at + time);
    }

    /// Ends the cooldown and forgets all failures, because the trial gained or the path changed.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.doublings);
    }

    /// Number of consecutive failures.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cooldowns_double_up_to_a_maximum() {
        let second = Duration::from_secs(1);
        let mut cooldown = Cooldown::default();
        assert!(cooldown.is_over(Duration::ZERO));
        let mut seconds = Vec::new();
        for _ in 0..8 {
            cooldown.fail(Duration::ZERO, second);
            seconds.push(cooldown.until.as_secs());
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert!(!cooldown.is_over(31 * second) && cooldown.is_over(32 * second));
        cooldown.reset();
        assert!(cooldown.is_over(Duration::ZERO));
    }
}
