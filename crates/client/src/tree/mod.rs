//! Directory trees: their entries as listings bring them, and which names are acceptable.
//!
//! Names in a server's listing are untrusted: a name with `/` or a `..` would lead out of the
//! destination.

use crate::answers::SourceFacts;
use crate::failure::Sentence;
use crate::{CopyFailure, FailureKind};

mod links;
mod pending;
mod walk;

pub(crate) use links::DANGLING_LINK;
pub(crate) use walk::TreeWalk;

/// Reason for skipping a pipe, a socket or a device.
pub(crate) const NO_REGULAR_FILE: &str = "not a regular file";

/// Greatest depth that is walked. A server that follows links may list a loop endlessly.
pub(crate) const MAX_DEPTH: usize = 128;

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
    Failed(CopyFailure),
    /// A directory that may have more entries than those that were visited. Without path and name it is the top.
    Unlisted(CopyFailure),
}

/// Receives the entries of a tree, from several listings at a time.
pub(crate) trait TreeVisitor: Send + Sync {
    /// `directory` is relative to the top of the tree, with components separated by `/`; `name` is an entry in it.
    ///
    /// # Errors
    /// The walk ends with this failure.
    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), CopyFailure>;

    /// Whether the exact modification time of a file matters, so that it is asked for if its listing does not show it.
    fn needs_time(&self, _directory: &[u8], _name: &[u8], _facts: SourceFacts) -> bool {
        false
    }
}

/// Checks that a name may be created below a destination: not empty, not `.` or `..`, without `/`
/// and NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<(), CopyFailure> {
    let refuse = |reason: &str| {
        let name = format!("{:?}", String::from_utf8_lossy(name));
        let refused = Sentence::from("refused the name ").name(name);
        let reason = refused.words(format_args!(": {reason}"));
        Err(CopyFailure::protocol(reason))
    };
    match name {
        b"" => refuse("it is empty"),
        b"." | b".." => refuse("it names a directory above the file"),
        _ if name.contains(&b'/') => refuse("it would lead out of the destination"),
        _ if name.contains(&0) => refuse("it contains a NUL byte"),
        _ => Ok(()),
    }
}

/// Checks that a name can be sent on an FTP control connection.
pub(crate) fn check_sendable(name: &[u8]) -> Result<(), CopyFailure> {
    if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        let name = format!("{:?}", String::from_utf8_lossy(name));
        let reason = "FTP cannot carry a name with a line break";
        return Err(CopyFailure::about(FailureKind::Protocol, name, reason));
    }
    Ok(())
}

/// `directory/name`, or `name` if the directory is empty.
pub(crate) fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// The directory of a path; empty for a single name.
pub(crate) fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b"",
    }
}

/// The directories above a relative path.
pub(crate) fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests;
