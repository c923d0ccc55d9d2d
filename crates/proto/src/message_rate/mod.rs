//! How often a peer may make something happen.

use std::time::Duration;

/// A token bucket, kept as the time at which it will be full again.
#[derive(Debug, Clone)]
pub struct MessageRateLimiter {
    interval: Duration,
    burst: u32,
    full_at: Duration,
}

impl MessageRateLimiter {
    /// One each `every`, and up to `burst` at once.
    pub const fn new(every: Duration, burst: u32) -> Self {
        Self {
            interval: every,
            burst,
            full_at: Duration::ZERO,
        }
    }

    /// Takes one at the time `now`, since any fixed moment, if it is there.
    pub fn try_take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now).saturating_add(self.interval);
        let there = full_at.saturating_sub(now) <= self.interval * self.burst;
        if there {
            self.full_at = full_at;
        }
        there
    }
}

#[cfg(test)]
mod tests;
