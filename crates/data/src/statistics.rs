//! Statistics of a transfer's streams.

use std::time::Duration;

use tune::limiter::{Measured, Role};

/// Kernel view of a transfer's streams, summed (TCP_INFO at the end of each stream).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WireStats {
    /// Data connections that took part.
    pub streams: u64,
    /// Most of them at a time.
    pub streams_most: u64,
    /// Those at work when the last bytes were handed out (sending in MODE E), or when they were last
    /// looked at.
    pub streams_last: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smallest RTT seen, microseconds; 0 unknown.
    pub min_rtt_us: u32,
    /// Largest smoothed RTT seen, microseconds.
    pub rtt_us: u32,
    /// Largest buffer that the kernel granted for the transfer's direction, bytes (SO_MEMINFO).
    pub buffer_bytes: u64,
    /// Most memory that the sockets of this end held at one moment, bytes, summed over streams
    /// (SO_MEMINFO), of the moments at which all were looked at: several times a second, whoever
    /// sizes the buffers. 0 when nobody looked while data moved, as in a small transfer.
    pub memory_bytes: u64,
    /// Time with data outstanding, microseconds, largest over streams (sender only).
    pub busy_us: u64,
    /// Of that, limited by the peer's window.
    pub rwnd_limited_us: u64,
    /// Of that, limited by the send buffer.
    pub sndbuf_limited_us: u64,
    /// How long streams were open, microseconds, summed.
    pub open_us: u64,
    /// Stream threads' time in the store, microseconds, summed. Sending with sendfile reads the
    /// store inside the socket call; that time is in `wire_us`.
    pub store_us: u64,
    /// Stream threads' time blocked in the socket, microseconds, summed.
    pub wire_us: u64,
}

impl WireStats {
    /// Figures for [`tune::limiter::judge`], of `bytes` that moved in `elapsed`; `rate_limit` in bytes
    /// per second.
    pub fn measured(
        &self,
        role: Role,
        bytes: u64,
        elapsed: Duration,
        rate_limit: Option<u64>,
    ) -> Measured {
        let us = Duration::from_micros;
        Measured {
            role,
            bytes,
            elapsed,
            streams: self.streams,
            open: us(self.open_us),
            retransmits: self.retransmits,
            min_rtt: us(self.min_rtt_us.into()),
            buffer_bytes: self.buffer_bytes,
            busy: us(self.busy_us),
            rwnd_limited: us(self.rwnd_limited_us),
            sndbuf_limited: us(self.sndbuf_limited_us),
            store: us(self.store_us),
            wire: us(self.wire_us),
            rate_limit,
        }
    }
}
