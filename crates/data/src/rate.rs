//! Rate limit: a token bucket ([`TokenBucket`], pure: time is an argument), and a budget that the
//! streams of one or several transfers share ([`RateLimit`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Largest burst, as time at the limited rate.
const BURST: Duration = Duration::from_millis(100);

/// Grants bytes in the order of the requests, so that every stream gets its turn.
///
/// Instead of counting tokens it stores the time at which the bucket is full again, which needs no
/// periodic refill (the generic cell rate algorithm of ITU-T I.371, Annex A).
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Bytes per second, at least 1.
    rate: u64,
    /// Time at which everything granted is earned.
    full_at: Duration,
}

impl TokenBucket {
    /// A full bucket of `rate` bytes per second (0 counts as 1).
    pub fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            full_at: Duration::ZERO,
        }
    }

    /// Takes `bytes` at time `now` (since any fixed moment). Returns how long the caller must wait
    /// before it moves more.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        // 128 bits: bytes times 10^9 exceed 64 bits above 18 GB.
        let cost = Duration::from_nanos(
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.rate))
                .unwrap_or(u64::MAX),
        );
        // An idle bucket does not save up more than the burst.
        self.full_at = self.full_at.max(now).saturating_add(cost);
        self.full_at.saturating_sub(now).saturating_sub(BURST)
    }

    /// Changes the rate at `now` (bytes per second; 0 counts as 1). What was granted and is not earned yet is earned at the new
    /// rate.
    pub fn set_rate(&mut self, now: Duration, rate: u64) {
        let rate = rate.max(1);
        let owed = self.full_at.saturating_sub(now).as_nanos();
        let owed = owed * u128::from(self.rate) / u128::from(rate);
        let owed = Duration::from_nanos(u64::try_from(owed).unwrap_or(u64::MAX));
        self.full_at = now.saturating_add(owed);
        self.rate = rate;
    }

    /// Whether less than half of the burst is left at `now`.
    pub fn is_exhausted(&self, now: Duration) -> bool {
        self.full_at.saturating_sub(now) > BURST / 2
    }

    /// Whether everything granted is earned at `now`.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }

    /// Bytes that one step may move so that steps stay well below the burst.
    pub fn step(&self) -> usize {
        // A quarter of the burst: 25 ms at the limited rate.
        usize::try_from(self.rate / 40)
            .unwrap_or(usize::MAX)
            .max(1024)
    }
}

/// A budget of bytes per second, shared by all transfers that hold a clone: one may use what
/// another leaves. It may lie within others, for example the budget of a user within that of a host.
#[derive(Debug, Clone)]
pub struct RateLimit {
    own: Arc<RateLimitState>,
    outer: Option<Arc<RateLimit>>,
}

#[derive(Debug)]
struct RateLimitState {
    /// The rate in force.
    rate: AtomicU64,
    chosen: Mutex<ChosenRate>,
    begin: Instant,
    bucket: Mutex<TokenBucket>,
}

/// The rate that was set, which is not in force while it is suspended.
#[derive(Debug)]
struct ChosenRate {
    rate: u64,
    is_suspended: bool,
}

impl RateLimit {
    /// A budget of `rate` bytes per second (0 counts as 1).
    pub fn new(rate: u64) -> Self {
        Self {
            own: Arc::new(RateLimitState {
                rate: AtomicU64::new(rate.max(1)),
                chosen: Mutex::new(ChosenRate {
                    rate,
                    is_suspended: false,
                }),
                begin: Instant::now(),
                bucket: Mutex::new(TokenBucket::new(rate)),
            }),
            outer: None,
        }
    }

    /// The same budget within `outer`: bytes count for both, and the slower one decides.
    #[must_use]
    pub fn within(self, outer: Self) -> Self {
        let outer = match self.outer {
            // `outer` becomes the last of the chain.
            Some(inner) => Arc::unwrap_or_clone(inner).within(outer),
            None => outer,
        };
        Self {
            own: self.own,
            outer: Some(Arc::new(outer)),
        }
    }

    /// Bytes per second of the whole budget, at least 1.
    pub fn rate(&self) -> u64 {
        let outer = self.outer.as_ref().map_or(u64::MAX, |outer| outer.rate());
        self.own.rate.load(Ordering::Relaxed).min(outer)
    }

    /// Changes the rate for all that hold a clone, bytes per second (0 counts as 1). While the limit is suspended, the
    /// rate counts from its end on.
    pub fn set_rate(&self, rate: u64) {
        let mut chosen = self.own.chosen.lock();
        chosen.rate = rate;
        self.own.apply(&chosen);
    }

    /// Suspends the limit for all that hold a clone, or puts it in force again. Returns whether it is suspended now.
    pub fn toggle_suspension(&self) -> bool {
        let mut chosen = self.own.chosen.lock();
        chosen.is_suspended = !chosen.is_suspended;
        self.own.apply(&chosen);
        chosen.is_suspended
    }

    /// Takes `bytes`. Returns how long the caller must wait before it moves more.
    pub fn take(&self, bytes: u64) -> Duration {
        let wait = self.own.bucket.lock().take(self.own.begin.elapsed(), bytes);
        match &self.outer {
            Some(outer) => wait.max(outer.take(bytes)),
            None => wait,
        }
    }

    /// Bytes that one step may move so that steps stay well below the burst; at least 1024.
    pub fn step(&self) -> usize {
        let step = self.own.bucket.lock().step();
        self.outer
            .as_ref()
            .map_or(step, |outer| step.min(outer.step()))
    }

    /// Whether the transfers use up the whole budget now, so that it limits each of them.
    pub fn is_exhausted(&self) -> bool {
        let own = self
            .own
            .bucket
            .lock()
            .is_exhausted(self.own.begin.elapsed());
        own || self
            .outer
            .as_ref()
            .is_some_and(|outer| outer.is_exhausted())
    }

    /// Whether nobody else holds a clone, and everything granted is earned: a new budget would grant the same.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.own) == 1
            && self.own.bucket.lock().is_full(self.own.begin.elapsed())
    }
}

impl RateLimitState {
    fn apply(&self, chosen: &ChosenRate) {
        let rate = match chosen.is_suspended {
            true => u64::MAX,
            false => chosen.rate.max(1),
        };
        self.rate.store(rate, Ordering::Relaxed);
        self.bucket.lock().set_rate(self.begin.elapsed(), rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn a_burst_passes_and_the_rest_waits() {
        let mut bucket = TokenBucket::new(MB);
        let start = Duration::from_secs(3);
        assert_eq!(bucket.take(start, 100_000), Duration::ZERO);
        assert_eq!(bucket.take(start, 50_000), Duration::from_millis(50));
        let later = start + Duration::from_secs(10);
        assert_eq!(bucket.take(later, 200_000), Duration::from_millis(100));
    }

    #[test]
    fn a_bucket_is_exhausted_while_demand_equals_the_rate() {
        let mut bucket = TokenBucket::new(MB);
        assert!(!bucket.is_exhausted(Duration::ZERO));
        let mut now = Duration::ZERO;
        for _ in 0..20 {
            now += bucket.take(now, 25_000);
        }
        assert!(bucket.is_exhausted(now));
        assert!(!bucket.is_exhausted(now + Duration::from_millis(80)));
    }

    #[test]
    fn a_suspended_limit_comes_back_with_the_rate_that_was_set_last() {
        let limit = RateLimit::new(MB);
        let other = limit.clone();
        assert!(limit.take(10 * MB) > Duration::from_secs(9));
        assert!(other.toggle_suspension());
        assert_eq!(
            (limit.rate(), limit.take(100 * MB)),
            (u64::MAX, Duration::ZERO)
        );
        limit.set_rate(2 * MB);
        assert_eq!(limit.rate(), u64::MAX, "it stays suspended");
        assert!(!limit.toggle_suspension());
        assert_eq!(other.rate(), 2 * MB);
        assert!(other.take(10 * MB) > Duration::from_secs(4));
    }

    #[test]
    fn bytes_taken_by_one_holder_count_for_all() {
        let limit = RateLimit::new(MB);
        let other = limit.clone();
        assert!(limit.take(10 * MB) > Duration::from_secs(9));
        assert!(other.is_exhausted());
        assert!(other.take(MB) > Duration::from_secs(10));
        assert_eq!((other.rate(), RateLimit::new(0).rate()), (MB, 1));
    }

    #[test]
    fn a_budget_within_another_obeys_both() {
        let host = RateLimit::new(2 * MB);
        let user = RateLimit::new(MB).within(host.clone());
        let other = RateLimit::new(10 * MB)
            .within(RateLimit::new(8 * MB))
            .within(host.clone());
        assert_eq!((user.rate(), other.rate()), (MB, 2 * MB));
        assert_eq!(user.step(), RateLimit::new(MB).step());
        assert!(other.take(20 * MB) > Duration::from_secs(9));
        // The bytes of the other user count for the host.
        assert!(user.take(1) > Duration::from_secs(9) && user.is_exhausted());
        assert!(!RateLimit::new(MB).is_exhausted() && host.is_exhausted());
    }

    #[test]
    fn a_budget_is_unused_when_all_is_earned_and_nobody_holds_it() {
        let limit = RateLimit::new(MB);
        assert!(limit.is_unused());
        let other = limit.clone();
        assert!(!limit.is_unused());
        other.take(10 * MB);
        drop(other);
        assert!(!limit.is_unused());
    }

    #[test]
    fn a_new_rate_counts_for_what_is_owed_and_for_all_holders() {
        let mut bucket = TokenBucket::new(MB);
        let now = Duration::from_secs(1);
        bucket.take(now, 10 * MB);
        bucket.set_rate(now, 100 * MB);
        // 10 MB at 100 MB/s are the burst of 100 ms.
        assert_eq!(bucket.take(now, 10 * MB), Duration::from_millis(100));
        bucket.set_rate(now, 0);
        assert!(bucket.take(now, 1) > Duration::from_secs(3600));
        let limit = RateLimit::new(MB);
        let other = limit.clone();
        limit.set_rate(3 * MB);
        assert_eq!(other.rate(), 3 * MB);
    }

    #[test]
    fn a_rate_of_zero_does_not_divide_by_zero() {
        assert!(TokenBucket::new(0).take(Duration::ZERO, 10) > Duration::from_secs(9));
    }

    proptest! {
        #[test]
        fn streams_that_wait_never_exceed_the_rate_plus_a_burst(
            rate in 1_000u64..10_000_000_000,
            asks in proptest::collection::vec((1u64..4_000_000, 0u64..50), 1..100),
        ) {
            let mut bucket = TokenBucket::new(rate);
            let mut now = Duration::ZERO;
            let mut total = 0u128;
            for (bytes, idle_ms) in asks {
                now += Duration::from_millis(idle_ms);
                now += bucket.take(now, bytes);
                total += u128::from(bytes);
                // Each cost is rounded down to whole nanoseconds.
                let allowed = u128::from(rate) * (now + BURST).as_nanos() / 1_000_000_000;
                prop_assert!(total <= allowed + u128::from(rate) / 1_000_000 + 1);
            }
        }
    }
}
