//! TCP at the level of segments: a sender and a receiver as state machines.
//!
//! Sequence numbers count segments, not bytes, as in ns-2. A window is a whole number of segments, and
//! every segment is full, except when the application has no more data. The model covers what
//! determines throughput: slow start, congestion avoidance, SACK-based loss recovery (RFC 6675) or that of
//! ns-2's Reno ([`LossRecovery`]), a receive window that follows the data ([`WindowGrowth`]), the retransmission timer (RFC 6298), delayed acknowledgements, the buffers of both ends, and pacing at a
//! fixed rate (`SO_MAX_PACING_RATE`). It does not cover: the closing handshake, urgent data, ECN,
//! pacing by the congestion control, `HyStart`, proportional rate reduction (RFC 6937), undoing a
//! spurious reduction, and loss detection that adapts to reordering (RACK, RFC 8985).

mod pacing;
mod receiver;
mod reno;
mod right_sizing;
mod rtt;
mod scoreboard;
mod segment_set;
mod sender;
mod window;

use std::time::Duration;

pub(crate) use receiver::TcpReceiver;
pub use reno::LossRecovery;
pub use right_sizing::WindowGrowth;
pub(crate) use segment_set::SegmentRange;
pub use sender::{LimitedTimes, SenderStats};
pub(crate) use sender::{Segment, TcpSender};
pub use window::CongestionAlgorithm;

/// SACK blocks in one acknowledgement: three fit beside a timestamp option (RFC 2018 section 3).
const SACK_BLOCKS: usize = 3;

/// Bytes of IPv4 and TCP headers per packet, without options.
pub const HEADERS: u32 = 40;

/// Configuration of both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TcpConfig {
    /// Payload of a full segment, bytes, at least 1.
    pub mss: u32,
    /// Headers per packet, bytes; an acknowledgement consists of headers only.
    pub headers: u32,
    /// Congestion control.
    pub congestion: CongestionAlgorithm,
    /// Loss recovery.
    pub recovery: LossRecovery,
    /// Initial window, segments (RFC 6928: 10; ns-2: 2), at least 1.
    pub initial_window: u32,
    /// Send buffer: unacknowledged and unsent payload, bytes; at least one segment.
    pub send_buffer: u64,
    /// Limit of unsent bytes in the send buffer (`TCP_NOTSENT_LOWAT`, tcp(7)); at least one segment.
    pub not_sent_lowat: u64,
    /// Receive buffer: payload that the window advertises at most, bytes; at least one segment.
    pub receive_buffer: u64,
    /// How the advertised window follows the data.
    pub window_growth: WindowGrowth,
    /// Longest delay of an acknowledgement (RFC 1122 section 4.2.3.2: below 500 ms); every second segment
    /// is acknowledged at once. `None`: every segment is acknowledged at once.
    pub delayed_ack: Option<Duration>,
    /// Least margin of the retransmission timeout above the smoothed RTT (Linux: 0.2 s). RFC 6298
    /// instead has a lower bound of 1 s for the whole timeout, and ns-2 one of 0.2 s ([`LossRecovery::Ns2Reno`]).
    pub min_rto: Duration,
    /// Open with a handshake, which takes one round trip before the first data.
    pub handshake: bool,
}

impl Default for TcpConfig {
    /// A segment fills a packet of 1 500 bytes; buffers do not limit; 1 MiB may be unsent, as the crate
    /// `data` sets it; no delayed acknowledgements; no handshake.
    fn default() -> Self {
        Self {
            mss: 1460,
            headers: HEADERS,
            congestion: CongestionAlgorithm::Cubic,
            recovery: LossRecovery::Sack,
            initial_window: 10,
            send_buffer: 1 << 40,
            not_sent_lowat: 1 << 20,
            receive_buffer: 1 << 40,
            window_growth: WindowGrowth::Fixed,
            delayed_ack: None,
            min_rto: Duration::from_millis(200),
            handshake: false,
        }
    }
}

impl TcpConfig {
    /// Whole segments in a buffer of so many bytes, at least one.
    fn whole_segments(&self, buffer: u64) -> u64 {
        (buffer / u64::from(self.mss.max(1))).max(1)
    }
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The next expected segment: all segments before it have arrived.
    pub(crate) next: u64,
    /// The first segment beyond the receive window.
    pub(crate) right_edge: u64,
    /// SACK blocks beyond `next`, the most recent first; unused blocks are empty.
    pub(crate) sacks: [SegmentRange; SACK_BLOCKS],
}

#[cfg(test)]
mod tests;
