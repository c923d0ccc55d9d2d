//! Requirements of a transfer, and the steps that fulfil them.

use crate::checksum::ChecksumAlgorithm;
use crate::command::{Command, RestartMarker, TransferMode};
use crate::security::DataChannelProtection;
use crate::sizing::BufferSizing;
use crate::streams::ParallelismRange;

/// Direction of a transfer, seen from the server of the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    /// The server sends (RETR, ERET, listings).
    Send,
    /// The server receives (STOR).
    Receive,
}

/// Settings that a transfer requires at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferRequirements {
    /// Direction of the transfer.
    pub direction: TransferDirection,
    /// MODE.
    pub mode: TransferMode,
    /// Number of data connections when the server sends in MODE E.
    pub streams: ParallelismRange,
    /// Congestion control of a sending server, if it supports `OPTS TUNE`; `None` for the server's own.
    pub congestion_control: Option<String>,
    /// Size of the server's socket buffers, bytes; `None` leaves it to the server.
    pub buffer: Option<u64>,
    /// Buffer sizing of both ends; `None` keeps the one in force (listings).
    pub buffer_sizing: Option<BufferSizing>,
    /// Commands that announce the files of a bundle.
    pub announcements: Vec<Command>,
    /// Size announced with ALLO (stores).
    pub announced_size: Option<u64>,
    /// Checksum that the server computes while the bytes pass, if it announces this feature.
    pub passing_checksum: Option<ChecksumAlgorithm>,
    /// Ranges that the receiver has already.
    pub restart: Option<RestartMarker>,
    /// Protection of the data connections; `None` in a session without security.
    pub protection: Option<DataChannelProtection>,
    /// The server listens for the data connections; otherwise it connects.
    pub server_listens: bool,
    /// The data connections of the last transfer are still open at this end and may be reused.
    pub connections_reusable: bool,
    /// The transfer command.
    pub command: Command,
}

/// Effect of a refused setting on the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalEffect {
    /// The transfer fails.
    Fatal,
    /// The transfer is planned again in MODE S.
    FallBackToStreamMode,
    /// The transfer restarts at the first byte. Used only where this is safe.
    RestartFromZero,
    /// None: the setting is optional.
    Ignore,
    /// The user is warned once; the transfer continues.
    Warn(&'static str),
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanStep {
    /// Send the command and read its final reply.
    Set(Command, RefusalEffect),
    /// Get the address at which the server listens for the DRS channel (DPSV). Skipped unless
    /// [`super::CommandPlanner::may_listen_for_drs`]; the transfer continues without an address.
    DrsListen,
    /// Get the address at which the server listens for data connections (PASV, EPSV).
    Listen,
    /// Send the address that the server must connect to (PORT, EPRT).
    Connect,
    /// Send the transfer command. Its replies arrive while data moves.
    Transfer(Command),
}
