//! Experiments: a data file says network, settings, programs, sweep and repetitions; this runs it.

pub mod results;

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

/// What `longhaul lab run` is told.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// A name from [`catalog`], or the path of an experiment file (it ends in `.toml`).
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
    todo!()
}

/// Runs an experiment, cell by cell; `say` hears a line for people as each cell is done.
///
/// # Errors
/// No such experiment, a mistake in its file, a missing privilege; a program that fails is a failed
/// sample, not an error.
pub fn run(request: &RunRequest, say: &mut dyn FnMut(&str)) -> Result<Saved, LabError> {
    let _ = (request, say);
    todo!()
}

/// One measurement inside a lab (`longhaul lab cell`, not for users): starts the servers, runs the
/// client, writes what it saw.
///
/// # Errors
/// The job cannot be read, or a server does not start.
pub fn cell(job: &Path) -> Result<u8, LabError> {
    let _ = job;
    todo!()
}
