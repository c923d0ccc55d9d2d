//! Errors of operations inside a root.

use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};
use rustix::io::Errno;

/// A failed operation on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// The operation, as a verb: `open`, `create directory`.
    pub op: &'static str,
    /// Its path.
    pub path: VPath,
    /// The system's error number.
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

    /// Converts an error of the standard library. One without a number becomes EIO.
    pub fn from_io(op: &'static str, path: &VPath, error: &std::io::Error) -> Self {
        Self::new(op, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The kind of the error, which determines the reply code.
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
        Errno::XDEV | Errno::LOOP => FileErrorKind::OutsideRoot,
        _ => FileErrorKind::Other,
    }
}

/// The system's text without Rust's ` (os error 2)`: some clients search replies for it.
fn text(errno: Errno) -> String {
    let mut text = std::io::Error::from(errno).to_string();
    if let Some(end) = text.rfind(" (os error ") {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_become_kinds_and_texts() {
        let cases = [
            (
                Errno::NOENT,
                FileErrorKind::NotFound,
                "No such file or directory",
            ),
            (Errno::ACCESS, FileErrorKind::Denied, "Permission denied"),
            (
                Errno::PERM,
                FileErrorKind::Denied,
                "Operation not permitted",
            ),
            (Errno::EXIST, FileErrorKind::Exists, "File exists"),
            (
                Errno::NOSPC,
                FileErrorKind::NoSpace,
                "No space left on device",
            ),
            (Errno::DQUOT, FileErrorKind::NoSpace, "Disk quota exceeded"),
            (
                Errno::XDEV,
                FileErrorKind::OutsideRoot,
                "Invalid cross-device link",
            ),
            (
                Errno::LOOP,
                FileErrorKind::OutsideRoot,
                "Too many levels of symbolic links",
            ),
            (Errno::IO, FileErrorKind::Other, "Input/output error"),
        ];
        let path = VPath::root();
        for (errno, kind, words) in cases {
            let error = FileError::from(StoreError::new("open", &path, errno));
            assert_eq!(error.kind, kind);
            assert_eq!(error.errno, Some(errno.raw_os_error()));
            assert_eq!(error.text, format!("cannot open /: {words}"));
        }
    }

    #[test]
    fn an_error_without_a_number_is_an_io_error() {
        let error = std::io::Error::other("odd");
        assert_eq!(
            StoreError::from_io("read", &VPath::root(), &error).errno,
            Errno::IO
        );
    }
}
