//! How fast a field of a trace grows once the beginning is over and before the end begins.

use serde::Deserialize;

use super::trace::{self, Only};

/// A field that only grows, and which part of it counts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Growth {
    /// The field.
    of: String,
    /// Shares of its last value: from when it reaches the first until it reaches the second.
    between: (f64, f64),
    /// The field with the time, seconds.
    #[serde(default = "trace::time")]
    x: String,
    /// Only samples whose fields have these values.
    #[serde(default, rename = "where")]
    only: Only,
}

/// Of fewer samples within the part the result would depend on when they were taken.
const FEWEST_SAMPLES: usize = 10;

impl Growth {
    /// Of a field between two shares of its last value.
    pub(crate) fn of(of: &str, between: (f64, f64), x: &str, only: &Only) -> Self {
        Self {
            of: of.to_owned(),
            between,
            x: x.to_owned(),
            only: only.clone(),
        }
    }

    /// The mistake in it.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let (from, to) = self.between;
        let good = 0.0 < from && from < to && to <= 1.0;
        (!good).then_some("'between' has two shares, above 0, at most 1, the smaller one first")
    }

    /// Growth a second; the moments at which the shares are reached lie on the lines between
    /// samples. `None` with fewer than [`FEWEST_SAMPLES`] between the two. What is no such sample is
    /// passed over.
    pub(crate) fn per_second(&self, samples: &str) -> Option<f64> {
        let points = trace::points(samples, &self.of, &self.x, &self.only);
        let (_, last) = *points.last()?;
        let (from, to) = (self.between.0 * last, self.between.1 * last);
        let (begin, end) = (reached(&points, from)?, reached(&points, to)?);
        let within = points.iter().filter(|(t, _)| (begin..=end).contains(t));
        let rate = (to - from) / (end - begin);
        (within.count() >= FEWEST_SAMPLES && rate.is_finite()).then_some(rate)
    }
}

/// When `value` is reached; `None` if it never is, or already was at the first sample.
fn reached(points: &[(f64, f64)], value: f64) -> Option<f64> {
    let after = points.iter().position(|(_, v)| *v >= value)?;
    let (t0, v0) = points[after.checked_sub(1)?];
    let (t1, v1) = points[after];
    Some(t0 + (value - v0) / (v1 - v0) * (t1 - t0))
}

#[cfg(test)]
mod tests;
