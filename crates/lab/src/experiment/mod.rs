//! Experiments: a data file says network, settings, programs, sweep and repetitions; this runs it.
//!
//! A `definition` is an experiment's file, a `program` that of a program under test; both ship in
//! the `catalog`. A `plan` says which points to visit. For every run, `preparation` fills a point
//! into the files, `measurement` starts a fresh process for it (in a fresh network), and in that
//! process `cell` starts server and client and counts.
//!
//! A `schedule` is what of it is still to be run; `store` puts the cells of several commands together.
//! `scratch` has a run's files, and `leftovers` removes those of runs that were killed.

mod all;
mod best;
mod catalog;
mod cell;
mod definition;
mod hash;
mod leftovers;
mod measurement;
mod plan;
mod preparation;
mod process;
mod program;
mod reading;
pub mod results;
mod runner;
mod schedule;
mod scratch;
mod simulation;
mod statistics;
mod store;
mod template;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use results::ExperimentResults;

pub use all::AllRuns;
pub use leftovers::remove_leftovers;
pub use schedule::PlannedRun;
pub(crate) use schedule::count_shipped_cells;
pub(crate) use statistics::MIN_INTERVAL_VALUES;

/// How much of an experiment to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A few cells, small files: minutes.
    Quick,
    /// The paper's sweep, file sizes and repetitions.
    Full,
}

impl Mode {
    /// As in results and their files' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// Request to `longhaul lab run`.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// A name from [`catalog()`], or the path of an experiment file (it ends in `.toml`).
    pub name: String,
    /// How much.
    pub mode: Mode,
    /// Directory for the results; made if missing.
    pub out: PathBuf,
    /// Instead of the experiment's.
    pub repetitions: Option<u32>,
    /// Instead of the experiment's.
    pub seed: Option<u64>,
    /// `AXIS=VALUE[,VALUE...]`: only these points.
    pub only: Vec<String>,
    /// Only these programs; empty: all that are installed.
    pub programs: Vec<String>,
    /// Go on with the results that are there: only what they lack is run.
    pub resume: bool,
    /// Set the results aside that are there.
    pub fresh: bool,
    /// Wait for another lab to end instead of refusing.
    pub wait: bool,
    /// Fewer repetitions than the experiment, or `repetitions`, says.
    pub at_most: Option<u32>,
    /// No run is begun later.
    pub until: Option<Instant>,
}

impl RunRequest {
    /// Everything that an experiment has in `mode`, with its results in `out`.
    pub fn new(name: &str, mode: Mode, out: &Path) -> Self {
        Self {
            name: name.to_owned(),
            mode,
            out: out.to_owned(),
            repetitions: None,
            seed: None,
            only: Vec::new(),
            programs: Vec::new(),
            resume: false,
            fresh: false,
            wait: false,
            at_most: None,
            until: None,
        }
    }

    /// Options that narrow or change the run beyond mode and seed, as words of a command line.
    fn options(&self) -> Vec<String> {
        let repetitions = self.repetitions.map(|n| ("--repetitions", n.to_string()));
        let only = self.only.iter().map(|point| ("--only", point.clone()));
        let programs = self.programs.iter().map(|key| ("--program", key.clone()));
        repetitions
            .into_iter()
            .chain(only)
            .chain(programs)
            .flat_map(|(option, value)| [option.to_owned(), value])
            .collect()
    }
}

/// An experiment that ships with the lab.
#[derive(Debug)]
pub struct ExperimentListing {
    /// For `longhaul lab run`.
    pub name: String,
    /// One line.
    pub title: String,
    /// The published result.
    pub source: String,
}

/// Where an experiment's results went.
#[derive(Debug)]
pub struct SavedResults {
    /// The results.
    pub results: ExperimentResults,
    /// `OUT/NAME-MODE.json`.
    pub json: PathBuf,
    /// `OUT/NAME-MODE.csv`: one line a sample.
    pub csv: PathBuf,
}

/// The experiments that ship with the lab.
pub fn catalog() -> Vec<ExperimentListing> {
    catalog::listings()
}

/// Runs an experiment, cell by cell; `say` gets a line for people when a cell is done.
///
/// Signals that would end the process are held back in the calling thread meanwhile: what is done is
/// kept, then the signal takes its effect.
///
/// # Errors
/// No such experiment, a mistake in its file, a missing privilege; a program that fails is a failed
/// sample, not an error.
pub fn run(request: &RunRequest, print: &mut dyn FnMut(&str)) -> Result<SavedResults, LabError> {
    runner::run(request, print)
}

/// Plans [`run`] for `request`, with the time it would take.
///
/// # Errors
/// As [`run`], as far as nothing has to be run to know.
pub fn plan(request: &RunRequest) -> Result<PlannedRun, LabError> {
    Ok(schedule::Schedule::new(request)?.plan(u32::MAX))
}

/// Runs every experiment that ships, the name in `request` is ignored; repetitions are trimmed to `budget`.
///
/// # Errors
/// As [`plan_all`]; another lab is running. An experiment that fails is kept, and the next one run.
pub fn run_all(
    request: &RunRequest,
    budget: Option<Duration>,
    print: &mut dyn FnMut(&str),
) -> Result<AllRuns, LabError> {
    all::run(request, budget, print)
}

/// Plans [`run_all`], with the time it would take.
///
/// # Errors
/// ExperimentResults that do not fit, an option that some experiment does not have.
pub fn plan_all(request: &RunRequest, budget: Option<Duration>) -> Result<String, LabError> {
    all::plan(request, budget)
}

/// One measurement inside a lab (`longhaul lab cell`, not for users): starts the servers, runs the
/// client, writes the outcome; ends early when its standard input does.
///
/// # Errors
/// The job cannot be read, or a server does not start.
pub fn cell(job: &Path) -> Result<u8, LabError> {
    cell::run(job).map(|()| 0)
}
