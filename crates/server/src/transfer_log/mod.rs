//! One record per transfer: JSON Lines, and the line that globus-gridftp-server writes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proto::checksum::ChecksumAlgorithm;
use proto::command::TransferMode;
use tune::Evidence;

mod file;
mod ftp_info;
mod json;

#[cfg(test)]
mod tests;

use file::LogFile;

/// Which way a transfer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTransferKind {
    /// The server sent a file.
    Retrieve,
    /// The server received a file.
    Store,
    /// The server sent a listing.
    List,
}

/// A transfer that ended.
#[derive(Debug, Clone)]
pub struct TransferRecord {
    /// When it began.
    pub start: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
    /// Which way.
    pub direction: LoggedTransferKind,
    /// Who.
    pub user: String,
    /// From where the session came.
    pub client: SocketAddr,
    /// The other ends of the data connections; where there were none, whence they were awaited.
    pub data_peers: Vec<IpAddr>,
    /// The file inside the session's root; of an upload under a partial name, the whole file's.
    pub path: Vec<u8>,
    /// The partial name that the file was stored under.
    pub stored_as: Option<Vec<u8>>,
    /// The session's root on the host.
    pub root: PathBuf,
    /// MODE.
    pub mode: TransferMode,
    /// Data connections asked for.
    pub streams: u32,
    /// MODE E block, bytes.
    pub block: usize,
    /// Evidence of the path from the server: bytes, streams, the kernel's accounts.
    pub evidence: Evidence,
    /// Who sized this end's buffers: the sizing's name, or `pinned`.
    pub sizing: &'static str,
    /// Why its buffers were last sized as they were, or left alone on purpose; `None`: nothing was
    /// decided.
    pub decision: Option<String>,
    /// Limiter of the transfer, if known.
    pub limiter: Option<&'static str>,
    /// Congestion control that the server sent with at the end; `None`: not known, or the server
    /// received.
    pub congestion: Option<String>,
    /// Checksum of the whole file, if known.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
    /// Code of the final reply.
    pub code: u16,
    /// Why it failed; `None`: it did not.
    pub error: Option<String>,
    /// SITE TASKID.
    pub task: Option<String>,
    /// SITE CLIENTINFO or CLNT.
    pub application: Option<String>,
}

impl TransferRecord {
    /// Data connections used; asked for, where there were none.
    fn streams_used(&self) -> u64 {
        match self.evidence.streams {
            0 => self.streams.into(),
            used => used,
        }
    }
}

/// The open log files. A failing log never fails a transfer: it is told once, by tracing, until
/// it works again.
#[derive(Debug)]
pub struct TransferLog {
    json: Option<LogFile>,
    ftp_info: Option<LogFile>,
    host: String,
}

impl TransferLog {
    /// Opens (creates, appends) the JSON Lines file and the `FTP_INFO` file, as far as given.
    pub fn open(json: Option<&Path>, ftp_info: Option<&Path>) -> io::Result<Self> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Self {
            json: json.map(LogFile::open).transpose()?,
            ftp_info: ftp_info.map(LogFile::open).transpose()?,
            host: host.trim().to_owned(),
        })
    }

    /// Writes one record, in one write per file. Blocks briefly on the disk.
    pub fn record(&self, record: &TransferRecord) {
        if let Some(file) = &self.json {
            match json::line(record) {
                Ok(line) => file.append(&line),
                Err(error) => tracing::error!(%error, "transfer record cannot be written as JSON"),
            }
        }
        if let Some(file) = &self.ftp_info {
            file.append(&ftp_info::line(record, &self.host));
        }
    }
}
