//! Interface for programs that embed the client: options in, events and a summary out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::options::TransferOptions;
use data::store::durability::SyncPolicy;
use history::PathHistory;
use proto::checksum::ChecksumAlgorithm;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};

use crate::ConnectionSecurity;
use crate::advice_options::AdviceOptions;
use crate::batch::journal_place::BatchJournalLocation;
use crate::batch::pairs::PairSource;
use crate::copy_progress::CopyProgress;
use crate::failure::{CopyFailure, Exit};
use crate::interrupt::CopyInterrupt;
use crate::preserve_options::{Preserve, SparseFiles};
use crate::selection::Selection;
use crate::sums::WriteSums;

/// Number of parallel streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parallelism {
    /// longhaul chooses: one stream on short paths, several in MODE E on long ones.
    #[default]
    Auto,
    /// Exactly this many (MODE E when more than one).
    Fixed(u32),
    /// One of the three chunk tuning modes published in 2008 (MI, MI+, AIMD). They work with any
    /// server that has extended block mode.
    Chunked(ChunkTuningMode),
}

/// Requested transfer mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModeChoice {
    /// MODE E when several streams are used and the server supports it, otherwise MODE S.
    #[default]
    Auto,
    /// MODE S.
    Stream,
    /// MODE E, also with one stream.
    Extended,
}

/// How a copy is verified against its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerifyMode {
    /// The cheapest algorithm that both ends support. The size alone when the server has no
    /// checksums.
    #[default]
    Auto,
    /// Not verified. Only the number of bytes is compared.
    None,
    /// This algorithm. A server that lacks it is an error.
    With(ChecksumAlgorithm),
}

/// How `cp -r` treats symbolic links inside a tree. A link that is itself named as a source is
/// always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SymlinkPolicy {
    /// Skip links and report each one.
    #[default]
    Skip,
    /// Copy the files and directories that links point to. A link to a directory that contains the
    /// link is skipped.
    Follow,
    /// Create the same links at the destination, if they point into the copied tree.
    Copy,
}

/// Options of `longhaul cp`.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// `-r`
    pub recursive: bool,
    /// `-p`
    pub parallelism: Parallelism,
    /// `--max-streams`: most streams of one file at a time
    pub max_streams: u32,
    /// `--autopar`: parameters of the chunk tuning modes of 2008
    pub autopar: ChunkParameters,
    /// `--buffer`, `--drs-interval`, `--cc`, `--io`, `--block`, `--limit-rate` and `--timeout`. The
    /// rate limit is one budget for all files and is refused between two servers. The timeout also
    /// applies to control connections. Clones of these options share one
    /// [`rate`](TransferOptions::rate), so batches that run with them side by side share the limit.
    /// `RateLimit::new(0)` means 1 byte per second, not unlimited.
    pub transfer: TransferOptions,
    /// `--mode`
    pub mode: ModeChoice,
    /// `--offset`, bytes
    pub offset: Option<u64>,
    /// `--length`, bytes
    pub length: Option<u64>,
    /// `--resume`: what an earlier run left is used as far as it fits, also a listing that may be outdated, and files that have
    /// their final names. Without it, what is proved is used.
    pub resume: bool,
    /// `--restart`: nothing that an earlier run left is used. It rules out `resume`.
    pub restart: bool,
    /// `--verify`
    pub verify: VerifyMode,
    /// `--retries`: consecutive retries after lost connections. An attempt that moved 16 MiB resets
    /// the count.
    pub retries: u32,
    /// Longest time for which a server that was reached before is waited for while no connection with it can be made; such
    /// tries do not count as retries. Zero: they do.
    pub patience: Duration,
    /// `--trace`: JSON Lines file
    pub trace: Option<PathBuf>,
    /// `--sync-policy`: what is forced to disk of files written on this machine
    pub sync_policy: SyncPolicy,
    /// `--links`
    pub symlinks: SymlinkPolicy,
    /// `--write-sums`: a file for the checksums of the copied files, with names relative to the destination. A sync
    /// writes those of all files of the tree. It has its name when the batch has ended.
    pub write_sums: Option<WriteSums>,
    /// `--preserve`
    pub preserve: Preserve,
    /// `--sparse`
    pub sparse: SparseFiles,
    /// Which files of trees are copied (`--include`, `--exclude`, `--filter-from`, `--min-size`, ...)
    pub selection: Selection,
    /// `--files-from`: the paths below the one source that are copied; `None`: all.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// `--dry-run`: only tell what would be done ([`CopyEvent::WouldCopy`], [`CopyEvent::WouldDelete`])
    pub dry_run: bool,
    /// `--keep-existing`: existing destinations are left alone and count as skipped
    /// ([`CopySummary::kept`]). A warning names each one that is older than its source or differs
    /// from it in size. Default: overwrite.
    pub keep_existing: bool,
    /// `--in-place`: files at servers are stored under their final names from the start, and replace old ones while they
    /// are unfinished. Default: under a partial name until they are complete; where a server permits no rename, under the
    /// final name if there is no old file.
    pub in_place: bool,
    /// `--wait`: wait, without limit, for a destination that another copy is writing. Default: such
    /// a file fails ([`Exit::Local`]).
    pub wait: bool,
    /// Most files copied at a time (`--concurrency`), 1..=64. `None`: as many as servers, disks and paths bear.
    pub concurrency: Option<usize>,
    /// `--allow-foreign-data-address`: accept data connections with hosts other than the server
    pub allow_foreign_data: bool,
    /// Local port range for active data connections.
    pub data_ports: Option<(u16, u16)>,
    /// Protection of all connections. It notes what was in force, so each copy has its own.
    pub security: Arc<ConnectionSecurity>,
    /// Lessons of earlier transfers about their paths, from which a transfer begins, and to which it adds
    /// ([`history::HistoryLocation::of_user`] names the file of `longhaul cp`). `None`: nothing is read or written.
    pub history: Option<PathHistory>,
    /// Advice on paths.
    pub advice: AdviceOptions,
    /// `--journal`: where the plan of a batch is kept until all of it is done
    pub journal: BatchJournalLocation,
    /// `--failed`: list of what was not copied
    pub failed_list: Option<PathBuf>,
    /// Ends the copy early.
    pub interrupt: CopyInterrupt,
}

/// Events during a copy, in order. An observer must not block.
#[derive(Debug, Clone)]
pub enum CopyEvent {
    /// The list of files is known. Sent again when it grows.
    Planned {
        /// Files so far.
        files: u64,
        /// Bytes so far, counting only files of known size.
        bytes: u64,
    },
    /// The copy goes on with an earlier run of the same command.
    Continuing {
        /// Files that the earlier run has copied, and that are still in place.
        files: u64,
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
    /// Totals over the whole batch, a few times a second.
    Progress(CopyProgress),
    /// The tuning changed something, or chose what a file begins with.
    Decision {
        /// The file, as shown to people; `None`: the whole batch.
        source: Option<String>,
        /// The decision and its reason, in plain words.
        text: String,
    },
    /// A file is complete and verified as requested.
    Finished {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
        /// Bytes moved for it in this run.
        bytes: u64,
        /// Verification: `crc32c`, `size`, `none`...
        verified: String,
    },
    /// A source was skipped: it is not a regular file, is unfinished, or was named twice.
    Skipped {
        /// Source.
        source: String,
        /// Why.
        reason: String,
    },
    /// An existing destination was left alone ([`CopyOptions::keep_existing`]).
    Kept {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
    },
    /// A file would be copied ([`CopyOptions::dry_run`]).
    WouldCopy {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
        /// Size if known.
        bytes: Option<u64>,
    },
    /// A file or directory that the source does not have was deleted ([`SyncOptions::delete`]).
    Deleted {
        /// Path or URL.
        path: String,
    },
    /// A file or directory would be deleted ([`CopyOptions::dry_run`]).
    WouldDelete {
        /// Path or URL.
        path: String,
    },
    /// A file failed permanently.
    Failed {
        /// Source.
        source: String,
        /// Why.
        failure: CopyFailure,
        /// The message without the names of the file: files that fail alike have the same one.
        cause: String,
    },
    /// Another attempt will be made.
    Retrying {
        /// Source.
        source: String,
        /// The failure.
        reason: String,
        /// Number of the next attempt, from 2.
        attempt: u32,
        /// Delay before the next attempt.
        after: Duration,
        /// No connection can be made with a server that was reached before: for how long, and when it is given up
        /// ([`CopyOptions::patience`]).
        away: Option<AwayPeer>,
    },
    /// A message for the user, sent once (for example a feature that the server lacks).
    Warning(String),
}

/// A server with which no connection can be made, although it was reached before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwayPeer {
    /// Time since it was first missed.
    pub since: Duration,
    /// Time until it is given up.
    pub left: Duration,
}

/// Receives the events of a copy.
pub trait CopyObserver: Send + Sync {
    /// May be called from any thread.
    fn on_event(&self, event: CopyEvent);
}

/// Bytes of a copy that are at its destinations, those of earlier runs included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SafeBytes {
    /// Bytes that a later run need not move.
    pub bytes: u64,
    /// Bytes of all files; `None`: unknown, or not everything was listed.
    pub of: Option<u64>,
}

/// Result of a copy: the fields of the `summary` JSON line.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySummary {
    /// Bytes moved in this run.
    pub bytes: u64,
    /// Wall time of the run.
    pub seconds: f64,
    /// bytes * 8 / seconds.
    pub goodput_bps: f64,
    /// Most data connections open at once.
    pub streams_max: u64,
    /// Buffer policy of the successful transfers: the policy's name, or `mixed`. If no transfer
    /// succeeded, the requested policy. A policy that a server does not take part in is replaced
    /// with `auto`. With `auto`, this is the policy of this end; a server uses the policy of its
    /// administrator.
    pub buffer: &'static str,
    /// Largest socket buffer that this end's kernel granted in the direction of a stream, bytes.
    /// Linux grants twice the requested size (socket(7), SO_RCVBUF).
    pub buffer_bytes_max: u64,
    /// Most memory that this end's sockets held at one moment, bytes (SO_MEMINFO).
    pub memory_bytes_max: u64,
    /// Retransmitted segments, as counted by this end's kernel.
    pub retransmits: u64,
    /// Bytes that were moved again because they had arrived wrong, as a checksum showed.
    pub resent_bytes: u64,
    /// `crc32c`, `size`, `none`, `mixed`, or `reflink` when the copy shares the blocks of its
    /// source.
    pub verified: String,
    /// Name of the limiter, or `path between the servers` when the bytes did not pass through this
    /// machine.
    pub limited_by: String,
    /// One line in plain words: why the copy ran at this speed (`--why`).
    pub why: String,
    /// Protection of the transfers: TLS version and cipher suite of the control connections, and how
    /// the data connections were protected; several are separated by `; `. `none`: all were clear or
    /// local.
    pub security: String,
    /// Files copied.
    pub files: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files skipped.
    pub skipped: u64,
    /// Skipped files whose destination existed already ([`CopyOptions::keep_existing`]).
    pub kept: u64,
    /// Files and directories deleted by a sync.
    pub deleted: u64,
    /// Overall result class.
    pub exit: Exit,
    /// The first failure, if any.
    pub first_failure: Option<CopyFailure>,
    /// The bytes that a later run can build on, if this one was interrupted, lost a server, or found no room.
    pub safe: Option<SafeBytes>,
    /// The cause ([`CopyEvent::Failed`]) that most failed files share, and their number. `None`: no two share one.
    pub most_failed_for: Option<(String, u64)>,
}

/// Copies sources (paths, URLs, `-`; globs in the last component) to a destination. Two remote ends
/// make a third-party transfer. Returns `Exit::Done` only if every byte arrived and was verified as
/// requested. Dropping the future, or [`CopyOptions::interrupt`], stops everything and leaves only partial files with a
/// recognisable name and their journals.
pub async fn copy(
    sources: &[String],
    destination: &str,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    crate::batch::copy(sources, destination, options, observer).await
}

/// Copies the pairs of a list, each as [`copy`] does; a source that is a directory is copied with its content if
/// [`CopyOptions::recursive`] is set. A destination that ends in `/` is a directory, which is created.
pub async fn copy_pairs(
    pairs: &PairSource,
    options: &CopyOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    crate::batch::copy_pairs(pairs, options, observer).await
}

/// Options of `longhaul sync`.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// Options of the copies.
    pub copy: CopyOptions,
    /// `--delete`: delete what the source does not have. Nothing is deleted if the source has no files, a part of it
    /// could not be listed, or a copy failed.
    pub delete: bool,
    /// `--checksum`: files of equal size are compared by checksum instead of by time
    pub checksum: bool,
}

/// Makes the tree `destination` like the tree `source`: copies files that are missing or differ in size or time.
/// Trailing slashes have no meaning. Otherwise as [`copy`].
pub async fn sync(
    source: &str,
    destination: &str,
    options: &SyncOptions,
    observer: Arc<dyn CopyObserver>,
) -> CopySummary {
    crate::batch::sync(source, destination, options, observer).await
}
