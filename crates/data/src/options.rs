//! The settings of a data transfer that people choose: one type from the command line, the library
//! call or the server's configuration down to the byte pump.

use std::time::Duration;

use proto::sizing::Sizing;
use tune::sizing::drs::Interval;

use crate::rate::RateLimit;

/// How the data connections of a transfer behave, whoever asked for it.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Socket buffers of the data connections.
    pub buffers: Buffers,
    /// How often a receiving end computes the bandwidth ([`Sizing::Drs`]).
    pub drs_interval: Interval,
    /// Congestion control of this end's sockets.
    pub congestion: Congestion,
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
            buffers: Buffers::sized(Sizing::Kernel),
            drs_interval: Interval::default(),
            congestion: Congestion::System,
            io: IoMethod::Auto,
            block: 1 << 20,
            rate: None,
            stall: Duration::from_secs(60),
        }
    }
}

/// Socket buffers of data connections: a size from first to last, or who sizes them while data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Send buffer (SO_SNDBUF) to pin on each socket, bytes; `None`: sized by [`Buffers::sizing`].
    pub send: Option<u64>,
    /// Receive buffer (SO_RCVBUF), likewise.
    pub receive: Option<u64>,
    /// Who sizes buffers that are not pinned.
    pub sizing: Sizing,
}

impl Buffers {
    /// Sized while data moves.
    pub fn sized(sizing: Sizing) -> Self {
        Self {
            send: None,
            receive: None,
            sizing,
        }
    }

    /// `bytes` in both directions, from first to last.
    pub fn pinned(bytes: u64) -> Self {
        Self {
            send: Some(bytes),
            receive: Some(bytes),
            sizing: Sizing::Kernel,
        }
    }

    /// The larger of the pinned sizes, bytes; `None` where none is pinned.
    pub fn pinned_bytes(self) -> Option<u64> {
        self.send.max(self.receive)
    }

    /// The same, with `sizing` for what is not pinned.
    #[must_use]
    pub fn with_sizing(self, sizing: Sizing) -> Self {
        match (self.send, self.receive) {
            (Some(_), Some(_)) => self,
            _ => Self { sizing, ..self },
        }
    }

    /// `auto`, `kernel`, `drs1`, `drs`, or `pinned`.
    pub fn name(self) -> &'static str {
        match self.pinned_bytes() {
            Some(_) => "pinned",
            None => self.sizing.name(),
        }
    }
}

impl Default for Buffers {
    /// [`Sizing::Auto`].
    fn default() -> Self {
        Self::sized(Sizing::Auto)
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
pub enum Congestion {
    /// The system's.
    #[default]
    System,
    /// What the path asks for, of those that the system has and permits (sending); begins with the
    /// system's.
    Auto,
    /// This one; a system without it is an error.
    Named(String),
}

impl Congestion {
    /// `system`, `auto`, or a name.
    pub fn parse(text: &str) -> Self {
        match text {
            "system" => Self::System,
            "auto" => Self::Auto,
            name => Self::Named(name.to_owned()),
        }
    }

    /// The text that [`Congestion::parse`] reads.
    pub fn name(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Auto => "auto",
            Self::Named(name) => name,
        }
    }

    /// The one that was named.
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_pinned_is_sized_as_agreed() {
        let pinned = Buffers::pinned(1 << 20);
        let sized = Buffers::sized(Sizing::Auto);
        let receive = Some(1 << 20);
        for buffers in [sized, Buffers { receive, ..sized }] {
            let agreed = buffers.with_sizing(Sizing::Drs);
            let sizing = Sizing::Drs;
            assert_eq!(agreed, Buffers { sizing, ..buffers });
        }
        assert_eq!(pinned.with_sizing(Sizing::Drs), pinned);
    }
}
