//! How long to wait before another attempt: doubling, bounded, with jitter.
//!
//! The jitter keeps many clients that lost the same server from coming back in the same instant.

use std::time::Duration;

/// The wait before the first retry.
pub const FIRST: Duration = Duration::from_secs(1);
/// No wait is longer than this.
pub const LONGEST: Duration = Duration::from_secs(30);

/// The wait before retry number `retry` (from 1): 1 s doubling to 30 s, of which a part between
/// one half and the whole is taken, chosen by `seed` and `retry` alone.
pub fn delay(retry: u32, seed: u64) -> Duration {
    let doublings = retry.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let half = full / 2;
    half + half.mul_f64(fraction(seed ^ u64::from(retry).rotate_left(32)))
}

/// A number in 0..1 from the bits of `x` (the finaliser of splitmix64).
fn fraction(x: u64) -> f64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    // 53 bits are what a double holds exactly.
    (z >> 11) as f64 / (1_u64 << 53) as f64
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
            prop_assert!(wait >= FIRST / 2 && wait <= LONGEST);
            prop_assert_eq!(wait, delay(retry, seed));
        }
    }
}
