//! Symbolic links in a copied tree.

use std::sync::Arc;

/// Why a link was left out that nobody asked for.
pub(super) const NOT_ASKED: &str =
    "symbolic link; --links follow copies what it points to, --links copy the link itself";

/// Why a link was left out that leads to a directory above itself.
pub(super) const LOOP: &str = "symbolic link to a directory that it is in: a loop";

/// Why a link was left out that leads to nothing.
pub(super) const NOWHERE: &str = "symbolic link that leads nowhere";

/// The directories from the top of a tree to one in it, by what tells two of them apart: device and
/// inode here, the `Unique` fact of servers.
#[derive(Debug, Default)]
pub(super) struct DirectoryChain {
    id: Option<String>,
    up: Option<Arc<DirectoryChain>>,
    /// A link was followed without knowing which directory it leads to.
    pub(super) blind: bool,
}

impl DirectoryChain {
    /// At the top.
    pub(super) fn top(id: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            id,
            up: None,
            blind: false,
        })
    }

    /// One directory further down; `linked`: by a link.
    pub(super) fn below(self: &Arc<Self>, id: Option<String>, linked: bool) -> Arc<Self> {
        Arc::new(Self {
            blind: self.blind || (linked && id.is_none()),
            id,
            up: Some(Arc::clone(self)),
        })
    }

    /// Whether the directory is on the way.
    pub(super) fn holds(&self, id: &str) -> bool {
        let mut at = Some(self);
        while let Some(trail) = at {
            if trail.id.as_deref() == Some(id) {
                return true;
            }
            at = trail.up.as_deref();
        }
        false
    }
}

/// The target that a copy of a link in `directory` (relative to the tree's top) must hold, so that it leads to the
/// same place within the copied tree. `None` where it leads out of the tree, or where that cannot be
/// known. `top` is where the tree is: an absolute target below it is made relative.
///
/// `..` is taken at the beginning only: behind a name that may itself be a link, it would lead
/// anywhere.
pub(super) fn inner_target(top: &[u8], directory: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let depth = parts(directory).count();
    if let Some(absolute) = target.strip_prefix(b"/") {
        let top: Vec<&[u8]> = parts(top).collect();
        let mut rest = parts(absolute);
        let under = top.iter().all(|part| rest.next() == Some(*part));
        let rest: Vec<&[u8]> = rest.collect();
        if !under || rest.contains(&&b".."[..]) {
            return None;
        }
        let mut steps = vec![&b".."[..]; depth];
        steps.extend(rest);
        return Some(match steps.is_empty() {
            true => b".".to_vec(),
            false => steps.join(&b'/'),
        });
    }
    let up = parts(target).take_while(|part| *part == b"..").count();
    let later = parts(target).skip(up).any(|part| part == b"..");
    (!target.is_empty() && up <= depth && !later).then(|| target.to_vec())
}

/// Components without `.` and empty ones.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(directory: &str, target: &str) -> Option<String> {
        inner_target(b"/src/t", directory.as_bytes(), target.as_bytes())
            .map(|t| String::from_utf8(t).unwrap())
    }

    #[test]
    fn links_stay_within_the_copied_tree() {
        assert_eq!(target("", "f").as_deref(), Some("f"));
        assert_eq!(target("a/b", "../../f").as_deref(), Some("../../f"));
        assert_eq!(target("a/b", "/src/t/c/f").as_deref(), Some("../../c/f"));
        assert_eq!(target("", "/src/t").as_deref(), Some("."));
        for (directory, out) in [
            ("", ".."),
            ("", "../t/f"),
            ("a", "../../f"),
            ("a", "x/../../f"),
            ("a/b", "/etc/passwd"),
            ("", "/src/t/../../etc"),
            ("", "/src/tt/f"),
            ("", ""),
        ] {
            assert_eq!(target(directory, out), None, "{directory} {out}");
        }
    }

    #[test]
    fn a_trail_knows_the_directories_above() {
        let top = DirectoryChain::top(Some("1".to_owned()));
        let inner = top.below(Some("2".to_owned()), false);
        assert!(inner.holds("1") && inner.holds("2") && !inner.holds("3"));
        assert!(!inner.blind && !inner.below(None, false).blind);
        assert!(inner.below(None, true).below(None, false).blind);
    }
}
