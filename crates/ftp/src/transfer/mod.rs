//! One attempt to transfer one file over one session, or over two sessions of a third-party
//! transfer.
//!
//! The bytes of a failed attempt are in the shared [`data::job::TransferControl`] (gets) or in
//! [`TransferSpec::stored_ranges`] (puts and third-party transfers, from the server's 111 markers).
//! [`TransferSpec::confirmation`] says whether the peers confirmed them. The batch decides which of
//! them the next attempt keeps.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use data::job::TransferReport;
use data::options::TransferOptions;
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;
use tune::Prior;
use tune::streams::auto::LimiterVerdict;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};

pub use chunked::{get, put, third_party};
pub use confirmation::TransferConfirmation;

pub mod bundle;
mod bundle_commands;
mod chunk_totals;
mod chunked;
mod confirmation;
pub mod control_messages;
mod data_side;
pub(crate) mod exchange;
mod get;
mod negotiation;
pub mod outcome;
pub(crate) mod prepare;
mod put;
mod restart;
pub mod series;
mod server_pair;
mod subject;
mod third_party;
mod third_party_settings;

/// Requested transfer mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModeChoice {
    /// MODE E when several streams are used and the server supports it, otherwise MODE S.
    #[default]
    Auto,
    /// MODE S.
    Stream,
    /// MODE E, also with one stream.
    Extended,
}

/// How a transfer is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chunking {
    /// One chunk after the other over one session, by a tuning mode of the 2008 paper.
    Mode(ChunkTuningMode, ChunkParameters),
    /// The number of streams follows the goodput they reach. Gets: one long transfer, whose end further
    /// sessions take. Between two servers: two chunks at a time over one session each, so that the path
    /// never drains between them.
    Probe,
}

/// Specification of one attempt.
#[derive(Debug, Clone)]
pub struct TransferSpec {
    /// Bytes to transfer: the size of the part if there is one, of the file otherwise.
    pub size: Option<u64>,
    /// Part of the source: offset and length in the source file. Its bytes become the destination's
    /// bytes from 0 on.
    pub part: Option<(u64, u64)>,
    /// Proof that a part begins where REST says, if a server sends it so.
    pub restart_proof: RestartProof,
    /// Offset of the first byte in a destination that keeps its other bytes. `None`: the transfer
    /// begins at 0 and a destination server truncates the file. `completed_ranges` and
    /// `stored_ranges` count from this offset.
    pub destination_offset: Option<u64>,
    /// How the transfer may be cut into chunks; `None`: it is made in one piece.
    pub chunks: Option<Chunking>,
    /// Ranges that are safe at the destination already, in destination offsets.
    pub completed_ranges: RangeSet,
    /// Requested number of streams (1 unless MODE E is possible).
    pub streams: u32,
    /// Most streams at a time.
    pub max_streams: u32,
    /// Whether the number of streams, the congestion control and the pacing rate follow the path
    /// ([`data::job::TransferSettings::adapt`]).
    pub adapt: bool,
    /// Knowledge of the path before sending from this machine.
    pub prior: Prior,
    /// Requested MODE.
    pub mode: ModeChoice,
    /// Compute this checksum of the bytes while they are transferred. Valid only when
    /// `completed_ranges` is empty.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Ask the server to compute this checksum while it sends or stores, if it can.
    pub server_checksum: Option<ChecksumAlgorithm>,
    /// Requested options of the data connections.
    pub options: TransferOptions,
    /// Set when the destination server of a put replies that the transfer begins (125, 150), and after a direct transfer that has
    /// failed here, while the servers may still go on with it.
    pub started: Arc<AtomicBool>,
    /// Ranges that the destination server reported as stored (111), in destination offsets.
    pub stored_ranges: Arc<Mutex<RangeSet>>,
    /// The bytes that the peers confirmed or refused.
    pub confirmation: Arc<TransferConfirmation>,
    /// Local ports to listen on when the server connects.
    pub data_ports: Option<(u16, u16)>,
}

/// Proof that a server which accepts REST obeys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartProof {
    /// Nothing in the transfer: it is proved before.
    #[default]
    Before,
    /// The part ends where the file ends: from the beginning, more would come.
    EndOfFile,
    /// The caller sees to it.
    Elsewhere,
}

/// Result of an attempt that ended with 226.
#[derive(Debug, Clone, Default)]
pub struct TransferAttempt {
    /// This end's report. For third-party transfers only `bytes` is set.
    pub report: TransferReport,
    /// Whether MODE E was used.
    pub extended_mode: bool,
    /// Number of streams opened.
    pub streams: u64,
    /// Who sized the buffers: as requested, or the fallback.
    pub buffers: SocketBuffers,
    /// Remarks of the hosts about the transfer.
    pub remarks: Vec<HostRemark>,
    /// Warnings for the user about fallbacks. Each is given once per session.
    pub warnings: Vec<String>,
}

/// Remark of a host about a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRemark {
    /// The server's name; `None` for this machine.
    pub host: Option<String>,
    /// Bottleneck of the streams that the host sent over; `None` if it did not send or does not
    /// report it.
    pub verdict: Option<LimiterVerdict>,
    /// A limit of the host that held the transfer back, in plain words: which setting to raise
    /// there, and for what gain.
    pub text: Option<String>,
}

#[cfg(test)]
mod tests;
