//! One file over one session (or two): the seam between the batch above and the dialogue below.
//!
//! Everything here is a single attempt. What arrived in a failed attempt is in the shared
//! [`data::job::Control`] (gets) or in [`TransferSpec::marked`] (puts and third-party transfers,
//! from the server's 111 markers), whether the peers stand by it in [`TransferSpec::said`]; the batch
//! decides what of it is kept for the next attempt.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use data::job::Report;
use data::options::TransferOptions;
use proto::checksum::Algorithm;
use proto::ranges::RangeSet;
use proto::sizing::Buffers;
use tune::streams::auto::Verdict;

use crate::ModeChoice;

pub use chunked::{Chunks, get, put, third_party};
pub use confirmation::Confirmation;

mod choice;
mod chunked;
mod confirmation;
mod duplex;
pub(crate) mod exchange;
mod get;
pub(crate) mod prepare;
mod put;
mod third_party;
pub(crate) mod told;
pub(crate) mod verdict;

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
    pub place: Option<u64>,
    /// How the transfer may be cut into chunks; `None`: it is made in one piece.
    pub chunks: Option<Chunks>,
    /// Ranges safe at the destination already, in destination offsets.
    pub have: RangeSet,
    /// Streams wanted (1 unless MODE E is possible).
    pub streams: u32,
    /// Never more streams at a time.
    pub most_streams: u32,
    /// Their number, the congestion control and the pace follow the path ([`data::job::Settings::adapt`]).
    pub adapt: bool,
    /// Mode wish.
    pub mode: ModeChoice,
    /// Sum the bytes of this attempt on the way; only meaningful when `have` is empty.
    pub sum: Option<Algorithm>,
    /// Ask the destination server to sum while it stores (if it can).
    pub remote_sum: Option<Algorithm>,
    /// Options of the data connections, as asked for.
    pub options: TransferOptions,
    /// Set when the destination server of a put said that the transfer begins (125, 150).
    pub begun: Arc<AtomicBool>,
    /// Ranges the destination server reported as stored (111), destination offsets.
    pub marked: Arc<Mutex<RangeSet>>,
    /// The bytes that the peers confirmed or refused.
    pub said: Arc<Confirmation>,
    /// Data ports for active connections.
    pub data_ports: Option<(u16, u16)>,
}

/// Outcome of one attempt that ended with 226.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// This end's report; default for third-party transfers except `bytes`.
    pub report: Report,
    /// MODE E was used.
    pub extended: bool,
    /// Streams opened.
    pub streams: u64,
    /// Who sized the buffers: what was asked for, or what took its place.
    pub buffers: Buffers,
    /// Remarks of the hosts on the transfer.
    pub remarks: Vec<Remark>,
    /// Warnings for the user (a fallback that was taken), each said once per session.
    pub warnings: Vec<String>,
}

/// Remark of a host on a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// The server's name; `None`: this machine.
    pub host: Option<String>,
    /// Limiter of the streams that it sent over; `None`: it did not send, or does not tell.
    pub verdict: Option<Verdict>,
    /// A limit of the host that held the transfer back, in plain words: which setting to raise there,
    /// and for what gain.
    pub text: Option<String>,
}

#[cfg(test)]
mod tests;
