//! Settings of a transfer.

use std::sync::Arc;
use std::time::Duration;

use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use tune::Prior;

use crate::drs;
use crate::options::TransferOptions;

/// Settings of one transfer, the same for sending and receiving.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Options of the data connections, as asked for.
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
    /// Sending: knowledge of the path to begin with. Its streams count where [`Settings::adapt`]
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
    /// Data connections have a fake handshake.
    #[cfg(test)]
    pub(crate) gate: Option<Arc<crate::transport::Gate>>,
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
            #[cfg(test)]
            gate: None,
        }
    }
}
