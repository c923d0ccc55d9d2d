//! The periodic tests that somebody chose for one client, in place of those of the settings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

/// Shortest and longest interval that may be chosen: a second, and ten years.
const INTERVALS: (Duration, Duration) = (
    Duration::from_secs(1),
    Duration::from_secs(10 * 365 * 24 * 3600),
);
/// Longest part of a wrong name that is repeated, characters.
const SHOWN: usize = 64;

/// Names of tests, each with its interval; `None`: the interval of the settings. A test that is not named does
/// not run periodically.
///
/// As JSON it is an object of names: `{"ping": "10min", "route": true}`. Requests may also say what does not run
/// (`false`), and `1` and `0` for `true` and `false`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenTests(BTreeMap<String, Option<Duration>>);

/// The reason why a choice cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongChoice {
    /// It is neither whether the test runs, nor how often.
    #[error(
        "{0}: true or 1 chooses a test, false or 0 does not, and a time like \"10min\" is its interval"
    )]
    Value(String),
    /// The interval is too short or too long.
    #[error("{0}: an interval is between 1 s and ten years")]
    Interval(String),
}

impl ChosenTests {
    /// Reads a choice. Whether there are such tests is for the caller to find out.
    ///
    /// # Errors
    /// A value is no choice, or its interval is out of range.
    pub fn from_json(choice: &Map<String, Value>) -> Result<Self, WrongChoice> {
        let mut chosen = BTreeMap::new();
        for (name, value) in choice {
            let shown = || name.chars().take(SHOWN).collect::<String>();
            let number = value.as_f64();
            if *value == Value::Bool(true) || number == Some(1.0) {
                chosen.insert(name.clone(), None);
            } else if let Some(text) = value.as_str() {
                let interval = units::seconds(text).map_err(|_| WrongChoice::Value(shown()))?;
                if !(INTERVALS.0..=INTERVALS.1).contains(&interval) {
                    return Err(WrongChoice::Interval(shown()));
                }
                chosen.insert(name.clone(), Some(interval));
            } else if *value != Value::Bool(false) && number != Some(0.0) {
                return Err(WrongChoice::Value(shown()));
            }
        }
        Ok(Self(chosen))
    }

    /// The choice as an object that [`from_json`](Self::from_json) reads.
    pub fn to_json(&self) -> Map<String, Value> {
        let value = |interval: &Option<Duration>| match interval {
            None => Value::Bool(true),
            Some(interval) if interval.subsec_nanos() == 0 => {
                format!("{}s", interval.as_secs()).into()
            }
            Some(interval) => units::exact::time(*interval).into(),
        };
        let named = |(name, interval): (&String, _)| (name.clone(), value(interval));
        self.0.iter().map(named).collect()
    }

    /// The tests, each with its interval; `None`: the interval of the settings.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<Duration>)> {
        self.0
            .iter()
            .map(|(name, interval)| (name.as_str(), *interval))
    }

    /// The interval that was chosen for this test.
    pub fn interval(&self, test: &str) -> Option<Duration> {
        self.0.get(test).copied().flatten()
    }
}

impl<'n> FromIterator<(&'n str, Option<Duration>)> for ChosenTests {
    fn from_iter<T: IntoIterator<Item = (&'n str, Option<Duration>)>>(tests: T) -> Self {
        let named = |(name, interval): (&str, _)| (name.to_owned(), interval);
        Self(tests.into_iter().map(named).collect())
    }
}

#[cfg(test)]
mod tests;
