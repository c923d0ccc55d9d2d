//! A fluid simulator of transfers: fast enough for hundreds of paths and files of 100 GB.
//!
//! A flow is not packets but amounts: time advances in steps of an eighth of a round trip (0.25 to 8 ms), and in each
//! step a flow gets acknowledgements, sends what its window, pacing and buffers allow, and the bottleneck
//! serves and drops. Only losses are whole segments. [`crate::world`] simulates every packet, at a
//! thousandth of the speed.
//!
//! - [`BottleneckPath`] is a path: rate, round trip, queue, policer, losses, buffers, limits of the ends, changes
//!   and competing flows. [`SampledPath`] draws one from a seed.
//! - [`FluidTransfer`] sends a file over it, with fixed settings or with `tune::streams::auto`.
//!
//! Losses reach the sender a round trip later and reduce the window once per round trip. A flow whose whole window is
//! lost waits for its timer. All flows of a path have the same round trip, except behind FQ-CoDel.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "amounts are positive and far below 2^53"
)]

mod control;
mod flow;
mod network;
mod path;
mod sampled_path;
#[cfg(test)]
mod tests;
mod transfer;

pub use control::{FluidControl, UnknownControl};
pub use path::{
    BottleneckPath, Competitor, EndLimit, FluidChange, FluidLoss, FluidPolicer, QueueDiscipline,
};
pub use sampled_path::SampledPath;
pub use transfer::{AutoFluidOutcome, FluidOutcome, FluidTransfer, StaticSetting, TimelinePoint};

/// Payload of a full segment, bytes.
const SEGMENT: f64 = 1448.0;
/// The same on the wire, bytes.
const PACKET: f64 = 1500.0;
