//! Interface for programs that embed the client: options in, events and a summary out.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::options::TransferOptions;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};

/// How many parallel streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parallelism {
    /// longhaul's choice: one stream on short paths, several in MODE E on long ones.
    #[default]
    Auto,
    /// Exactly this many (MODE E when more than one).
    Fixed(u32),
    /// One of the modes of 2008, against any server with extended block mode.
    Chunked(ChunkTuningMode),
}

/// Transfer mode wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModeChoice {
    /// MODE E when several streams are used and the server has it, else MODE S.
    #[default]
    Auto,
    /// MODE S.
    Stream,
    /// MODE E, also with one stream.
    Extended,
}

/// How a copy is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerifyMode {
    /// The cheapest algorithm that both ends have; size alone when the server has none.
    #[default]
    Auto,
    /// Not verified: the number of bytes alone is compared.
    None,
    /// This algorithm; a server without it is an error.
    With(ChecksumAlgorithm),
}

/// How `cp -r` treats symbolic links that it finds (a source that is named is always followed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SymlinkPolicy {
    /// They are left out, each with a notice.
    #[default]
    Skip,
    /// Files and directories that they point to are copied; a link to a directory that it is in is left out.
    Follow,
    /// Links are made anew at the destination, as far as they point into the copied tree.
    Copy,
}

/// Everything `longhaul cp` can be told.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// `-r`
    pub recursive: bool,
    /// `-p`
    pub parallelism: Parallelism,
    /// `--max-streams`: never more at a time, for one file
    pub max_streams: u32,
    /// `--autopar`: the parameters of the modes of 2008
    pub autopar: ChunkParameters,
    /// `--buffer`, `--drs-interval`, `--cc`, `--io`, `--block`, `--limit-rate` (one budget for all files;
    /// refused between two servers), and `--timeout`, which holds for control connections, too.
    /// Clones of these options share one [`rate`](TransferOptions::rate): batches that run with them side
    /// by side reach it together. `RateLimit::new(0)` counts as 1 byte per second, not as no limit.
    pub transfer: TransferOptions,
    /// `--mode`
    pub mode: ModeChoice,
    /// `--offset`, bytes
    pub offset: Option<u64>,
    /// `--length`, bytes
    pub length: Option<u64>,
    /// `--resume`
    pub resume: bool,
    /// `--verify`
    pub verify: VerifyMode,
    /// `--retries` after lost connections, in a row: an attempt that moved 16 MiB starts the count
    /// anew
    pub retries: u32,
    /// `--trace`: JSON Lines file
    pub trace: Option<PathBuf>,
    /// `--sync-policy`: of files written here
    pub sync_policy: SyncPolicy,
    /// `--links`
    pub links: SymlinkPolicy,
    /// `--keep-existing`: existing destinations are left alone and count as skipped
    /// ([`CopySummary::kept`]). One that has another size than its source, or is older, is named in a
    /// warning. Default: overwrite.
    pub keep_existing: bool,
    /// `--wait`: a destination that another copy is writing is waited for, however long that takes.
    /// Default: such a file fails ([`Exit::Local`]).
    pub wait: bool,
    /// Files at a time in a tree (`--concurrency`), 1..=64.
    pub concurrency: usize,
    /// `--allow-foreign-data-address`: data connections may be with hosts that a server names
    pub foreign_data: bool,
    /// Data ports for active connections.
    pub data_ports: Option<(u16, u16)>,
}

/// Process-level outcome classes, with the exit codes scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything arrived and was verified as asked.
    Done = 0,
    /// Some files of several failed.
    Partial = 1,
    /// The request makes no sense.
    Usage = 2,
    /// Login or permission refused.
    Refused = 3,
    /// No such file.
    NotFound = 4,
    /// Cannot reach the peer, or lost it after all retries.
    Unreachable = 5,
    /// Checksum or size mismatch.
    Integrity = 6,
    /// Disk or file error: of this machine, or a full disk or quota of the destination's.
    Local = 7,
    /// The peer broke the protocol or refused for another reason.
    Protocol = 8,
    /// Interrupted by a signal.
    Interrupted = 130,
}

/// Why something failed: one clear line that says what to do, and its class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CopyFailure {
    /// Class.
    pub exit: Exit,
    /// The attempt and its object, the reason, and what to do.
    pub message: String,
    /// Worth another attempt without any change (lost connection, 4xx, a destination that another
    /// copy is writing).
    pub transient: bool,
}

impl CopyFailure {
    /// A failure that another attempt would meet again.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            transient: false,
        }
    }

    /// A failure that may be gone at the next attempt.
    pub fn transient(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            transient: true,
            ..Self::new(exit, message)
        }
    }

    /// Another copy is writing the destination: this one may have its turn later
    /// ([`CopyOptions::wait`]).
    pub fn occupied(message: impl Into<String>) -> Self {
        Self::transient(Exit::Local, message)
    }

    /// Whether this is [`CopyFailure::occupied`]: nothing else that happens on this machine goes away by
    /// itself.
    pub fn is_occupied(&self) -> bool {
        self.transient && self.exit == Exit::Local
    }
}

/// Events during a copy, in order; an observer must not block.
#[derive(Debug, Clone)]
pub enum CopyEvent {
    /// The list of files is known (again when it grows).
    Planned {
        /// Files so far.
        files: u64,
        /// Bytes so far, as far as known.
        bytes: u64,
    },
    /// A file's transfer begins.
    Started {
        /// Source as shown to people.
        source: String,
        /// Destination as shown to people.
        destination: String,
        /// Size if known.
        bytes: Option<u64>,
        /// Bytes already safe from an earlier attempt.
        resumed: u64,
    },
    /// A few times a second: totals over the whole batch.
    Progress {
        /// Bytes moved in this run (without what was resumed).
        bytes: u64,
        /// Bytes that are safe at the destinations, resumed ones included: what a `--resume` after
        /// a kill at this moment would build on, but for the last fraction of a second. Gets: what
        /// was written here. Puts and copies between servers in MODE E: what the server's markers
        /// named. Puts in MODE S, which has no markers: what the server's kernel acknowledged,
        /// which a server that lives will store. A file whose transfer the server confirmed counts
        /// whole.
        safe: u64,
        /// Streams open now.
        streams: u64,
        /// Largest socket buffer in its stream's direction now, bytes.
        buffer_bytes: u64,
        /// Limiter of the file that has the most streams, as far as this end sees: a limiter's
        /// name; `None`: not known.
        limiter: Option<&'static str>,
    },
    /// A file is done and verified as asked.
    Finished {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
        /// Bytes moved for it in this run.
        bytes: u64,
        /// `crc32c`, `size`, `none`...
        verified: String,
    },
    /// A source was left alone: not a regular file, unfinished, or named twice.
    Skipped {
        /// Source.
        source: String,
        /// Why.
        reason: String,
    },
    /// A destination that existed already was left alone ([`CopyOptions::keep_existing`]).
    Kept {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
    },
    /// A file failed for good.
    Failed {
        /// Source.
        source: String,
        /// Why.
        failure: CopyFailure,
    },
    /// Another attempt will be made.
    Retrying {
        /// Source.
        source: String,
        /// The failure.
        reason: String,
        /// Which attempt comes next, from 2.
        attempt: u32,
        /// After this long.
        after: Duration,
    },
    /// Something the user should know once (a feature that the server lacks).
    Warning(String),
}

/// Takes the events of a copy.
pub trait CopyObserver: Send + Sync {
    /// Called from any thread.
    fn on_event(&self, event: CopyEvent);
}

/// The end of a copy: the fields of the `summary` JSON line.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySummary {
    /// Bytes moved in this run.
    pub bytes: u64,
    /// Wall time of the run.
    pub seconds: f64,
    /// bytes * 8 / seconds.
    pub goodput_bps: f64,
    /// Most data connections at once.
    pub streams_max: u64,
    /// Who sized the buffers of the transfers that ended well: [`proto::sizing::SocketBuffers::name`], or `mixed`; what was
    /// asked for where none did. What a server has no part in is replaced with `auto`. Under `auto`
    /// it is this end's: each end does its own, a server what its administrator chose.
    pub buffer: &'static str,
    /// Largest socket buffer that this end's kernel granted for a stream's direction, bytes (twice
    /// what was asked for).
    pub buffer_bytes_max: u64,
    /// Most memory that this end's sockets were seen to hold at one moment, bytes (SO_MEMINFO).
    pub memory_bytes_max: u64,
    /// Segments sent again, as far as this end's kernel saw.
    pub retransmits: u64,
    /// `crc32c`, `size`, `none`, `mixed`; `reflink` where the copy shares its source's blocks.
    pub verified: String,
    /// Limiter of the transfer, one of the vocabulary; `path between the
    /// servers` when the bytes did not pass here.
    pub limited_by: String,
    /// One line in plain words: why it is as fast as it is (`--why`).
    pub why: String,
    /// Files done.
    pub files: u64,
    /// Files failed.
    pub failed: u64,
    /// Files skipped.
    pub skipped: u64,
    /// Of those, existing files that were left alone ([`CopyOptions::keep_existing`]).
    pub kept: u64,
    /// Overall class.
    pub exit: Exit,
    /// The first failure, if any.
    pub first_failure: Option<CopyFailure>,
}

/// Copies sources (paths, URLs, `-`; globs in the last component) to a destination. Two remote
/// ends make a third-party transfer. Never returns `Exit::CompletedExchange` unless every byte arrived and was
/// verified as asked. Dropping the future stops everything and leaves only partial files with a
/// recognisable name and their journals.
pub async fn copy(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    crate::batch::copy(sources, destination, options, observer).await
}

/// Settings of the single-file verbs (`ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`).
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Time-out on the control channel.
    pub timeout: Duration,
}

/// One entry of `ls` and `stat`.
pub type RemoteEntry = proto::listing::ListedEntry;

/// Lists a remote directory or file.
pub async fn list(url: &str, options: &RemoteOptions) -> Result<Vec<RemoteEntry>, CopyFailure> {
    crate::verbs::list(url, options).await
}

/// [`list`] for large directories: `visit` gets the entries as they come, in the server's order,
/// and breaks when it has enough. Memory is bounded.
///
/// # Errors
/// As [`list`]; entries may have been visited before.
pub async fn list_each(
    url: &str,
    options: &RemoteOptions,
    visit: &mut (dyn FnMut(RemoteEntry) -> ControlFlow<()> + Send + '_),
) -> Result<(), CopyFailure> {
    crate::verbs::list_each(url, options, visit).await
}

/// Facts of one remote path.
pub async fn stat(url: &str, options: &RemoteOptions) -> Result<RemoteEntry, CopyFailure> {
    crate::verbs::stat(url, options).await
}

/// Deletes a remote file, or a tree when `recursive`.
pub async fn remove(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    crate::verbs::remove(url, recursive, options).await
}

/// Makes a remote directory; with `parents` also those above it, and existing ones are fine.
pub async fn make_dir(
    url: &str,
    parents: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    crate::verbs::make_dir(url, parents, options).await
}

/// Renames on one server; `to` is a URL of the same server.
pub async fn rename(from: &str, to: &str, options: &RemoteOptions) -> Result<(), CopyFailure> {
    crate::verbs::rename(from, to, options).await
}

/// Checksum of a remote (or local) file or part of it, lower-case hex.
pub async fn checksum(
    url: &str,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    options: &RemoteOptions,
) -> Result<String, CopyFailure> {
    crate::verbs::checksum(url, algorithm, offset, length, options).await
}
