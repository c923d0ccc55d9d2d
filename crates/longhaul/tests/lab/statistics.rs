//! Bounds of chance.

use std::ops::RangeInclusive;

/// Standard deviations of the two-sided 99.99 % interval of the normal distribution.
const Z: f64 = 3.891;

/// Successes of `trials` with this probability each that are seen in 9 999 of 10 000 cases, in the
/// normal approximation with continuity correction (good where 30 and more are expected).
pub(crate) fn binomial(trials: u64, probability: f64) -> RangeInclusive<f64> {
    let mean = trials as f64 * probability;
    let spread = Z * (mean * (1.0 - probability)).sqrt() + 0.5;
    mean - spread..=mean + spread
}

/// Fails unless `found` is among what chance allows.
pub(crate) fn assert_binomial(what: &str, found: u64, trials: u64, probability: f64) {
    let allowed = binomial(trials, probability);
    assert!(
        allowed.contains(&(found as f64)),
        "{what}: {found} of {trials} at {probability}, where chance allows {allowed:?}"
    );
}

/// The middle one.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Fails unless `found` is within this part of `expected`.
pub(crate) fn assert_close(what: &str, found: f64, expected: f64, part: f64) {
    assert!(
        (found - expected).abs() <= part * expected,
        "{what}: {found}, expected {expected} within {} %",
        part * 100.0
    );
}
