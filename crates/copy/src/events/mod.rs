//! Events of a copy while it runs, and its summary at the end.

use std::time::Duration;

use ftp::{Exit, Failure};

mod forecast;
mod progress;

pub use forecast::{CopyForecast, ForecastSource, PathForecast};
pub use progress::{CopyProgress, MovingFile};

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
    /// Everything is listed, and nothing has begun. A copy that begins while it lists sends none.
    Listed,
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
    /// An existing destination was left alone ([`FileOptions::keep_existing`](crate::FileOptions::keep_existing)).
    Kept {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
    },
    /// A file would be copied ([`CopyOptions::dry_run`](crate::CopyOptions::dry_run)).
    WouldCopy {
        /// Source.
        source: String,
        /// Destination.
        destination: String,
        /// Size if known.
        bytes: Option<u64>,
    },
    /// The work and the time that the copy would take ([`CopyOptions::forecast`](crate::CopyOptions::forecast)).
    Forecast(CopyForecast),
    /// A file or directory that the source does not have was deleted ([`SyncOptions::delete`](crate::SyncOptions::delete)).
    Deleted {
        /// Path or URL.
        path: String,
    },
    /// A file or directory would be deleted ([`CopyOptions::dry_run`](crate::CopyOptions::dry_run)).
    WouldDelete {
        /// Path or URL.
        path: String,
    },
    /// A file failed permanently.
    Failed {
        /// Source.
        source: String,
        /// Why.
        failure: Failure,
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
        /// ([`RetryOptions::patience`](crate::RetryOptions::patience)).
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
    /// Name of the limiter, or `servers or path between them` when the bytes did not pass through this
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
    /// Skipped files whose destination existed already ([`FileOptions::keep_existing`](crate::FileOptions::keep_existing)).
    pub kept: u64,
    /// Files and directories deleted by a sync.
    pub deleted: u64,
    /// Overall result class.
    pub exit: Exit,
    /// The first failure, if any.
    pub first_failure: Option<Failure>,
    /// The bytes that a later run can build on, if this one was interrupted, lost a server, or found no room.
    pub safe: Option<SafeBytes>,
    /// The cause ([`CopyEvent::Failed`]) that most failed files share, and their number. `None`: no two share one.
    pub most_failed_for: Option<(String, u64)>,
}
