//! Events for those who listen, and numbers.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::hosts::HostSource;
use crate::measurement::Measurement;
use crate::path_table::PathAnomaly;
use crate::scheduler::ScheduleCounters;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum AdvisorEvent {
    /// A path was measured.
    Measured(Measurement),
    /// A path behaves otherwise.
    Anomaly(PathAnomaly, Timestamp),
    /// A client became known.
    HostAdded(IpAddr, HostSource),
    /// A client was forgotten.
    HostForgotten(IpAddr),
    /// A transfer of the data server to or from this client began.
    TransferStarted(IpAddr),
    /// It ended.
    TransferEnded(IpAddr),
}

/// Numbers since the start, and of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdvisorCounters {
    /// Clients that are known.
    pub clients: usize,
    /// Paths of which something is known.
    pub paths: usize,
    /// Questions answered.
    pub questions: u64,
    /// Those about clients of which nothing was known.
    pub unknown: u64,
    /// Measurements taken in.
    pub measurements: u64,
    /// Anomalies found.
    pub anomalies: u64,
    /// Transfers of the data server that run now.
    pub transfers: u64,
    /// Whether the database is available.
    pub store_available: bool,
    /// Entries written to the database.
    pub store_written: u64,
    /// Entries that found no room while the database was unavailable.
    pub store_dropped: u64,
    /// Numbers of the scheduler.
    pub schedule: ScheduleCounters,
}
