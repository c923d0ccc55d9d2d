//! Exponential backoff between attempts, bounded and with jitter.
//!
//! The jitter keeps clients that lost the same server from reconnecting at the same moment.

use std::time::Duration;

use units::splitmix;

/// Longest wait before the first retry.
pub const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Longest wait before any retry.
pub const MAX_DELAY: Duration = Duration::from_secs(30);

/// Wait before retry number `retry` (from 1): between half and all of 1 s, doubled for every further
/// retry up to 30 s. The same `seed` and `retry` always give the same wait.
pub fn delay(retry: u32, seed: u64) -> Duration {
    // The bound keeps the shift in range; `MAX_DELAY` is reached long before.
    let doublings = retry.saturating_sub(1).min(16);
    let full = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    let half = full / 2;
    // The retry number goes into the upper half, so that seeds that count upwards do not meet it.
    half + half.mul_f64(fraction(seed ^ u64::from(retry).rotate_left(32)))
}

/// A pseudo-random number in 0..1, derived from `x`.
fn fraction(x: u64) -> f64 {
    // A double holds 53 bits exactly.
    (splitmix::first(x) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        for (retry, full) in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (60, 30)] {
            let wait = delay(retry, 7);
            assert!(wait >= Duration::from_secs(full) / 2, "{retry}: {wait:?}");
            assert!(wait <= Duration::from_secs(full), "{retry}: {wait:?}");
        }
    }

    #[test]
    fn different_seeds_give_different_delays() {
        let waits: std::collections::HashSet<_> = (0..100).map(|seed| delay(3, seed)).collect();
        assert!(waits.len() > 90);
    }

    proptest! {
        #[test]
        fn every_delay_is_within_its_bounds_and_reproducible(retry: u32, seed: u64) {
            let wait = delay(retry, seed);
            prop_assert!(wait >= FIRST_DELAY / 2 && wait <= MAX_DELAY);
            prop_assert_eq!(wait, delay(retry, seed));
        }
    }
}
