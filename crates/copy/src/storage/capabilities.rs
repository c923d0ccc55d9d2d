//! Capabilities of a storage.

use std::time::Duration;

use ftp::session::ThirdPartyProtocol;
use proto::checksum::ChecksumAlgorithm;
use tune::sessions::FileMovement;

/// Capabilities of a storage. They choose how a file is copied, and never affect whether the copy
/// is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Ranges of a file can be fetched.
    pub(crate) ranges: bool,
    /// A file can be fetched by several sessions, each a range, in MODE S too.
    pub(crate) several_sessions: bool,
    /// Can open connections to this machine, as a get over several streams of one session needs. Not through a proxy or address
    /// translation.
    pub(crate) connects_here: bool,
    /// Bytes can be stored at an offset, next to existing content.
    pub(crate) partial_writes: bool,
    /// An interrupted upload can be resumed after the stored bytes.
    pub(crate) resumes_uploads: bool,
    /// A file gets its name when all of it is there, and nothing of it is seen before: partial names are not needed.
    /// An unfinished upload is continued by its parts ([`UnfinishedUploads`](super::optional::UnfinishedUploads)).
    pub(crate) stores_whole: bool,
    /// Refuses no name for its form. Others may take no names with the suffix of partial ones.
    pub(crate) takes_any_name: bool,
    /// One file can use several streams.
    pub(crate) parallel: bool,
    /// With several streams, bytes are stored in any order. Otherwise strictly from first to last.
    pub(crate) stores_any_order: bool,
    /// Reports the safe ranges while it stores.
    pub(crate) sends_markers: bool,
    /// Adapts the number of streams while it sends.
    pub(crate) adapts_streams: bool,
    /// A program carries the data connections, so that the kernel's account of them does not show the path.
    pub(crate) is_carried: bool,
    /// Computes the checksum of a file while it stores it.
    pub(crate) checksums_while_storing: bool,
    /// It computes a requested checksum while it sends a file, so that the checksum is ready with the
    /// last byte.
    pub(crate) checksums_while_sending: bool,
    /// Can set the modification time of a file.
    pub(crate) sets_time: bool,
    /// Moves files to another storage of the same kind without their bytes passing through this
    /// machine.
    pub(crate) third_party: Option<DirectProtocol>,
    /// Moves many small files as one transfer (`Bundles::fetch_bundle`, `Bundles::store_bundle`).
    pub(crate) bundles: bool,
    /// How many small files move best, where not as bundles: by requests, or one after the other without a round trip for each
    /// command (`SeriesTransfers::move_series`). `None`: as any other file.
    pub(crate) small_files: Option<FileMovement>,
    /// Checksum queries that one session accepts at a time, pipelined.
    pub(crate) max_queries: usize,
    /// The storage is on this machine, where no segments are lost and windows do not limit.
    pub(crate) is_local: bool,
    /// With one stream bytes are stored in order, so that the length of a file shows which are there.
    pub(crate) length_shows_content: bool,
    /// Round-trip time. Zero for local files.
    pub(crate) rtt: Duration,
}

/// By which protocol a server moves files to another one. Both must have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectProtocol {
    /// PASV at one server and PORT at the other, with this protection of the data.
    Ftp(ThirdPartyProtocol),
    /// COPY at one of the servers. Whether either takes it shows only then.
    HttpCopy,
}

/// The checksums that a storage can provide of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AvailableChecksums {
    /// Algorithms for any range.
    pub(crate) ranges: Vec<ChecksumAlgorithm>,
    /// Algorithms for the whole file only.
    pub(crate) whole_files: Vec<ChecksumAlgorithm>,
}

impl AvailableChecksums {
    /// For bytes that this process can read.
    pub(crate) fn all() -> Self {
        Self {
            ranges: ChecksumAlgorithm::CHEAPEST_FIRST.to_vec(),
            whole_files: Vec::new(),
        }
    }
}
