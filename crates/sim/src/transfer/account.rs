//! What the sending end of a real transfer sums up for `tune::limiter`, from simulated flows.

use std::time::Duration;

use tune::limiter::{Measured, Role};

use crate::world::FlowStats;

/// The account of `flows`, which moved `bytes` in `elapsed`, `streams` of them at a time, each with a
/// socket buffer of `buffer` bytes.
///
/// Waits are the longest of any flow's, as from a real transfer. Simulated threads need no time for
/// the store and none to compute, so all they do is wait for the wire.
pub fn account(
    flows: &[FlowStats],
    bytes: u64,
    elapsed: Duration,
    streams: u32,
    buffer: u64,
) -> Measured {
    let longest = |field: fn(&FlowStats) -> Duration| flows.iter().map(field).max();
    Measured {
        role: Role::Sender,
        bytes,
        elapsed,
        streams: streams.into(),
        open: elapsed * streams,
        retransmits: flows.iter().map(|f| f.sender.retransmits).sum(),
        min_rtt: flows
            .iter()
            .filter_map(FlowStats::min_rtt)
            .min()
            .unwrap_or_default(),
        buffer_bytes: buffer,
        busy: longest(|f| f.sender.waits.busy).unwrap_or_default(),
        rwnd_limited: longest(|f| f.sender.waits.rwnd_limited).unwrap_or_default(),
        sndbuf_limited: longest(|f| f.sender.waits.sndbuf_limited).unwrap_or_default(),
        store: Duration::ZERO,
        wire: elapsed * streams,
        rate_limit: None,
    }
}
