//! The files of a series, and what became of them.

use std::sync::Arc;

use data::store::Sink;
use data::store::bundle::BundleSource;
use proto::bundle::BundleFailure;
use proto::client::CommandLead;
use proto::timestamp::Timestamp;

use crate::transfer::TransferAttempt;

/// A file of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesFile {
    /// Its position in the bundle.
    pub index: usize,
    /// Its offset in the bytes of the bundle, bytes.
    pub start: u64,
    /// Size, bytes.
    pub size: u64,
    /// Path at the server.
    pub path: Vec<u8>,
    /// Path at the server until the file is complete and verified (puts).
    pub partial: Vec<u8>,
    /// Modification time that a stored file gets.
    pub modified: Option<Timestamp>,
}

/// This machine's end: all files, one directly after the other.
#[derive(Debug, Clone)]
pub enum SeriesEnd {
    /// Files are fetched.
    Receive(Arc<dyn Sink>),
    /// Files are stored.
    Send(Arc<BundleSource>),
}

/// Files to move in this order.
#[derive(Debug)]
pub struct FileSeries {
    /// The files.
    pub files: Vec<SeriesFile>,
    /// The end of this machine.
    pub end: SeriesEnd,
    /// Partial files of earlier attempts, paths at the server, which are removed at the end.
    pub stale: Vec<Vec<u8>>,
    /// How far commands may go ahead of replies.
    pub lead: CommandLead,
}

/// Outcome of the files so far.
#[derive(Debug, Default)]
pub struct SeriesReport {
    /// Positions of the files that are moved and verified.
    pub moved: Vec<usize>,
    /// Positions of the files whose transfer commands were sent.
    pub begun: Vec<usize>,
    /// Files that the server refused, or whose bytes are wrong.
    pub failed: Vec<BundleFailure>,
    /// How far commands may go ahead of replies in later sessions.
    pub lead: CommandLead,
    /// The last transfer, with the bytes of all.
    pub attempt: TransferAttempt,
}
