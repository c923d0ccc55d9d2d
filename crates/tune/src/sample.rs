//! A look at one end of a stream, and what its buffers carry: what all policies judge by.

use std::time::Duration;

/// A stream within its transfer.
pub type StreamId = u64;

/// One end of one stream at one moment, as its kernel shows it (TCP_INFO, SO_MEMINFO). What is not
/// known is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpSample {
    /// Which stream.
    pub stream: StreamId,
    /// Since the transfer began.
    pub at: Duration,
    /// Payload so far: received, or sent and acknowledged, bytes.
    pub bytes: u64,
    /// Smoothed round trip; a receiver's own estimate (`rcv_rtt`) when it receives.
    pub smoothed_rtt: Duration,
    /// Smallest round trip, which for a receiver is that of the handshake.
    pub min_rtt: Duration,
    /// Send buffer as reported, bytes (twice what was asked for).
    pub send_buffer: u64,
    /// Memory of what is queued to send, acknowledged or not, bytes.
    pub send_queue_memory: u64,
    /// Written and never sent yet, bytes.
    pub unsent: u64,
    /// Sent and not acknowledged, bytes.
    pub in_flight: u64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// No loss yet: still in the first slow start.
    pub in_slow_start: bool,
    /// The window that the peer announced, bytes.
    pub peer_window: u64,
    /// Time with data outstanding.
    pub busy_time: Duration,
    /// Of that, limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Segments sent again.
    pub retransmits: u64,
    /// Payload of a full segment, bytes.
    pub mss: u64,
    /// The kernel's latest sample of what was delivered, bytes per second (sender).
    pub delivery_rate: u64,
    /// Receive buffer as reported, bytes (twice what was asked for).
    pub receive_buffer: u64,
    /// Memory of what was received and not read yet, in order or not, bytes.
    pub receive_queue_memory: u64,
    /// Payload that was received in order and not read yet, bytes.
    pub readable: u64,
    /// Window announced to the peer, or the most that would be, bytes; no more than the window scale
    /// can express.
    pub receive_window: u64,
    /// Most bytes that the window scale can express (65535 << scale).
    pub max_receive_window: u64,
}

/// Bytes that a send buffer keeps in flight: writers are woken only when a third of it is free.
pub fn max_in_flight(send_buffer: u64) -> u64 {
    send_buffer / 3 * 2
}

/// The window that a receive buffer offers, bytes: Linux measures how much of it is payload, and
/// comes to about two thirds with full segments.
pub fn window_of_buffer(receive_buffer: u64) -> u64 {
    receive_buffer / 100 * 66
}
