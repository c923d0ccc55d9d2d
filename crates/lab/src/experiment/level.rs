//! Level of a field of a trace over a part of the time.

use serde::Deserialize;

use super::statistics::median;
use super::trace::{self, Only};

/// A field, and the part of the time that counts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Level {
    /// The field.
    of: String,
    /// Shares of the time from the first sample that is not 0 to the last one.
    between: (f64, f64),
    /// The field with the time, seconds.
    #[serde(default = "trace::time")]
    x: String,
    /// Only samples whose fields have these values.
    #[serde(default, rename = "where")]
    only: Only,
}

impl Level {
    /// The mistake in it.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let (from, to) = self.between;
        let good = 0.0 <= from && from < to && to <= 1.0;
        (!good).then_some("'between' has two shares, 0 to 1, the smaller one first")
    }

    /// The median of the samples within the part. Zeros do not count: there was nothing to see, as
    /// before data moves and after.
    pub(crate) fn typical(&self, samples: &str) -> Option<f64> {
        let mut points = trace::points(samples, &self.of, &self.x, &self.only);
        points.retain(|(_, value)| *value != 0.0);
        let (first, last) = (points.first()?.0, points.last()?.0);
        let at = |share: f64| first + (last - first) * share;
        let part = at(self.between.0)..=at(self.between.1);
        let within = points.iter().filter(|(time, _)| part.contains(time));
        let values: Vec<f64> = within.map(|(_, value)| *value).collect();
        median(&values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(between: &str) -> Level {
        let text = "of = 'streams'\nwhere = { sample = 'transfer' }\nbetween = ";
        toml::from_str(&format!("{text}{between}")).unwrap()
    }

    #[test]
    fn the_median_of_a_part() {
        // Nothing for 2 s, one stream, from 5 s on four, from 10 s on none.
        let line = |t: u32| {
            let streams = match t {
                0..2 | 10.. => 0,
                2..5 => 1,
                _ => 4,
            };
            let stream = "{\"sample\":\"stream\",\"time\":9,\"streams\":77}\n";
            format!("{stream}{{\"sample\":\"transfer\",\"time\":{t},\"streams\":{streams}}}\n")
        };
        let trace: String = (0..=15).map(line).collect();
        assert_eq!(level("[0.8, 1]").typical(&trace), Some(4.0));
        assert_eq!(level("[0, 0.3]").typical(&trace), Some(1.0));
        assert_eq!(level("[0.91, 0.99]").typical(&trace), None);
        assert_eq!(level("[0, 1]").typical("nothing"), None);
    }

    #[test]
    fn shares_are_in_order() {
        assert!(level("[0, 1]").mistake().is_none());
        for odd in ["[0.5, 0.5]", "[-0.1, 1]", "[0, 1.1]", "[nan, 1]"] {
            assert!(level(odd).mistake().is_some(), "{odd}");
        }
    }
}
