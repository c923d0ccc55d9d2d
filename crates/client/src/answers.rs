//! Answers of storages about files: facts of a source, entries of a directory, refused renames.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use proto::listing::{CoarseTime, ListedEntry};
use proto::timestamp::Timestamp;

use crate::CopyFailure;

/// Facts of a source file, read before it is transferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Modification time.
    pub(crate) modified: Option<Timestamp>,
    /// Modification time as far as a listing shows it, if `modified` is unknown.
    pub(crate) coarse_time: Option<CoarseTime>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

/// Proof that bytes which are fetched at different times are of one version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceVersion {
    /// Size and time, as the storage tells them.
    Facts,
    /// A text that no other version has: a strong entity tag (RFC 9110 section 8.8.3).
    Tag(String),
    /// Nothing. Bytes of two transfers are not joined, unless a checksum of the whole file proves them.
    Unknown,
}

/// Metadata that a copy takes from its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeptMetadata {
    /// Modification time.
    pub(crate) modified: Option<Timestamp>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

impl SourceFacts {
    /// The facts in an entry of a listing.
    pub(crate) fn from_entry(entry: &ListedEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
            coarse_time: entry.coarse_time,
            mode: entry.mode,
        }
    }

    /// Whether size and time are the same.
    pub(crate) fn is_same_content(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }

    /// The facts of a local file.
    pub(crate) fn from_local_metadata(meta: &fs::Metadata) -> Self {
        Self {
            size: Some(meta.len()),
            modified: modification_time(meta),
            coarse_time: None,
            mode: Some(meta.mode() & 0o7777),
        }
    }

    /// The earliest and the latest moment of the modification; `None` if nothing is known of it.
    pub(crate) fn modified_between(&self) -> Option<(Timestamp, Timestamp)> {
        let exact = self.modified.map(|time| (time, time));
        exact.or_else(|| {
            self.coarse_time
                .map(|time| (time.earliest(), time.latest()))
        })
    }
}

/// Metadata to set of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetadataChange<'a> {
    /// Its path.
    pub(crate) path: &'a [u8],
    /// `None` in it: left as it is.
    pub(crate) kept: KeptMetadata,
}

/// Modification time of a local file.
pub(crate) fn modification_time(meta: &fs::Metadata) -> Option<Timestamp> {
    let since = meta.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH);
    Some(Timestamp(i64::try_from(since.ok()?.as_secs()).ok()?))
}

/// Which entries of a listing must be told from symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymlinkCheckScope {
    /// None, for a listing that is only shown.
    Nothing,
    /// Directories, for a copy: a link to a directory could lead out of the tree.
    Directories,
    /// Every entry, for a removal: also dangling links, which MLSD may not list.
    Everything,
}

/// A directory entry, and whether the storage says if it is a symbolic link.
#[derive(Debug, Clone)]
pub(crate) struct SymlinkCheckedEntry {
    pub(crate) entry: ListedEntry,
    /// `false` for a directory that may really be a link to one: the server does not tell them
    /// apart.
    pub(crate) is_certain: bool,
}

impl SymlinkCheckedEntry {
    /// An entry of a storage that tells links.
    pub(crate) fn certain(entry: ListedEntry) -> Self {
        Self {
            entry,
            is_certain: true,
        }
    }
}

/// The failure of a rename, and the step that failed.
#[derive(Debug)]
pub(crate) struct RenameFailure {
    pub(crate) failure: CopyFailure,
    pub(crate) refused_step: RefusedRenameStep,
}

/// The step of a rename that was refused. Only a refusal of RNTO says anything about the new name, and only one is about
/// more than this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedRenameStep {
    /// The storage has no rename.
    Unsupported,
    /// RNFR was refused, or the session failed before an answer.
    RnfrRefused,
    /// RNTO was refused, possibly because the new name exists.
    NewNameMayExist,
    /// RNTO was refused for another reason: permission, space, a missing directory.
    RntoRefused,
}

impl From<CopyFailure> for RenameFailure {
    fn from(failure: CopyFailure) -> Self {
        Self {
            failure,
            refused_step: RefusedRenameStep::RnfrRefused,
        }
    }
}

/// Callback that receives the result of each removal.
pub(crate) type RemovalReport<'r> = dyn FnMut(Result<(), CopyFailure>) + Send + 'r;

/// Callback that receives entries one by one and breaks when it needs no more.
pub(crate) type EntryVisitor<'v> = dyn FnMut(ListedEntry) -> ControlFlow<()> + Send + 'v;

/// Callback that receives the entries of a directory.
pub(crate) type ListingVisitor<'v> = dyn FnMut(SymlinkCheckedEntry) -> ControlFlow<()> + Send + 'v;
