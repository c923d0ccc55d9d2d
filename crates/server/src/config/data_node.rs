//! A data node, as the settings of its front end name it.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// A table `[[data-node]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DataNode {
    /// `address`: host and port.
    pub address: String,
    /// `directories`: the node has what is in these directories of the root, and nothing else; each begins with `/`. Empty: it has everything.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
}

impl DataNode {
    /// A node that has everything.
    pub fn of_all(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            directories: Vec::new(),
        }
    }

    /// Whether the node has what is at `path`, which is relative to the root. The empty path is the root: who has that has everything.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.directories.is_empty() || self.below_root().any(|below| path.starts_with(below))
    }

    /// `directories`, relative to the root.
    pub(crate) fn below_root(&self) -> impl Iterator<Item = &Path> {
        let directories = self.directories.iter();
        directories.filter_map(|directory| directory.strip_prefix("/").ok())
    }

    /// Whether `address` names a port.
    pub(super) fn has_port(&self) -> bool {
        let port = self.address.rsplit_once(':');
        let port = port.map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(1..)))
    }

    /// A directory that names none below the root.
    pub(super) fn misplaced_directory(&self) -> Option<&PathBuf> {
        let is_below = |directory: &&PathBuf| {
            let mut parts = directory.components();
            parts.next() == Some(Component::RootDir)
                && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        self.directories.iter().find(|one| !is_below(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_what_is_in_its_directories() {
        let node = |directories: &[&str]| DataNode {
            directories: directories.iter().map(PathBuf::from).collect(),
            ..DataNode::of_all("n:1")
        };
        let some = node(&["/run1", "/raw/2026/"]);
        let has = |path: &str| some.has(Path::new(path));
        assert!(has("run1") && has("run1/a/b") && has("raw/2026/x"));
        assert!(!(has("") || has("run10/a") || has("raw") || has("raw/2025/x")));
        for all in [node(&[]), node(&["/"])] {
            assert!(all.has(Path::new("")) && all.has(Path::new("a/b")));
        }
        assert_eq!(some.misplaced_directory(), None);
        for wrong in ["run1", "", "/a/../b"] {
            assert_eq!(
                node(&["/a", wrong]).misplaced_directory(),
                Some(&PathBuf::from(wrong))
            );
        }
    }
}
