//! Answers of storages about files: facts, entries of directories, refusals of names.

use std::fs;
use std::ops::ControlFlow;

use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;

use crate::CopyFailure;
use crate::partial::modification_time;

/// Facts known of a source file before it is moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Modification time.
    pub(crate) modified: Option<Timestamp>,
}

impl SourceFacts {
    /// Of an entry of a listing.
    pub(crate) fn from_entry(entry: &ListedEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
        }
    }

    /// Of a local file.
    pub(crate) fn from_local_metadata(meta: &fs::Metadata) -> Self {
        Self {
            size: Some(meta.len()),
            modified: modification_time(meta),
        }
    }
}

/// An entry of a directory, of which is known whether it is a link as far as the storage tells.
#[derive(Debug, Clone)]
pub(crate) struct SymlinkCheckedEntry {
    pub(crate) entry: ListedEntry,
    /// A directory is one, and not a link to one.
    pub(crate) is_certain: bool,
}

/// Why a file did not get its name.
#[derive(Debug)]
pub(crate) struct RenameFailure {
    pub(crate) failure: CopyFailure,
    pub(crate) refused_step: RefusedRenameStep,
}

/// Which half of a renaming was refused. Only a refused new name says anything of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedRenameStep {
    /// For the old name, or for renaming at all (RNFR). Also what was lost before an answer.
    RnfrRefused,
    /// For the new name (RNTO), for a reason that may be that it is taken.
    NewNameMayExist,
    /// For the new name, for a reason of its own: rights, room, a missing directory.
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

/// Takes entries one by one; breaks when it has enough.
pub(crate) type EntryVisitor<'v> = dyn FnMut(ListedEntry) -> ControlFlow<()> + Send + 'v;
