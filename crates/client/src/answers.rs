//! Answers of storages about files: facts, entries of directories, refusals of names.

use std::fs;
use std::ops::ControlFlow;

use proto::listing::RemoteEntry;
use proto::timestamp::Timestamp;

use crate::Failure;
use crate::partial::modified;

/// Facts known of a source file before it is moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Modification time.
    pub(crate) modified: Option<Timestamp>,
}

impl Facts {
    /// Of an entry of a listing.
    pub(crate) fn of(entry: &RemoteEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
        }
    }

    /// Of a local file.
    pub(crate) fn of_local(meta: &fs::Metadata) -> Self {
        Self {
            size: Some(meta.len()),
            modified: modified(meta),
        }
    }
}

/// An entry of a directory, of which is known whether it is a link as far as the storage tells.
#[derive(Debug, Clone)]
pub(crate) struct Marked {
    pub(crate) entry: RemoteEntry,
    /// A directory is one, and not a link to one.
    pub(crate) certain: bool,
}

/// Why a file did not get its name.
#[derive(Debug)]
pub(crate) struct NotRenamed {
    pub(crate) failure: Failure,
    pub(crate) refused: Refused,
}

/// Which half of a renaming was refused. Only a refused new name says anything of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// For the old name, or for renaming at all (RNFR). Also what was lost before an answer.
    Source,
    /// For the new name (RNTO), for a reason that may be that it is taken.
    TakenPerhaps,
    /// For the new name, for a reason of its own: rights, room, a missing directory.
    Target,
}

impl From<Failure> for NotRenamed {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            refused: Refused::Source,
        }
    }
}

/// Takes entries one by one; breaks when it has enough.
pub(crate) type Visit<'v> = dyn FnMut(RemoteEntry) -> ControlFlow<()> + Send + 'v;
