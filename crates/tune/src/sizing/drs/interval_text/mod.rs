//! An [`Interval`] as people write it, in `--drs-interval` and in settings files.

use std::fmt;
use std::str::FromStr;

use super::{Interval, LONGEST_INTERVAL, SHORTEST_INTERVAL};

/// A text that is no [`Interval`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalError {
    text: String,
}

impl fmt::Display for IntervalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is neither `adaptive` nor a time from {SHORTEST_INTERVAL:?} to \
             {LONGEST_INTERVAL:?}, such as 100ms",
            self.text
        )
    }
}

impl std::error::Error for IntervalError {}

impl FromStr for Interval {
    type Err = IntervalError;

    /// `adaptive`, or a time with its unit: [`SHORTEST_INTERVAL`]..=[`LONGEST_INTERVAL`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        units::time(text)
            .ok()
            .filter(|time| (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(time))
            .map(Self::Fixed)
            .ok_or_else(|| IntervalError {
                text: text.chars().take(40).collect(),
            })
    }
}

#[cfg(test)]
mod tests;
