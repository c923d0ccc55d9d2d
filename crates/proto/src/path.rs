//! Virtual paths of a session: absolute, `/`-separated raw bytes without `.` or `..`.

use std::fmt;

/// Longest path accepted from a peer, bytes (PATH_MAX of Linux).
pub const MAX_PATH: usize = 4096;
/// Longest path component, bytes (NAME_MAX of Linux).
pub const MAX_NAME: usize = 255;

/// Suffix of an incomplete upload: `longhaul cp` stores `NAME` as `NAME.longhaul-partial` and renames it
/// when it is complete.
pub const PARTIAL_SUFFIX: &[u8] = b".longhaul-partial";

/// Number of hexadecimal digits of the hash that replaces a name before [`PARTIAL_SUFFIX`] when the name
/// with suffix would be longer than [`MAX_NAME`].
pub const PARTIAL_HASH_DIGITS: usize = 32;

/// A virtual path: a normalised absolute path inside a session's root. It cannot contain `.` or `..`
/// components, empty components, NUL, or more than [`MAX_PATH`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VPath(Vec<u8>);

/// Error in a path argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path contains a NUL byte.
    #[error("path contains a NUL byte")]
    Nul,
    /// The path is longer than [`MAX_PATH`], or a component is longer than [`MAX_NAME`].
    #[error("file name too long")]
    TooLong,
    /// The path is empty.
    #[error("path is empty")]
    Empty,
    /// `.`, `..` or a `/` where a single component is required.
    #[error("not the name of a directory entry")]
    NotAName,
    /// `~user` names nobody.
    #[error("no such user")]
    NoSuchUser,
}

impl VPath {
    /// The root, `/`.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Resolves a path argument against `self` as the current directory. `..` at the root is the root.
    /// `.` and `..` are resolved textually, as the globus server does, and never through symbolic links.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn resolve(&self, arg: &[u8]) -> Result<Self, PathError> {
        if arg.is_empty() {
            return Err(PathError::Empty);
        }
        if arg.contains(&0) {
            return Err(PathError::Nul);
        }
        let base = if arg.starts_with(b"/") {
            Self::root()
        } else {
            self.clone()
        };
        arg.split(|b| *b == b'/')
            // Empty components, as in `a//b`, are skipped as in POSIX path resolution.
            .try_fold(base, |at, component| match component {
                b"" | b"." => Ok(at),
                b".." => Ok(at.into_parent()),
                name => at.into_child(name),
            })
            // The limit applies to the result: a long argument may resolve to a short path.
            .and_then(Self::within_limit)
    }

    /// The bytes, starting with `/`. Only the root ends with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path without the leading `/`; empty for the root.
    pub fn relative(&self) -> &[u8] {
        &self.0[1..]
    }

    /// The parent directory; the root is its own parent.
    pub fn parent(&self) -> Self {
        self.clone().into_parent()
    }

    /// The bytes of the path up to its last component, with the slash before it.
    pub fn directory(&self) -> &[u8] {
        &self.0[..self.name_start()]
    }

    /// Last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        &self.0[self.name_start()..]
    }

    /// `self` followed by one component.
    ///
    /// # Errors
    /// `name` is empty, `.` or `..`, contains `/` or NUL, or is too long.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        match name {
            b"" => Err(PathError::Empty),
            b"." | b".." => Err(PathError::NotAName),
            _ if name.contains(&b'/') => Err(PathError::NotAName),
            _ if name.contains(&0) => Err(PathError::Nul),
            _ => self.clone().into_child(name).and_then(Self::within_limit),
        }
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    fn name_start(&self) -> usize {
        self.0.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1)
    }

    fn into_parent(mut self) -> Self {
        // Keeps at least the leading `/`.
        let keep = self.name_start().saturating_sub(1).max(1);
        self.0.truncate(keep);
        self
    }

    fn into_child(mut self, name: &[u8]) -> Result<Self, PathError> {
        if name.len() > MAX_NAME {
            return Err(PathError::TooLong);
        }
        if !self.is_root() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name);
        Ok(self)
    }

    fn within_limit(self) -> Result<Self, PathError> {
        if self.0.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        Ok(self)
    }
}

/// For messages and logs; the bytes are escaped for terminals.
impl fmt::Display for VPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::printable::printable(&self.0).fmt(f)
    }
}

impl fmt::Debug for VPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(cwd: &str, arg: &str) -> String {
        let cwd = VPath::root().resolve(cwd.as_bytes()).unwrap();
        cwd.resolve(arg.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn dots_are_resolved_textually_and_stop_at_the_root() {
        assert_eq!(resolved("/a/b", "c"), "/a/b/c");
        assert_eq!(resolved("/a/b", "/c//d/"), "/c/d");
        assert_eq!(resolved("/a/b", "../.."), "/");
        assert_eq!(resolved("/a/b", "../../../../etc/passwd"), "/etc/passwd");
        assert_eq!(resolved("/a/b", "."), "/a/b");
        assert_eq!(resolved("/a", "./x/../y"), "/a/y");
        assert_eq!(resolved("/", "..."), "/...");
        assert_eq!(resolved("/", "a b "), "/a b ");
    }

    #[test]
    fn parent_name_and_relative_path_are_split_off() {
        let path = VPath::root().resolve(b"/a/b").unwrap();
        assert_eq!(path.name(), b"b");
        assert_eq!(path.relative(), b"a/b");
        assert_eq!(path.parent().as_bytes(), b"/a");
        assert_eq!(path.parent().parent(), VPath::root());
        assert_eq!(VPath::root().parent(), VPath::root());
        assert_eq!(VPath::root().name(), b"");
        assert_eq!(VPath::root().relative(), b"");
    }

    #[test]
    fn invalid_paths_are_refused() {
        let root = VPath::root();
        assert_eq!(root.resolve(b""), Err(PathError::Empty));
        assert_eq!(root.resolve(b"a\0b"), Err(PathError::Nul));
        assert_eq!(root.resolve(&[b'a'; 256]), Err(PathError::TooLong));
        assert!(root.resolve(&[b'a'; 255]).is_ok());
        let long = b"/abcdefg".repeat(512);
        assert_eq!(root.resolve(&long).unwrap().as_bytes().len(), MAX_PATH);
        assert_eq!(
            root.resolve(&[&long[..], b"/x"].concat()),
            Err(PathError::TooLong)
        );
    }

    #[test]
    fn a_long_argument_that_resolves_to_a_short_path_is_accepted() {
        let arg = b"a/../".repeat(2000);
        assert_eq!(VPath::root().resolve(&arg), Ok(VPath::root()));
    }

    #[test]
    fn join_accepts_single_components_only() {
        let root = VPath::root();
        assert_eq!(root.join(b"\xff").unwrap().as_bytes(), b"/\xff");
        assert_eq!(root.join(b"").unwrap_err(), PathError::Empty);
        for name in [&b"."[..], b"..", b"a/b", b"/"] {
            assert_eq!(root.join(name).unwrap_err(), PathError::NotAName);
        }
        assert_eq!(root.join(b"a\0").unwrap_err(), PathError::Nul);
    }
}
