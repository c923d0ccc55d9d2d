//! One transfer as a log tells it, and what it says of the path.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;
use tune::limiter::Limiter;

use crate::measurement::{Measurement, Quantity};

/// Name of the test whose results come from real transfers.
pub const TRANSFER_TEST: &str = "transfer";

/// A shorter transfer says more of connection setup and slow start than of the path. Slow start takes about ten
/// round trips: on a path of 300 ms that is 3 s.
const MIN_SECONDS: f64 = 5.0;
/// With whole seconds the rate of a shorter transfer would be wrong by more than a tenth.
const MIN_WHOLE_SECONDS: f64 = 10.0;
/// Round trips that a transfer lasts at least, where the round trip is known.
const MIN_ROUND_TRIPS: f64 = 20.0;
/// Fewer bytes may fit into the initial windows and buffers, however long the transfer took.
const MIN_BYTES: u64 = 1_000_000;
/// Payload of a segment on Ethernet with timestamps (RFC 7323): 1500 - 40 - 12 bytes. Few logs tell the real one.
const SEGMENT_BYTES: u64 = 1448;

/// Direction of a logged transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDirection {
    /// This host sent to the client.
    Sent,
    /// This host received from the client.
    Received,
}

/// Protocol of a logged transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogProtocol {
    /// GridFTP: several streams are possible.
    GridFtp,
    /// FTP (RFC 959), or FTP with TLS.
    Ftp,
    /// HTTP or HTTPS.
    Http,
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

    /// The measurement that the transfer is; `None` if it says nothing of the path.
    ///
    /// - Goodput: only of a complete transfer of 1 MB and 5 s or more (10 s where the log counts whole seconds; 20
    ///   round trips where the log has the round trip), which neither a limit nor a disk or processor held back.
    /// - Streams: of a transfer that yields a goodput.
    /// - Retransmits: of a transfer of 1 MB or more from this host, as the share of all segments (of 1448 bytes where
    ///   their size is unknown).
    /// - RTT: the smallest one that the server saw.
    pub fn measurement(&self) -> Option<Measurement> {
        let mut values = Vec::new();
        if let Some(rtt) = self.min_rtt {
            values.push((Quantity::Rtt, rtt));
        }
        if let Some(bits_per_second) = self.goodput() {
            let quantity = match self.direction {
                LogDirection::Sent => Quantity::Goodput,
                LogDirection::Received => Quantity::ReverseGoodput,
            };
            values.push((quantity, bits_per_second));
            if let Some(streams) = self.streams.filter(|&streams| streams > 0) {
                values.push((Quantity::Streams, f64::from(streams)));
            }
        }
        if let Some(share) = self.retransmit_share() {
            values.push((Quantity::Retransmits, share));
        }
        (!values.is_empty()).then(|| Measurement {
            client: self.client,
            test: TRANSFER_TEST.to_owned(),
            at: self.at,
            values,
            detail: Some(serde_json::json!({
                "protocol": self.protocol,
                "bytes": self.bytes,
                "seconds": self.seconds,
                "buffer": self.buffer,
                "limiter": self.limiter,
                "congestion": self.congestion,
            })),
            // The service itself has sent nothing.
            cost_bytes: 0,
        })
    }

    fn goodput(&self) -> Option<f64> {
        let (bytes, seconds) = (self.bytes?, self.seconds?);
        let least_seconds = if self.whole_seconds {
            MIN_WHOLE_SECONDS
        } else {
            MIN_SECONDS
        };
        let least_seconds = least_seconds.max(self.min_rtt.unwrap_or(0.0) * MIN_ROUND_TRIPS);
        let limiter = self.limiter.as_deref().and_then(Limiter::parse);
        let limited = limiter.is_some_and(Limiter::is_at_an_end);
        let tells = self.complete && !limited && bytes >= MIN_BYTES && seconds >= least_seconds;
        tells.then(|| float(bytes) * 8.0 / seconds)
    }

    fn retransmit_share(&self) -> Option<f64> {
        let (retransmits, bytes) = (self.retransmits?, self.bytes?);
        if self.direction != LogDirection::Sent || bytes < MIN_BYTES {
            return None;
        }
        let segment_bytes = self.segment_bytes.filter(|&bytes| bytes > 0);
        let segments = (bytes / segment_bytes.unwrap_or(SEGMENT_BYTES)).saturating_add(retransmits);
        Some(float(retransmits) / float(segments))
    }
}

/// Counts above 2^53 lose their last digits, which no rate needs.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates need no more than 53 bits"
)]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: u64, seconds: f64) -> LogEntry {
        let mut entry = LogEntry::new(
            "192.0.2.1".parse().unwrap(),
            Timestamp::UNIX_EPOCH,
            LogDirection::Sent,
            LogProtocol::Ftp,
        );
        (entry.bytes, entry.seconds) = (Some(bytes), Some(seconds));
        entry
    }

    #[test]
    fn a_long_transfer_gives_goodput_streams_and_retransmits() {
        let mut long = entry(144_800_000, 10.0);
        (long.streams, long.retransmits, long.min_rtt) = (Some(4), Some(100), Some(0.1));
        let values = long.measurement().unwrap().values;
        assert_eq!(values[0], (Quantity::Rtt, 0.1));
        assert_eq!(values[1], (Quantity::Goodput, 115_840_000.0));
        assert_eq!(values[2], (Quantity::Streams, 4.0));
        assert_eq!(values[3], (Quantity::Retransmits, 100.0 / 100_100.0));
        long.direction = LogDirection::Received;
        let values = long.measurement().unwrap().values;
        assert_eq!(values[1].0, Quantity::ReverseGoodput);
        assert_eq!(values.len(), 3, "a receiver does not see retransmits");
    }

    #[test]
    fn a_transfer_that_says_nothing_of_the_path_gives_no_goodput() {
        assert_eq!(entry(900_000, 60.0).measurement(), None, "few bytes");
        assert_eq!(entry(9_000_000, 4.9).measurement(), None, "short");
        let mut whole = entry(9_000_000, 9.0);
        whole.whole_seconds = true;
        assert_eq!(whole.measurement(), None, "9 may be 9.9 s");
        let mut far = entry(9_000_000, 6.0);
        far.min_rtt = Some(0.5);
        assert_eq!(far.measurement().unwrap().values.len(), 1, "12 round trips");
        let mut cut = entry(9_000_000, 60.0);
        cut.complete = false;
        assert_eq!(cut.measurement(), None, "incomplete");
        for limiter in ["rate limit", "store read", "store write", "sender CPU"] {
            let mut limited = entry(9_000_000, 60.0);
            limited.limiter = Some(limiter.to_owned());
            assert_eq!(limited.measurement(), None, "{limiter}");
        }
        let mut of_path = entry(9_000_000, 60.0);
        of_path.limiter = Some("congestion window".to_owned());
        assert!(of_path.measurement().is_some());
    }
}
