//! How long to wait before another attempt: doubling, bounded, with jitter.
//!
//! The jitter keeps many clients that lost the same server from coming back in the same instant.

use std::time::Duration;

use units::splitmix;

/// The wait before the first retry.
pub const FIRST_DELAY: Duration = Duration::from_secs(1);
/// No wait is longer than this.
pub const MAX_DELAY: Duration = Duration::from_secs(30);

/// The wait before retry number `retry` (from 1): 1 s doubling to 30 s, of which a part between
/// one half and the whole is taken, chosen by `seed` and `retry` alone.
pub fn delay(retry: u32, seed: u64) -> Duration {
    let doublings = retry.saturating_sub(1).min(16);
    let full = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    let half = full / 2;
    half + half.mul_f64(fraction(seed ^ u64::from(retry).rotate_left(32)))
}

/// A number in 0..1 from the bits of `x`.
fn fraction(x: u64) -> f64 {
    // 53 bits are what a double holds exactly.
    (splitmix::first(x) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_to_the_bound() {
        for (retry, full) in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (60, 30)] {
            let wait = delay(retry, 7);
            assert!(wait >= Duration::from_secs(full) / 2, "{retry}: {wait:?}");
            assert!(wait <= Duration::from_secs(full), "{retry}: {wait:?}");
        }
    }

    #[test]
    fn seeds_spread() {
        let waits: std::collections::HashSet<_> = (0..100).map(|seed| delay(3, seed)).collect();
        assert!(waits.len() > 90);
    }

    proptest! {
        #[test]
        fn always_bounded(retry: u32, seed: u64) {
            let wait = delay(retry, seed);
            prop_assert!(wait >= FIRST_DELAY / 2 && wait <= MAX_DELAY);
            prop_assert_eq!(wait, delay(retry, seed));
        }
    }
}
