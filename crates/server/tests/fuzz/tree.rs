//! The files that the server may access, and those that it must not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Prefix of the content of all files outside of the root.
const CANARY: &str = "canary-5f1d8c";

/// A root with files, directories and links, and a directory outside of it that some links lead to.
pub(crate) struct FuzzTree(TempDir);

/// State of a file outside of the root: type and mode, length, ctime (seconds, nanoseconds), content.
type FileSnapshot = (u32, u64, i64, i64, Vec<u8>);

impl FuzzTree {
    pub(crate) fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let (root, outside) = (tree.root(), tree.0.path().join("outside"));
        fs::create_dir_all(outside.join("dir")).unwrap();
        for name in ["secret", "dir/inner"] {
            fs::write(outside.join(name), format!("{CANARY} {name}")).unwrap();
        }
        fs::create_dir_all(root.join("d/e")).unwrap();
        for name in ["a", "b", "d/a", "d/e/b"] {
            fs::write(root.join(name), vec![b'x'; 100_000]).unwrap();
        }
        symlink("a", root.join("link")).unwrap();
        symlink("../outside/secret", root.join("out")).unwrap();
        symlink("../outside/dir", root.join("outdir")).unwrap();
        symlink(outside.join("secret"), root.join("abs")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        tree
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    /// The current state of everything outside of the root.
    pub(crate) fn outside(&self) -> BTreeMap<PathBuf, FileSnapshot> {
        let mut all = BTreeMap::new();
        snapshot_into(&self.0.path().join("outside"), &mut all);
        let beside = fs::read_dir(self.0.path()).unwrap();
        for entry in beside.map(Result::unwrap) {
            all.entry(entry.path()).or_default();
        }
        all
    }

    /// Whether `received` has content of a file outside of the root.
    pub(crate) fn leaked(&self, received: &[u8]) -> bool {
        let canary = CANARY.as_bytes();
        received.windows(canary.len()).any(|w| w == canary)
    }
}

fn snapshot_into(directory: &Path, all: &mut BTreeMap<PathBuf, FileSnapshot>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let state = (
            meta.mode(),
            meta.len(),
            meta.ctime(),
            meta.ctime_nsec(),
            content,
        );
        if meta.is_dir() {
            snapshot_into(&path, all);
        }
        all.insert(path, state);
    }
}

#[test]
fn changes_and_leaks_outside_of_the_root_are_detected() {
    let tree = FuzzTree::new();
    let before = tree.outside();
    assert_eq!(tree.outside(), before);
    let secret = tree.0.path().join("outside/secret");
    assert!(tree.leaked(&fs::read(&secret).unwrap()));
    assert!(!tree.leaked(&fs::read(tree.root().join("a")).unwrap()));
    let content = fs::read(&secret).unwrap();
    fs::write(&secret, content).unwrap();
    assert_ne!(tree.outside(), before, "the same content, written again");
    let before = tree.outside();
    fs::write(tree.0.path().join("new"), "").unwrap();
    assert_ne!(tree.outside(), before);
}
