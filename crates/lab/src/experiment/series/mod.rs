//! Fields of a client's trace over time, kept for charts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::document::mistake;
use super::results::{TimeChart, TimeSeries};
use super::trace::{self, Only};
use crate::LabError;

/// A chart over time for each cell: which lines of a trace, which of their fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesDefinition {
    /// For people: `Window and flight size`.
    pub(crate) title: String,
    /// Unit of the drawn values.
    pub(crate) unit: String,
    /// Factor for the fields.
    #[serde(default = "one")]
    pub(crate) scale: f64,
    /// The field with the time, seconds.
    #[serde(default = "trace::time")]
    pub(crate) x: String,
    /// Only samples whose fields have these values.
    #[serde(default, rename = "where")]
    pub(crate) only: Only,
    /// Name of a line in the chart → field.
    pub(crate) lines: BTreeMap<String, String>,
    /// Of how many runs of each cell it is kept, the first ones that count.
    #[serde(default = "one_run")]
    pub(crate) runs: usize,
    /// Keys of the programs or variants that have it; empty: all.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn one_run() -> usize {
    1
}

/// Most points of a line that are kept.
pub(crate) const MOST_POINTS: usize = 240;

/// Largest part of a trace that is read: hours of samples.
const LARGEST: u64 = 256 << 20;

impl SeriesDefinition {
    /// Checks what it says by itself; `index` is its place in the file, from 0.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the key.
    pub(crate) fn check(
        &self,
        file: &str,
        index: usize,
        programs: &[&String],
    ) -> Result<(), LabError> {
        let key = |what: &str| format!("series.{index}.{what}");
        if self.lines.is_empty() {
            return Err(mistake(file, &key("lines"), "name at least one field"));
        }
        if self.runs == 0 {
            return Err(mistake(file, &key("runs"), "must be more than 0"));
        }
        if !self.scale.is_finite() {
            return Err(mistake(file, &key("scale"), "must be a number"));
        }
        match self.programs.iter().find(|key| !programs.contains(key)) {
            Some(odd) => Err(mistake(
                file,
                &key("programs"),
                format!("'{odd}' takes no part"),
            )),
            None => Ok(()),
        }
    }

    /// As it is kept with the results.
    pub(crate) fn chart(&self) -> TimeChart {
        TimeChart {
            title: self.title.clone(),
            unit: self.unit.clone(),
        }
    }
}

/// Reads the charts of `definitions` that `program` has from a trace: JSON, one sample a line. What
/// is no such sample is passed over; without a trace there is nothing.
pub(crate) fn read(
    definitions: &[SeriesDefinition],
    program: &str,
    trace: &Path,
) -> Vec<TimeSeries> {
    if definitions.is_empty() {
        return Vec::new();
    }
    let Ok(file) = std::fs::File::open(trace) else {
        return Vec::new();
    };
    let lines = BufReader::new(file.take(LARGEST)).lines();
    let samples = lines
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str(&line).ok());
    of_samples(definitions, program, samples)
}

/// The charts of `definitions` that `program` has, from its samples in the order of time.
pub(crate) fn of_samples(
    definitions: &[SeriesDefinition],
    program: &str,
    samples: impl Iterator<Item = Value>,
) -> Vec<TimeSeries> {
    let mut all: Vec<(TimeSeries, &SeriesDefinition, &str)> = Vec::new();
    for (chart, definition) in definitions.iter().enumerate() {
        let named = &definition.programs;
        if !named.is_empty() && !named.iter().any(|key| key == program) {
            continue;
        }
        for (line, field) in &definition.lines {
            let series = TimeSeries {
                chart,
                line: line.clone(),
                run: 0,
                times: Vec::new(),
                values: Vec::new(),
            };
            all.push((series, definition, field));
        }
    }
    for sample in samples {
        for (series, definition, field) in &mut all {
            let number = |field: &str| trace::number(&sample, field);
            if !trace::meant(&sample, &definition.only) {
                continue;
            }
            if let (Some(time), Some(value)) = (number(&definition.x), number(field)) {
                series.times.push(time);
                series.values.push(value * definition.scale);
            }
        }
    }
    all.into_iter()
        .map(|(series, ..)| thinned(series))
        .filter(|series| !series.times.is_empty())
        .collect()
}

/// At most [`MOST_POINTS`] of a line's points: the line is cut into slices of as many points each,
/// of which the lowest and the highest are kept, so that every peak stays. Numbers are rounded to
/// what a chart can show.
fn thinned(mut series: TimeSeries) -> TimeSeries {
    let count = series.times.len();
    let per_slice = (2 * count).div_ceil(MOST_POINTS).max(1);
    let mut kept: Vec<usize> = Vec::new();
    for start in (0..count).step_by(per_slice) {
        let slice = start..(start + per_slice).min(count);
        let value = |index: &usize| series.values[*index];
        let by_value = |a: &usize, b: &usize| value(a).total_cmp(&value(b));
        let (low, high) = (
            slice.clone().min_by(by_value),
            slice.clone().max_by(by_value),
        );
        let mut both: Vec<usize> = low.into_iter().chain(high).collect();
        both.sort_unstable();
        both.dedup();
        kept.extend(both);
    }
    if count <= MOST_POINTS {
        kept = (0..count).collect();
    }
    series.times = kept.iter().map(|i| rounded(series.times[*i])).collect();
    series.values = kept.iter().map(|i| rounded(series.values[*i])).collect();
    series
}

/// Five significant digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests;
