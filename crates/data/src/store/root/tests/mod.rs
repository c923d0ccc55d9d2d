//! Operations on files and names.

use std::fs;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use proto::listing::{DirectoryEntry, EntryKind};
use proto::path::VPath;
use proto::server::FileErrorKind;
use proto::timestamp::Timestamp;
use tempfile::TempDir;

use super::*;

mod confinement;
mod creation;
mod in_directory;
mod listing;
mod trees;

/// A root with a secret file beside it.
struct JailTree {
    dir: TempDir,
    root: Root,
}

impl JailTree {
    /// `jail/` is the root; `secret` and `outside/` are unreachable for sessions.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("jail")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(dir.path().join("outside/file"), "secret").unwrap();
        let root = Root::open(&dir.path().join("jail")).unwrap();
        Self { dir, root }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        fs::write(self.host("jail").join(path), content).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        symlink(target, self.host("jail").join(path)).unwrap();
    }

    fn mkdir(&self, path: &str) {
        fs::create_dir_all(self.host("jail").join(path)).unwrap();
    }

    fn read(&self, path: &str) -> Result<String, StoreError> {
        let mut text = String::new();
        self.root
            .open_read(&v(path))?
            .read_to_string(&mut text)
            .unwrap();
        Ok(text)
    }

    fn names(&self, path: &str) -> Vec<String> {
        self.entries(path)
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
            .collect()
    }

    fn entries(&self, path: &str) -> Vec<DirectoryEntry> {
        let mut entries = Vec::new();
        let mut visit = |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        };
        self.root.list(&v(path), None, &mut visit).unwrap();
        entries
    }

    fn walk(&self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut visit = |entry: DirectoryEntry| {
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            ControlFlow::Continue(())
        };
        self.root.walk(&v(path), &mut visit).unwrap();
        names
    }
}

fn v(path: &str) -> VPath {
    vb(path.as_bytes())
}

fn vb(path: &[u8]) -> VPath {
    VPath::root().resolve(path).unwrap()
}

fn errno<T>(result: Result<T, StoreError>) -> Errno {
    match result {
        Ok(_) => panic!("it worked"),
        Err(error) => error.errno,
    }
}

fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn pipes_sockets_devices_and_directories_are_not_opened() {
    let tree = JailTree::new();
    tree.mkdir("dir");
    let fifo = tree.host("jail/fifo");
    rustix::fs::mknodat(
        CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.host("jail/socket")).unwrap();
    for name in ["fifo", "socket"] {
        assert_eq!(errno(tree.root.open_read(&v(name))), Errno::INVAL, "{name}");
        assert_eq!(errno(tree.root.open_write(&v(name))), Errno::INVAL);
        assert_eq!(errno(tree.root.open_existing(&v(name))), Errno::INVAL);
        assert_eq!(tree.root.stat(&v(name)).unwrap().kind, EntryKind::Other);
    }
    assert_eq!(errno(tree.root.open_read(&v("dir"))), Errno::ISDIR);
    assert_eq!(errno(tree.root.open_write(&v("/"))), Errno::ISDIR);
    let devices = Root::open(Path::new("/dev")).unwrap();
    assert_eq!(errno(devices.open_read(&v("zero"))), Errno::INVAL);
}

#[test]
fn opened_files_are_blocking() {
    let tree = JailTree::new();
    tree.file("f", "x");
    for file in [
        tree.root.open_read(&v("f")).unwrap(),
        tree.root.open_write(&v("f")).unwrap().file,
    ] {
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}

#[test]
fn opening_for_writing_keeps_the_content_and_reports_creation() {
    let tree = JailTree::new();
    tree.file("f", "12345");
    assert!(!tree.root.open_write(&v("f")).unwrap().created);
    assert_eq!(tree.read("f").unwrap(), "12345");
    assert!(tree.root.open_write(&v("new")).unwrap().created);
    assert!(!tree.root.open_write(&v("new")).unwrap().created);
    tree.link("target", "link");
    assert!(!tree.root.open_write(&v("link")).unwrap().created);
    assert_eq!(tree.read("target").unwrap(), "");
    assert_eq!(errno(tree.root.open_write(&v("no/f"))), Errno::NOENT);
    assert_eq!(errno(tree.root.open_existing(&v("none"))), Errno::NOENT);
}

#[test]
fn unique_names_never_overwrite() {
    let tree = JailTree::new();
    tree.file("f", "old");
    tree.link("nowhere", "f.1");
    let (_, path) = tree.root.open_unique(&v("f")).unwrap();
    assert_eq!(path, v("f.2"));
    let (_, path) = tree.root.open_unique(&v("new")).unwrap();
    assert_eq!(path, v("new"));
    let long = "x".repeat(255);
    tree.file(&long, "old");
    let (_, path) = tree.root.open_unique(&v(&long)).unwrap();
    assert_eq!(path.name().len(), 255);
    assert!(path.name().ends_with(b"x.1"));
    assert_eq!(tree.read("f").unwrap(), "old");
}

#[test]
fn entries_report_modes_times_and_owners() {
    let tree = JailTree::new();
    tree.file("f", "123");
    tree.root.chmod(&v("f"), 0o640).unwrap();
    tree.root
        .set_modified(&v("f"), Timestamp(1_000_000_000))
        .unwrap();
    let entry = tree.root.stat(&v("f")).unwrap();
    assert_eq!((entry.size, entry.mode, entry.link_count), (3, 0o640, 1));
    assert_eq!(entry.modified, Timestamp(1_000_000_000));
    assert!(entry.permissions.read && entry.permissions.write && !entry.permissions.execute);
    let own = rustix::process::getegid().as_raw().to_string();
    tree.root.chgrp(&v("f"), &own).unwrap();
    assert_eq!(
        errno(tree.root.chgrp(&v("f"), "no such group")),
        Errno::INVAL
    );
    assert_eq!(errno(tree.root.chgrp(&v("f"), "4294967295")), Errno::INVAL);
    assert_eq!(tree.root.stat(&v("/")).unwrap().kind, EntryKind::Dir);
}

#[test]
fn attribute_changes_follow_links() {
    let tree = JailTree::new();
    tree.file("f", "x");
    tree.link("f", "l");
    tree.root.chmod(&v("l"), 0o600).unwrap();
    assert_eq!(tree.root.stat(&v("f")).unwrap().mode, 0o600);
}

#[test]
fn the_root_itself_cannot_be_changed_by_any_name() {
    let tree = JailTree::new();
    tree.mkdir("d");
    tree.link("/", "up");
    tree.link("..", "d/up");
    let before = fs::metadata(tree.host("jail")).unwrap().mode();
    let own = rustix::process::getegid().as_raw().to_string();
    for name in ["/", ".", "d/..", "up", "d/up", "up/up/."] {
        let changed = tree.root.chmod(&v(name), 0o700);
        assert_eq!(errno(changed), Errno::PERM, "{name}");
        let changed = tree.root.chgrp(&v(name), &own);
        assert_eq!(errno(changed), Errno::PERM, "{name}");
        assert!(tree.root.remove_dir(&v(name)).is_err(), "{name}");
    }
    assert_eq!(errno(tree.root.remove_tree(&v("/"))), Errno::BUSY);
    assert_eq!(errno(tree.root.rename(&v("/"), &v("x"))), Errno::BUSY);
    let after = fs::metadata(tree.host("jail")).unwrap().mode();
    assert_eq!(before, after);
    tree.root.chmod(&v("d"), 0o700).unwrap();
}

#[test]
fn set_id_bits_are_refused() {
    let tree = JailTree::new();
    tree.file("f", "x");
    tree.mkdir("d");
    assert_eq!(errno(tree.root.chmod(&v("f"), 0o4755)), Errno::PERM);
    assert_eq!(errno(tree.root.chmod(&v("f"), 0o2755)), Errno::PERM);
    tree.root.chmod(&v("d"), 0o3775).unwrap();
    assert_eq!(tree.root.stat(&v("d")).unwrap().mode, 0o3775);
}

#[test]
fn directories_and_names_are_created_renamed_and_removed() {
    let tree = JailTree::new();
    tree.root.make_dir(&v("a")).unwrap();
    tree.root.enter(&v("a")).unwrap();
    assert_eq!(errno(tree.root.make_dir(&v("a"))), Errno::EXIST);
    assert_eq!(errno(tree.root.make_dir(&v("/"))), Errno::EXIST);
    assert_eq!(errno(tree.root.make_dir(&v("none/a"))), Errno::NOENT);
    tree.file("a/f", "x");
    assert_eq!(errno(tree.root.remove_dir(&v("a"))), Errno::NOTEMPTY);
    assert_eq!(errno(tree.root.delete(&v("a"))), Errno::ISDIR);
    assert_eq!(errno(tree.root.remove_dir(&v("a/f"))), Errno::NOTDIR);
    assert_eq!(errno(tree.root.enter(&v("a/f"))), Errno::NOTDIR);
    assert_eq!(errno(tree.root.enter(&v("b"))), Errno::NOENT);
    tree.root.rename(&v("a/f"), &v("g")).unwrap();
    assert_eq!(errno(tree.root.rename(&v("/"), &v("b"))), Errno::BUSY);
    assert_eq!(errno(tree.root.rename(&v("g"), &v("/"))), Errno::BUSY);
    let missing = tree.root.rename(&v("g"), &v("none/g")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "cannot rename /none/g: No such file or directory"
    );
    tree.root.remove_dir(&v("a")).unwrap();
    tree.root.symlink(b"../\xff", &v("l")).unwrap();
    assert_eq!(
        fs::read_link(tree.host("jail/l"))
            .unwrap()
            .as_os_str()
            .len(),
        4
    );
    tree.root.delete(&v("g")).unwrap();
    assert_eq!(tree.names("/"), ["l"]);
    tree.root.delete(&v("l")).unwrap();
    assert!(
        tree.names("/").is_empty(),
        "a dangling link is deleted like a file"
    );
    assert_eq!(errno(tree.root.remove_dir(&v("/"))), Errno::BUSY);
}

#[test]
fn the_identity_detects_changes_of_content() {
    let tree = JailTree::new();
    tree.file("f", "123");
    let before = tree.root.identity(&v("f")).unwrap();
    assert_eq!(
        FileIdentity::of(tree.root.open_read(&v("f")).unwrap()).unwrap(),
        before
    );
    while !before.detects_changes_since(file_clock()) {
        std::thread::yield_now();
    }
    tree.file("f", "456");
    let after = tree.root.identity(&v("f")).unwrap();
    assert_ne!(before, after);
    assert_eq!((before.inode, before.size), (after.inode, after.size));
}

#[test]
fn the_kernel_checks_permissions() {
    if is_superuser() {
        return; // nothing is denied to root
    }
    let tree = JailTree::new();
    tree.mkdir("closed");
    tree.file("closed/f", "x");
    tree.file("unreadable", "x");
    let set = |path: &str, mode| {
        fs::set_permissions(
            tree.host("jail").join(path),
            fs::Permissions::from_mode(mode),
        )
        .unwrap();
    };
    set("closed", 0o000);
    set("unreadable", 0o000);
    for result in [
        tree.root.open_read(&v("unreadable")).map(drop),
        tree.root.open_read(&v("closed/f")).map(drop),
        tree.root.enter(&v("closed")),
        tree.root.remove_tree(&v("closed")),
    ] {
        assert_eq!(result.unwrap_err().kind(), FileErrorKind::Denied);
    }
    assert_eq!(tree.walk("/"), [".", "closed", "unreadable"]);
    set("closed", 0o700);
}

#[test]
fn free_space_is_reported_for_the_file_system() {
    let tree = JailTree::new();
    assert!(tree.root.free_space(&v("not/there")).is_err());
    assert!(tree.root.free_space(&v("not-there")).unwrap() > 0);
}

#[test]
fn a_root_must_be_a_directory() {
    let tree = JailTree::new();
    let error = Root::open(&tree.host("secret")).unwrap_err();
    assert!(matches!(error, RootError::Open { .. }));
    assert!(error.to_string().contains("Not a directory"), "{error}");
    assert!(tree.root.host_path().is_absolute());
    assert!(tree.root.host_path().ends_with("jail"));
}
