//! A run in the simulator.

use std::os::fd::AsFd;
use std::time::Instant;

use super::axes::At;
use super::definition::Definition;
use super::document::mistake;
use super::interrupt::Interrupts;
use super::plan::Entrant;
use super::results::{RunRecord, TimeSeries};
use super::template::{self, Variables};
use super::variables;
use super::{Mode, process, series};
use crate::LabError;
use crate::quoting::shell_word;
use crate::simulate::{self, Measure, SimPoint, SimReport, SimRequest, SimShorthand};

/// Simulates one point for `entrant`: what was measured, and the lines over time of a file in chunks.
/// `None`: the user wants to stop.
///
/// # Errors
/// A mistake in the experiment's `simulation` table.
pub(crate) fn run(
    place: &Place<'_>,
    at: &At,
    entrant: &Entrant,
    seed: u64,
) -> Result<Option<(RunRecord, Vec<TimeSeries>)>, LabError> {
    let (name, definition) = (place.name, place.definition);
    let wrong = |what: String| mistake(name, "simulation", what);
    let table = filled(name, definition, place.mode, at, entrant)?;
    let mut said: SimShorthand = table
        .clone()
        .try_into()
        .map_err(|e: toml::de::Error| wrong(e.message().to_owned()))?;
    said.seed = Some(seed);
    let request = SimRequest::from_shorthand(&said)?;
    let begin = Instant::now();
    let Some(report) = interruptible(&request, place.interrupts)? else {
        return Ok(None);
    };
    let [point] = report.points.as_slice() else {
        return Err(wrong("'flows' must be one number at each point".to_owned()));
    };
    let value = taken(&definition.measure, point);
    let missing = value.is_none().then(|| "nothing was measured".to_owned());
    let also = definition.also.iter().map(|also| also.measure.as_str());
    let also = also.filter_map(|name| Some((name.to_owned(), taken(name, point)?)));
    let sample = RunRecord {
        value,
        invalid: missing.into_iter().collect(),
        spoiled: false,
        seconds: begin.elapsed().as_secs_f64(),
        bytes: request.file().unwrap_or(0),
        cpu_seconds: None,
        seed,
        command: format!("longhaul lab sim{}", options(&table, seed)),
        limited_by: Some(point.limited_by.clone()),
        also: also.collect(),
    };
    Ok(Some((sample, over_time(definition, &entrant.key, point))))
}

/// The settings that all simulations of an experiment share.
pub(crate) struct Place<'a> {
    /// The experiment's name, for messages.
    pub(crate) name: &'a str,
    /// The experiment's definition.
    pub(crate) definition: &'a Definition,
    /// How much of it.
    pub(crate) mode: Mode,
    /// Tells when the user wants to stop.
    pub(crate) interrupts: &'a Interrupts,
}

/// Simulates in a thread, which nobody waits for once the user wants to stop: the process then ends.
fn interruptible(
    request: &SimRequest,
    interrupts: &Interrupts,
) -> Result<Option<SimReport>, LabError> {
    let failed = |e: std::io::Error| LabError::system("cannot run a simulation", e);
    let (done, running) = std::io::pipe().map_err(failed)?;
    let request = request.clone();
    let thread = std::thread::Builder::new()
        .name("simulation".into())
        .spawn(move || {
            // Closed when it is done, whatever comes of it.
            let _running = running;
            simulate::run(&request)
        })
        .map_err(failed)?;
    if !process::done_before(done.as_fd(), interrupts.fd()).map_err(failed)? {
        return Ok(None);
    }
    match thread.join() {
        Ok(report) => report.map(Some),
        Err(panic) => std::panic::resume_unwind(panic),
    }
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

/// Value of a measure at `point`; `None`: it is none of the simulator's, or was not measured.
fn taken(measure: &str, point: &SimPoint) -> Option<f64> {
    Measure::named(measure)?.of(point)
}

/// The experiment's charts over time, of a file in chunks.
fn over_time(definition: &Definition, key: &str, point: &SimPoint) -> Vec<TimeSeries> {
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
            toml::Value::String(text) => line += &format!(" --{key} {}", shell_word(text)),
            other => line += &format!(" --{key} {other}"),
        }
    }
    line + &format!(" --seed {seed}")
}
