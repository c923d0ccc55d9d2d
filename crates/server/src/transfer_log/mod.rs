//! The transfer log: one record per transfer, as JSON Lines and as the line that
//! globus-gridftp-server writes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proto::checksum::ChecksumAlgorithm;
use proto::command::TransferMode;
use proto::server::TransferKind;
use tune::Evidence;

mod file;
mod ftp_info;
mod json;

#[cfg(test)]
mod tests;

use file::LogFile;
pub(crate) use file::LogOwner;

/// Kind and direction of a logged transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTransferKind {
    /// The server sent a file.
    Retrieve,
    /// The server received a file.
    Store,
    /// The server sent a listing.
    List,
}

/// The record of a finished transfer.
#[derive(Debug, Clone)]
pub struct TransferRecord {
    /// Start time.
    pub start: SystemTime,
    /// Duration.
    pub elapsed: Duration,
    /// Kind and direction of the transfer.
    pub direction: LoggedTransferKind,
    /// The user name.
    pub user: String,
    /// The client's address of the control connection.
    pub client: SocketAddr,
    /// Peers of the data connections; if there were none, the hosts they were expected from.
    pub data_peers: Vec<IpAddr>,
    /// Path of the file inside the session's root; for an upload under a partial name, the final path.
    pub path: Vec<u8>,
    /// The partial path under which the file was stored.
    pub stored_as: Option<Vec<u8>>,
    /// The session's root on the host.
    pub root: PathBuf,
    /// MODE.
    pub mode: TransferMode,
    /// Number of data connections that the client asked for.
    pub streams: u32,
    /// MODE E block, bytes.
    pub block: usize,
    /// Measurements of the server: bytes, streams, TCP_INFO.
    pub evidence: Evidence,
    /// Policy that sized the server's buffers, or `pinned`.
    pub sizing: &'static str,
    /// Reason of the last decision about buffer sizes; `None`: there was no decision.
    pub decision: Option<String>,
    /// Limiter of the transfer, if it is known.
    pub limiter: Option<&'static str>,
    /// Congestion control of the server's streams at the end; `None`: unknown, or the server received.
    pub congestion: Option<String>,
    /// Checksum of the whole file, if it is known.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
    /// Protection of the data connections: `clear`, `authenticated` (then raw bytes), or `private`
    /// (encrypted).
    pub protection: &'static str,
    /// The identity that the client has proved by a certificate.
    pub identity: Option<String>,
    /// Code of the final reply.
    pub code: u16,
    /// The error; `None`: the transfer succeeded.
    pub error: Option<String>,
    /// Argument of SITE TASKID.
    pub task: Option<String>,
    /// Argument of SITE CLIENTINFO or CLNT.
    pub application: Option<String>,
}

impl LoggedTransferKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Retrieve, Self::Store, Self::List];

    /// The kind of a transfer that a client asks for.
    pub(crate) fn of(kind: &TransferKind) -> Self {
        match kind {
            TransferKind::Retrieve { .. } | TransferKind::RetrieveBundle { .. } => Self::Retrieve,
            TransferKind::Store { .. } | TransferKind::StoreBundle { .. } => Self::Store,
            TransferKind::List(_) => Self::List,
        }
    }

    /// The name in the log and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retrieve => "retrieve",
            Self::Store => "store",
            Self::List => "list",
        }
    }
}

impl TransferRecord {
    /// Number of data connections used; if there were none, the number that was asked for.
    fn streams_used(&self) -> u64 {
        match self.evidence.streams {
            0 => self.streams.into(),
            used => used,
        }
    }
}

/// The open log files. A failing log never fails a transfer; the first error in a row is logged.
#[derive(Debug)]
pub struct TransferLog {
    json: Option<LogFile>,
    ftp_info: Option<LogFile>,
    host: String,
}

impl TransferLog {
    /// Opens the JSON Lines file and the `FTP_INFO` file, if given, for appending; creates missing files.
    pub fn open(json: Option<&Path>, ftp_info: Option<&Path>) -> io::Result<Self> {
        Self::open_as(json, ftp_info, None)
    }

    /// As [`Self::open`]; files that it creates are given to `owner`.
    pub(crate) fn open_as(
        json: Option<&Path>,
        ftp_info: Option<&Path>,
        owner: Option<LogOwner>,
    ) -> io::Result<Self> {
        let open = |path| LogFile::open(path, owner);
        // The FTP_INFO line names the host; without a readable name the field stays empty.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Self {
            json: json.map(open).transpose()?,
            ftp_info: ftp_info.map(open).transpose()?,
            host: host.trim().to_owned(),
        })
    }

    /// Writes one record with one write per file. Blocks on the disk.
    pub fn record(&self, record: &TransferRecord) {
        if let Some(file) = &self.json {
            match json::line(record) {
                Ok(line) => file.append(&line),
                // A log error is no reason to fail a transfer that has succeeded.
                Err(error) => tracing::error!(%error, "transfer record cannot be written as JSON"),
            }
        }
        if let Some(file) = &self.ftp_info {
            file.append(&ftp_info::line(record, &self.host));
        }
    }
}
