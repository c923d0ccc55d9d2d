use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

use proto::listing::{Entry, Kind};
use proto::server::FileErrorKind;
use proto::timestamp::Timestamp;
use std::ops::ControlFlow;
use tempfile::TempDir;

use super::*;
use proto::path::VPath;

/// A root with a secret beside it.
struct Tree {
    dir: TempDir,
    root: Root,
}

impl Tree {
    /// `jail/` is the root; `secret` and `outside/` are what no session may reach.
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

    fn entries(&self, path: &str) -> Vec<Entry> {
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
        let mut visit = |entry: Entry| {
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
fn links_cannot_leave_the_root() {
    let tree = Tree::new();
    tree.link(tree.host("secret"), "absolute");
    tree.link("../secret", "relative");
    tree.link("../../../../../../../../etc/passwd", "climbing");
    tree.link("../outside", "dir");
    tree.link("/", "top");
    tree.file("secret", "public");
    for name in [
        "absolute",
        "climbing",
        "dir/file",
        "top/../outside/file",
        "dir",
    ] {
        assert_eq!(errno(tree.root.open_read(&v(name))), Errno::NOENT, "{name}");
        assert_eq!(errno(tree.root.stat(&v(name))), Errno::NOENT, "{name}");
    }
    // `..` at the top stays at the top: this is the root's own file of that name.
    assert_eq!(tree.read("relative").unwrap(), "public");
    assert_eq!(tree.read("top/secret").unwrap(), "public");
}

#[test]
fn changes_through_links_cannot_leave_the_root() {
    let tree = Tree::new();
    tree.link(tree.host("secret"), "file");
    tree.link(tree.host("outside"), "dir");
    let before = fs::metadata(tree.host("secret")).unwrap();
    assert!(tree.root.chmod(&v("file"), 0o777).is_err());
    assert!(tree.root.set_modified(&v("file"), Timestamp(0)).is_err());
    assert!(tree.root.truncate(&v("file"), 0).is_err());
    assert!(tree.root.chgrp(&v("file"), "0").is_err());
    assert!(tree.root.make_dir(&v("dir/new")).is_err());
    assert!(tree.root.delete(&v("dir/file")).is_err());
    assert!(tree.root.remove_tree(&v("dir/file")).is_err());
    assert!(tree.root.symlink(b"x", &v("dir/new")).is_err());
    assert!(
        tree.root
            .open_write(&v("dir/new"), WriteMode::Keep)
            .is_err()
    );
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
fn storing_through_a_dangling_link_creates_inside() {
    let tree = Tree::new();
    tree.link(tree.host("new"), "link");
    tree.link("/inside", "other");
    assert!(tree.root.open_write(&v("link"), WriteMode::Keep).is_err());
    let mut file = tree.root.open_write(&v("other"), WriteMode::Keep).unwrap();
    file.write_all(b"here").unwrap();
    assert!(!tree.host("new").exists());
    assert_eq!(tree.read("inside").unwrap(), "here");
}

#[test]
fn removing_and_renaming_links_spares_their_targets() {
    let tree = Tree::new();
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
    let tree = Tree::new();
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

/// A directory is swapped with a link to the outside over and over while files in it are used.
#[test]
fn a_swapped_directory_never_leads_out() {
    let tree = Tree::new();
    tree.mkdir("dir");
    tree.file("dir/file", "inside");
    tree.link(tree.host("outside"), "link");
    let jail = tree.host("jail");
    let end = Instant::now() + Duration::from_millis(200);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while Instant::now() < end {
                let (a, b) = (jail.join("dir"), jail.join("link"));
                rustix::fs::renameat_with(CWD, &a, CWD, &b, exchange).unwrap();
            }
        });
        let mut reached = 0;
        while Instant::now() < end {
            if let Ok(text) = tree.read("dir/file") {
                assert_eq!(text, "inside");
                reached += 1;
            }
            let _ = tree.root.chmod(&v("dir/file"), 0o600);
            let _ = tree.root.open_write(&v("dir/new"), WriteMode::Truncate);
            let _ = tree.root.delete(&v("dir/new"));
        }
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
    assert_eq!(error.kind(), FileErrorKind::Escapes, "{error}");
}

#[test]
fn link_loops_are_told() {
    let tree = Tree::new();
    tree.link("b", "a");
    tree.link("a", "b");
    let error = tree.root.open_read(&v("a")).unwrap_err();
    assert_eq!(error.kind(), FileErrorKind::Escapes);
    assert!(error.to_string().contains("symbolic links"), "{error}");
    assert!(tree.names("/").is_empty());
}

#[test]
fn any_name_works() {
    let tree = Tree::new();
    let long = [b'x'; 255];
    let names: [&[u8]; 6] = [
        b"a b",
        "grüße".as_bytes(),
        b"\xff\xfe",
        b"a\nb",
        b" ",
        &long,
    ];
    for name in names {
        let path = VPath::root().join(name).unwrap();
        tree.root.open_write(&path, WriteMode::Truncate).unwrap();
        assert_eq!(tree.root.stat(&path).unwrap().name, name);
    }
    let mut expected: Vec<&[u8]> = names.to_vec();
    expected.sort_unstable();
    let listed = tree.entries("/");
    let listed: Vec<&[u8]> = listed.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(listed, expected);
}

#[test]
fn what_is_not_a_file_is_not_opened() {
    let tree = Tree::new();
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
        assert_eq!(
            errno(tree.root.open_write(&v(name), WriteMode::Keep)),
            Errno::INVAL
        );
        assert_eq!(tree.root.stat(&v(name)).unwrap().kind, Kind::Other);
    }
    assert_eq!(errno(tree.root.open_read(&v("dir"))), Errno::ISDIR);
    assert_eq!(
        errno(tree.root.open_write(&v("/"), WriteMode::Keep)),
        Errno::ISDIR
    );
    let devices = Root::open(Path::new("/dev")).unwrap();
    assert_eq!(errno(devices.open_read(&v("zero"))), Errno::INVAL);
}

#[test]
fn opened_files_may_block() {
    let tree = Tree::new();
    tree.file("f", "x");
    for file in [
        tree.root.open_read(&v("f")).unwrap(),
        tree.root.open_write(&v("f"), WriteMode::Keep).unwrap(),
    ] {
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}

#[test]
fn write_modes_keep_or_cut() {
    let tree = Tree::new();
    tree.file("f", "12345");
    tree.root.open_write(&v("f"), WriteMode::Keep).unwrap();
    assert_eq!(tree.read("f").unwrap(), "12345");
    tree.root.truncate(&v("f"), 2).unwrap();
    assert_eq!(tree.read("f").unwrap(), "12");
    tree.root.open_write(&v("f"), WriteMode::Truncate).unwrap();
    assert_eq!(tree.read("f").unwrap(), "");
    assert_eq!(errno(tree.root.truncate(&v("none"), 2)), Errno::NOENT);
}

#[test]
fn unique_names_never_overwrite() {
    let tree = Tree::new();
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
fn listings_follow_links_and_leave_out_dangling_ones() {
    let tree = Tree::new();
    tree.file("file", "12345");
    tree.mkdir("sub");
    tree.link("file", "link");
    tree.link("/sub", "sublink");
    tree.link("nowhere", "dangling");
    tree.link(tree.host("secret"), "outward");
    let entries = tree.entries("/");
    let told: Vec<(&str, Kind, Option<&[u8]>)> = entries
        .iter()
        .map(|entry| {
            let name = std::str::from_utf8(&entry.name).unwrap();
            (name, entry.kind, entry.link_target.as_deref())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("file", Kind::File, None),
            ("link", Kind::File, Some(b"file".as_slice())),
            ("sub", Kind::Dir, None),
            ("sublink", Kind::Dir, Some(b"/sub".as_slice())),
        ]
    );
    assert_eq!((entries[0].size, entries[1].size), (5, 5));
    assert_eq!(entries[0].unique, entries[1].unique);
    assert_eq!(tree.names("file"), ["file"]);
    assert_eq!(tree.root.count(&v("/")).unwrap(), 8);
    assert_eq!(errno(tree.root.stat(&v("dangling"))), Errno::NOENT);
}

#[test]
fn patterns_choose_and_visitors_stop() {
    let tree = Tree::new();
    for name in ["a.dat", "b.dat", "c.txt", ".hidden.dat"] {
        tree.file(name, "");
    }
    let mut names = Vec::new();
    let pattern = Pattern::new(b"*.dat");
    let mut visit = |entry: Entry| {
        names.push(entry.name);
        ControlFlow::Continue(())
    };
    tree.root.list(&v("/"), Some(&pattern), &mut visit).unwrap();
    assert_eq!(names, [b"a.dat", b"b.dat"]);
    let mut seen = 0;
    let mut stop = |_| {
        seen += 1;
        ControlFlow::Break(())
    };
    tree.root.list(&v("/"), None, &mut stop).unwrap();
    tree.root.walk(&v("/"), &mut stop).unwrap();
    assert_eq!(seen, 2);
    let result = tree.root.list(&v("a.dat"), Some(&pattern), &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(errno(result), Errno::NOTDIR);
}

#[test]
fn walks_do_not_follow_links() {
    let tree = Tree::new();
    tree.mkdir("top/deep/er");
    tree.file("top/deep/er/x", "");
    tree.file("top/s1", "");
    tree.link("..", "top/deep/loop");
    assert_eq!(
        tree.walk("top"),
        [".", "deep", "deep/er", "deep/er/x", "deep/loop", "s1"]
    );
    assert_eq!(tree.walk("top/s1"), ["s1"]);
}

#[test]
fn depth_is_bounded() {
    let tree = Tree::new();
    let deep = |levels: usize| vec!["d"; levels].join("/");
    tree.mkdir(&deep(MAX_DEPTH));
    assert!(tree.root.remove_tree(&v("d")).is_ok());
    tree.mkdir(&deep(MAX_DEPTH + 1));
    assert_eq!(errno(tree.root.remove_tree(&v("d"))), Errno::NAMETOOLONG);
    let walked = tree.root.walk(&v("/"), &mut |_| ControlFlow::Continue(()));
    assert_eq!(errno(walked), Errno::NAMETOOLONG);
}

#[test]
fn entries_tell_modes_times_and_owners() {
    let tree = Tree::new();
    tree.file("f", "123");
    tree.root.chmod(&v("f"), 0o640).unwrap();
    tree.root
        .set_modified(&v("f"), Timestamp(1_000_000_000))
        .unwrap();
    let entry = tree.root.stat(&v("f")).unwrap();
    assert_eq!((entry.size, entry.mode, entry.links), (3, 0o640, 1));
    assert_eq!(entry.modified, Timestamp(1_000_000_000));
    assert!(entry.access.read && entry.access.write && !entry.access.execute);
    let own = rustix::process::getegid().as_raw().to_string();
    tree.root.chgrp(&v("f"), &own).unwrap();
    assert_eq!(
        errno(tree.root.chgrp(&v("f"), "no such group")),
        Errno::INVAL
    );
    assert_eq!(errno(tree.root.chgrp(&v("f"), "4294967295")), Errno::INVAL);
    assert_eq!(tree.root.stat(&v("/")).unwrap().kind, Kind::Dir);
}

#[test]
fn links_are_changed_at_their_target() {
    let tree = Tree::new();
    tree.file("f", "x");
    tree.link("f", "l");
    tree.root.chmod(&v("l"), 0o600).unwrap();
    assert_eq!(tree.root.stat(&v("f")).unwrap().mode, 0o600);
}

#[test]
fn set_id_bits_are_refused() {
    let tree = Tree::new();
    tree.file("f", "x");
    tree.mkdir("d");
    assert_eq!(errno(tree.root.chmod(&v("f"), 0o4755)), Errno::PERM);
    assert_eq!(errno(tree.root.chmod(&v("f"), 0o2755)), Errno::PERM);
    tree.root.chmod(&v("d"), 0o3775).unwrap();
    assert_eq!(tree.root.stat(&v("d")).unwrap().mode, 0o3775);
}

#[test]
fn names_are_changed() {
    let tree = Tree::new();
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
    assert!(tree.names("/").is_empty(), "the dangling link is left out");
    assert_eq!(errno(tree.root.remove_dir(&v("/"))), Errno::BUSY);
}

#[test]
fn identity_tells_changes_of_content() {
    let tree = Tree::new();
    tree.file("f", "123");
    let before = tree.root.identity(&v("f")).unwrap();
    assert_eq!(
        Identity::of(&tree.root.open_read(&v("f")).unwrap()).unwrap(),
        before
    );
    std::thread::sleep(Duration::from_millis(20));
    tree.file("f", "456");
    let after = tree.root.identity(&v("f")).unwrap();
    assert_ne!(before, after);
    assert_eq!((before.inode, before.size), (after.inode, after.size));
}

#[test]
fn permissions_are_the_kernels() {
    if is_superuser() {
        return; // nothing is denied to root
    }
    let tree = Tree::new();
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
fn free_space_is_that_of_the_file_system() {
    let tree = Tree::new();
    assert!(tree.root.free_space(&v("not/there")).is_err());
    assert!(tree.root.free_space(&v("not-there")).unwrap() > 0);
}

#[test]
fn a_root_must_be_a_directory() {
    let tree = Tree::new();
    let error = Root::open(&tree.host("secret")).unwrap_err();
    assert!(matches!(error, RootError::Open { .. }));
    assert!(error.to_string().contains("Not a directory"), "{error}");
    assert_eq!(tree.root.host_path(), tree.host("jail"));
}
