//! Why an operation inside a root failed.

use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};
use rustix::io::Errno;

/// A failed operation on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What was tried, as a verb: `open`, `create directory`.
    pub op: &'static str,
    /// On what.
    pub path: VPath,
    /// The system's reason.
    pub errno: Errno,
}

impl StoreError {
    pub(super) fn new(op: &'static str, path: &VPath, errno: Errno) -> Self {
        Self {
            op,
            path: path.clone(),
            errno,
        }
    }

    /// What the reply code depends on.
    pub fn kind(&self) -> FileErrorKind {
        kind(self.errno)
    }
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {} {}: {}", self.op, self.path, text(self.errno))
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self {
            kind: error.kind(),
            errno: Some(error.errno.raw_os_error()),
            text: error.to_string(),
        }
    }
}

fn kind(errno: Errno) -> FileErrorKind {
    match errno {
        Errno::NOENT => FileErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => FileErrorKind::Denied,
        Errno::EXIST => FileErrorKind::Exists,
        Errno::NOTDIR => FileErrorKind::NotADirectory,
        Errno::ISDIR => FileErrorKind::IsADirectory,
        Errno::NOTEMPTY => FileErrorKind::NotEmpty,
        Errno::NOSPC | Errno::DQUOT => FileErrorKind::NoSpace,
        Errno::NAMETOOLONG => FileErrorKind::NameTooLong,
        Errno::XDEV | Errno::LOOP => FileErrorKind::Escapes,
        _ => FileErrorKind::Other,
    }
}

/// The system's words without Rust's ` (os error 2)`: clients look for them in replies.
fn text(errno: Errno) -> String {
    let mut text = std::io::Error::from(errno).to_string();
    if let Some(end) = text.rfind(" (os error ") {
        text.truncate(end);
    }
    text
}
