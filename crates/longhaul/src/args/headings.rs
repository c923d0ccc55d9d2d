//! Headings of the groups of flags in help and man pages. Within a verb, groups stand in the order of their first flags.

/// Choice of data and metadata.
pub(super) const CONTENT: &str = "What is copied";
/// Resuming, verification, timeouts and retries.
pub(super) const RELIABILITY: &str = "Reliability";
/// Rates, and what decides them.
pub(super) const SPEED: &str = "Speed";
/// Connections.
pub(super) const NETWORK: &str = "Network";
/// Messages and records.
pub(super) const OUTPUT: &str = "Output";
/// Settings of published methods, to repeat and compare them.
pub(super) const RESEARCH: &str = "Research";
/// Who may use a server, and what they see.
pub(super) const ACCESS: &str = "Files and users";
/// Logs of a server, and services beside it.
pub(super) const MONITORING: &str = "Logs and monitoring";
/// Bounds of sessions, streams and times of a server.
pub(super) const LIMITS: &str = "Limits";
/// The process of a server.
pub(super) const PROCESS: &str = "Process";
/// An emulated or simulated path.
pub(super) const PATH: &str = "Path";
/// Data that crosses the path.
pub(super) const TRAFFIC: &str = "Traffic";
/// The machines at its ends.
pub(super) const HOSTS: &str = "Hosts";
/// Choice and duration of measurements.
pub(super) const MEASUREMENT: &str = "Measurement";
/// How a run of the lab begins, continues and ends.
pub(super) const RUN: &str = "Run";
