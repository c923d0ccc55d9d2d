//! An [`DrsInterval`] as people write it, in `--drs-interval` and in settings files.

use std::fmt;
use std::str::FromStr;

use super::{DrsInterval, LONGEST_INTERVAL, SHORTEST_INTERVAL};

/// A text that is no [`DrsInterval`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrsIntervalError {
    text: String,
}

impl fmt::Display for DrsIntervalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is neither `adaptive` nor a time from {SHORTEST_INTERVAL:?} to \
             {LONGEST_INTERVAL:?}, such as 100ms",
            self.text
        )
    }
}

impl std::error::Error for DrsIntervalError {}

impl FromStr for DrsInterval {
    type Err = DrsIntervalError;

    /// `adaptive`, or a time with its unit: [`SHORTEST_INTERVAL`]..=[`LONGEST_INTERVAL`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        units::time(text)
            .ok()
            .filter(|time| (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(time))
            .map(Self::Fixed)
            .ok_or_else(|| DrsIntervalError {
                text: text.chars().take(40).collect(),
            })
    }
}

#[cfg(test)]
mod tests;
