//! How far a copy is: the content of [`CopyEvent::Progress`](crate::events::CopyEvent::Progress).

use std::time::Duration;

use tune::forecast::ExpectedRate;

/// Totals over the whole batch at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Time since the run began.
    pub elapsed: Duration,
    /// Bytes moved in this run, without resumed bytes.
    pub bytes: u64,
    /// Bytes that are safe at the destinations, including resumed ones. A `--resume` after a
    /// kill at this moment continues from them, except for the last fraction of a second. Gets:
    /// bytes written on this machine. Puts and third-party copies in MODE E: ranges that the
    /// server's markers named. Puts in MODE S, which has no markers: bytes that the server's
    /// kernel acknowledged, which a running server will store. A file whose transfer the server
    /// confirmed counts in full.
    pub safe: u64,
    /// The bytes of `total_bytes` that are at the destinations, as far as is known. As `safe`; between two servers also
    /// bytes that the servers reported and that are not safe yet.
    pub done: u64,
    /// Bytes of the files of known size that were found so far. Those of files that were left alone or failed no longer
    /// count. 0: no size is known.
    pub total_bytes: u64,
    /// Nothing will be added to the totals.
    pub is_listed: bool,
    /// Files that are complete, were left alone, or failed, and those of bundles whose bytes have arrived.
    pub files: u64,
    /// Files found so far.
    pub total_files: u64,
    /// The file that has moved for longest.
    pub current: Option<MovingFile>,
    /// Files, and bundles of files, that move now.
    pub moving: u64,
    /// Streams open now.
    pub streams: u64,
    /// Largest socket buffer now, in the direction of its stream, bytes.
    pub buffer_bytes: u64,
    /// Limiter of the file that has the most streams, as seen from this end. `None`: unknown.
    pub limiter: Option<&'static str>,
    /// The rate to expect of the path, by earlier transfers or advice; `None`: unknown.
    pub expected: Option<ExpectedRate>,
    /// Time since a server that was reached before is missed; `None`: all can be reached, as far as known.
    pub away: Option<Duration>,
}

/// A file that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovingFile {
    /// Source as shown to people; for files that move together, their number.
    pub source: String,
    /// Size if known.
    pub bytes: Option<u64>,
    /// Bytes at the destination, as far as is known.
    pub done: u64,
}
