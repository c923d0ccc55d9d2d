//! How soon a field of a trace grows nearly as fast as it will.

use serde::Deserialize;

use super::growth::Growth;
use super::trace::{self, Only};

/// A field that only grows, and what counts as having arrived.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rise {
    /// The field.
    of: String,
    /// Share of the steady growth that is to be reached.
    to: f64,
    /// Growth is steady between these shares of the field's last value.
    between: (f64, f64),
    /// It is reached when it holds for so long, seconds.
    over: f64,
    /// The field with the time, seconds.
    #[serde(default = "trace::time")]
    x: String,
    /// Only samples whose fields have these values.
    #[serde(default, rename = "where")]
    only: Only,
}

impl Rise {
    /// The mistake in it.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        if !(self.to > 0.0 && self.to <= 1.0) {
            return Some("'to' is a share, above 0, at most 1");
        }
        if !(self.over > 0.0 && self.over.is_finite()) {
            return Some("'over' is a time in seconds, above 0");
        }
        self.steady().mistake()
    }

    fn steady(&self) -> Growth {
        Growth::of(&self.of, self.between, &self.x, &self.only)
    }

    /// Seconds from the last moment at which the field was 0 (or from the first sample) until a
    /// stretch of `over` begins in which it grows by `to` of its steady growth. `None`: it never
    /// does, or no growth is steady.
    pub(crate) fn seconds(&self, samples: &str) -> Option<f64> {
        let wanted = self.steady().per_second(samples)? * self.to * self.over;
        let points = trace::points(samples, &self.of, &self.x, &self.only);
        let nothing = points.iter().rposition(|(_, value)| *value == 0.0);
        let points = points.get(nothing.unwrap_or(0)..)?;
        let (begin, _) = *points.first()?;
        let risen = |(time, value): &&(f64, f64)| {
            let later = value_at(points, time + self.over);
            later.is_some_and(|later| later - value >= wanted)
        };
        points.iter().find(risen).map(|(time, _)| time - begin)
    }
}

/// The value at `time`, on the line between its neighbours; `None` outside.
fn value_at(points: &[(f64, f64)], time: f64) -> Option<f64> {
    let after = points.iter().position(|(t, _)| *t >= time)?;
    let (t1, v1) = points[after];
    let (t0, v0) = points[after.checked_sub(1)?];
    Some(if t1 > t0 {
        v0 + (v1 - v0) * (time - t0) / (t1 - t0)
    } else {
        v1
    })
}

#[cfg(test)]
mod tests;
