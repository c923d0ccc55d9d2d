//! One run of one program: the process that makes it, and what its output says.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::cell::Outcome;
use super::definition::Definition;
use super::interrupt::Interrupts;
use super::leftovers;
use super::measures::{self, built_in_unit};
use super::plan::Entrant;
use super::preparation::Prepared;
use super::process::{self, Wait};
use super::reading::Reading;
use super::results::{RunRecord, TimeSeries};
use super::series;
use super::template::Variables;
use crate::LabError;
use crate::net::NetReport;
use crate::quoting::shell_word;

/// Outcome of a run.
#[derive(Debug)]
pub(crate) enum Run {
    /// It was made.
    Made(Box<Made>),
    /// The user wants to stop.
    Interrupted,
}

/// A run that was made.
#[derive(Debug)]
pub(crate) struct Made {
    /// Valid or not.
    pub(crate) sample: RunRecord,
    /// The hosts' kernel settings (`HOST: KEY` → value), if they were asked for.
    pub(crate) settings: BTreeMap<String, String>,
    /// Fields of the client's trace over time.
    pub(crate) series: Vec<TimeSeries>,
}

impl Made {
    /// In the simulator there are no settings, and nothing comes too late.
    pub(crate) fn simulated(sample: RunRecord, series: Vec<TimeSeries>) -> Self {
        Self {
            sample,
            settings: BTreeMap::new(),
            series,
        }
    }
}

/// How long a network may take to come and go, or to wait for another one, beyond the client's
/// limit.
const PATIENCE: Duration = Duration::from_secs(600);

/// How runs are made.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    /// The `longhaul` that has the lab.
    pub(crate) longhaul: &'a Path,
    /// The experiment's definition.
    pub(crate) definition: &'a Definition,
    /// Tells when the user wants to stop.
    pub(crate) interrupts: &'a Interrupts,
    /// Nothing was measured yet: what keeps the lab from running now is told instead of waited for.
    pub(crate) first: bool,
}

/// Makes a run in a fresh process (and over a fresh network, if it has one) and reads what
/// `entrant` measured.
///
/// # Errors
/// The lab refuses to run at all: a mistake in a file, a privilege that is missing, before the
/// first run another lab.
pub(crate) fn run(
    runs: &Runs<'_>,
    entrant: &Entrant,
    prepared: &Prepared,
    seed: u64,
) -> Result<Run, LabError> {
    // Its end tells the run that nobody waits for it any more.
    let (lifeline, alive) =
        std::io::pipe().map_err(|e| LabError::system("cannot make a pipe", e))?;
    let mut child = start(runs, prepared, seed, lifeline)?;
    let limit = Duration::from_secs(u64::from(prepared.job.limit_seconds));
    let deadline = Instant::now() + limit + PATIENCE;
    let wait = process::wait(&mut child, deadline, Some(runs.interrupts.fd()))
        .map_err(|e| LabError::system("cannot observe the lab", e))?;
    let code = match wait {
        Wait::Ended(status) => status.code(),
        Wait::Late => {
            stop(prepared, &mut child)?;
            None
        }
        Wait::Interrupted => {
            stop(prepared, &mut child)?;
            return Ok(Run::Interrupted);
        }
    };
    drop(alive);
    let outcome = outcome(prepared, code, runs.first)?;
    let definition = runs.definition;
    let made = judge(entrant, definition, prepared, seed, outcome);
    Ok(Run::Made(Box::new(made)))
}

fn error_file(prepared: &Prepared) -> PathBuf {
    prepared.job.directory.join("lab.err")
}

fn report_file(prepared: &Prepared) -> PathBuf {
    prepared.job.directory.join("report.json")
}

/// Starts `lab cell`, inside `lab net` if there is a network. It leads a process group, so that
/// a terminal's Ctrl-C reaches only the experiment, which then ends it.
fn start(
    runs: &Runs<'_>,
    prepared: &Prepared,
    seed: u64,
    lifeline: std::io::PipeReader,
) -> Result<Child, LabError> {
    let longhaul = runs.longhaul;
    let path = prepared.job.directory.join("job.json");
    let errors = error_file(prepared);
    let written = |path: &Path, e| LabError::system(format!("cannot write {}", path.display()), e);
    let job = serde_json::to_vec(&prepared.job).map_err(|e| written(&path, e.into()))?;
    std::fs::write(&path, job).map_err(|e| written(&path, e))?;
    let mut command = Command::new(longhaul);
    if let Some(topology) = &prepared.topology {
        command
            .args(["lab", "net", "--quiet", "--topology"])
            .arg(topology)
            .args(["--seed", &seed.to_string(), "--report"])
            .arg(report_file(prepared))
            .args((!runs.first).then_some("--wait"))
            .arg("--")
            .arg(longhaul);
    }
    command
        .args(["lab", "cell"])
        .arg(&path)
        .process_group(0)
        .env(leftovers::MARK, &prepared.mark)
        .stdin(lifeline)
        .stdout(Stdio::null())
        .stderr(File::create(&errors).map_err(|e| written(&errors, e))?)
        .spawn()
        .map_err(|e| LabError::system(format!("cannot start {}", longhaul.display()), e))
}

/// How long a network has to take itself down; then it is killed, and the kernel takes it down.
const TAKE_DOWN: Duration = Duration::from_millis(800);

/// Ends a run. A network takes down what runs on it; without one, the programs are in the group, or
/// have made themselves independent of it.
fn stop(prepared: &Prepared, child: &mut Child) -> Result<(), LabError> {
    let failed = |e| LabError::system("cannot end a run", e);
    if prepared.topology.is_some() {
        process::end_within(child, TAKE_DOWN).map_err(failed)?;
    } else {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            rustix::process::kill_process_group(group, Signal::KILL)
                .map_err(|e| failed(e.into()))?;
        }
        child.wait().map_err(failed)?;
    }
    leftovers::end_marked(&prepared.mark);
    Ok(())
}

/// Outcome that the process saw, or why it saw nothing.
fn outcome(prepared: &Prepared, code: Option<i32>, first: bool) -> Result<Outcome, LabError> {
    let seen = std::fs::read(prepared.job.outcome_file()).ok();
    if let Some(outcome) = seen.and_then(|json| serde_json::from_slice(&json).ok()) {
        return Ok(outcome);
    }
    let errors = std::fs::read(error_file(prepared)).unwrap_or_default();
    let errors = String::from_utf8_lossy(&errors);
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    let last = last.unwrap_or("the lab said nothing");
    let mut why = last
        .strip_prefix("longhaul lab: ")
        .unwrap_or(last)
        .to_owned();
    if let Some(topology) = &prepared.topology {
        // The user wrote an experiment, not this file.
        why = why.replace(&topology.display().to_string(), "[network], filled in");
    }
    match code {
        Some(2) => Err(LabError::Usage(why)),
        Some(3) => Err(LabError::Refused(why)),
        Some(4) => Err(LabError::NotFound(why)),
        Some(7) if first => Err(LabError::Busy(why)),
        Some(_) => Ok(Outcome::failed(why)),
        None => Ok(Outcome::failed(format!("the run was stuck: {why}"))),
    }
}

/// Turns what was seen into a sample.
fn judge(
    entrant: &Entrant,
    definition: &Definition,
    prepared: &Prepared,
    seed: u64,
    outcome: Outcome,
) -> Made {
    let output = Output {
        printed: text(&prepared.job.client_output()),
        directory: &prepared.job.directory,
    };
    let spoiled = spoiled(prepared);
    let reads = &entrant.program.reads;
    let moved = reads.get("bytes").and_then(|r| output.number(r));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of bytes"
    )]
    let bytes = moved.map_or(prepared.bytes, |bytes| bytes as u64);
    let seen = Seen {
        entrant,
        definition,
        output: &output,
        outcome: &outcome,
        bytes,
        cut: prepared.cut,
        variables: &prepared.variables,
    };
    let failure = outcome.failure.clone().or_else(|| incomplete(prepared));
    let value = failure.map_or_else(|| seen.measured(), Err);
    let (value, failure) = match value {
        Ok(value) => (Some(value), None),
        Err(why) => (None, Some(why)),
    };
    let also = match failure {
        Some(_) => BTreeMap::new(),
        None => seen.also(),
    };
    let series = match (&prepared.trace, &failure) {
        (Some(trace), None) => series::read(&definition.series, &entrant.key, trace),
        _ => Vec::new(),
    };
    let sample = RunRecord {
        value,
        bytes: if failure.is_none() { bytes } else { 0 },
        invalid: failure.into_iter().chain(spoiled.iter().cloned()).collect(),
        spoiled: !spoiled.is_empty(),
        seconds: outcome.seconds,
        cpu_seconds: Some(outcome.cpu_seconds),
        seed,
        command: command_line(&prepared.job.client.argv),
        limited_by: reads.get("limited_by").and_then(|r| r.text(&output.of(r))),
        also,
    };
    Made {
        sample,
        settings: outcome.settings,
        series,
    }
}

/// Why the network cannot be believed.
fn spoiled(prepared: &Prepared) -> Vec<String> {
    if prepared.topology.is_none() {
        return Vec::new();
    }
    let report = std::fs::read(report_file(prepared)).unwrap_or_default();
    match serde_json::from_slice::<NetReport>(&report) {
        Ok(report) => report.invalid,
        Err(_) => vec!["the network left no report".to_owned()],
    }
}

/// Why a client that says it succeeded did not.
fn incomplete(prepared: &Prepared) -> Option<String> {
    let sink = prepared.received.as_ref()?;
    let there = std::fs::metadata(sink).map_or(0, |m| m.len());
    (there != prepared.bytes).then(|| format!("received {there} of {} bytes", prepared.bytes))
}

/// Output of a run for the program's readings.
struct Output<'a> {
    /// By the client.
    printed: String,
    /// Where files are.
    directory: &'a Path,
}

impl Output<'_> {
    /// The text that `reading` is about.
    fn of(&self, reading: &Reading) -> Cow<'_, str> {
        match reading.file() {
            None => Cow::Borrowed(&self.printed),
            Some(name) => Cow::Owned(text(&self.directory.join(name))),
        }
    }

    fn number(&self, reading: &Reading) -> Option<f64> {
        reading.number(&self.of(reading))
    }
}

/// A file's content; without it nothing.
fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A run that did not fail.
struct Seen<'a> {
    entrant: &'a Entrant,
    definition: &'a Definition,
    output: &'a Output<'a>,
    outcome: &'a Outcome,
    bytes: u64,
    /// The file was smaller than others' at this point.
    cut: bool,
    /// The values that the run was made with.
    variables: &'a Variables,
}

impl Seen<'_> {
    /// Value that the experiment measures, or why there is none.
    fn measured(&self) -> Result<f64, String> {
        let measure = &self.definition.measure;
        self.value(measure)
            .ok_or_else(|| format!("its output has no {measure}"))
    }

    /// A measured value: a ratio of two others, as the program says it, else from the clock.
    fn value(&self, measure: &str) -> Option<f64> {
        let Some(ratio) = self.definition.ratios.get(measure) else {
            return self.simple(measure);
        };
        let below = match ratio.is_to_number() {
            true => ratio.number(self.variables),
            false => self.simple(&ratio.to),
        };
        let ratio = self.simple(&ratio.of)? / below?;
        ratio.is_finite().then_some(ratio)
    }

    #[allow(clippy::cast_precision_loss, reason = "file sizes are far below 2⁵³")]
    fn simple(&self, measure: &str) -> Option<f64> {
        if let Some(reading) = self.entrant.program.reads.get(measure) {
            return self.output.number(reading);
        }
        built_in_unit(measure)?;
        let bytes = self.bytes as f64;
        let seconds = self.outcome.seconds;
        match measure {
            "wall" => Some(seconds * 1e3),
            "seconds" => Some(seconds),
            "goodput" => (bytes > 0.0).then(|| bytes * 8.0 / seconds / 1e6),
            _ => (bytes > 0.0).then(|| self.outcome.cpu_seconds / (bytes / 1e9)),
        }
    }

    /// The further measures that this program has and that can be held against others'.
    fn also(&self) -> BTreeMap<String, f64> {
        let further = self.definition.also.iter();
        further
            .filter(|also| !(self.cut && measures::grows_with_file(&also.measure)))
            .filter_map(|also| Some((also.measure.clone(), self.value(&also.measure)?)))
            .collect()
    }
}

/// A command line as it is typed into a shell.
fn command_line(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
