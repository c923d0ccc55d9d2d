//! Bound on the bytes of all active tests together.

use std::time::Duration;

/// Time over which a budget is counted.
const HOUR: Duration = Duration::from_secs(3600);

/// A token bucket of bytes per hour. It is full at first.
///
/// Time is that of any clock; one that goes back adds nothing, and one that jumps forward fills the bucket at
/// most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteBudget {
    bytes_per_hour: u64,
    capacity: u64,
    /// Bytes in the bucket.
    tokens: u64,
    /// Part of a byte that has accrued, in bytes × nanoseconds per hour.
    fraction: u128,
    filled_at: Option<Duration>,
    /// Bytes that were allowed since the start, the first filling included.
    allowed: u64,
    spent: u64,
    refused: u64,
    refusals: u64,
}

impl ByteBudget {
    /// A budget of `bytes_per_hour`, of which at most `burst` may be spent at once. A budget of 0 refuses
    /// everything but 0 bytes.
    pub fn new(bytes_per_hour: u64, burst: u64) -> Self {
        let capacity = burst.min(bytes_per_hour);
        Self {
            bytes_per_hour,
            capacity,
            tokens: capacity,
            fraction: 0,
            filled_at: None,
            allowed: capacity,
            spent: 0,
            refused: 0,
            refusals: 0,
        }
    }

    /// Spends `bytes` if the bucket holds them; otherwise counts them as refused. A test asks before it sends,
    /// for the most that it may send.
    #[must_use]
    pub fn try_spend(&mut self, now: Duration, bytes: u64) -> bool {
        self.fill(now);
        if bytes > self.tokens {
            self.refused = self.refused.saturating_add(bytes);
            self.refusals = self.refusals.saturating_add(1);
            return false;
        }
        self.tokens -= bytes;
        self.spent = self.spent.saturating_add(bytes);
        true
    }

    /// Gives back bytes that a test had asked for and did not send.
    pub fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.spent);
        self.spent -= bytes;
        self.tokens = self.tokens.saturating_add(bytes).min(self.capacity);
    }

    /// Whether so many bytes can ever be granted at once.
    pub fn is_possible(&self, bytes: u64) -> bool {
        bytes <= self.capacity
    }

    /// Time until `bytes` are in the bucket; `None` if they never will be.
    pub fn wait_for(&self, now: Duration, bytes: u64) -> Option<Duration> {
        if !self.is_possible(bytes) {
            return None;
        }
        let mut then = self.clone();
        then.fill(now);
        let missing = u128::from(bytes.saturating_sub(then.tokens)) * HOUR.as_nanos();
        let missing = missing.saturating_sub(then.fraction);
        let nanos = missing.div_ceil(u128::from(self.bytes_per_hour.max(1)));
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// Bytes spent since the start.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Bytes that may be spent now.
    pub fn left(&mut self, now: Duration) -> u64 {
        self.fill(now);
        self.tokens
    }

    /// Bytes refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Requests refused since the start.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Part of the bytes allowed since the start that was spent, 0..=1.
    pub fn share(&self) -> f64 {
        if self.allowed == 0 {
            return 0.0;
        }
        (self.spent as f64 / self.allowed as f64).clamp(0.0, 1.0)
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at.unwrap_or(now));
        self.filled_at = Some(now);
        // Longer times fill the bucket as well, and the product stays within 128 bits.
        let nanos = passed.min(HOUR * 24 * 365).as_nanos();
        let accrued = u128::from(self.bytes_per_hour)
            .saturating_mul(nanos)
            .saturating_add(self.fraction);
        let whole = u64::try_from(accrued / HOUR.as_nanos()).unwrap_or(u64::MAX);
        self.fraction = accrued % HOUR.as_nanos();
        self.allowed = self.allowed.saturating_add(whole);
        self.tokens = self.tokens.saturating_add(whole);
        if self.tokens >= self.capacity {
            (self.tokens, self.fraction) = (self.capacity, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn a_test_over_the_budget_is_refused_until_bytes_have_accrued() {
        let mut budget = ByteBudget::new(60 * MB, 10 * MB);
        assert!(budget.try_spend(minutes(0), 10 * MB));
        assert!(!budget.try_spend(minutes(0), MB));
        assert_eq!(budget.wait_for(minutes(0), MB), Some(minutes(1)));
        assert!(budget.try_spend(minutes(1), MB));
        assert_eq!(budget.left(minutes(100)), 10 * MB);
        let counts = (budget.spent(), budget.refused(), budget.refusals());
        assert_eq!(counts, (11 * MB, MB, 1));
        budget.give_back(5 * MB);
        assert_eq!(
            (budget.spent(), budget.left(minutes(100))),
            (6 * MB, 10 * MB)
        );
        assert_eq!(budget.wait_for(minutes(100), 11 * MB), None);
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let mut budget = ByteBudget::new(60 * MB, 60 * MB);
        assert!(budget.try_spend(minutes(100), 60 * MB));
        assert_eq!(budget.left(minutes(10)), 0);
        assert_eq!(budget.left(minutes(11)), MB);
        let mut none = ByteBudget::new(0, u64::MAX);
        assert!(!none.try_spend(Duration::MAX, 1));
        assert!(none.share() == 0.0);
        let mut all = ByteBudget::new(u64::MAX, u64::MAX);
        assert!(all.try_spend(Duration::ZERO, u64::MAX));
        assert!(all.left(Duration::MAX) > 0);
    }

    proptest! {
        /// Over any time, no more is spent than the burst and what has accrued.
        #[test]
        fn the_budget_is_never_exceeded(
            rate in 0_u64..1_000_000_000,
            burst in 0_u64..1_000_000_000,
            asks in prop::collection::vec((0_u64..100_000_000_000, 0_u64..50_000_000), 0..60),
        ) {
            let mut budget = ByteBudget::new(rate, burst);
            let mut now = Duration::ZERO;
            for (nanos, bytes) in asks {
                now += Duration::from_nanos(nanos);
                let _ = budget.try_spend(now, bytes);
            }
            let accrued = u128::from(rate) * now.as_nanos() / HOUR.as_nanos();
            prop_assert!(u128::from(budget.spent()) <= accrued + u128::from(burst.min(rate)));
            prop_assert!((0.0..=1.0).contains(&budget.share()));
        }
    }
}
