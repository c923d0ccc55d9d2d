//! Rate limit of messages from and to a peer.

use std::time::Duration;

/// A token bucket for messages, stored as the time at which it will be full again.
#[derive(Debug, Clone)]
pub struct MessageRateLimiter {
    interval: Duration,
    burst: u32,
    full_at: Duration,
}

impl MessageRateLimiter {
    /// One message per interval, and up to `burst` at once.
    pub const fn new(every: Duration, burst: u32) -> Self {
        Self {
            interval: every,
            burst,
            full_at: Duration::ZERO,
        }
    }

    /// Takes one token at the time `now`, since any fixed moment; `false` if the bucket is empty.
    pub fn try_take(&mut self, now: Duration) -> bool {
        // Storing the time of the full bucket needs no timer and no fractional tokens (GCRA).
        let full_at = self.full_at.max(now).saturating_add(self.interval);
        let available = full_at.saturating_sub(now) <= self.interval * self.burst;
        if available {
            self.full_at = full_at;
        }
        available
    }

    /// Whether the bucket is full at `now`: a new one would allow the same.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests;
