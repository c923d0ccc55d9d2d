//! Runs of experiments of kind `sim`, in the simulator.

use std::os::fd::AsFd;
use std::time::Instant;

use super::definition::template::{self, TemplateError, Variables};
use super::definition::{key_error, reading};
use super::measurement::FinishedRun;
use super::plan::{self, Participant};
use super::preparation::RunSetup;
use super::process::{self, Interrupts};
use super::results::{RunRecord, SweepPoint};
use crate::LabError;
use crate::simulate::{self, SimMeasure, SimReport, SimRequest};
use proto::printable::shell_word;

/// Simulates one point for a participant. `None`: the user wants to stop.
///
/// # Errors
/// [`LabError::Usage`]: the experiment's `simulation` table has a mistake.
pub(crate) fn run(
    setup: &RunSetup<'_>,
    at: &SweepPoint,
    participant: &Participant,
    seed: u64,
) -> Result<Option<FinishedRun>, LabError> {
    let definition = setup.definition;
    let mistake = |what: String| key_error(setup.name, "simulation", what);
    let mut options = collect_options(setup, at, participant)?;
    options.push(("seed".to_owned(), seed.to_string()));
    let request = SimRequest::from_options(&options)?;
    let begin = Instant::now();
    let Some(report) = simulate_interruptibly(&request, setup.interrupts)? else {
        return Ok(None);
    };
    let [point] = report.points.as_slice() else {
        return Err(mistake(
            "'flows' must be one number at each point".to_owned(),
        ));
    };
    let value = |name: &str| SimMeasure::named(name)?.of(point);
    let missing = || format!("the simulation has no value of {}", definition.measure);
    let measured = value(&definition.measure);
    let also = definition.also.iter().map(|also| &also.measure);
    let also = also.filter_map(|name| Some((name.clone(), value(name)?)));
    let arguments = options.iter().map(|(key, value)| match value.as_str() {
        "" => format!(" --{key}"),
        value => format!(" --{key} {}", shell_word(value)),
    });
    let record = RunRecord {
        value: measured,
        invalid: measured.is_none().then(missing).into_iter().collect(),
        spoiled: false,
        seconds: begin.elapsed().as_secs_f64(),
        bytes: request.file().unwrap_or(0),
        took: None,
        cpu_seconds: None,
        seed,
        command: format!("longhaul lab sim{}", arguments.collect::<String>()),
        limited_by: Some(point.limited_by.clone()),
        also: also.collect(),
    };
    // Chunks, or the samples of a file that is sent whole, take the place of a client's trace, so that charts over
    // time can show them.
    let chunks = point.chunks.iter().map(serde_json::to_string);
    let lines = point.samples.iter().map(serde_json::to_string);
    let trace = chunks.chain(lines).flatten().collect::<Vec<_>>().join("\n");
    Ok(Some(FinishedRun {
        record,
        settings: Default::default(),
        series: reading::read_series(&definition.series, &participant.key, &trace),
    }))
}

/// Simulates in a thread. When the user wants to stop, the thread is not waited for: the process then ends.
fn simulate_interruptibly(
    request: &SimRequest,
    interrupts: &Interrupts,
) -> Result<Option<SimReport>, LabError> {
    let failed = |e: std::io::Error| LabError::system("cannot run a simulation", e);
    let (done, running) = std::io::pipe().map_err(failed)?;
    let request = request.clone();
    let simulate = move || {
        // The pipe closes when the closure returns, and also when the simulation panics.
        let _running = running;
        simulate::run(&request)
    };
    let builder = std::thread::Builder::new().name("simulation".into());
    let thread = builder.spawn(simulate).map_err(failed)?;
    if !process::wait_for_done_or_stop(done.as_fd(), interrupts.fd()).map_err(failed)? {
        return Ok(None);
    }
    match thread.join() {
        Ok(report) => report.map(Some),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Collects the options of `longhaul lab sim` from the experiment's `simulation` table, expanded for a
/// point. A flag has an empty value.
fn collect_options(
    setup: &RunSetup<'_>,
    at: &SweepPoint,
    participant: &Participant,
) -> Result<Vec<(String, String)>, LabError> {
    let mut given = Variables::new();
    if let Some(asked) = plan::requested_bytes(setup.definition, setup.mode, at) {
        let bytes = participant.bytes(setup.mode, asked);
        given.insert("bytes".to_owned(), bytes.to_string());
    }
    let sets = &participant.variant.sets;
    let variables = plan::expand_variables(setup.name, setup.definition, at, given, sets)?;
    let table = setup.definition.simulation.iter().flatten();
    let table = table.filter(|(_, value)| value.as_bool() != Some(false));
    let filled = table.map(|(key, value)| {
        let value = match value {
            toml::Value::String(text) => template::expand(text, &variables)?,
            toml::Value::Boolean(_) => String::new(),
            other => other.to_string(),
        };
        Ok((key.clone(), value))
    });
    let filled: Result<_, TemplateError> = filled.collect();
    filled.map_err(|e| key_error(setup.name, "simulation", e))
}
