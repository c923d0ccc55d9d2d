//! Entries, patterns and trees.

use proto::pattern::GlobPattern;

use super::*;

#[test]
fn any_bytes_are_valid_in_a_name() {
    let tree = JailTree::new();
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
        tree.root.open_write(&path).unwrap();
        assert_eq!(tree.root.stat(&path).unwrap().name, name);
    }
    let mut expected: Vec<&[u8]> = names.to_vec();
    expected.sort_unstable();
    let listed = tree.entries("/");
    let listed: Vec<&[u8]> = listed.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(listed, expected);
}

#[test]
fn listings_follow_links_and_report_dangling_ones() {
    let tree = JailTree::new();
    tree.file("file", "12345");
    tree.mkdir("sub");
    tree.link("file", "link");
    tree.link("/sub", "sublink");
    tree.link("nowhere", "dangling");
    tree.link(tree.host("secret"), "outward");
    let entries = tree.entries("/");
    let reported: Vec<(&str, EntryKind, Option<&[u8]>)> = entries
        .iter()
        .map(|entry| {
            let name = std::str::from_utf8(&entry.name).unwrap();
            (name, entry.kind, entry.link_target.as_deref())
        })
        .collect();
    let secret = tree.host("secret");
    let secret = std::os::unix::ffi::OsStrExt::as_bytes(secret.as_os_str());
    assert_eq!(
        reported,
        [
            ("dangling", EntryKind::SymLink, Some(b"nowhere".as_slice())),
            ("file", EntryKind::File, None),
            ("link", EntryKind::File, Some(b"file".as_slice())),
            ("outward", EntryKind::SymLink, Some(secret)),
            ("sub", EntryKind::Dir, None),
            ("sublink", EntryKind::Dir, Some(b"/sub".as_slice())),
        ]
    );
    assert_eq!((entries[1].size, entries[2].size), (5, 5));
    assert_eq!(entries[1].device_and_inode, entries[2].device_and_inode);
    assert_eq!(
        entries[3].permissions,
        proto::listing::EntryPermissions::default()
    );
    assert_eq!(tree.names("file"), ["file"]);
    assert_eq!(tree.root.count(&v("/")).unwrap(), 8);
    assert_eq!(tree.names("dangling"), ["dangling"]);
    assert_eq!(errno(tree.root.stat(&v("none"))), Errno::NOENT);
    assert_eq!(
        errno(
            tree.root
                .list(&v("none"), None, &mut |_| ControlFlow::Continue(()))
        ),
        Errno::NOENT
    );
    tree.root.delete(&v("dangling")).unwrap();
    tree.root.delete(&v("sublink")).unwrap();
    assert_eq!(tree.names("/"), ["file", "link", "outward", "sub"]);
}

#[test]
fn a_pattern_selects_entries_and_a_visitor_can_stop() {
    let tree = JailTree::new();
    for name in ["a.dat", "b.dat", "c.txt", ".hidden.dat"] {
        tree.file(name, "");
    }
    let mut names = Vec::new();
    let pattern = GlobPattern::new(b"*.dat");
    let mut visit = |entry: DirectoryEntry| {
        names.push(entry.name);
        ControlFlow::Continue(())
    };
    tree.root.list(&v("/"), Some(&pattern), &mut visit).unwrap();
    assert_eq!(names, [b"a.dat", b"b.dat"]);
    let mut visited = 0;
    let mut stop = |_| {
        visited += 1;
        ControlFlow::Break(())
    };
    tree.root.list(&v("/"), None, &mut stop).unwrap();
    tree.root.walk(&v("/"), &mut stop).unwrap();
    assert_eq!(visited, 2);
    let result = tree.root.list(&v("a.dat"), Some(&pattern), &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(errno(result), Errno::NOTDIR);
}

#[test]
fn walks_do_not_follow_links() {
    let tree = JailTree::new();
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
fn the_depth_of_recursion_is_limited() {
    let tree = JailTree::new();
    let deep = |levels: usize| vec!["d"; levels].join("/");
    tree.mkdir(&deep(MAX_DEPTH));
    assert!(tree.root.remove_tree(&v("d")).is_ok());
    tree.mkdir(&deep(MAX_DEPTH + 1));
    assert_eq!(errno(tree.root.remove_tree(&v("d"))), Errno::NAMETOOLONG);
    let walked = tree.root.walk(&v("/"), &mut |_| ControlFlow::Continue(()));
    assert_eq!(errno(walked), Errno::NAMETOOLONG);
}
