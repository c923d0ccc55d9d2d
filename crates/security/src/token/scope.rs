//! Scopes of a token: rights on paths.

/// Rights on the files below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeRights {
    /// `storage.read` (WLCG), `read` (SciTokens).
    pub read: bool,
    /// `storage.create`: new files and folders, no overwriting, no removal.
    pub create: bool,
    /// `storage.modify` (WLCG), `write` (SciTokens): also overwrite, rename and remove.
    pub modify: bool,
}

/// The rights of a token: a list of absolute paths with their rights.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathScopes(pub(super) Vec<(Vec<u8>, ScopeRights)>);

impl PathScopes {
    /// Reads the `scope` claim (RFC 8693 §4.2), below the issuer's base path. Unknown scopes are ignored.
    pub fn parse(scope: &str, base: &[u8]) -> Self {
        let _ = (scope, base);
        todo!()
    }

    /// The rights on a path (absolute, without `.` and `..`): the union of all scopes at or above it.
    pub fn rights(&self, path: &[u8]) -> ScopeRights {
        let _ = path;
        todo!()
    }

    /// Whether a path lies above a scope, so that its folder may be entered and listed on the way.
    pub fn is_above_a_scope(&self, path: &[u8]) -> bool {
        let _ = path;
        todo!()
    }

    /// The paths with their rights.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], ScopeRights)> {
        self.0
            .iter()
            .map(|(path, rights)| (path.as_slice(), *rights))
    }
}
