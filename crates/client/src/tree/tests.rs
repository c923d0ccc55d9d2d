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
    tree.add(
        &branch,
        &entry(b"..x \xff", EntryKind::File),
        &mut Vec::new(),
    );
    assert_eq!(tree.files[0].0, b"d/..x \xff");
}

#[test]
fn special_files_are_skipped_and_depth_is_bounded() {
    let mut tree = DirectoryTree::default();
    let mut next = Vec::new();
    let top = PendingDirectory::default();
    tree.add(&top, &entry(b"pipe", EntryKind::Other), &mut next);
    tree.add(&top, &entry(b"link", EntryKind::SymLink), &mut next);
    assert_eq!(tree.skipped.len(), 2);
    let deep = PendingDirectory {
        depth: MAX_DEPTH,
        ..PendingDirectory::default()
    };
    tree.add(&deep, &entry(b"d", EntryKind::Dir), &mut next);
    assert!(next.is_empty());
    assert_eq!(tree.failed.len(), 1);
}

#[test]
fn a_directory_that_is_its_own_ancestor_is_a_loop() {
    let mut tree = DirectoryTree::default();
    let mut next = Vec::new();
    let top = PendingDirectory::top(Some("u1".to_owned()));
    let hidden = ListedEntry {
        unique: Some("u1".to_owned()),
        ..entry(b"d", EntryKind::Dir)
    };
    tree.add(&top, &hidden, &mut next);
    assert!(next.is_empty() && tree.skipped.len() == 1);
    let told = Some("u1".to_owned());
    tree.descend_link(b"l".to_vec(), &top, told, &mut next);
    assert!(next.is_empty() && tree.skipped.len() == 2);
    // Which directory it is, is not told: one such link on the way is the most.
    tree.descend_link(b"m".to_vec(), &top, None, &mut next);
    let once = next.pop().unwrap();
    tree.descend_link(b"m/m".to_vec(), &once, None, &mut next);
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

async fn walked(top: &Path, links: SymlinkPolicy) -> DirectoryTree {
    let access = StorageAccess {
        timeout: std::time::Duration::from_secs(5),
        foreign_data: false,
        sync_policy: data::store::durability::SyncPolicy::default(),
    };
    let here = access
        .open(&StorageId::LocalFiles, SessionOpening::default())
        .await;
    let top = top.as_os_str().as_bytes();
    DirectoryTree::below(&mut *here.unwrap(), top, links)
        .await
        .unwrap()
}

fn names(found: &[(Vec<u8>, SourceFacts)]) -> Vec<String> {
    let mut names: Vec<_> = found
        .iter()
        .map(|f| String::from_utf8_lossy(&f.0).into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn links_are_left_out_unless_asked_for() {
    let dir = linked_tree();
    let tree = walked(dir.path(), SymlinkPolicy::Skip).await;
    assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
    assert_eq!(names(&tree.files), ["a/b c/ü", "\u{fffd}"]);
    assert_eq!((tree.skipped.len(), tree.links.len()), (5, 0));
    assert!(tree.failed.is_empty());
}

#[tokio::test]
async fn followed_links_give_what_they_point_to_and_loops_end() {
    let dir = linked_tree();
    let tree = walked(dir.path(), SymlinkPolicy::Follow).await;
    let found = names(&tree.files);
    assert!(found.contains(&"file link".to_owned()), "{found:?}");
    // `loop` and `a/up` lead to the top, which they are in.
    assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
    let loops = tree.skipped.iter().filter(|s| s.1 == links::LOOP).count();
    assert_eq!(loops, 2, "{:?}", tree.skipped);
    assert!(tree.failed.is_empty());
}

#[tokio::test]
async fn copied_links_stay_within_the_tree() {
    let dir = linked_tree();
    let tree = walked(dir.path(), SymlinkPolicy::Copy).await;
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
    fn accepted_names_stay_below(name: Vec<u8>) {
        if check_name(&name).is_ok() {
            let path = join(b"/top", &name);
            let path = Path::new(OsStr::from_bytes(&path));
            prop_assert_eq!(path.parent(), Some(Path::new("/top")));
            prop_assert_eq!(path.file_name().map(OsStrExt::as_bytes), Some(name.as_slice()));
        }
    }
}
