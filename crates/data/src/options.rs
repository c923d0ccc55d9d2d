//! The options of a data transfer that users choose: one type from the command line, the library
//! call or the server's configuration down to the byte pump.

use std::time::Duration;

use proto::sizing::{BufferSizing, SocketBuffers};
use tune::sizing::drs::DrsInterval;
use tune::sizing::drs1::Drs1Reads;

use crate::rate::RateLimit;

/// Options of the data connections of a transfer.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Socket buffers of the data connections.
    pub buffers: SocketBuffers,
    /// How often a receiving end computes the bandwidth (only with `drs`).
    pub drs_interval: DrsInterval,
    /// How a receiving end reads (only with `drs1`).
    pub drs1_reads: Drs1Reads,
    /// Congestion control of this end's sockets.
    pub congestion: CongestionChoice,
    /// How bytes move between file and socket at this end.
    pub io: IoMethod,
    /// Payload of a MODE E block when sending, and size of a store access, bytes. 64 KiB..=64 MiB.
    pub block: usize,
    /// Rate limit over all streams of the transfer, and over all transfers that hold a clone.
    pub rate: Option<RateLimit>,
    /// Longest time in which nothing moves on any stream, until the transfer fails with
    /// [`crate::error::DataError::Stalled`].
    pub stall: Duration,
}

impl TransferOptions {
    /// Whether a receiving end reads into a buffer of twice the kernel's (2003 paper, §4.1).
    pub(crate) fn reads_whole_buffers(&self) -> bool {
        self.buffers.sizing == BufferSizing::Drs1 && self.drs1_reads.are_buffered()
    }
}

impl Default for TransferOptions {
    /// The kernel's buffer sizing and congestion control, blocks of 1 MiB, no rate limit, a stall
    /// time of one minute.
    fn default() -> Self {
        Self {
            buffers: SocketBuffers::sized_by(BufferSizing::Kernel),
            drs_interval: DrsInterval::default(),
            drs1_reads: Drs1Reads::default(),
            congestion: CongestionChoice::System,
            io: IoMethod::Auto,
            block: 1 << 20,
            rate: None,
            stall: Duration::from_secs(60),
        }
    }
}

/// How bytes move between file and socket. `Auto` selects the fastest measured method for each case
/// (docs/benchmarks.md). The others pin a method where it applies, and fall back to `Copy` where it
/// does not (a pipe, TYPE A, a checksum while the bytes move).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMethod {
    /// The fastest measured method.
    #[default]
    Auto,
    /// pread + write; read + pwrite.
    Copy,
    /// sendfile when sending; receiving as `Copy`.
    Sendfile,
    /// splice through a pipe in both directions.
    Splice,
    /// pread + send with MSG_ZEROCOPY; receiving as `Copy`.
    Zerocopy,
}

/// The congestion control of this end's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CongestionChoice {
    /// The system's default.
    #[default]
    System,
    /// Begins with the system's default, and changes while sending to one that suits the path,
    /// among those that the system has and permits.
    Auto,
    /// This one. A system without it is an error.
    Named(String),
}

impl CongestionChoice {
    /// Parses `system`, `auto`, or a name.
    pub fn parse(text: &str) -> Self {
        match text {
            "system" => Self::System,
            "auto" => Self::Auto,
            // Names are not checked here: only the kernel knows which congestion controls exist.
            name => Self::Named(name.to_owned()),
        }
    }

    /// The text that [`CongestionChoice::parse`] reads.
    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Auto => "auto",
            Self::Named(name) => name,
        }
    }

    /// The name, if one was pinned.
    pub fn pinned_name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            _ => None,
        }
    }
}
