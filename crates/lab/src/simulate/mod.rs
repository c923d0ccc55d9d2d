//! `longhaul lab sim`: simulated TCP connections over a bottleneck, as a table.
//!
//! [`run`] simulates one network for each number of parallel connections that was asked for and
//! returns what each of them did, or one transfer that finds the number by itself ([`StreamFinder`]). An
//! experiment of kind `sim` has a `simulation` table, which holds the command's options (`flows =
//! "{connections}"`), and takes its [`SimMeasure`]s from its only point. [`ns2`] has results to compare with.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sim::transfer::InitialStreams;

use crate::LabError;

pub mod ns2;
mod options;
mod outcome;
mod point;
mod report;
mod request;

pub use outcome::{SimChunk, SimMeasure, SimPoint};
pub use report::SimReport;
pub use request::{FlowCounts, SimRequest, StreamFinder};

/// Simulates what was asked for, for each number of connections.
///
/// # Errors
/// [`LabError::Usage`]: what [`SimRequest::check`] refuses, a transfer in chunks that has no time for one.
pub fn run(request: &SimRequest) -> Result<SimReport, LabError> {
    request.check()?;
    let points = match &request.flows {
        FlowCounts::Each(counts) => {
            let fixed: Vec<InitialStreams> =
                counts.iter().copied().map(InitialStreams::Fixed).collect();
            points(request, &fixed)
        }
        FlowCounts::Auto => points(request, &[InitialStreams::Automatic]),
        FlowCounts::Found(finder) => vec![point::chunked(request, *finder)?],
    };
    Ok(SimReport {
        request: request.clone(),
        points,
    })
}

/// A point for each number of connections, simulated beside each other on all processors.
fn points(request: &SimRequest, counts: &[InitialStreams]) -> Vec<SimPoint> {
    let next = AtomicUsize::new(0);
    // A worker takes the next number when it is free: large numbers take much longer than small ones.
    let worker = || -> Vec<(usize, SimPoint)> {
        let places = std::iter::from_fn(|| {
            let place = next.fetch_add(1, Ordering::Relaxed);
            counts.get(place).map(|streams| (place, *streams))
        });
        places
            .map(|(place, streams)| (place, point::simulate(request, streams)))
            .collect()
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut points = thread::scope(|scope| {
        let helpers = 1..processors.min(counts.len());
        let helpers: Vec<_> = helpers.map(|_| scope.spawn(worker)).collect();
        let mut points = worker();
        for helper in helpers {
            points.extend(
                helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        points
    });
    points.sort_unstable_by_key(|(place, _)| *place);
    points.into_iter().map(|(_, point)| point).collect()
}
