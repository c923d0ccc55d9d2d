//! Paths as the control channel names them: absolute, `/`-separated, raw bytes, no `.` or `..`.

use std::fmt;

/// Longest path taken from a peer, in bytes (Linux PATH_MAX).
pub const MAX_PATH: usize = 4096;
/// Longest path component, in bytes (Linux NAME_MAX).
pub const MAX_NAME: usize = 255;

/// A normalised absolute path inside a session's root. Cannot hold `.`/`..` components, NUL, empty
/// components or more than [`MAX_PATH`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VPath(Vec<u8>);

/// Why a path argument was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Contains a NUL byte.
    #[error("path contains a NUL byte")]
    Nul,
    /// Longer than [`MAX_PATH`] or with a component longer than [`MAX_NAME`].
    #[error("file name too long")]
    TooLong,
    /// Empty where a path is required.
    #[error("path is empty")]
    Empty,
}

impl VPath {
    /// `/`
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Resolves a path argument against `self` as the current directory; `..` stops at the root.
    pub fn resolve(&self, arg: &[u8]) -> Result<Self, PathError> {
        let _ = arg;
        todo!()
    }

    /// The bytes, starting with `/`; no trailing `/` except for the root itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Without the leading `/`; empty for the root.
    pub fn relative(&self) -> &[u8] {
        &self.0[1..]
    }

    /// The parent; the root is its own parent.
    pub fn parent(&self) -> Self {
        todo!()
    }

    /// Last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        todo!()
    }

    /// `self` followed by one component. `name` must not contain `/` or NUL.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let _ = name;
        todo!()
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }
}

impl fmt::Display for VPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for VPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VPath({self})")
    }
}
