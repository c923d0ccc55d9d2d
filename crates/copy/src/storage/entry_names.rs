//! Names of entries and paths in a storage: which are acceptable, and how they are joined.
//!
//! Names in a server's listing are untrusted: a name with `/` or a `..` would lead out of the
//! destination.

use ftp::failure::Sentence;
use ftp::{Failure, FailureKind};

/// Greatest depth that is walked. A server that follows links may list a loop endlessly.
pub(crate) const MAX_DEPTH: usize = 128;

/// Checks that a name may be created below a destination: not empty, not `.` or `..`, without `/`
/// and NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Failure> {
    let refuse = |reason: &str| {
        let name = format!("{:?}", String::from_utf8_lossy(name));
        let refused = Sentence::from("refused the name ").name(name);
        let reason = refused.words(format_args!(": {reason}"));
        Err(Failure::protocol(reason))
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
pub(crate) fn check_sendable(name: &[u8]) -> Result<(), Failure> {
    if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        let name = format!("{:?}", String::from_utf8_lossy(name));
        let reason = "FTP cannot carry a name with a line break";
        return Err(Failure::about(FailureKind::Protocol, name, reason));
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
