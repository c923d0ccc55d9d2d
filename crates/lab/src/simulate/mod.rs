//! `longhaul lab sim`: simulated TCP connections over a bottleneck, as a table.
//!
//! [`run`] simulates the network of a [`SimRequest`] once for each requested number of parallel connections,
//! or simulates one transfer that finds the number itself ([`StreamFinder`]), or several of those over one path. Each simulation gives a
//! [`SimPoint`].
//!
//! An experiment of kind `sim` has a `simulation` table with the command's options (`flows =
//! "{connections}"`). It takes its [`SimMeasure`]s from the only point of each simulation. [`ns2`] holds
//! the results of ns-2 that validate the simulator.

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
mod shared_path;

pub use outcome::{SimChunk, SimMeasure, SimPoint, SimSample};
pub use report::SimReport;
pub use request::{FlowCounts, SimRequest, StreamFinder};

/// Runs the simulations of `request`, one for each number of connections.
///
/// # Errors
/// [`LabError::Usage`]: [`SimRequest::check`] refuses the request, or a transfer in chunks has no time for
/// even one chunk.
pub fn run(request: &SimRequest) -> Result<SimReport, LabError> {
    request.check()?;
    let points = match (request.sessions, &request.flows) {
        (Some(sessions), _) => vec![shared_path::simulate(request, sessions)],
        (None, FlowCounts::Each(counts)) => {
            let fixed: Vec<InitialStreams> =
                counts.iter().copied().map(InitialStreams::Fixed).collect();
            simulate_each(request, &fixed)
        }
        (None, FlowCounts::Auto) => simulate_each(request, &[InitialStreams::Automatic]),
        (None, FlowCounts::Found(finder)) => vec![point::simulate_chunks(request, *finder)?],
    };
    Ok(SimReport {
        request: request.clone(),
        points,
    })
}

/// Simulates each number of connections, on all processors in parallel. The points are in the order of
/// `counts`.
fn simulate_each(request: &SimRequest, counts: &[InitialStreams]) -> Vec<SimPoint> {
    let next = AtomicUsize::new(0);
    // A shared counter balances the load: many connections take much longer to simulate than few, so
    // equal shares of `counts` would leave processors idle.
    let worker = || -> Vec<(usize, SimPoint)> {
        let indexed = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            counts.get(index).map(|streams| (index, *streams))
        });
        indexed
            .map(|(index, streams)| (index, point::simulate(request, streams)))
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
    points.sort_unstable_by_key(|(index, _)| *index);
    points.into_iter().map(|(_, point)| point).collect()
}
