//! Experiments: series of measurements of programs under test, each described by a data file.
//!
//! The file states the network, the settings, the programs, the sweep and the repetitions.
//! `definition` reads these files and those of programs under test, and holds the ones that ship; its
//! `tree` creates the files that a run moves. A *point* is one combination of values of the swept axes, a
//! *cell* is one program at one point, and a *run* is one repetition of a cell.
//!
//! `plan` lists the points and who takes part in them, and `schedule` the runs that are still to be
//! made. For every run, `preparation` fills the values of the point into command lines and files,
//! `measurement` starts a fresh process in a fresh network, and in that process `cell` starts servers
//! and client and measures them. `runner` leads all this; `simulation` takes the place of the last three
//! for experiments in the simulator. `arrival_check` checks what a run left. `results` is what is saved,
//! and `store` merges the results of several commands into one file. `scratch` provides a run's
//! directories; `process` ends its processes, and removes what killed runs have left. `quiet` looks at the machine's load
//! before the first run, and `durations` is what runs took, from which the time of the next ones is estimated.

mod all;
mod arrival_check;
mod best;
mod cell;
mod definition;
mod durations;
mod measurement;
mod plan;
mod preparation;
mod process;
mod quiet;
pub mod results;
mod runner;
mod schedule;
mod scratch;
mod simulation;
mod store;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::LabError;
use results::ExperimentResults;

pub use all::AllRuns;
pub use definition::Mode;
pub use definition::catalog::ExperimentListing;
pub(crate) use definition::target::{ResultTarget, shipped_targets};
pub use process::leftovers::remove_leftovers;
pub use schedule::PlannedRun;
pub(crate) use schedule::count_shipped_cells;

/// Request to `longhaul lab run`.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// A name from [`catalog()`], or the path of an experiment file (it ends in `.toml`).
    pub name: String,
    /// The `longhaul` under test.
    pub longhaul: PathBuf,
    /// How much of the experiment is run.
    pub mode: Mode,
    /// The directory for the results; it is created if it does not exist.
    pub out: PathBuf,
    /// Runs of each cell, in place of the experiment's number.
    pub repetitions: Option<u32>,
    /// The seed of all random events, in place of the experiment's.
    pub seed: Option<u64>,
    /// The points to visit, each entry as `AXIS=VALUE[,VALUE...]`; empty: all points of `mode`.
    pub only: Vec<String>,
    /// Keys of the programs to run; empty: all programs of the experiment that are installed.
    pub programs: Vec<String>,
    /// Continue from existing results: only missing runs are made.
    pub resume: bool,
    /// Move existing results out of the way and start without them.
    pub fresh: bool,
    /// Wait for another lab to end; otherwise [`LabError::Busy`] is returned.
    pub wait: bool,
    /// Wait until the machine is quiet enough for valid runs; otherwise a busy one is told.
    pub wait_quiet: bool,
    /// An upper bound of the repetitions, set when a budget is too short for all of them.
    pub at_most: Option<u32>,
    /// The time after which no further run starts.
    pub until: Option<Instant>,
}

impl RunRequest {
    /// A request for all points and installed programs of an experiment, with the `longhaul` of `PATH` and results in `out`.
    pub fn new(name: &str, mode: Mode, out: &Path) -> Self {
        Self {
            name: name.to_owned(),
            longhaul: "longhaul".into(),
            mode,
            out: out.to_owned(),
            repetitions: None,
            seed: None,
            only: Vec::new(),
            programs: Vec::new(),
            resume: false,
            fresh: false,
            wait: false,
            wait_quiet: false,
            at_most: None,
            until: None,
        }
    }

    /// The options other than mode and seed that change what is measured, as command-line arguments.
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

/// An experiment's results and the files that hold them.
#[derive(Debug)]
pub struct SavedResults {
    /// The results.
    pub results: ExperimentResults,
    /// `OUT/NAME-MODE.json`.
    pub json: PathBuf,
    /// `OUT/NAME-MODE.csv`: one line per run.
    pub csv: PathBuf,
    /// The number of cells that this command measured without a valid run, because the lab could not keep up.
    pub spoiled: usize,
}

/// Lists the experiments that ship with the lab.
pub fn catalog() -> Vec<ExperimentListing> {
    definition::catalog::listings()
}

/// Runs an experiment point by point; `print` receives progress lines for people.
///
/// Signals that would end the process are blocked in the calling thread while the experiment runs.
/// When one arrives, the finished runs are saved first; then the signal takes effect.
///
/// # Errors
/// There is no such experiment, its file has a mistake, or a privilege is missing. A program that
/// fails is a run without a value, not an error; if all fail everywhere, it is [`LabError::Program`].
pub fn run(request: &RunRequest, print: &mut dyn FnMut(&str)) -> Result<SavedResults, LabError> {
    runner::run(request, print)
}

/// Plans [`run`] for `request`, with an estimate of its duration. Nothing is measured or written.
///
/// # Errors
/// The errors of [`run`] that can be found without a measurement.
pub fn plan(request: &RunRequest) -> Result<PlannedRun, LabError> {
    Ok(schedule::Schedule::new(request)?.plan(u32::MAX))
}

/// Runs every experiment that ships; the name in `request` is ignored. Where `budget` is too short for
/// all repetitions, fewer are made.
///
/// # Errors
/// The errors of [`plan_all`], and [`LabError::Busy`] if another lab is running. An experiment that
/// fails is listed in [`AllRuns::failed`], and the next one runs.
pub fn run_all(
    request: &RunRequest,
    budget: Option<Duration>,
    print: &mut dyn FnMut(&str),
) -> Result<AllRuns, LabError> {
    all::run(request, budget, print)
}

/// Plans [`run_all`], with an estimate of its duration: text of several lines for people.
///
/// # Errors
/// Existing results are of another seed or version, or an experiment lacks an axis, value or program
/// that `request` names.
pub fn plan_all(request: &RunRequest, budget: Option<Duration>) -> Result<String, LabError> {
    all::plan(request, budget)
}

/// Makes one measurement inside a lab (`longhaul lab cell`, which only [`run`] starts): starts the
/// servers, runs the client and writes the outcome. The process exits early when its standard input
/// closes. Returns the exit code.
///
/// # Errors
/// The job cannot be read, or a server does not start.
pub fn cell(job: &Path) -> Result<u8, LabError> {
    cell::run(job).map(|()| 0)
}
