//! Directory trees: their entries as listings bring them, and which names are acceptable.
//!
//! Names in a server's listing are untrusted: a name with `/` or a `..` would lead out of the
//! destination.

use ftp::Failure;
use ftp::answers::SourceFacts;

mod links;
mod pending;
mod walk;

pub(crate) use links::DANGLING_LINK;
pub(crate) use walk::TreeWalk;

/// Reason for skipping a pipe, a socket or a device.
pub(crate) const NO_REGULAR_FILE: &str = "not a regular file";

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TreeEntry {
    /// A directory. It comes before its content.
    Directory(SourceFacts),
    /// A regular file.
    File(SourceFacts),
    /// A regular file that has several names, with what identifies the file.
    LinkedFile(SourceFacts, String),
    /// A symbolic link to create, with its content: a path within the tree.
    Link(Vec<u8>),
    /// A skipped entry with the reason: a link, a pipe, a device.
    Skipped(String),
    /// An entry that was refused or could not be read.
    Failed(Failure),
    /// A directory that may have more entries than those that were visited. Without path and name it is the top.
    Unlisted(Failure),
}

/// Receives the entries of a tree, from several listings at a time.
pub(crate) trait TreeVisitor: Send + Sync {
    /// `directory` is relative to the top of the tree, with components separated by `/`; `name` is an entry in it.
    ///
    /// # Errors
    /// The walk ends with this failure.
    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure>;

    /// Whether the exact modification time of a file matters, so that it is asked for if its listing does not show it.
    fn needs_time(&self, _directory: &[u8], _name: &[u8], _facts: SourceFacts) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
