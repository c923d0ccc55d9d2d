//! TCP, one segment at a time: a sender and a receiver as state machines.
//!
//! Sequence numbers count segments, not bytes, as in ns-2: a window is a whole number of them, and
//! every segment is full except where the application has nothing more to give. What is modelled is
//! what decides throughput: slow start, congestion avoidance, SACK-based loss recovery (RFC 6675),
//! the retransmission timer (RFC 6298), delayed acknowledgements, and the buffers at both ends. Not
//! modelled: the closing handshake, urgent data, ECN, pacing (but by a set rate), `HyStart`,
//! proportional rate reduction, undoing a reduction that was not needed, and loss detection that
//! adapts to reordering.

mod cubic;
mod pacing;
mod receiver;
mod rtt;
mod scoreboard;
mod segment_set;
mod sender;
mod window;

use std::time::Duration;

pub(crate) use receiver::TcpReceiver;
pub(crate) use segment_set::SegmentRange;
pub use sender::{LimitedTimes, SenderStats};
pub(crate) use sender::{Segment, TcpSender};

/// SACK blocks in one acknowledgement: what fits beside timestamps (RFC 2018 section 3).
const SACK_BLOCKS: usize = 3;

/// Bytes of IP and TCP headers on every packet, without options.
pub const HEADERS: u32 = 40;

/// Which congestion control a sender runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CongestionAlgorithm {
    /// Additive increase, multiplicative decrease: RFC 5681 and 6582, with RFC 6675's recovery.
    NewReno,
    /// RFC 9438.
    Cubic,
}

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TcpConfig {
    /// Payload of a full segment, bytes, at least 1.
    pub mss: u32,
    /// Headers on every packet, bytes; an acknowledgement is nothing else.
    pub headers: u32,
    /// Congestion control.
    pub congestion: CongestionAlgorithm,
    /// Initial window, segments (RFC 6928: 10; ns-2: 2), at least 1.
    pub initial_window: u32,
    /// Payload the sender keeps until it is acknowledged, bytes; at least one segment is kept.
    pub send_buffer: u64,
    /// Of that, what the application writes ahead of TCP at most (`TCP_NOTSENT_LOWAT`), bytes; at
    /// least one segment.
    pub not_sent_lowat: u64,
    /// Payload the receiver promises room for, bytes; at least one segment.
    pub receive_buffer: u64,
    /// Longest wait before an acknowledgement (RFC 1122: below 500 ms); `None`: each segment is
    /// acknowledged at once. If set, every second segment is.
    pub delayed_ack: Option<Duration>,
    /// How far the retransmission timeout lies beyond the smoothed round trip at least (Linux:
    /// 0.2 s). RFC 6298 has a lower bound of 1 s for the whole instead.
    pub min_rto: Duration,
    /// Open with a handshake, which costs a round trip before the first data.
    pub handshake: bool,
}

impl Default for TcpConfig {
    /// A segment fills a 1 500-byte packet; buffers do not limit; 1 MiB unsent, as `data` sets it;
    /// no delayed acknowledgements.
    fn default() -> Self {
        Self {
            mss: 1460,
            headers: HEADERS,
            congestion: CongestionAlgorithm::Cubic,
            initial_window: 10,
            send_buffer: 1 << 40,
            not_sent_lowat: 1 << 20,
            receive_buffer: 1 << 40,
            delayed_ack: None,
            min_rto: Duration::from_millis(200),
            handshake: false,
        }
    }
}

impl TcpConfig {
    /// A buffer in whole segments, at least one.
    fn whole_segments(&self, buffer: u64) -> u64 {
        (buffer / u64::from(self.mss.max(1))).max(1)
    }
}

/// Acknowledgement of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The segment it expects next: all before it have arrived.
    pub(crate) next: u64,
    /// The first segment it has no room for.
    pub(crate) right_edge: u64,
    /// Segments that arrived beyond `next`, the block of the latest first; unused ones are empty.
    pub(crate) sacks: [SegmentRange; SACK_BLOCKS],
}

#[cfg(test)]
mod tests;
