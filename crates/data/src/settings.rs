//! Settings of one transfer.

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
    /// Options of the data connections, as requested.
    pub options: TransferOptions,
    /// Transfer mode (MODE).
    pub mode: TransferMode,
    /// Representation type (TYPE). Ascii translates line ends and excludes offsets.
    pub type_: DataType,
    /// Connections to open when sending in MODE E. Ignored in MODE S (1).
    pub streams: usize,
    /// Sending in MODE E: most connections open at a time. Above `streams`, or above 1 with
    /// [`TransferSettings::adapt`], the number follows the path.
    pub max_streams: usize,
    /// Sending in MODE E: fewest connections while something is left to send; 1 to `streams`.
    pub min_streams: usize,
    /// MODE E: most data connections of the transfer at a time, whichever end opens them and
    /// however many targets there are. Further incoming ones wait until one ends.
    pub max_connections: usize,
    /// Sending: `tune::streams::auto` decides about streams (`min_streams` to `max_streams`) and
    /// pacing while data moves.
    pub adapt: bool,
    /// Sending: prior knowledge of the path. Its number of streams replaces `streams` if
    /// [`TransferSettings::adapt`] may change it; its congestion control is used with
    /// [`crate::options::CongestionChoice::Auto`], its pacing rate with
    /// [`TransferSettings::adapt`], its buffer size with automatic buffer sizing.
    pub prior: Prior,
    /// Computes the checksum of the bytes that pass; the result is in the report. No effect in TYPE
    /// A, where the bytes on the wire are not those of the file.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Longest wait for the first data connection.
    pub connect_timeout: Duration,
    /// This end of the DRS channel; `None`: the transfer runs without it.
    pub drs: Option<Arc<drs::DrsEndpoint>>,
    /// Protection of the data connections; `None`: clear.
    pub security: Option<Arc<crate::security::DataSecurity>>,
    /// MODE E sending: sets CLOSE in the end marks and closes the connections after the transfer.
    pub close_after: bool,
    /// Data connections get a simulated handshake.
    #[cfg(test)]
    pub(crate) gate: Option<Arc<crate::transport::HandshakeGate>>,
}

impl Default for TransferSettings {
    /// MODE S, TYPE I, no knowledge of the path, no checksum; half a minute for the first
    /// connection.
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
            security: None,
            close_after: false,
            #[cfg(test)]
            gate: None,
        }
    }
}
