//! `longhaul lab sim`: simulated TCP connections over a bottleneck, as a table.
//!
//! [`run`] simulates one network for each number of parallel connections that was asked for and
//! returns what each of them did, or one transfer that finds the number by itself ([`Tuned`]). An
//! experiment of kind `sim` has a `simulation` table, which is a [`SimShorthand`] (`flows =
//! "{connections}"`), and takes its [`Measure`]s from its only point.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sim::transfer::InitialStreams;

use crate::LabError;

pub mod mode_reference;
mod outcome;
mod point;
pub mod reference;
mod report;
mod request;
mod setting;
mod shorthand;
mod tuned;

pub use outcome::{Measure, SimChunk, SimPoint};
pub use report::SimReport;
pub use request::{Flows, SimRequest, Tuned};
pub use setting::Setting;
pub use shorthand::SimShorthand;

/// Simulates what was asked for, for each number of connections.
///
/// # Errors
/// [`LabError::Usage`]: what [`SimRequest::check`] refuses, a transfer in chunks that has no time for one.
pub fn run(request: &SimRequest) -> Result<SimReport, LabError> {
    request.check()?;
    let points = match &request.flows {
        Flows::Counts(counts) => {
            let fixed: Vec<InitialStreams> =
                counts.iter().copied().map(InitialStreams::Fixed).collect();
            points(request, &fixed)
        }
        Flows::Auto => points(request, &[InitialStreams::Automatic]),
        Flows::Tuned(tuned) => vec![tuned::simulate(request, *tuned)?],
    };
    Ok(SimReport {
        setting: Setting::of(request),
        points,
    })
}

/// A point for each number of connections, simulated beside each other on all processors.
fn points(request: &SimRequest, counts: &[InitialStreams]) -> Vec<SimPoint> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(streams) = counts.get(place) else {
                return done;
            };
            done.push((place, point::simulate(request, *streams)));
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut points = thread::scope(|scope| {
        let helpers: Vec<_> = (1..processors.min(counts.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut points = worker();
        for helper in helpers {
            match helper.join() {
                Ok(more) => points.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        points
    });
    points.sort_unstable_by_key(|(place, _)| *place);
    points.into_iter().map(|(_, point)| point).collect()
}
