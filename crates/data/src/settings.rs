//! Settings of a transfer.

use std::sync::Arc;
use std::time::Duration;

use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use tune::Prior;

use crate::drs;
use crate::options::TransferOptions;

/// Settings of one transfer, the same for sending and receiving.
#[derive(Debug, Clone)]
pub struct TransferSettings {
    /// Options of the data connections, as asked for.
    pub options: TransferOptions,
    /// MODE.
    pub mode: TransferMode,
    /// TYPE; Ascii translates line ends and rules out offsets.
    pub type_: DataType,
    /// Connections to open when sending in MODE E; ignored in MODE S (1).
    pub streams: usize,
    /// Sending in MODE E: connections that may be open at a time. Above `streams`, or above 1 with
    /// [`TransferSettings::adapt`], the number follows the path.
    pub max_streams: usize,
    /// Likewise: never fewer, while there is something left to send; at least 1, at most `streams`.
    pub min_streams: usize,
    /// MODE E: data connections that the transfer may have at a time, whoever opens them and however
    /// many targets there are. Further ones that are made to this end wait until one ends.
    pub max_connections: usize,
    /// Sending: `tune::streams::auto` decides about streams (`least_streams` to `most_streams`) and pace
    /// while data moves.
    pub adapt: bool,
    /// Sending: knowledge of the path to begin with. Its streams count where [`TransferSettings::adapt`]
    /// may change their number, in place of `streams`; its congestion control with
    /// [`crate::options::Congestion::Auto`]; its pace with [`TransferSettings::adapt`]; its buffer with
    /// [`proto::sizing::BufferSizing::Auto`].
    pub prior: Prior,
    /// Sum the bytes that pass; the result is in the report. Has no effect in TYPE A, where the
    /// bytes on the wire are not those of the file.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Longest wait for the first data connection.
    pub connect_timeout: Duration,
    /// This end of the DRS channel ([`proto::sizing::BufferSizing::Drs`]); `None`: the transfer goes on without.
    pub drs: Option<Arc<drs::DrsEndpoint>>,
    /// MODE E sending: set CLOSE in the end marks and close the connections after the transfer.
    pub close_after: bool,
    /// Data connections have a fake handshake.
    #[cfg(test)]
    pub(crate) gate: Option<Arc<crate::transport::HandshakeGate>>,
}

impl Default for TransferSettings {
    /// MODE S, TYPE I, nothing known of the path, no sum; half a minute for the first connection.
    fn default() -> Self {
        Self {
            options: TransferOptions::default(),
            mode: TransferMode::Stream,
            type_: DataType::Image,
            streams: 1,
            max_streams: 1,
            min_streams: 1,
            max_connections: 256,
            adapt: false,
            prior: Prior::default(),
            checksum: None,
            connect_timeout: Duration::from_secs(30),
            drs: None,
            close_after: false,
            #[cfg(test)]
            gate: None,
        }
    }
}
