use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::location::StorageId;
use crate::session::SessionOpening;
use crate::storage::StorageAccess;

fn entry(name: &[u8], kind: EntryKind) -> ListedEntry {
    ListedEntry {
        size: Some(1),
        ..ListedEntry::new(name, kind)
    }
}

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
    let mut tree = DirectoryTree::default();
    let branch = PendingDirectory {
        path: b"d".to_vec(),
        ..PendingDirectory::default()
    };
    assert!(check_name(b"..x \xff").is_ok());
    tree.add_entry(
        &branch,
        &entry(b"..x \xff", EntryKind::File),
        &mut Vec::new(),
    );
    assert_eq!(tree.files[0].0, b"d/..x \xff");
}

#[test]
fn special_files_are_skipped_and_the_depth_is_bounded() {
    let mut tree = DirectoryTree::default();
    let mut next = Vec::new();
    let top = PendingDirectory::default();
    tree.add_entry(&top, &entry(b"pipe", EntryKind::Other), &mut next);
    tree.add_entry(&top, &entry(b"link", EntryKind::SymLink), &mut next);
    assert_eq!(tree.skipped.len(), 2);
    let deep = PendingDirectory {
        depth: MAX_DEPTH,
        ..PendingDirectory::default()
    };
    tree.add_entry(&deep, &entry(b"d", EntryKind::Dir), &mut next);
    assert!(next.is_empty());
    assert_eq!(tree.failed.len(), 1);
}

#[test]
fn a_directory_that_is_its_own_ancestor_is_skipped() {
    let mut tree = DirectoryTree::default();
    let mut next = Vec::new();
    let top = PendingDirectory::root(Some("u1".to_owned()));
    let hidden = ListedEntry {
        unique: Some("u1".to_owned()),
        ..entry(b"d", EntryKind::Dir)
    };
    tree.add_entry(&top, &hidden, &mut next);
    assert!(next.is_empty() && tree.skipped.len() == 1);
    let identity = Some("u1".to_owned());
    tree.add_linked_directory(b"l".to_vec(), &top, identity, &mut next);
    assert!(next.is_empty() && tree.skipped.len() == 2);
    // The identity of the directory is unknown: one such link on the path is accepted.
    tree.add_linked_directory(b"m".to_vec(), &top, None, &mut next);
    let once = next.pop().unwrap();
    tree.add_linked_directory(b"m/m".to_vec(), &once, None, &mut next);
    assert!(next.is_empty() && tree.failed.len() == 1);
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

async fn walk(top: &Path, links: SymlinkPolicy) -> DirectoryTree {
    let access = StorageAccess {
        timeout: std::time::Duration::from_secs(5),
        foreign_data: false,
        sync_policy: data::store::durability::SyncPolicy::default(),
    };
    let storage = access
        .open(&StorageId::LocalFiles, SessionOpening::default())
        .await;
    let top = top.as_os_str().as_bytes();
    DirectoryTree::walk(&mut *storage.unwrap(), top, links)
        .await
        .unwrap()
}

fn file_names(found: &[(Vec<u8>, SourceFacts)]) -> Vec<String> {
    let mut names: Vec<_> = found
        .iter()
        .map(|f| String::from_utf8_lossy(&f.0).into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn links_are_skipped_by_default() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Skip).await;
    assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
    assert_eq!(file_names(&tree.files), ["a/b c/ü", "\u{fffd}"]);
    assert_eq!((tree.skipped.len(), tree.links.len()), (5, 0));
    assert!(tree.failed.is_empty());
}

#[tokio::test]
async fn followed_links_copy_their_targets_and_loops_are_skipped() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Follow).await;
    let found = file_names(&tree.files);
    assert!(found.contains(&"file link".to_owned()), "{found:?}");
    // `loop` and `a/up` lead to the top, which contains them.
    assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
    let loops = tree
        .skipped
        .iter()
        .filter(|s| s.1 == links::LINK_LOOP)
        .count();
    assert_eq!(loops, 2, "{:?}", tree.skipped);
    assert!(tree.failed.is_empty());
}

#[tokio::test]
async fn copied_links_stay_within_the_tree() {
    let dir = linked_tree();
    let tree = walk(dir.path(), SymlinkPolicy::Copy).await;
    let mut links = tree.links.clone();
    links.sort();
    let link = |name: &str, target: &str| (name.into(), target.into());
    let expected: Vec<(Vec<u8>, Vec<u8>)> = vec![
        link("a/up", ".."),
        link("dangling", "nowhere"),
        link("file link", "a/b c/ü"),
        link("loop", "."),
    ];
    assert_eq!(links, expected);
    assert_eq!(tree.skipped.len(), 1, "the one that points outside");
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
