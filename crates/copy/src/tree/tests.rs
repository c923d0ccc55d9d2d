use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::options::SymlinkPolicy;
use crate::storage::contract::Storage;
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};
use crate::storage_access::StorageAccess;
use ftp::location::StorageId;
use ftp::session::{ListingUse, SessionOpening};

#[test]
fn hostile_names_are_refused() {
    for name in [
        &b"../x"[..],
        b"..",
        b".",
        b"",
        b"/etc/passwd",
        b"a/b",
        b"a\0b",
    ] {
        assert!(check_name(name).is_err(), "{name:?}");
    }
    assert!(check_name(b"..x \xff").is_ok());
}

/// Entries by their paths.
#[derive(Default)]
struct CollectedTree(Mutex<BTreeMap<String, Vec<TreeEntry>>>);

impl TreeVisitor for CollectedTree {
    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        let path = String::from_utf8_lossy(&join_path(directory, name)).into_owned();
        self.0.lock().entry(path).or_default().push(entry);
        Ok(())
    }
}

impl CollectedTree {
    fn paths(&self, wanted: impl Fn(&TreeEntry) -> bool) -> Vec<String> {
        let all = self.0.lock();
        let found = all
            .iter()
            .filter(|(_, entries)| entries.iter().any(&wanted));
        found.map(|(path, _)| path.clone()).collect()
    }

    fn directories(&self) -> Vec<String> {
        self.paths(|entry| matches!(entry, TreeEntry::Directory(_)))
    }

    fn files(&self) -> Vec<String> {
        self.paths(|entry| matches!(entry, TreeEntry::File(_)))
    }

    fn skipped(&self, reason: &str) -> usize {
        let is = |entry: &TreeEntry| matches!(entry, TreeEntry::Skipped(found) if found.contains(reason));
        self.paths(is).len()
    }

    fn failed(&self) -> usize {
        let is = |entry: &TreeEntry| matches!(entry, TreeEntry::Failed(_) | TreeEntry::Unlisted(_));
        self.paths(is).len()
    }
}

async fn walk_on(
    storage: &mut dyn Storage,
    top: &[u8],
    links: SymlinkPolicy,
) -> Arc<CollectedTree> {
    let tree = Arc::new(CollectedTree::default());
    let visitor = Arc::clone(&tree) as Arc<dyn TreeVisitor>;
    let mut walk = TreeWalk::new(top, links, visitor);
    walk.begin(storage).await.unwrap();
    walk.run(storage).await.unwrap();
    let all = tree.0.lock();
    assert!(all.values().all(|entries| entries.len() == 1), "{all:?}");
    drop(all);
    tree
}

async fn walk(top: &Path, links: SymlinkPolicy) -> Arc<CollectedTree> {
    let access = StorageAccess {
        timeout: std::time::Duration::from_secs(5),
        foreign_data: false,
        listing_use: ListingUse::Reading,
        sync_policy: data::store::durability::SyncPolicy::default(),
        trees: Arc::default(),
    };
    let storage = access
        .open(&StorageId::LocalFiles, SessionOpening::default())
        .await;
    walk_on(&mut *storage.unwrap(), top.as_os_str().as_bytes(), links).await
}

fn linked_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("a/b c")).unwrap();
    fs::write(top.join("a/b c/ü"), "12").unwrap();
    fs::write(top.join(OsStr::from_bytes(b"\xfe")), "1").unwrap();
    symlink(top, top.join("loop")).unwrap();
    symlink("..", top.join("a/up")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    symlink("a/b c/ü", top.join("file link")).unwrap();
    symlink("/etc/hostname", top.join("outside")).unwrap();
    dir
}

#[tokio::test]
async fn links_are_skipped_by_default() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Skip).await;
    assert_eq!(tree.directories(), ["a", "a/b c"]);
    assert_eq!(tree.files(), ["a/b c/ü", "\u{fffd}"]);
    assert_eq!((tree.skipped(""), tree.failed()), (5, 0));
}

#[tokio::test]
async fn followed_links_copy_their_targets_and_loops_are_skipped() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Follow).await;
    let found = tree.files();
    assert!(found.contains(&"file link".to_owned()), "{found:?}");
    // `loop` and `a/up` lead to the top, which contains them.
    assert_eq!(tree.directories(), ["a", "a/b c"]);
    assert_eq!(tree.skipped(links::LINK_LOOP), 2);
    assert_eq!(tree.failed(), 0);
}

#[tokio::test]
async fn copied_links_stay_within_the_tree() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Copy).await;
    for (path, target) in [
        ("a/up", ".."),
        ("dangling", "nowhere"),
        ("file link", "a/b c/ü"),
        ("loop", "."),
    ] {
        let link = TreeEntry::Link(target.into());
        assert_eq!(tree.0.lock()[path], [link], "{path}");
    }
    assert_eq!(tree.skipped(""), 1, "the one that points outside");
}

#[tokio::test]
async fn special_files_are_skipped_and_the_depth_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket"));
    let deep: Vec<&str> = vec!["d"; MAX_DEPTH + 2];
    fs::create_dir_all(dir.path().join(deep.join("/"))).unwrap();
    let tree = walk(dir.path(), SymlinkPolicy::Skip).await;
    assert_eq!(tree.skipped("not a regular file"), 1);
    assert_eq!((tree.directories().len(), tree.failed()), (MAX_DEPTH, 1));
    drop(socket);
}

proptest! {
    #[test]
    fn accepted_names_stay_below_the_destination(name: Vec<u8>) {
        if check_name(&name).is_ok() {
            let path = join_path(b"/top", &name);
            let path = Path::new(OsStr::from_bytes(&path));
            prop_assert_eq!(path.parent(), Some(Path::new("/top")));
            prop_assert_eq!(path.file_name().map(OsStrExt::as_bytes), Some(name.as_slice()));
        }
    }
}
