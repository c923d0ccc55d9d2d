//! Statistical bounds for random results.

use std::ops::RangeInclusive;

/// Standard deviations of the two-sided 99.99 % interval of the normal distribution.
const Z: f64 = 3.891;

/// The 99.99 % interval of the binomial distribution, by the normal approximation with continuity
/// correction, which is accurate if 30 or more successes are expected.
pub(crate) fn binomial(trials: u64, probability: f64) -> RangeInclusive<f64> {
    let mean = trials as f64 * probability;
    let spread = Z * (mean * (1.0 - probability)).sqrt() + 0.5;
    mean - spread..=mean + spread
}

/// Fails unless `found` is in the 99.99 % interval.
pub(crate) fn assert_binomial(what: &str, found: u64, trials: u64, probability: f64) {
    let allowed = binomial(trials, probability);
    assert!(
        allowed.contains(&(found as f64)),
        "{what}: {found} of {trials} at {probability}, expected {allowed:?}"
    );
}

/// The median (the upper one of two).
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Fails unless `found` differs from `expected` by at most this share.
pub(crate) fn assert_close(what: &str, found: f64, expected: f64, part: f64) {
    assert!(
        (found - expected).abs() <= part * expected,
        "{what}: {found}, expected {expected} within {} %",
        part * 100.0
    );
}
