//! One file over one session (or two): the seam between the batch above and the dialogue below.
//!
//! Everything here is a single attempt. What arrived in a failed attempt is in the shared
//! [`data::job::TransferControl`] (gets) or in [`TransferSpec::stored_ranges`] (puts and third-party transfers,
//! from the server's 111 markers), whether the peers stand by it in [`TransferSpec::confirmation`]; the batch
//! decides what of it is kept for the next attempt.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use data::job::TransferReport;
use data::options::TransferOptions;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;
use tune::Prior;
use tune::streams::auto::LimiterVerdict;

use crate::ModeChoice;

pub use chunked::{Chunking, get, put, third_party};
pub use confirmation::TransferConfirmation;

mod chunked;
mod confirmation;
pub(crate) mod control_messages;
pub(crate) mod exchange;
mod get;
mod negotiation;
pub(crate) mod outcome;
pub(crate) mod prepare;
mod put;
mod server_pair;
mod third_party;

/// How one attempt is to be made.
#[derive(Debug, Clone)]
pub struct TransferSpec {
    /// Size of what is to be transferred: of the part if there is one, of the file otherwise.
    pub size: Option<u64>,
    /// Part of the source: offset and length in the source file. The part's bytes become the
    /// destination's bytes from 0 on.
    pub part: Option<(u64, u64)>,
    /// Where the first byte belongs in the destination, which keeps what else it holds. `None`: at its
    /// start, and a destination server begins the file anew. What is told of ranges (`have`, `marked`)
    /// counts from here.
    pub destination_offset: Option<u64>,
    /// How the transfer may be cut into chunks; `None`: it is made in one piece.
    pub chunks: Option<Chunking>,
    /// Ranges safe at the destination already, in destination offsets.
    pub completed_ranges: RangeSet,
    /// Streams wanted (1 unless MODE E is possible).
    pub streams: u32,
    /// Never more streams at a time.
    pub max_streams: u32,
    /// Their number, the congestion control and the pace follow the path ([`data::job::TransferSettings::adapt`]).
    pub adapt: bool,
    /// Knowledge of the path that sending from here begins with.
    pub prior: Prior,
    /// Mode wish.
    pub mode: ModeChoice,
    /// Sum the bytes of this attempt on the way; only meaningful when `have` is empty.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Ask the destination server to sum while it stores (if it can).
    pub server_checksum: Option<ChecksumAlgorithm>,
    /// Options of the data connections, as asked for.
    pub options: TransferOptions,
    /// Set when the destination server of a put said that the transfer begins (125, 150).
    pub started: Arc<AtomicBool>,
    /// Ranges the destination server reported as stored (111), destination offsets.
    pub stored_ranges: Arc<Mutex<RangeSet>>,
    /// The bytes that the peers confirmed or refused.
    pub confirmation: Arc<TransferConfirmation>,
    /// Data ports for active connections.
    pub data_ports: Option<(u16, u16)>,
}

/// Outcome of one attempt that ended with 226.
#[derive(Debug, Clone, Default)]
pub struct TransferAttempt {
    /// This end's report; default for third-party transfers except `bytes`.
    pub report: TransferReport,
    /// MODE E was used.
    pub extended_mode: bool,
    /// Streams opened.
    pub streams: u64,
    /// Who sized the buffers: what was asked for, or what took its place.
    pub buffers: SocketBuffers,
    /// Remarks of the hosts on the transfer.
    pub remarks: Vec<HostRemark>,
    /// Warnings for the user (a fallback that was taken), each said once per session.
    pub warnings: Vec<String>,
}

/// Remark of a host on a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRemark {
    /// The server's name; `None`: this machine.
    pub host: Option<String>,
    /// Limiter of the streams that it sent over; `None`: it did not send, or does not tell.
    pub verdict: Option<LimiterVerdict>,
    /// A limit of the host that held the transfer back, in plain words: which setting to raise there,
    /// and for what gain.
    pub text: Option<String>,
}

#[cfg(test)]
mod tests;
