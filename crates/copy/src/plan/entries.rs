//! The entries of a plan.

use ftp::answers::SourceFacts;
use ftp::location::Location;

use crate::storage::optional::SharedUpload;

/// One source of a plan and its destination; entries are relative to both.
#[derive(Debug, Clone)]
pub(crate) struct PlanTop {
    pub(crate) number: usize,
    pub(crate) source: Location,
    pub(crate) destination: Location,
}

/// An entry for [`CopyPlan::add`].
#[derive(Debug, Clone)]
pub(crate) enum NewEntry {
    /// A directory to create.
    Directory(SourceFacts),
    /// A directory that exists already.
    ExistingDirectory(SourceFacts),
    File(SourceFacts),
    /// A further name of the file `first`, a path relative to the top.
    HardLink {
        facts: SourceFacts,
        first: Vec<u8>,
    },
    /// A symbolic link to create, with its content.
    Link(Vec<u8>),
    /// It could not be examined, and so is not copied.
    Unlisted {
        is_directory: bool,
    },
}

/// One file to copy.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    /// Source location.
    pub(crate) source: Location,
    /// Destination location.
    pub(crate) destination: Location,
    /// Facts of the source from its listing.
    pub(crate) facts: SourceFacts,
    /// Number of the entry in its plan.
    pub(crate) entry: u32,
    /// The part of the file that is copied, where another process sees to the rest.
    pub(crate) part: Option<PartInPlace>,
    /// The upload that the part belongs to, where the destination is no file that grows.
    pub(crate) upload: Option<SharedUpload>,
    /// Another process that was given up may still hold the unfinished destination.
    pub(crate) takes_over: bool,
}

/// A part of a file, written at the same offset of an unfinished destination that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartInPlace {
    /// Of its first byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// A further name of a file that is copied.
#[derive(Debug, Clone)]
pub(crate) struct PlannedHardLink {
    /// The copy of this name alone.
    pub(crate) file: PlannedFile,
    /// The file at the destination.
    pub(crate) first: Location,
}

/// One symbolic link to create.
#[derive(Debug, Clone)]
pub(crate) struct PlannedLink {
    /// The link that is copied.
    pub(crate) source: Location,
    /// Path of the new link.
    pub(crate) path: Location,
    /// Target of the new link, relative to its directory.
    pub(crate) target: Vec<u8>,
    /// Number of the entry in its plan.
    pub(crate) entry: u32,
}

/// An entry of a plan that is not done.
#[derive(Debug, Clone)]
pub(crate) enum PlannedEntry {
    /// A directory to create, with its number.
    Directory {
        /// Its path at the destination.
        at: Location,
        /// Facts of its source.
        facts: SourceFacts,
        /// Number of the entry in its plan.
        entry: u32,
    },
    /// A file to copy.
    File(PlannedFile),
    /// A further name to give to a file.
    HardLink(PlannedHardLink),
    /// A link to create.
    Link(PlannedLink),
    /// A source that could not be examined.
    Unlisted {
        /// The source.
        source: Location,
        /// Its destination.
        destination: Location,
        /// The content of a directory is missing.
        is_directory: bool,
    },
}
