//! Experiments: a data file says network, settings, programs, sweep and repetitions; this runs it.
//!
//! A `definition` is an experiment's file, a `program` that of a program under test; both ship in
//! the `catalog`. A `plan` says which points to visit. For every run, `preparation` fills a point
//! into the files, `measurement` starts a fresh process for it (in a fresh network), and in that
//! process `cell` starts server and client and counts.

mod best;
mod catalog;
mod cell;
mod definition;
mod document;
mod entrants;
mod environment;
mod growth;
mod interrupt;
mod level;
mod listening;
mod measurement;
mod measures;
mod plan;
mod preparation;
mod process;
mod program;
mod reading;
pub mod results;
mod rise;
mod runner;
mod save;
mod scratch;
mod series;
mod simulation;
mod statistics;
mod tally;
mod template;
mod trace;
mod variables;
mod variant;

use std::path::{Path, PathBuf};

use crate::LabError;
use results::Results;

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

/// What `longhaul lab run` is told.
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
}

impl RunRequest {
    /// What narrows or changes the run beyond mode and seed, as words of a command line.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// For `longhaul lab run`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it reproduces.
    pub source: String,
}

/// Where an experiment's results went.
#[derive(Debug)]
pub struct Saved {
    /// The results.
    pub results: Results,
    /// `OUT/NAME-MODE.json`.
    pub json: PathBuf,
    /// `OUT/NAME-MODE.csv`: one line a sample.
    pub csv: PathBuf,
}

/// The experiments that ship with the lab.
pub fn catalog() -> Vec<Listing> {
    catalog::listings()
}

/// Runs an experiment, cell by cell; `say` hears a line for people as each cell is done.
///
/// Signals that would end the process are held back in the calling thread meanwhile: what is done is
/// kept, then the signal takes its effect.
///
/// # Errors
/// No such experiment, a mistake in its file, a missing privilege; a program that fails is a failed
/// sample, not an error.
pub fn run(request: &RunRequest, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
    runner::run(request, say)
}

/// One measurement inside a lab (`longhaul lab cell`, not for users): starts the servers, runs the
/// client, writes what it saw.
///
/// # Errors
/// The job cannot be read, or a server does not start.
pub fn cell(job: &Path) -> Result<u8, LabError> {
    cell::run(job).map(|()| 0)
}
