//! File operations without data channel, which the driver carries out: the request and its response.

use crate::bundle::{BundleOutcome, BundleProof};
use crate::checksum::ChecksumAlgorithm;
use crate::listing::{DirectoryEntry, FactSet};
use crate::path::VPath;
use crate::timestamp::Timestamp;

/// File operation that needs no data channel. Paths are inside the session's root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for the command's arguments")]
pub enum FileRequest {
    /// Answered by [`FileResponse::Entry`], whose `name` is the last component of the path.
    Stat(VPath),
    /// Check that the directory exists and may be entered. Answered by [`FileResponse::Done`].
    ChangeDir(VPath),
    MakeDir(VPath),
    RemoveDir(VPath),
    Delete(VPath),
    /// Recursive delete.
    RemoveTree(VPath),
    Rename {
        from: VPath,
        to: VPath,
    },
    /// Answered by [`FileResponse::Modified`].
    SetModified(VPath, Timestamp),
    Chmod(VPath, u32),
    Chgrp(VPath, String),
    /// `target` is stored in the link unchanged.
    Symlink {
        target: Vec<u8>,
        link: VPath,
    },
    /// As `Symlink`, of the one pair of target and link whose target exists and whose link does not: nothing else tells where
    /// the first of two names with spaces ends.
    SymlinkAmong(Vec<(Vec<u8>, VPath)>),
    Truncate(VPath, u64),
    /// MLSC and `STAT path`. Answered by [`FileResponse::Lines`].
    List(ListRequest),
    /// SITE BUNDLE END: ends the bundle of the last transfer. The files of one that was stored get their names, if the
    /// proof is right. Answered by [`FileResponse::Bundle`].
    EndBundle(Option<BundleProof>),
    /// CKSM. Answered by [`FileResponse::Checksum`]. While it runs, the driver reports
    /// `DriverEvent::ChecksumProgress` every `marker_seconds`, unless that is 0.
    Checksum {
        algorithm: ChecksumAlgorithm,
        path: VPath,
        offset: u64,
        /// Bytes; `None` means to the end of the file.
        length: Option<u64>,
        marker_seconds: u32,
    },
}

/// Entries to list and their format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Directory or file.
    pub path: VPath,
    /// [`GlobPattern`](crate::pattern::GlobPattern) for the names (LIST, NLST and STAT); `path` is then the directory.
    pub pattern: Option<Vec<u8>>,
    /// Text before each name that the pattern matches, or the name of a file (NLST): its directory, as the client sent
    /// it. Clients use such lines as paths.
    pub prefix: Vec<u8>,
    /// Format of each entry.
    pub format: ListFormat,
    /// List the whole tree below `path` (MLSR).
    pub recursive: bool,
    /// Compress the text (RFC 1950).
    pub deflate: bool,
}

/// Format of listed entries: one line each, ended by CR LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// MLSD, MLSC, MLSR.
    Facts(FactSet),
    /// LIST, STAT.
    LsLong,
    /// NLST.
    Names,
}

/// Result of a successful [`FileRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileResponse {
    /// The operation succeeded and returns no data.
    Done,
    /// Result of [`FileRequest::SetModified`]: the time that the file system keeps, within 2 s of the one asked for.
    Modified(Timestamp),
    /// Result of [`FileRequest::Stat`].
    Entry(Box<DirectoryEntry>),
    /// Result of [`FileRequest::List`]: formatted lines without line endings.
    Lines(Vec<Vec<u8>>),
    /// Result of [`FileRequest::Checksum`], lower-case hexadecimal.
    Checksum(String),
    /// Result of [`FileRequest::EndBundle`].
    Bundle(Box<BundleOutcome>),
}
