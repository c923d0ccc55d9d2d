//! The time over which the values of a path resemble each other (section 6.2 of the paper): "The degree of time
//! correlation can be used to determine the valid period for a particular measurement."
//!
//! Tests do not run at equal distances, so that pairs of values are grouped by their distance in time (the discrete
//! correlation function of Edelson and Krolik, ApJ 333, 1988).

use std::time::Duration;

use super::series::MIN_RELATIVE_DEVIATION;

/// Autocorrelation at which a value has ceased to tell of a later one: that of an exponential decay after its time
/// constant.
const DECORRELATED: f64 = std::f64::consts::E.recip();
/// Fewest values that can be found to be constant.
const MIN_CONSTANT: usize = 3;
/// Fewest values whose autocorrelation means anything, and fewest pairs of one distance.
const MIN_VALUES: usize = 6;
const MIN_PAIRS: u32 = 3;
/// Distances beyond this part of the values have too few pairs that do not share values.
const LONGEST_PART: usize = 2;

/// How long a measured value tells something of later ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ValueCorrelation {
    /// There are too few values.
    #[default]
    Unknown,
    /// The values differ by less than would change any advice.
    Constant,
    /// The autocorrelation falls below 1/e after this time.
    Until(Duration),
    /// It is still above 1/e after this time, the longest that the values show.
    Beyond(Duration),
}

impl ValueCorrelation {
    /// The correlation of values with their times since any beginning. Their order does not matter; values that are not
    /// finite are left out.
    pub fn of(samples: &[(Duration, f64)]) -> Self {
        let mut samples: Vec<(f64, f64)> = samples
            .iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(at, value)| (at.as_secs_f64(), *value))
            .collect();
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        if samples.len() < MIN_CONSTANT {
            return Self::Unknown;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().map(|(_, value)| value).sum::<f64>() / count;
        samples.iter_mut().for_each(|(_, value)| *value -= mean);
        let variance = samples.iter().map(|(_, value)| value * value).sum::<f64>() / count;
        if variance.sqrt() <= mean.abs() * MIN_RELATIVE_DEVIATION {
            return Self::Constant;
        }
        match usual_distance(&samples) {
            Some(step) if samples.len() >= MIN_VALUES && variance.is_finite() => {
                falls_below(&autocorrelation(&samples, step, variance), step)
            }
            _ => Self::Unknown,
        }
    }

    /// The shorter one: what is known of the quantity that changes faster. What is unknown does not count.
    #[must_use]
    pub fn shorter(self, other: Self) -> Self {
        let rank = |one: &Self| match one {
            Self::Until(time) => (0, *time),
            Self::Beyond(time) => (1, *time),
            Self::Constant => (2, Duration::ZERO),
            Self::Unknown => (3, Duration::ZERO),
        };
        std::cmp::min_by_key(self, other, rank)
    }
}

/// Median distance of neighbours, seconds; `None` if it is none.
fn usual_distance(samples: &[(f64, f64)]) -> Option<f64> {
    let mut distances: Vec<f64> = samples.windows(2).map(|two| two[1].0 - two[0].0).collect();
    distances.sort_by(f64::total_cmp);
    let median = *distances.get(distances.len() / 2)?;
    (median > 0.0).then_some(median)
}

/// Autocorrelation by distance, in multiples of `step`: the first one is that of the step itself. `None`: there are too
/// few pairs.
fn autocorrelation(samples: &[(f64, f64)], step: f64, variance: f64) -> Vec<Option<f64>> {
    let longest = samples.len() / LONGEST_PART;
    let mut sums = vec![(0.0, 0_u32); longest];
    for (place, (from, one)) in samples.iter().enumerate() {
        for (to, other) in &samples[place + 1..] {
            let steps = ((to - from) / step).round();
            if steps < 1.0 || steps > longest as f64 {
                continue;
            }
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1 to the number of sums"
            )]
            let sum = &mut sums[steps as usize - 1];
            sum.0 += one * other;
            sum.1 += 1;
        }
    }
    let mean =
        |(sum, pairs): (f64, u32)| (pairs >= MIN_PAIRS).then(|| sum / f64::from(pairs) / variance);
    sums.into_iter().map(mean).collect()
}

/// Where the autocorrelation first falls below 1/e, interpolated between distances.
fn falls_below(correlations: &[Option<f64>], step: f64) -> ValueCorrelation {
    let (mut before, mut at) = (1.0, 0.0);
    for (place, found) in correlations.iter().enumerate() {
        let Some(found) = *found else {
            continue;
        };
        let distance = (place + 1) as f64;
        if found < DECORRELATED {
            let part = (before - DECORRELATED) / (before - found);
            return match Duration::try_from_secs_f64((at + (distance - at) * part) * step) {
                Ok(time) => ValueCorrelation::Until(time),
                Err(_) => ValueCorrelation::Unknown,
            };
        }
        (before, at) = (found, distance);
    }
    match Duration::try_from_secs_f64(at * step) {
        Ok(time) if at > 0.0 => ValueCorrelation::Beyond(time),
        _ => ValueCorrelation::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::splitmix::SplitMix64;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Values every hour of a process that forgets with this time constant, in hours (0: noise).
    fn forgetting(hours: f64, count: usize, seed: u64) -> Vec<(Duration, f64)> {
        let mut random = SplitMix64::new(seed);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        let keeps = if hours > 0.0 {
            (-1.0 / hours).exp()
        } else {
            0.0
        };
        let mut value = uniform();
        let next = |n: u32| {
            value = keeps * value + (1.0 - keeps * keeps).sqrt() * uniform();
            (HOUR * n, 100.0 + 80.0 * value)
        };
        (0..u32::try_from(count).unwrap()).map(next).collect()
    }

    fn hours(found: ValueCorrelation) -> f64 {
        match found {
            ValueCorrelation::Until(time) | ValueCorrelation::Beyond(time) => {
                time.as_secs_f64() / 3600.0
            }
            ValueCorrelation::Constant => f64::INFINITY,
            ValueCorrelation::Unknown => panic!("enough values"),
        }
    }

    #[test]
    fn the_time_constant_of_a_process_is_found() {
        for wanted in [2.0, 5.0, 10.0] {
            let found = hours(ValueCorrelation::of(&forgetting(wanted, 2000, 7)));
            assert!((found / wanted - 1.0).abs() < 0.35, "{wanted}: {found}");
        }
        assert!(hours(ValueCorrelation::of(&forgetting(0.0, 2000, 7))) < 0.7);
    }

    /// Ten values are what a service keeps: their estimate is rough, but the median tells slow from fast.
    #[test]
    fn ten_values_tell_a_slow_process_from_noise() {
        let median = |constant: f64| {
            let of = |seed| ValueCorrelation::of(&forgetting(constant, 10, seed));
            let mut found: Vec<f64> = (0..101).map(|seed| hours(of(seed))).collect();
            found.sort_by(f64::total_cmp);
            found[50]
        };
        let (noise, slow) = (median(0.0), median(10.0));
        assert!(noise < 0.8 && slow > 1.5 * noise, "{noise} {slow}");
    }

    #[test]
    fn values_that_hardly_differ_are_constant_and_few_values_are_not_judged() {
        let samples = |values: &[f64]| -> Vec<(Duration, f64)> {
            let at = |(n, value): (u32, &f64)| (HOUR * n, *value);
            (0_u32..).zip(values).map(at).collect()
        };
        let of = |values: &[f64]| ValueCorrelation::of(&samples(values));
        assert_eq!(of(&[100.0, 101.0]), ValueCorrelation::Unknown);
        assert_eq!(of(&[100.0, 101.0, 99.0]), ValueCorrelation::Constant);
        assert_eq!(of(&[0.0; 3]), ValueCorrelation::Constant);
        assert_eq!(of(&[100.0, 150.0, 80.0]), ValueCorrelation::Unknown);
        let together = [(HOUR, 1.0), (HOUR, 2.0), (HOUR, 4.0)].repeat(3);
        assert_eq!(ValueCorrelation::of(&together), ValueCorrelation::Unknown);
    }

    #[test]
    fn the_quantity_that_changes_faster_decides() {
        use ValueCorrelation::{Beyond, Constant, Unknown, Until};
        assert_eq!(Unknown.shorter(Constant), Constant);
        assert_eq!(Beyond(HOUR).shorter(Constant), Beyond(HOUR));
        assert_eq!(Until(HOUR * 2).shorter(Until(HOUR)), Until(HOUR));
        assert_eq!(Until(HOUR * 2).shorter(Beyond(HOUR)), Until(HOUR * 2));
    }

    proptest! {
        /// The time is not zero, and not longer than the values span.
        #[test]
        fn the_time_is_within_that_of_the_values(
            samples in prop::collection::vec((0_u32..1_000_000, any::<f64>()), 0..40),
        ) {
            let samples: Vec<(Duration, f64)> = samples
                .into_iter()
                .map(|(at, value)| (Duration::from_secs(at.into()), value))
                .collect();
            let times = samples.iter().map(|(at, _)| *at);
            let span = times.clone().max().unwrap_or_default() - times.min().unwrap_or_default();
            if let ValueCorrelation::Until(time) | ValueCorrelation::Beyond(time) = ValueCorrelation::of(&samples) {
                prop_assert!(!time.is_zero() && time <= span + Duration::from_secs(1));
            }
        }

        /// Neither the unit of the values nor the unit of time matters, nor the order.
        #[test]
        fn units_and_order_do_not_matter(seed in any::<u64>(), factor in 1_u32..1000, constant in 0.0..20.0) {
            let samples = forgetting(constant, 12, seed);
            let mut scaled: Vec<(Duration, f64)> = samples
                .iter()
                .map(|(at, value)| (*at * factor, value * f64::from(factor)))
                .collect();
            scaled.reverse();
            let (one, other) = (ValueCorrelation::of(&samples), ValueCorrelation::of(&scaled));
            if let (ValueCorrelation::Until(one), ValueCorrelation::Until(other)) = (one, other) {
                let ratio = other.as_secs_f64() / one.as_secs_f64() / f64::from(factor);
                prop_assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
            } else {
                prop_assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(&other));
            }
        }
    }
}
