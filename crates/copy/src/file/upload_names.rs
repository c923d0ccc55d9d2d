//! The names of a file that a storage keeps: what is known of them, and what became of them.

use ftp::Failure;
use proto::listing::EntryKind;

/// Result of giving a file its final name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UploadFinish {
    /// The file has its final name.
    InPlace,
    /// The file was not renamed. It must be stored again under its final name.
    StoreDirectly,
}

/// A file with the final name, as far as the storage shows it.
pub(crate) enum OldFile {
    /// There is none.
    Missing,
    /// There is something of that name.
    Exists(EntryKind),
    /// The storage does not tell.
    Unknown,
}

/// A partial name that was refused, or that could not be changed. The final name is tried instead.
#[derive(Debug)]
pub(crate) struct RefusedName {
    pub(crate) refusal: Failure,
    /// The refusal is about one file. It says nothing about others in the directory.
    pub(crate) is_of_file: bool,
    /// The storage does not tell whether there is an old file.
    pub(crate) is_unseen: bool,
}
