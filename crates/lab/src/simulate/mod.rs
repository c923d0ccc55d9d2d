//! `longhaul lab sim`: simulated TCP connections over a bottleneck, as a table.
//!
//! [`run`] simulates one network for each number of parallel connections that was asked for and
//! returns what each of them did. An experiment of kind `sim` has a `simulation` table, which is a
//! [`SimShorthand`] (`flows = "{connections}"`), and measures one [`Measure`] of its only point.

use crate::LabError;

mod report;
mod request;
mod setting;
mod shorthand;

pub use report::{Measure, SimPoint, SimReport};
pub use request::{BLOCK, Congestion, Flows, MOST_FLOWS, SimRequest};
pub use setting::Setting;
pub use shorthand::SimShorthand;

/// Simulates what was asked for, one number of connections after the other.
///
/// # Errors
/// [`LabError::Usage`]: what [`SimRequest::check`] refuses.
pub fn run(request: &SimRequest) -> Result<SimReport, LabError> {
    request.check()?;
    let counts = match &request.flows {
        Flows::Counts(counts) => counts.clone(),
        Flows::Auto => vec![request.automatic_flows()],
    };
    let points = counts.iter().map(|flows| point(request, *flows)).collect();
    Ok(SimReport {
        setting: Setting::of(request),
        points,
    })
}

fn point(request: &SimRequest, flows: u32) -> SimPoint {
    let _ = (request, flows);
    todo!()
}
