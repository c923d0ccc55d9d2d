//! Wire to store.

use std::sync::Arc;

use crate::channel::Channel;
use crate::error::DataError;
use crate::job::{Control, Report, Settings};
use crate::store::Sink;

/// Where received bytes go.
#[derive(Debug, Clone, Copy)]
pub struct RecvPlan {
    /// Added to wire offsets to make file offsets (MODE E: ESTO A, REST parts; MODE S: where the
    /// stream starts).
    pub origin: u64,
    /// MODE S with REST n: wire offset of the first byte, for the ranges in the report.
    pub stream_start: u64,
    /// A block that ends beyond this wire offset is refused ([`DataError::Outside`]); in MODE S
    /// a stream that goes on past it too.
    pub limit: Option<u64>,
}

/// Receives one transfer; returns when MODE E is complete (EOF and all EODs) or the MODE S
/// connection ended, and every byte was handed to the sink (not necessarily synced).
pub fn run(
    channel: &mut Channel,
    sink: &Arc<dyn Sink>,
    plan: &RecvPlan,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, DataError> {
    let _ = (channel, sink, plan, settings, control);
    todo!()
}
