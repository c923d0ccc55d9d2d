//! One transfer as a log tells it.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Direction of a logged transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogDirection {
    /// This host sent to the client.
    Sent,
    /// This host received from the client.
    Received,
}

/// Protocol of a logged transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogProtocol {
    /// GridFTP: several streams are possible.
    GridFtp,
    /// FTP (RFC 959), or FTP with TLS.
    Ftp,
    /// HTTP or HTTPS.
    Http,
}

impl LogProtocol {
    /// Its name in the details of a measurement.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GridFtp => "gridftp",
            Self::Ftp => "ftp",
            Self::Http => "http",
        }
    }
}

/// One transfer between this host and a client. Fields that a format does not have are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// The client at the other end of the data connections. IPv4 addresses are never in their IPv6 form.
    pub client: IpAddr,
    /// End of the transfer.
    pub at: Timestamp,
    /// Payload bytes that moved.
    pub bytes: Option<u64>,
    /// Duration in seconds, above zero.
    pub seconds: Option<f64>,
    /// The format counts whole seconds, so that `seconds` is wrong by up to one.
    pub whole_seconds: bool,
    /// Direction of the bytes.
    pub direction: LogDirection,
    /// The transfer moved all that it should.
    pub complete: bool,
    /// Data connections.
    pub streams: Option<u32>,
    /// Socket buffer of a data connection at this host, bytes.
    pub buffer: Option<u64>,
    /// Segments that this host retransmitted.
    pub retransmits: Option<u64>,
    /// Payload of a full segment, bytes.
    pub segment_bytes: Option<u64>,
    /// Smallest round trip, seconds.
    pub min_rtt: Option<f64>,
    /// The limiter that the server names.
    pub limiter: Option<String>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Protocol of the transfer.
    pub protocol: LogProtocol,
}

impl LogEntry {
    /// An entry of which no more than this is known.
    pub fn new(
        client: IpAddr,
        at: Timestamp,
        direction: LogDirection,
        protocol: LogProtocol,
    ) -> Self {
        Self {
            client: client.to_canonical(),
            at,
            bytes: None,
            seconds: None,
            whole_seconds: false,
            direction,
            complete: true,
            streams: None,
            buffer: None,
            retransmits: None,
            segment_bytes: None,
            min_rtt: None,
            limiter: None,
            congestion: None,
            protocol,
        }
    }
}

/// The seconds if they are a finite number above zero.
pub(super) fn positive(seconds: f64) -> Option<f64> {
    (seconds.is_finite() && seconds > 0.0).then_some(seconds)
}
