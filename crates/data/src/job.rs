//! What a transfer is told and what it tells: settings and report.

use std::sync::Arc;
use std::time::Duration;

use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::ranges::RangeSet;
use tune::{Evidence, Prior};

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
    /// Sending: what is known of the path, to begin with. Its streams count where [`Settings::adapt`]
    /// may change their number, in place of `streams`; its congestion control with
    /// [`crate::options::Congestion::Auto`]; its pace with [`Settings::adapt`]; its buffer with
    /// [`proto::sizing::Sizing::Auto`].
    pub prior: Prior,
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

impl Default for Settings {
    /// MODE S, TYPE I, nothing known of the path, no sum; half a minute for the first connection.
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
            prior: Prior::default(),
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
    /// All that the transfer's [`Control`] has recorded as stored, wire offsets (receiving; in
    /// TYPE A the count of bytes from the wire).
    pub stored: RangeSet,
    /// Lower-case hex digest of what passed, if `sum` was set and everything from 0 on without
    /// gaps passed (or, for algorithms that combine, the bytes in ascending offset order).
    pub digest: Option<String>,
    /// What this end learned of the path: bytes, time, streams, the kernel's accounts.
    pub evidence: Evidence,
    /// A limit of this host that held the transfer back: which setting to raise, and for what gain.
    pub remark: Option<String>,
}
