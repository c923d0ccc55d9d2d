//! Results of other programs, as measurements: perfSONAR (pscheduler), `iperf3 --json`, and transfer logs, whole files.
//!
//! An imported result is worth as much as a transfer of this host: [`crate::log_reader::entry::LogEntry::measurement`] says
//! when a rate says something of the path.

use crate::log_reader::entry::LogDirection;
use crate::measurement::Quantity;

pub mod iperf3;
mod json_fields;
pub mod perfsonar;
pub mod whole_file;

/// The reason why a document gives no measurements.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableResult {
    /// The test itself failed, as its program says: nothing is wrong with the document.
    #[error("the test failed: {0}")]
    TestFailed(String),
    /// The document is no result, or does not say enough.
    #[error("{0}")]
    NotUnderstood(String),
}

impl From<String> for UnusableResult {
    fn from(reason: String) -> Self {
        Self::NotUnderstood(reason)
    }
}

impl From<&str> for UnusableResult {
    fn from(reason: &str) -> Self {
        Self::NotUnderstood(reason.to_owned())
    }
}

/// How results of other programs are understood.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Addresses of this host, which say which end of a perfSONAR test is the client. Without one, the source is
    /// this host.
    pub local: Vec<std::net::IpAddr>,
    /// The client, for results that do not name it.
    pub client: Option<std::net::IpAddr>,
    /// The time, for results that do not say it.
    pub at: Option<jiff::Timestamp>,
}

/// Loss from which a UDP test is taken to have filled the path: then the rate that arrived is the bottleneck's, and the
/// loss is the test's own doing.
const FULL_PATH_LOSS: f64 = 0.01;

/// The value of a UDP test of which a share was lost, and the rest arrived at a rate in bits per second.
fn udp_value(loss: f64, arrived: Option<f64>, direction: LogDirection) -> Option<(Quantity, f64)> {
    match (loss >= FULL_PATH_LOSS, direction) {
        (true, LogDirection::Sent) => Some((Quantity::Bandwidth, arrived?)),
        (true, LogDirection::Received) => Some((Quantity::ReverseBandwidth, arrived?)),
        (false, LogDirection::Sent) => Some((Quantity::Loss, loss)),
        (false, LogDirection::Received) => None,
    }
}

/// The smallest of round trips in microseconds, in seconds. Only a sender knows its round trips, and a tool that does not
/// know writes 0.
fn min_rtt(micros: impl Iterator<Item = f64>) -> Option<f64> {
    let known = micros.filter(|&micros| micros > 0.0);
    known.min_by(f64::total_cmp).map(|micros| micros / 1e6)
}
