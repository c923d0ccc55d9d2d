//! The markers 111 (range), 112 (performance) and 113 (checksum status) (GFD.20 §3.8, §3.9).

use crate::ranges::RangeSet;
use crate::reply::Reply;

/// `112-Perf Marker`: how far one stripe is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerfMarker {
    /// Seconds since 1970, one decimal on the wire.
    pub timestamp: f64,
    /// From 0, in SPAS order.
    pub stripe_index: u32,
    /// Cumulative for this stripe.
    pub stripe_bytes: u64,
    /// At least 1.
    pub stripe_count: u32,
}

impl PerfMarker {
    /// To a reply, in the exact shape of the globus server (two spaces after `Timestamp:`).
    pub fn to_reply(self) -> Reply {
        todo!()
    }

    /// From a 112 reply; `None` if fields are missing or not numbers.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        let _ = reply;
        todo!()
    }
}

/// `111 Range Marker a-b,c-d`: ranges written since the previous marker. Long sets are cut into
/// several replies of at most 1 000 ranges.
pub fn range_replies(new: &RangeSet) -> Vec<Reply> {
    let _ = new;
    todo!()
}

/// The ranges of a 111 reply.
pub fn parse_range_reply(reply: &Reply) -> Option<RangeSet> {
    let _ = reply;
    todo!()
}

/// `113-Status Marker` of a running checksum.
pub fn checksum_reply(timestamp: f64, bytes: u64) -> Reply {
    let _ = (timestamp, bytes);
    todo!()
}

/// Bytes processed, from a 113 reply.
pub fn parse_checksum_reply(reply: &Reply) -> Option<u64> {
    let _ = reply;
    todo!()
}
