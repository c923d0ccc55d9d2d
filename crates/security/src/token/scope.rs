//! Scopes of a token: rights on paths.

use super::error::{BearerTokenError, refused, shown};

/// Longest path of a scope with its base, bytes (PATH_MAX of Linux).
const MAX_PATH: usize = 4096;

/// Most path scopes of a token; the size of a token does not allow many more.
const MAX_SCOPES: usize = 512;

/// The language in which a token states its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProfile {
    /// WLCG Common JWT Profiles 1.x (the claim `wlcg.ver`).
    Wlcg,
    /// SciTokens 2.0 (the claim `ver`).
    SciTokens,
}

/// Rights on the files below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeRights {
    /// `storage.read` and `storage.stage` (WLCG), `read` (SciTokens).
    pub read: bool,
    /// `storage.create`: new files and folders, no overwriting, no removal.
    pub create: bool,
    /// `storage.modify` (WLCG), `write` (SciTokens): also overwrite, rename and remove.
    pub modify: bool,
}

impl ScopeRights {
    /// Whether there is any right.
    pub fn is_some(self) -> bool {
        self.read || self.create || self.modify
    }

    /// Whether new files may be made.
    pub fn may_create(self) -> bool {
        self.create || self.modify
    }

    fn with(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            create: self.create || other.create,
            modify: self.modify || other.modify,
        }
    }
}

/// The rights of a token: a list of absolute paths with their rights.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathScopes(Vec<(Vec<u8>, ScopeRights)>);

impl PathScopes {
    /// Reads the `scope` claim (RFC 8693 §4.2), below the issuer's base path. Unknown scopes are ignored.
    /// A SciTokens scope without a path means the whole base; WLCG requires a path.
    ///
    /// # Errors
    /// A storage scope has no path, or one with `.`, `..`, NUL or a wrong percent encoding: the claim
    /// `scope` is refused.
    pub fn parse(
        profile: TokenProfile,
        scope: &str,
        base: &[u8],
    ) -> Result<Self, BearerTokenError> {
        let mut scopes = Self::default();
        for item in scope.split_ascii_whitespace() {
            let (name, path) = match item.split_once(':') {
                Some((name, path)) => (name, Some(path)),
                None => (item, None),
            };
            let Some(rights) = rights_named(profile, name) else {
                continue;
            };
            let refused = |problem: &str| refused("scope", format!("{}: {problem}", shown(item)));
            let path = match (path, profile) {
                (Some(path), _) => decoded_path(path, profile).map_err(refused)?,
                (None, TokenProfile::SciTokens) => Vec::new(),
                (None, TokenProfile::Wlcg) => return Err(refused("it names no path")),
            };
            let path = below(base, &path).ok_or_else(|| refused("its path is too long"))?;
            if scopes.0.len() == MAX_SCOPES {
                return Err(refused("the token has too many scopes"));
            }
            scopes.0.push((path, rights));
        }
        Ok(scopes)
    }

    /// Rights on everything below a path (absolute, without `.` and `..`).
    pub fn whole(path: &[u8], rights: ScopeRights) -> Self {
        Self(below(path, b"").map_or_else(Vec::new, |path| vec![(path, rights)]))
    }

    /// Whether there is no scope.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rights on a path (absolute, without `.` and `..`): the union of all scopes at or above it.
    pub fn rights(&self, path: &[u8]) -> ScopeRights {
        let above = self
            .0
            .iter()
            .filter(|(scope, _)| is_at_or_above(scope, path));
        above.fold(ScopeRights::default(), |sum, (_, rights)| sum.with(*rights))
    }

    /// Whether a path lies above a scope, so that its folder may be entered and listed on the way.
    pub fn is_above_a_scope(&self, path: &[u8]) -> bool {
        self.0
            .iter()
            .any(|(scope, _)| scope != path && is_at_or_above(path, scope))
    }

    /// The paths with their rights.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], ScopeRights)> {
        self.0
            .iter()
            .map(|(path, rights)| (path.as_slice(), *rights))
    }
}

/// The rights of a scope's name; `None` if it is about something else.
fn rights_named(profile: TokenProfile, name: &str) -> Option<ScopeRights> {
    let none = ScopeRights::default();
    match (profile, name) {
        // Staging from tape includes reading (WLCG Common JWT Profiles, "Capability-based
        // Authorization"); nothing is on tape here.
        (TokenProfile::Wlcg, "storage.read" | "storage.stage")
        | (TokenProfile::SciTokens, "read") => Some(ScopeRights { read: true, ..none }),
        (TokenProfile::Wlcg, "storage.create") => Some(ScopeRights {
            create: true,
            ..none
        }),
        (TokenProfile::Wlcg, "storage.modify") | (TokenProfile::SciTokens, "write") => {
            Some(ScopeRights {
                create: true,
                modify: true,
                ..none
            })
        }
        _ => None,
    }
}

/// The path of a scope, decoded and normalised: components with a `/` before each, none for the root.
fn decoded_path(path: &str, profile: TokenProfile) -> Result<Vec<u8>, &'static str> {
    if !path.starts_with('/') {
        return match (path, profile) {
            ("", TokenProfile::SciTokens) => Ok(Vec::new()),
            _ => Err("its path does not begin with /"),
        };
    }
    let mut normalised = Vec::with_capacity(path.len());
    for component in path.split('/') {
        let decoded = percent_decoded(component).ok_or("its percent encoding is wrong")?;
        // Checked after decoding: %2E%2E is `..`, and %2F would make two components of one.
        match decoded.as_slice() {
            b"" => {}
            b"." | b".." => return Err("its path is not normalised"),
            name if name.contains(&b'/') || name.contains(&0) => {
                return Err("its path has a component with / or NUL");
            }
            name => {
                normalised.push(b'/');
                normalised.extend_from_slice(name);
            }
        }
    }
    Ok(normalised)
}

/// Decodes `%XX` (RFC 3986 §2.1); `None` if two digits do not follow.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(decoded)
}

/// `path` below `base`, both normalised: no `/` at the end but for the root. `None` if too long.
fn below(base: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(base.len() + path.len() + 1);
    let parts = base.split(|b| *b == b'/').chain(path.split(|b| *b == b'/'));
    for component in parts.filter(|component| !component.is_empty()) {
        whole.push(b'/');
        whole.extend_from_slice(component);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    (whole.len() <= MAX_PATH).then_some(whole)
}

/// Whether `path` is `scope` or lies below it, by whole components.
fn is_at_or_above(scope: &[u8], path: &[u8]) -> bool {
    if scope == b"/" {
        return true;
    }
    match path.strip_prefix(scope) {
        Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wlcg(scope: &str) -> PathScopes {
        PathScopes::parse(TokenProfile::Wlcg, scope, b"/").unwrap()
    }

    fn sci(scope: &str) -> PathScopes {
        PathScopes::parse(TokenProfile::SciTokens, scope, b"/").unwrap()
    }

    fn letters(rights: ScopeRights) -> String {
        let all = [
            (rights.read, 'r'),
            (rights.create, 'c'),
            (rights.modify, 'm'),
        ];
        all.iter().filter(|(has, _)| *has).map(|(_, c)| c).collect()
    }

    #[test]
    fn scopes_apply_at_and_below_their_path() {
        let scopes = wlcg("openid storage.read:/data storage.create:/data/in storage.modify:/own/");
        for (path, expected) in [
            ("/data", "r"),
            ("/data/x/y", "r"),
            ("/data/in", "rc"),
            ("/data/in/x", "rc"),
            ("/own", "cm"),
            ("/own/x", "cm"),
            ("/", ""),
            ("/database", ""),
            ("/data2/x", ""),
            ("/dat", ""),
        ] {
            assert_eq!(letters(scopes.rights(path.as_bytes())), expected, "{path}");
        }
    }

    #[test]
    fn folders_above_a_scope_are_on_the_way() {
        let scopes = wlcg("storage.read:/a/b/c");
        for (path, expected) in [
            ("/", true),
            ("/a", true),
            ("/a/b", true),
            ("/a/b/c", false),
            ("/a/b/c/d", false),
            ("/a/bc", false),
            ("/x", false),
        ] {
            assert_eq!(scopes.is_above_a_scope(path.as_bytes()), expected, "{path}");
        }
        assert!(!wlcg("storage.read:/").is_above_a_scope(b"/"));
        assert!(!PathScopes::default().is_above_a_scope(b"/"));
    }

    #[test]
    fn each_profile_has_its_own_names() {
        assert_eq!(letters(wlcg("storage.stage:/").rights(b"/x")), "r");
        assert_eq!(letters(wlcg("read:/ write:/").rights(b"/x")), "");
        assert_eq!(letters(sci("read:/ write:/w").rights(b"/w/x")), "rcm");
        assert_eq!(letters(sci("storage.read:/").rights(b"/x")), "");
        for other in ["compute.read", "storage.poll:/", "storage.readx:/"] {
            assert!(wlcg(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_scitokens_scope_without_a_path_means_the_whole_base() {
        for scope in ["read", "read:", "read:/"] {
            let scopes = PathScopes::parse(TokenProfile::SciTokens, scope, b"/vo/").unwrap();
            assert_eq!(letters(scopes.rights(b"/vo/x")), "r", "{scope}");
            assert_eq!(letters(scopes.rights(b"/vo")), "r", "{scope}");
            assert_eq!(letters(scopes.rights(b"/")), "", "{scope}");
        }
        for scope in ["storage.read", "storage.read:", "storage.create:data"] {
            PathScopes::parse(TokenProfile::Wlcg, scope, b"/").unwrap_err();
        }
    }

    #[test]
    fn paths_are_decoded_and_never_leave_the_base() {
        let decoded = wlcg("storage.read:/a%20b//c/ storage.read:/%c3%a4");
        let paths: Vec<_> = decoded.iter().map(|(path, _)| path.to_vec()).collect();
        assert_eq!(paths, [b"/a b/c".to_vec(), "/ä".as_bytes().to_vec()]);
        for path in [
            "/a/../b",
            "/..",
            "/.",
            "/a/.",
            "/%2e%2e/b",
            "/%2E./b",
            "/a%2fb",
            "/a%00",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "a",
            "../a",
            "%2fa",
        ] {
            for profile in [TokenProfile::Wlcg, TokenProfile::SciTokens] {
                let scope = match profile {
                    TokenProfile::Wlcg => format!("storage.read:{path}"),
                    TokenProfile::SciTokens => format!("read:{path}"),
                };
                let error = PathScopes::parse(profile, &scope, b"/vo").unwrap_err();
                assert!(
                    matches!(error, BearerTokenError::Refused { claim: "scope", .. }),
                    "{path}: {error}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn every_accepted_path_lies_below_the_base(path in "[/a-c.%0-9ef]{0,24}", other in "[/a-c.]{1,12}") {
            let scope = format!("storage.modify:{path}");
            if let Ok(scopes) = PathScopes::parse(TokenProfile::Wlcg, &scope, b"/vo/base") {
                for (path, _) in scopes.iter() {
                    prop_assert!(path == b"/vo/base" || path.starts_with(b"/vo/base/"));
                    prop_assert!(path.split(|b| *b == b'/').skip(1).all(|c| !matches!(c, b"" | b"." | b"..")));
                }
                if !other.starts_with("/vo/base") {
                    prop_assert!(!scopes.rights(other.as_bytes()).is_some());
                }
            }
        }
    }
}
