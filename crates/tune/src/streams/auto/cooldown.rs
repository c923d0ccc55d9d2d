//! Attempts that gained nothing are repeated ever more seldom.

use std::time::Duration;

/// When something may be tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cooldown {
    until: Duration,
    failures: u32,
    /// A pause is doubled so often at most.
    doublings: u32,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self::new(5)
    }
}

impl Cooldown {
    /// Nothing failed yet; a pause will be doubled so often at most.
    pub(super) fn new(doublings: u32) -> Self {
        Self {
            until: Duration::ZERO,
            failures: 0,
            doublings,
        }
    }

    /// It may be tried.
    pub(super) fn is_over(&self, at: Duration) -> bool {
        at >= self.until
    }

    /// It gained nothing: not again for `first`, and twice as long each time.
    pub(super) fn fail(&mut self, at: Duration, first: Duration) {
        self.until = at + first * (1 << self.failures.min(self.doublings));
        self.failures = self.failures.saturating_add(1);
    }

    /// Not for so long; that it gained nothing is not said.
    pub(super) fn extend(&mut self, at: Duration, time: Duration) {
        self.until = self.until.max(at + time);
    }

    /// It gained, or the path has changed: the next pause is the first.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.doublings);
    }

    /// How often in turn it gained nothing.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

/// When each kind of trial may come again.
#[derive(Debug)]
pub(super) struct Cooldowns {
    pub(super) full_buffers: Cooldown,
    pub(super) slow_growth: Cooldown,
    pub(super) loss: Cooldown,
    pub(super) fewer_streams: Cooldown,
    pub(super) congestion_control: Cooldown,
    pub(super) drain: Cooldown,
}

impl Default for Cooldowns {
    fn default() -> Self {
        Self {
            full_buffers: Cooldown::default(),
            slow_growth: Cooldown::default(),
            loss: Cooldown::default(),
            fewer_streams: Cooldown::default(),
            congestion_control: Cooldown::default(),
            // Others come and go.
            drain: Cooldown::new(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let second = Duration::from_secs(1);
        let mut rest = Cooldown::default();
        assert!(rest.is_over(Duration::ZERO));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            rest.fail(Duration::ZERO, second);
            pauses.push(rest.until.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert!(!rest.is_over(31 * second) && rest.is_over(32 * second));
        rest.reset();
        assert!(rest.is_over(Duration::ZERO));
    }
}
