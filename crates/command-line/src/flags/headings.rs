//! Headings of the groups of flags in help and man pages. Within a verb, groups stand in the order of their first flags.

/// Choice of data and metadata.
pub const CONTENT: &str = "What is copied";
/// Resuming, verification, timeouts and retries.
pub const RELIABILITY: &str = "Reliability";
/// Rates, and what decides them.
pub const SPEED: &str = "Speed";
/// Connections.
pub const NETWORK: &str = "Network";
/// Messages and records.
pub const OUTPUT: &str = "Output";
/// Settings of published methods, to repeat and compare them.
pub const RESEARCH: &str = "Research";
/// Who may use a server, and what they see.
pub const ACCESS: &str = "Files and users";
/// Logs of a server, and services beside it.
pub const MONITORING: &str = "Logs and monitoring";
/// Bounds of sessions, streams and times of a server.
pub const LIMITS: &str = "Limits";
/// The process of a server.
pub const PROCESS: &str = "Process";
/// An emulated or simulated path.
pub const PATH: &str = "Path";
/// Data that crosses the path.
pub const TRAFFIC: &str = "Traffic";
/// The machines at its ends.
pub const HOSTS: &str = "Hosts";
/// Choice and duration of measurements.
pub const MEASUREMENT: &str = "Measurement";
/// How a run of the lab begins, continues and ends.
pub const RUN: &str = "Run";
