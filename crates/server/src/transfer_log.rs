//! One record per transfer.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use data::job::WireStats;
use proto::checksum::Algorithm;
use proto::command::Mode;

/// Which way a transfer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
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
    /// Payload bytes moved.
    pub bytes: u64,
    /// Which way.
    pub direction: Direction,
    /// Who.
    pub user: String,
    /// From where the session came.
    pub client: SocketAddr,
    /// The other ends of the data connections.
    pub data_peers: Vec<IpAddr>,
    /// The file inside the session's root.
    pub path: Vec<u8>,
    /// The session's root on the host.
    pub root: std::path::PathBuf,
    /// MODE.
    pub mode: Mode,
    /// Data connections asked for.
    pub streams: u32,
    /// MODE E block, bytes.
    pub block: usize,
    /// Kernel's view.
    pub wire: WireStats,
    /// What held the transfer back, if known.
    pub limiter: Option<&'static str>,
    /// Checksum of the whole file, if known.
    pub checksum: Option<(Algorithm, String)>,
    /// Code of the final reply.
    pub code: u16,
    /// Why it failed; `None`: it did not.
    pub error: Option<String>,
    /// SITE TASKID.
    pub task: Option<String>,
    /// SITE CLIENTINFO or CLNT.
    pub application: Option<String>,
}

/// The open log files. A failing log never fails a transfer.
#[derive(Debug)]
pub struct TransferLog {}

impl TransferLog {
    /// Opens (creates, appends) the JSON Lines file and the `FTP_INFO` file, as far as given.
    pub fn open(json: Option<&Path>, ftp_info: Option<&Path>) -> std::io::Result<Self> {
        let _ = (json, ftp_info);
        todo!()
    }

    /// Writes one record, in one write per file. Blocks briefly on the disk.
    pub fn record(&self, record: &TransferRecord) {
        let _ = record;
        todo!()
    }
}
