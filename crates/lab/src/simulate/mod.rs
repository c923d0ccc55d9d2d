//! `longhaul lab sim`: simulated TCP connections over a bottleneck, as a table.
//!
//! [`run`] simulates one network for each number of parallel connections that was asked for and
//! returns what each of them did. [`sweep_results`] does it for the setting that ns-2 was run with
//! and puts ns-2's values beside.

use crate::LabError;
use crate::experiment::Mode;
use crate::experiment::results::Results;

mod request;

pub use request::{Congestion, Flows, MOST_FLOWS, SimRequest};

/// What a simulated sweep measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Payload that arrived in order, Mbit/s.
    Goodput,
    /// Mean round trip of the data packets, milliseconds.
    MeanRtt,
}

/// A sweep of the number of parallel connections to be compared with ns-2's.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Name of the experiment.
    pub experiment: String,
    /// One line for people.
    pub title: String,
    /// What it reproduces.
    pub source: String,
    /// The numbers of connections, each 1..=64.
    pub connections: Vec<u32>,
    /// What goes into the table.
    pub measure: Measure,
    /// What [`Results::mode`] says.
    pub mode: Mode,
    /// The seed of the first repetition; the next has the next one.
    pub seed: u64,
    /// Simulations of each point, at least 1.
    pub repetitions: u32,
}

/// Simulates the sweep in the setting of the ns-2 reference; [`Results`] carries ns-2's value of
/// each point as the published one.
///
/// # Errors
/// [`LabError::Usage`]: a number of connections that ns-2's table does not have, or no repetition.
pub fn sweep_results(sweep: &Sweep, say: &mut dyn FnMut(&str)) -> Result<Results, LabError> {
    let _ = (sweep, say);
    todo!()
}
