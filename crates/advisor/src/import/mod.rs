//! Results of other programs, as measurements: perfSONAR (pscheduler), `iperf3 --json`, and transfer logs, whole files.
//!
//! An imported result is worth as much as a transfer of this host: [`crate::log_reader::transfer_measurement`] says
//! when a rate says something of the path.

pub mod iperf3;
pub mod json_fields;
pub mod perfsonar;
pub mod whole_file;

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
