//! Results of other programs, as measurements: perfSONAR (pscheduler), `iperf3 --json`, and transfer logs, whole files.
//!
//! An imported result is worth as much as a transfer of this host: [`crate::log_reader::entry::LogEntry::measurement`] says
//! when a rate says something of the path.

pub mod iperf3;
pub mod json_fields;
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
