//! The settings of a data transfer that people choose: one type from the command line, the library
//! call or the server's configuration down to the byte pump.

use std::time::Duration;

use proto::sizing::{BufferSizing, SocketBuffers};
use tune::sizing::drs::DrsInterval;

use crate::rate::RateLimit;

/// How the data connections of a transfer behave, whoever asked for it.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Socket buffers of the data connections.
    pub buffers: SocketBuffers,
    /// How often a receiving end computes the bandwidth ([`BufferSizing::Drs`]).
    pub drs_interval: DrsInterval,
    /// Congestion control of this end's sockets.
    pub congestion: CongestionChoice,
    /// How bytes move between file and socket at this end.
    pub io: IoMethod,
    /// Payload of a MODE E block when sending, and unit of store access, bytes. 64 KiB..=64 MiB.
    pub block: usize,
    /// Bytes per second over all streams of the transfer, and of all others that hold a clone.
    pub rate: Option<RateLimit>,
    /// Longest time in which nothing moves on any stream, until the transfer fails with
    /// [`crate::error::DataError::Stalled`].
    pub stall: Duration,
}

impl Default for TransferOptions {
    /// The kernel's tuning and congestion control, blocks of 1 MiB, no limit, a minute for a stall.
    fn default() -> Self {
        Self {
            buffers: SocketBuffers::sized_by(BufferSizing::Kernel),
            drs_interval: DrsInterval::default(),
            congestion: CongestionChoice::System,
            io: IoMethod::Auto,
            block: 1 << 20,
            rate: None,
            stall: Duration::from_secs(60),
        }
    }
}

/// How bytes go between file and socket. `Auto` picks the measured winner per case
/// (docs/benchmarks.md); the others pin a method where it applies and fall back to `Copy` where it
/// does not (a pipe, TYPE A, a running checksum).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMethod {
    /// The measured winner.
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

/// Which congestion control this end's sockets run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CongestionChoice {
    /// The system's.
    #[default]
    System,
    /// The control that the path asks for, of those that the system has and permits (sending); begins with the
    /// system's.
    Auto,
    /// This one; a system without it is an error.
    Named(String),
}

impl CongestionChoice {
    /// `system`, `auto`, or a name.
    pub fn parse(text: &str) -> Self {
        match text {
            "system" => Self::System,
            "auto" => Self::Auto,
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

    /// The one that was named.
    pub fn pinned_name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            _ => None,
        }
    }
}
