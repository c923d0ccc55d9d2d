//! Which ranges of a file are sent, and where received bytes go.

use data::recv::ReceivePlan;
use data::send::SendPlan;
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::server::StoreDisposition;

/// The file ranges to send: `part` without the ranges that the receiver has. `part` and `have` are
/// wire offsets.
pub(super) fn send_plan(size: u64, part: Option<(u64, u64)>, have: &RangeSet) -> SendPlan {
    let (origin, length) = part.unwrap_or((0, u64::MAX));
    let mut received = RangeSet::new();
    for range in have.iter() {
        received.insert(
            range.start.saturating_add(origin),
            range.end.saturating_add(origin),
        );
    }
    SendPlan {
        ranges: received.gaps(origin, size.min(origin.saturating_add(length))),
        origin,
    }
}

/// Where received bytes go in a file of `size` bytes.
pub(super) fn recv_plan(
    disposition: &StoreDisposition,
    mode: TransferMode,
    size: u64,
) -> ReceivePlan {
    let (origin, stream_start) = match disposition {
        StoreDisposition::Truncate | StoreDisposition::Unique => (0, 0),
        StoreDisposition::Resume {
            already_stored: have,
        } => match mode {
            TransferMode::Stream => (0, have.prefix_len()),
            TransferMode::Extended => (0, 0),
        },
        StoreDisposition::AtOffset(offset) => (*offset, 0),
        StoreDisposition::Append => (size, 0),
    };
    ReceivePlan {
        origin,
        stream_start,
        limit: None,
    }
}

#[cfg(test)]
mod tests;
