//! Symbolic links in a copied tree.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::storage::entry_names::parents;
use ftp::Failure;
use ftp::failure::Sentence;
use ftp::session::display_path;

/// Reason for skipping a link by default.
pub(super) const LINK_SKIPPED: &str =
    "symbolic link; --links follow copies what it points to, --links copy the link itself";

/// Reason for skipping a link to a directory that contains it.
pub(super) const LINK_LOOP: &str = "symbolic link to a directory that contains it (a loop)";

/// Reason for skipping a link to a missing file.
pub(crate) const DANGLING_LINK: &str = "dangling symbolic link";

/// The directories from the top of a tree down to one of its directories. They are identified by
/// device and inode on this machine, and by the `unique` fact of servers (RFC 3659 section 7.5.2).
#[derive(Debug, Default)]
pub(super) struct DirectoryChain {
    id: Option<String>,
    parent: Option<Arc<DirectoryChain>>,
    /// A link was followed to a directory of unknown identity.
    pub(super) followed_unknown_link: bool,
}

impl DirectoryChain {
    /// The chain of the top directory.
    pub(super) fn root(id: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            id,
            parent: None,
            followed_unknown_link: false,
        })
    }

    /// The chain of a directory below. `linked`: reached through a link.
    pub(super) fn child(self: &Arc<Self>, id: Option<String>, linked: bool) -> Arc<Self> {
        Arc::new(Self {
            followed_unknown_link: self.followed_unknown_link || (linked && id.is_none()),
            id,
            parent: Some(Arc::clone(self)),
        })
    }

    /// Whether the chain contains the directory.
    pub(super) fn contains(&self, id: &str) -> bool {
        let mut at = Some(self);
        while let Some(chain) = at {
            if chain.id.as_deref() == Some(id) {
                return true;
            }
            at = chain.parent.as_deref();
        }
        false
    }
}

/// The symbolic links in the listing of a whole tree, by hashes of their paths.
#[derive(Debug, Default)]
pub(super) struct ListedLinks {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl ListedLinks {
    /// Adds the path of a link.
    pub(super) fn add(&mut self, path: &[u8]) {
        self.hashes.insert(self.hasher.hash_one(path));
    }

    /// Refuses an entry that is listed below a link: the copy of it would be written through the copy of the link.
    ///
    /// # Errors
    /// `Protocol`
    pub(super) fn check(&self, path: &[u8]) -> Result<(), Failure> {
        let is_link = |above: &[u8]| self.hashes.contains(&self.hasher.hash_one(above));
        if self.hashes.is_empty() || !parents(path).any(is_link) {
            return Ok(());
        }
        let listed = Sentence::from("the server lists ").name(display_path(path));
        let reason = listed.words(" below a symbolic link; it was left out");
        Err(Failure::protocol(reason))
    }
}

/// The content of a copied link, so that it leads to the same place in the copied tree. `directory`
/// is the directory of the link, relative to the tree's top. `None` if the link leads out of the
/// tree or this cannot be determined. `top` is the path of the tree: an absolute target below it is
/// made relative.
///
/// `..` is accepted only at the beginning. After a name that may itself be a link, it could lead
/// anywhere.
pub(super) fn target_within_tree(top: &[u8], directory: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    // A link may climb at most to the top of the tree.
    let depth = components(directory).count();
    if let Some(absolute) = target.strip_prefix(b"/") {
        let top: Vec<&[u8]> = components(top).collect();
        let mut rest = components(absolute);
        let is_below = top.iter().all(|part| rest.next() == Some(*part));
        let rest: Vec<&[u8]> = rest.collect();
        if !is_below || rest.contains(&&b".."[..]) {
            return None;
        }
        // Relative, so that the copied link stays valid wherever the tree is copied to.
        let mut path = vec![&b".."[..]; depth];
        path.extend(rest);
        return Some(match path.is_empty() {
            true => b".".to_vec(),
            false => path.join(&b'/'),
        });
    }
    let leading_parents = components(target).take_while(|part| *part == b"..").count();
    let has_later_parent = components(target)
        .skip(leading_parents)
        .any(|part| part == b"..");
    (!target.is_empty() && leading_parents <= depth && !has_later_parent).then(|| target.to_vec())
}

/// Components without `.` and empty ones.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftp::FailureKind;

    fn target(directory: &str, target: &str) -> Option<String> {
        target_within_tree(b"/src/t", directory.as_bytes(), target.as_bytes())
            .map(|t| String::from_utf8(t).unwrap())
    }

    #[test]
    fn an_entry_that_is_listed_below_a_link_is_refused() {
        let mut links = ListedLinks::default();
        links.check(b"d/l/f").unwrap();
        links.add(b"d/l");
        for below in [&b"d/l/f"[..], b"d/l/d/f"] {
            assert_eq!(
                links.check(below).unwrap_err().kind(),
                FailureKind::Protocol
            );
        }
        for beside in [&b"d/l"[..], b"d/lf", b"l/f", b"d"] {
            links.check(beside).unwrap();
        }
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
    fn a_directory_chain_contains_its_ancestors() {
        let top = DirectoryChain::root(Some("1".to_owned()));
        let inner = top.child(Some("2".to_owned()), false);
        assert!(inner.contains("1") && inner.contains("2") && !inner.contains("3"));
        assert!(!inner.followed_unknown_link && !inner.child(None, false).followed_unknown_link);
        assert!(
            inner
                .child(None, true)
                .child(None, false)
                .followed_unknown_link
        );
    }
}
