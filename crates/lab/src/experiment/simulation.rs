//! A run in the simulator.

use std::time::Instant;

use super::definition::Definition;
use super::document::mistake;
use super::plan::{At, Entrant};
use super::results::{Sample, Series};
use super::template::{self, Variables};
use super::variables;
use super::{Mode, series};
use crate::LabError;
use crate::shell;
use crate::simulate::{self, Measure, SimPoint, SimRequest, SimShorthand};

/// Simulates one point for `entrant`: what was measured, and the lines over time of a file in chunks.
///
/// # Errors
/// A mistake in the experiment's `simulation` table.
pub(crate) fn run(
    name: &str,
    definition: &Definition,
    mode: Mode,
    at: &At,
    entrant: &Entrant,
    seed: u64,
) -> Result<(Sample, Vec<Series>), LabError> {
    let wrong = |what: String| mistake(name, "simulation", what);
    let table = filled(name, definition, mode, at, entrant)?;
    let mut said: SimShorthand = table
        .clone()
        .try_into()
        .map_err(|e: toml::de::Error| wrong(e.message().to_owned()))?;
    said.seed = Some(seed);
    let request = SimRequest::from_shorthand(&said)?;
    let begin = Instant::now();
    let report = simulate::run(&request)?;
    let [point] = report.points.as_slice() else {
        return Err(wrong("'flows' must be one number at each point".to_owned()));
    };
    let value = taken(&definition.measure, point);
    let missing = value.is_none().then(|| "nothing was measured".to_owned());
    let also = definition.also.iter().map(|also| also.measure.as_str());
    let also = also.filter_map(|name| Some((name.to_owned(), taken(name, point)?)));
    let sample = Sample {
        value,
        invalid: missing.into_iter().collect(),
        seconds: begin.elapsed().as_secs_f64(),
        bytes: request.file().unwrap_or(0),
        cpu_seconds: None,
        seed,
        command: format!("longhaul lab sim{}", options(&table, seed)),
        limited_by: Some(point.limited_by.clone()),
        also: also.collect(),
    };
    Ok((sample, over_time(definition, &entrant.key, point)))
}

/// The experiment's `simulation` table at a point, as `entrant` has it.
fn filled(
    name: &str,
    definition: &Definition,
    mode: Mode,
    at: &At,
    entrant: &Entrant,
) -> Result<toml::Table, LabError> {
    let mut given = Variables::new();
    if let Some(asked) = variables::bytes(definition, mode, at) {
        let bytes = entrant.bytes(mode, asked);
        given.insert("bytes".to_owned(), bytes.to_string());
    }
    let variables = variables::at(name, definition, at, given, entrant.sets())?;
    let table = definition.simulation.clone().unwrap_or_default();
    template::table(&table, &variables).map_err(|e| mistake(name, "simulation", e))
}

/// What a measure is at `point`; `None`: it is none of the simulator's, or was not measured.
fn taken(measure: &str, point: &SimPoint) -> Option<f64> {
    Measure::named(measure)?.of(point)
}

/// The experiment's charts over time, of a file in chunks.
fn over_time(definition: &Definition, key: &str, point: &SimPoint) -> Vec<Series> {
    let chunks = point.chunks.iter();
    let samples = chunks.filter_map(|chunk| serde_json::to_value(chunk).ok());
    series::of_samples(&definition.series, key, samples)
}

/// The command line that simulates the same.
fn options(table: &toml::Table, seed: u64) -> String {
    let mut line = String::new();
    for (key, value) in table {
        match value {
            toml::Value::Boolean(true) => line += &format!(" --{key}"),
            toml::Value::Boolean(false) => {}
            toml::Value::String(text) => line += &format!(" --{key} {}", shell::word(text)),
            other => line += &format!(" --{key} {other}"),
        }
    }
    line + &format!(" --seed {seed}")
}
