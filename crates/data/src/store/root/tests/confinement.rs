//! No session reaches a file outside its root.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn links_cannot_leave_the_root() {
    let tree = JailTree::new();
    tree.link(tree.host("secret"), "absolute");
    tree.link("../secret", "relative");
    tree.link("../../../../../../../../etc/passwd", "climbing");
    tree.link("../outside", "dir");
    tree.link("/", "top");
    tree.file("secret", "public");
    for name in ["absolute", "climbing", "dir"] {
        assert_eq!(errno(tree.root.open_read(&v(name))), Errno::NOENT, "{name}");
        let entry = tree.root.stat(&v(name)).unwrap();
        assert_eq!(entry.kind, EntryKind::SymLink, "{name} is told itself");
        assert_ne!(entry.size, 6, "{name}");
    }
    for name in ["dir/file", "top/../outside/file"] {
        assert_eq!(errno(tree.root.open_read(&v(name))), Errno::NOENT, "{name}");
        assert_eq!(errno(tree.root.stat(&v(name))), Errno::NOENT, "{name}");
    }
    // `..` at the top stays at the top: this is the root's own file of that name.
    assert_eq!(tree.read("relative").unwrap(), "public");
    assert_eq!(tree.read("top/secret").unwrap(), "public");
}

#[test]
fn changes_through_links_cannot_leave_the_root() {
    let tree = JailTree::new();
    tree.link(tree.host("secret"), "file");
    tree.link(tree.host("outside"), "dir");
    let before = fs::metadata(tree.host("secret")).unwrap();
    assert!(tree.root.chmod(&v("file"), 0o777).is_err());
    assert!(tree.root.set_modified(&v("file"), Timestamp(0)).is_err());
    assert!(tree.root.open_existing(&v("file")).is_err());
    assert!(tree.root.chgrp(&v("file"), "0").is_err());
    assert!(tree.root.make_dir(&v("dir/new")).is_err());
    assert!(tree.root.delete(&v("dir/file")).is_err());
    assert!(tree.root.remove_tree(&v("dir/file")).is_err());
    assert!(tree.root.symlink(b"x", &v("dir/new")).is_err());
    assert!(tree.root.open_write(&v("dir/new")).is_err());
    assert!(tree.root.open_unique(&v("dir/new")).is_err());
    tree.file("own", "x");
    assert!(tree.root.rename(&v("own"), &v("dir/new")).is_err());
    assert!(tree.root.rename(&v("dir/file"), &v("stolen")).is_err());
    let after = fs::metadata(tree.host("secret")).unwrap();
    assert_eq!(
        (before.mode(), before.mtime(), 6),
        (after.mode(), after.mtime(), after.len())
    );
    assert_eq!(fs::read_dir(tree.host("outside")).unwrap().count(), 1);
}

#[test]
fn storing_through_a_dangling_link_creates_the_file_inside_the_root() {
    let tree = JailTree::new();
    tree.link(tree.host("new"), "link");
    tree.link("/inside", "other");
    assert!(tree.root.open_write(&v("link")).is_err());
    let mut file = tree.root.open_write(&v("other")).unwrap().file;
    file.write_all(b"here").unwrap();
    assert!(!tree.host("new").exists());
    assert_eq!(tree.read("inside").unwrap(), "here");
}

#[test]
fn removing_and_renaming_links_keeps_their_targets() {
    let tree = JailTree::new();
    tree.link(tree.host("outside"), "dir");
    tree.link(tree.host("secret"), "file");
    tree.mkdir("real");
    tree.file("real/kept", "x");
    tree.link("real", "inner");
    tree.root.remove_tree(&v("dir")).unwrap();
    tree.root.delete(&v("file")).unwrap();
    tree.root.rename(&v("inner"), &v("moved")).unwrap();
    tree.root.remove_tree(&v("moved")).unwrap();
    assert_eq!(tree.names("/"), ["real"]);
    assert_eq!(tree.read("real/kept").unwrap(), "x");
    assert!(tree.host("outside/file").exists() && tree.host("secret").exists());
}

#[test]
fn a_tree_with_links_is_removed_without_following_them() {
    let tree = JailTree::new();
    tree.mkdir("t/a/b");
    tree.file("t/a/b/f", "x");
    tree.link(tree.host("outside"), "t/a/out");
    tree.link("..", "t/a/up");
    tree.root.remove_tree(&v("t")).unwrap();
    assert!(tree.names("/").is_empty());
    assert!(tree.host("outside/file").exists());
    assert_eq!(errno(tree.root.remove_tree(&v("t"))), Errno::NOENT);
    assert_eq!(errno(tree.root.remove_tree(&v("/"))), Errno::BUSY);
}

/// Longest wait for a thread's turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory is swapped with a link to the outside repeatedly while files in it are used.
#[test]
fn a_swapped_directory_never_leads_out_of_the_root() {
    let tree = JailTree::new();
    tree.mkdir("dir");
    tree.file("dir/file", "inside");
    tree.link(tree.host("outside"), "link");
    let jail = tree.host("jail");
    let begun = Instant::now();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !done.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
                let (a, b) = (jail.join("dir"), jail.join("link"));
                rustix::fs::renameat_with(CWD, &a, CWD, &b, exchange).unwrap();
            }
        });
        let mut reached = 0;
        // On a busy machine either thread may wait for long before its turn.
        while begun.elapsed() < PATIENCE && reached == 0
            || begun.elapsed() < Duration::from_millis(200)
        {
            if let Ok(text) = tree.read("dir/file") {
                assert_eq!(text, "inside");
                reached += 1;
            }
            let _ = tree.root.chmod(&v("dir/file"), 0o600);
            let _ = tree.root.open_write(&v("dir/new"));
            let _ = tree.root.delete(&v("dir/new"));
        }
        done.store(true, Ordering::Relaxed);
        assert!(reached > 0, "the swapping left no chance to read");
    });
    assert_eq!(fs::read_dir(tree.host("outside")).unwrap().count(), 1);
    assert_ne!(
        fs::metadata(tree.host("outside/file")).unwrap().mode() & 0o777,
        0o600
    );
}

#[test]
fn magic_links_are_refused() {
    let root = Root::open(Path::new("/proc")).unwrap();
    let error = root.open_read(&v("self/root/etc/passwd")).unwrap_err();
    assert_eq!(error.kind(), FileErrorKind::OutsideRoot, "{error}");
}

#[test]
fn link_loops_are_reported() {
    let tree = JailTree::new();
    tree.link("b", "a");
    tree.link("a", "b");
    let error = tree.root.open_read(&v("a")).unwrap_err();
    assert_eq!(error.kind(), FileErrorKind::OutsideRoot);
    assert!(error.to_string().contains("symbolic links"), "{error}");
    assert_eq!(tree.names("/"), ["a", "b"], "they can be seen, and deleted");
}

#[test]
fn a_root_without_links_follows_none_and_still_shows_them() {
    let tree = JailTree::new();
    fs::create_dir(tree.host("jail/dir")).unwrap();
    tree.file("dir/file", "x");
    tree.link("dir", "to-dir");
    tree.link("dir/file", "to-file");
    let strict = tree.root.without_links().unwrap();
    assert_eq!(errno(strict.open_read(&v("to-file"))), Errno::LOOP);
    assert_eq!(errno(strict.open_existing(&v("to-file"))), Errno::LOOP);
    assert_eq!(errno(strict.open_write(&v("to-dir/new"))), Errno::LOOP);
    assert_eq!(errno(strict.enter(&v("to-dir"))), Errno::LOOP);
    assert_eq!(errno(strict.make_dir(&v("to-dir/new"))), Errno::LOOP);
    assert_eq!(errno(strict.delete(&v("to-dir/file"))), Errno::LOOP);
    assert_eq!(errno(strict.chmod(&v("to-file"), 0o600)), Errno::LOOP);
    assert_eq!(
        errno(strict.rename(&v("dir/file"), &v("to-dir/x"))),
        Errno::LOOP
    );
    let link = strict.stat(&v("to-file")).unwrap();
    assert_eq!(link.kind, EntryKind::SymLink);
    strict.open_read(&v("dir/file")).unwrap();
    strict.delete(&v("to-file")).unwrap();
    tree.root.enter(&v("to-dir")).unwrap();
}
