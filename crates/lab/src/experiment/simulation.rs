//! A run in the simulator.

use std::time::Instant;

use super::definition::Definition;
use super::document::mistake;
use super::plan::At;
use super::results::Sample;
use super::template::{self, Variables};
use super::variables;
use crate::LabError;
use crate::shell;
use crate::simulate::{self, Measure, SimRequest, SimShorthand};

/// Simulates one point; `own` are the settings of a variant.
///
/// # Errors
/// A mistake in the experiment's `simulation` table.
pub(crate) fn run(
    name: &str,
    definition: &Definition,
    at: &At,
    own: &Variables,
    seed: u64,
) -> Result<Sample, LabError> {
    let wrong = |what: String| mistake(name, "simulation", what);
    let measure = Measure::named(&definition.measure)
        .ok_or_else(|| mistake(name, "measure", "the simulator has no such measure"))?;
    let variables = variables::at(name, definition, at, Variables::new(), own)?;
    let table = definition.simulation.clone().unwrap_or_default();
    let filled = template::table(&table, &variables).map_err(|e| wrong(e.to_string()))?;
    let mut said: SimShorthand = filled
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
    let value = measure.of(point);
    let missing = value.is_none().then(|| "nothing arrived".to_owned());
    Ok(Sample {
        value,
        invalid: missing.into_iter().collect(),
        seconds: begin.elapsed().as_secs_f64(),
        bytes: request.bytes.unwrap_or(0),
        cpu_seconds: None,
        seed,
        command: format!("longhaul lab sim{}", options(&filled, seed)),
        limited_by: Some(point.limited_by.clone()),
        also: Default::default(),
    })
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
