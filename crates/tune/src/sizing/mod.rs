//! How large a stream's socket buffers should be while it moves data.
//!
//! Three controllers over the same [`Look`]s: [`drs1`] and [`drs`] are the papers' loops, [`auto`] is
//! longhaul's own. Whoever drives them (the data room with sockets, the simulator with flows)
//! looks at every stream now and then and carries out what they answer.
//!
//! Sizes are those given to setsockopt(2). Linux keeps and reports twice as much (socket(7)) and
//! offers between half and two thirds of that as window.

pub mod advice;
mod arrivals;
pub mod auto;
pub mod caps;
pub mod drs;
pub mod drs1;

use std::time::Duration;

use crate::limiter::Limiter;

/// A stream within its transfer.
pub type StreamId = u64;

/// One end of one stream at one moment, as its kernel shows it (TCP_INFO, SO_MEMINFO). What is not
/// known is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Look {
    /// Which stream.
    pub stream: StreamId,
    /// Since the transfer began.
    pub at: Duration,
    /// Payload so far: received, or sent and acknowledged, bytes.
    pub bytes: u64,
    /// Smoothed round trip; a receiver's own estimate (`rcv_rtt`) when it receives.
    pub rtt: Duration,
    /// Smallest round trip, which for a receiver is that of the handshake.
    pub min_rtt: Duration,
    /// Send buffer as reported, bytes (twice what was asked for).
    pub send_buffer: u64,
    /// Memory of what is queued to send, acknowledged or not, bytes.
    pub send_queued: u64,
    /// Written and never sent yet, bytes.
    pub unsent: u64,
    /// Sent and not acknowledged, bytes.
    pub in_flight: u64,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    /// No loss yet: still in the first slow start.
    pub slow_start: bool,
    /// The window that the peer announced, bytes.
    pub peer_window: u64,
    /// Time with data outstanding.
    pub busy: Duration,
    /// Of that, limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Payload of a full segment, bytes.
    pub segment: u64,
    /// The kernel's latest sample of what was delivered, bytes per second (sender).
    pub delivery_rate: u64,
    /// Receive buffer as reported, bytes (twice what was asked for).
    pub receive_buffer: u64,
    /// Memory of what was received and not read yet, in order or not, bytes.
    pub receive_queued: u64,
    /// Payload that was received in order and not read yet, bytes.
    pub receive_readable: u64,
    /// Window announced to the peer, or the most that would be, bytes; no more than the window scale
    /// can express.
    pub window: u64,
    /// What the window scale can express at most, bytes (65535 << scale).
    pub window_ceiling: u64,
}

/// Something to do to a stream's socket. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// SO_SNDBUF, by force where allowed and needed.
    SendBuffer(u64),
    /// SO_RCVBUF likewise, and the window clamp lifted so that the window follows.
    ReceiveBuffer(u64),
    /// TCP_WINDOW_CLAMP: the window shall not be larger. Does not lock the buffer.
    Window(u64),
    /// Give the receive buffer back to autotuning with room for this window (SO_BUF_LOCK 0,
    /// SO_RCVLOWAT, window clamp lifted): repairs one that the kernel made too small.
    Regrow(u64),
}

/// What a controller decided, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// About which stream.
    pub stream: StreamId,
    /// Since the transfer began.
    pub at: Duration,
    /// What is to be done; `None`: nothing, on purpose.
    pub change: Option<Change>,
    /// What limits the stream.
    pub limiter: Limiter,
    /// In plain words.
    pub reason: String,
}

/// Sizes that a right-sizing loop stays between, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// To begin with.
    pub initial: u64,
    /// Never more.
    pub largest: u64,
}

impl Default for Bounds {
    /// The papers' 64 KB and 16 MB.
    fn default() -> Self {
        Self {
            initial: 64 << 10,
            largest: 16 << 20,
        }
    }
}
