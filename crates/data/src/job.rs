//! What a transfer is told and what it tells: settings and report.

use std::sync::Arc;
use std::time::Duration;

use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::ranges::RangeSet;
use tune::limiter::{Measured, Role};
use tune::streams::auto::Verdict;

pub use crate::control::{Control, StreamSample};
use crate::drs;
use crate::options::TransferOptions;

/// Settings of one transfer, the same for sending and receiving.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What was asked for the data connections.
    pub options: TransferOptions,
    /// MODE.
    pub mode: Mode,
    /// TYPE; Ascii translates line ends and rules out offsets.
    pub type_: Type,
    /// Connections to open when sending in MODE E; ignored in MODE S (1).
    pub streams: usize,
    /// Sending in MODE E: connections that may be open at a time. Above `streams`, or above 1 with
    /// [`Settings::adapt`], the number follows the path.
    pub most_streams: usize,
    /// Likewise: never fewer, while there is something left to send; at least 1, at most `streams`.
    pub least_streams: usize,
    /// MODE E: data connections that the transfer may have at a time, whoever opens them and however
    /// many targets there are. Further ones that are made to this end wait until one ends.
    pub most_connections: usize,
    /// Sending: `tune::streams::auto` decides about streams (`least_streams` to `most_streams`) and pace
    /// while data moves.
    pub adapt: bool,
    /// Sum the bytes that pass; the result is in the report. Has no effect in TYPE A, where the
    /// bytes on the wire are not those of the file.
    pub sum: Option<Algorithm>,
    /// Longest wait for the first data connection.
    pub connect: Duration,
    /// This end of the DRS channel ([`proto::sizing::Sizing::Drs`]); `None`: the transfer goes on without.
    pub drs: Option<Arc<drs::Endpoint>>,
    /// MODE E sending: set CLOSE in the end marks and close the connections after the transfer.
    pub close_after: bool,
}

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
    /// Adds what one stream measured.
    pub(crate) fn join(&mut self, one: &Self) {
        self.retransmits += one.retransmits;
        self.min_rtt_us = match (self.min_rtt_us, one.min_rtt_us) {
            (0, rtt) | (rtt, 0) => rtt,
            (a, b) => a.min(b),
        };
        self.rtt_us = self.rtt_us.max(one.rtt_us);
        self.buffer_bytes = self.buffer_bytes.max(one.buffer_bytes);
        self.busy_us = self.busy_us.max(one.busy_us);
        self.rwnd_limited_us = self.rwnd_limited_us.max(one.rwnd_limited_us);
        self.sndbuf_limited_us = self.sndbuf_limited_us.max(one.sndbuf_limited_us);
        self.open_us += one.open_us;
        self.store_us += one.store_us;
        self.wire_us += one.wire_us;
    }

    /// What [`tune::limiter::judge`] weighs, of `bytes` that moved in `elapsed`; `rate_limit` in bytes
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

impl Default for Settings {
    /// MODE S, TYPE I, no sum; half a minute for the first connection.
    fn default() -> Self {
        Self {
            options: TransferOptions::default(),
            mode: Mode::Stream,
            type_: Type::Image,
            streams: 1,
            most_streams: 1,
            least_streams: 1,
            most_connections: 256,
            adapt: false,
            sum: None,
            connect: Duration::from_secs(30),
            drs: None,
            close_after: false,
        }
    }
}

/// A finished transfer.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Payload bytes moved.
    pub bytes: u64,
    /// All that the transfer's [`Control`] has recorded as stored, wire offsets (receiving; in
    /// TYPE A the count of bytes from the wire).
    pub stored: RangeSet,
    /// Lower-case hex digest of what passed, if `sum` was set and everything from 0 on without
    /// gaps passed (or, for algorithms that combine, the bytes in ascending offset order).
    pub digest: Option<String>,
    /// Kernel's view.
    pub wire: WireStats,
    /// From the first connection to the last byte.
    pub elapsed: Duration,
    /// A limit of this host that held the transfer back: which setting to raise, and for what gain.
    pub remark: Option<String>,
    /// What limited the streams that this end sent over ([`Settings::adapt`], [`crate::options::Congestion::Auto`]).
    pub verdict: Option<Verdict>,
    /// Congestion control of this end's streams, as the kernel names it; of several, that of the one
    /// that ended last.
    pub congestion: Option<String>,
}
