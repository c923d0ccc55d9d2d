//! How far to trust advice.

use std::time::Duration;

use crate::path::facts::PathFacts;

/// Number of measurements that give half of the confidence.
const HALF_AT: f64 = 1.0;
/// Age at which half of the confidence is left.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Factor for measurements whose age is unknown.
const UNKNOWN_AGE: f64 = 0.5;
/// Factor if only one of round trip and bandwidth is known.
const INCOMPLETE: f64 = 0.3;
/// Smallest factor for rates that vary: they are still better than none.
const MIN_STEADINESS: f64 = 0.3;

/// Confidence, 0..=1, from number, spread and age of the measurements.
pub(super) fn confidence(facts: &PathFacts) -> f64 {
    let transfers = facts.goodput.map_or(0, |goodput| goodput.count);
    let count = f64::from(facts.measurements) + f64::from(transfers);
    let number = count / (count + HALF_AT);
    let complete = match (facts.rtt, facts.bandwidth_bps) {
        (Some(_), Some(_)) => 1.0,
        (None, None) if transfers == 0 => return 0.0,
        _ => INCOMPLETE,
    };
    let direction = if facts.is_of_other_direction {
        INCOMPLETE
    } else {
        1.0
    };
    let age = facts.age.map_or(UNKNOWN_AGE, |age| {
        0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    });
    let steadiness = facts.goodput.map_or(1.0, |goodput| {
        let range = goodput.p90_bps.saturating_sub(goodput.p10_bps) as f64;
        let relative = range / 2.0 / goodput.median_bps.max(1) as f64;
        (1.0 - relative).clamp(MIN_STEADINESS, 1.0)
    });
    (number * complete * direction * age * steadiness).clamp(0.0, 1.0)
}
