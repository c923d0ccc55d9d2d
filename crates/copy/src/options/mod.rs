//! Options of copies and of the verbs for remote files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::options::TransferOptions;
use data::store::durability::SyncPolicy;
use ftp::{ConnectionSecurity, ModeChoice};
use history::PathHistory;
use proto::checksum::ChecksumAlgorithm;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};

mod advice;
mod byte_order_mark;
mod interrupt;
mod journal;
mod nodes;
mod preserve;
pub(crate) mod selection;

pub use advice::{AdviceOptions, AdvisorChoice};
pub use byte_order_mark::without_byte_order_mark;
pub use interrupt::CopyInterrupt;
pub use journal::BatchJournalLocation;
pub use nodes::{CopyNode, CopyNodes, NodeLink};
pub use preserve::{Preserve, PreservedTimes, SparseFiles};
pub use selection::Selection;

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

/// Which entries of a source are copied.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// `-r`
    pub recursive: bool,
    /// `--links`
    pub symlinks: SymlinkPolicy,
    /// Which files of trees are copied (`--include`, `--exclude`, `--filter-from`, `--min-size`, ...)
    pub selection: Selection,
    /// `--files-from`: the paths below the one source that are copied; `None`: all.
    pub files_from: Option<Vec<Vec<u8>>>,
}

/// The part of a file that is copied, the use of an earlier run, and how the copy gets its place.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
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
    /// `--sync-policy`: what is forced to disk of files written on this machine
    pub sync_policy: SyncPolicy,
    /// `--preserve`
    pub preserve: Preserve,
    /// `--sparse`
    pub sparse: SparseFiles,
    /// `--keep-existing`: existing destinations are left alone and count as skipped
    /// ([`CopySummary::kept`](crate::CopySummary::kept)). A warning names each one that is older than its source or differs
    /// from it in size. Default: overwrite.
    pub keep_existing: bool,
    /// `--in-place`: files at servers are stored under their final names from the start, and replace old ones while they
    /// are unfinished. Default: under a partial name until they are complete; where a server permits no rename, under the
    /// final name if there is no old file.
    pub in_place: bool,
    /// `--wait`: wait, without limit, for a destination that another copy is writing. Default: such
    /// a file fails ([`Exit::Local`](ftp::Exit::Local)).
    pub wait: bool,
}

/// How bytes move: streams, buffers, and the addresses of data connections.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// `-p`
    pub parallelism: Parallelism,
    /// `--max-streams`: most streams of one file at a time
    pub max_streams: u32,
    /// `--autopar`: parameters of the chunk tuning modes of 2008
    pub autopar: ChunkParameters,
    /// `--mode`
    pub mode: ModeChoice,
    /// `--buffer`, `--drs-interval`, `--drs1-reads`, `--cc`, `--io`, `--block`, `--limit-rate` and `--timeout`. The
    /// rate limit is one budget for all files and is refused between two servers. The timeout also
    /// applies to control connections. Clones of these options share one
    /// [`rate`](TransferOptions::rate), so batches that run with them side by side share the limit.
    /// `RateLimit::new(0)` means 1 byte per second, not unlimited.
    pub transfer: TransferOptions,
    /// `--allow-foreign-data-address`: accept data connections with hosts other than the server
    pub allow_foreign_data: bool,
    /// Local port range for active data connections.
    pub data_ports: Option<(u16, u16)>,
}

impl Default for StreamOptions {
    /// Those of `longhaul cp` without flags, but for the sizing of buffers and the congestion control, which are the kernel's.
    fn default() -> Self {
        Self {
            parallelism: Parallelism::Auto,
            max_streams: 128,
            autopar: ChunkParameters::default(),
            mode: ModeChoice::Auto,
            transfer: TransferOptions::default(),
            allow_foreign_data: false,
            data_ports: None,
        }
    }
}

/// How often, and for how long, what failed is tried again. By default nothing is.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryOptions {
    /// `--retries`: consecutive retries after lost connections. An attempt that moved 16 MiB resets
    /// the count.
    pub retries: u32,
    /// Longest time for which a server that was reached before is waited for while no connection with it can be made; such
    /// tries do not count as retries. Zero: they do.
    pub patience: Duration,
}

/// Options of `longhaul cp`. Each part of a copy takes those that it needs.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// Which entries are copied.
    pub tree: TreeOptions,
    /// How each of them is.
    pub file: FileOptions,
    /// How its bytes move.
    pub streams: StreamOptions,
    /// How often failures are tried again.
    pub retry: RetryOptions,
    /// `--trace`: JSON Lines file
    pub trace: Option<PathBuf>,
    /// `--write-sums`: a file for the checksums of the copied files, with names relative to the destination. A sync
    /// writes those of all files of the tree. It has its name when the batch has ended.
    pub write_sums: Option<WriteSums>,
    /// `--receipt`: a file that says what was copied, with digests of this algorithm. It has its name when the batch has ended.
    pub receipt: Option<WriteSums>,
    /// `--dry-run`: only tell what would be done ([`CopyEvent::WouldCopy`](crate::CopyEvent::WouldCopy), [`CopyEvent::WouldDelete`](crate::CopyEvent::WouldDelete))
    pub dry_run: bool,
    /// `--plan`: a dry run that tells in one event what the whole copy would take
    /// ([`CopyEvent::Forecast`](crate::CopyEvent::Forecast)). It counts only with `dry_run`.
    pub forecast: bool,
    /// Most files copied at a time (`--concurrency`), 1..=64. `None`: as many as servers, disks and paths bear.
    pub concurrency: Option<usize>,
    /// Protection of all connections. It notes what was in force, so each copy has its own.
    pub security: Arc<ConnectionSecurity>,
    /// Measurements of earlier transfers over their paths, from which a transfer begins, and to which it adds
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
    /// `--nodes`: the machines that move the files.
    pub nodes: CopyNodes,
}

impl CopyOptions {
    /// These options after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
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

/// A checksum file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteSums {
    /// Path of the file.
    pub path: PathBuf,
    /// Algorithm of the checksums.
    pub algorithm: ChecksumAlgorithm,
}

/// Options of the single-file verbs (`ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`).
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Timeout of replies on the control connection.
    pub timeout: Duration,
    /// Protection of all connections.
    pub security: Arc<ConnectionSecurity>,
}
