//! Store to wire.

use std::sync::Arc;

use proto::ranges::RangeSet;

use crate::channel::Channel;
use crate::error::DataError;
use crate::job::{Control, Report, Settings};
use crate::store::Source;

/// What to send.
#[derive(Debug, Clone)]
pub struct SendPlan {
    /// File ranges to send, ascending; ignored for sequential sources (pipes), which are sent to
    /// their end.
    pub ranges: RangeSet,
    /// Subtracted from file offsets to make wire offsets (ERET P: start of the part).
    pub origin: u64,
}

/// Sends the planned ranges over the channel; blocks until all is handed to the kernel and the end
/// marks are sent. In MODE S the connection is shut down and the peer's FIN awaited briefly.
/// The channel keeps reusable MODE E connections.
pub fn run(
    channel: &mut Channel,
    source: &Arc<dyn Source>,
    plan: &SendPlan,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, DataError> {
    let _ = (channel, source, plan, settings, control);
    todo!()
}
