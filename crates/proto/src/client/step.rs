//! Needs of a transfer, and the steps towards them.

use crate::checksum::ChecksumAlgorithm;
use crate::command::{Command, RestartMarker, TransferMode};
use crate::sizing::BufferSizing;
use crate::streams::ParallelismRange;

/// Which way the bytes go, seen from the server that is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    /// The server sends (RETR, ERET, listings).
    Send,
    /// The server receives (STOR).
    Receive,
}

/// Settings that a transfer needs of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferRequirements {
    /// Which way the bytes go.
    pub direction: TransferDirection,
    /// MODE.
    pub mode: TransferMode,
    /// Data connections that the server is to open when it sends in MODE E; at least 1.
    pub streams: ParallelismRange,
    /// Congestion control to ask a sending server for, where it takes that (`OPTS TUNE`); `None`: the
    /// server's own.
    pub congestion_control: Option<String>,
    /// Size of the server's socket buffers, bytes; `None` leaves them to it.
    pub buffer: Option<u64>,
    /// Who is to size the socket buffers of both ends; `None`: as it happens to be set (listings).
    pub buffer_sizing: Option<BufferSizing>,
    /// Size announced with ALLO (stores).
    pub announced_size: Option<u64>,
    /// Sum that the server computes while it stores, if it announced that it can.
    pub store_checksum: Option<ChecksumAlgorithm>,
    /// Data that is there already.
    pub restart: Option<RestartMarker>,
    /// Which kind of data address the transfer is to have: the server listens.
    pub server_listens: bool,
    /// The data connections of the last transfer are still open at this end, so that they may be
    /// used again.
    pub connections_reusable: bool,
    /// The transfer command.
    pub command: Command,
}

/// Meaning of the refusal of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalEffect {
    /// The transfer cannot be made.
    Fatal,
    /// The transfer is to be planned again in MODE S.
    FallBackToStreamMode,
    /// The transfer starts at the first byte instead; only offered where that is right.
    RestartFromZero,
    /// Nothing: the setting is a courtesy.
    Ignore,
    /// The user is to be told once; the transfer goes on.
    Warn(&'static str),
}

/// One step of a transfer's dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanStep {
    /// Send the command and read its final reply.
    Set(Command, RefusalEffect),
    /// Ask the server where it listens for the DRS channel (DPSV), once a session. To be left out
    /// unless [`super::CommandPlanner::may_listen_for_drs`]; without an address the transfer goes on.
    DrsListen,
    /// Ask the server where it listens (PASV, EPSV).
    Listen,
    /// Tell the server where to connect (PORT, EPRT).
    Connect,
    /// Send the transfer command; its replies come while data moves.
    Transfer(Command),
}
