//! Files of an open directory.

use super::*;
use crate::store::naming::{FileNode, NamingError};

#[test]
fn only_regular_files_of_a_directory_are_opened_and_links_lead_nowhere_else() {
    let tree = JailTree::new();
    tree.mkdir("d");
    tree.file("d/file", "content");
    tree.file("other", "inside");
    tree.link("/other", "d/inside");
    tree.link("../../secret", "d/outside");
    tree.mkdir("d/directory");
    let fifo = tree.host("jail/d/fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
    rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).unwrap();
    let directory = tree.root.open_parent(&v("/d/file")).unwrap();
    let read = |name: &str| {
        let mut file = tree.root.open_read_in(&directory, &v(name))?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok::<_, StoreError>(text)
    };
    assert_eq!(read("/d/file").unwrap(), "content");
    assert_eq!(read("/d/inside").unwrap(), "inside");
    for name in ["/d/outside", "/d/directory", "/d/fifo", "/d/missing"] {
        assert!(read(name).is_err(), "{name}");
    }
}

#[test]
fn a_link_in_a_directory_is_not_followed_where_a_path_means_one_place() {
    let tree = JailTree::new();
    tree.mkdir("d");
    tree.file("other", "inside");
    tree.link("/other", "d/link");
    let root = tree.root.without_links().unwrap();
    let directory = root.open_parent(&v("/d/link")).unwrap();
    root.open_read_in(&directory, &v("/d/link")).unwrap_err();
}

#[test]
fn a_new_file_of_a_directory_gets_a_name_that_is_taken_only_if_it_may_replace() {
    let tree = JailTree::new();
    tree.mkdir("d");
    tree.file("d/taken", "old");
    let taken = v("/d/taken");
    let directory = tree.root.open_parent(&taken).unwrap();
    let create = || tree.root.open_new_in(&directory, &taken, b"new");
    let mut new = create().unwrap();
    new.write_all(b"new").unwrap();
    create().unwrap_err();
    let node = FileNode::of(&new).unwrap();
    let rename = |replaces| node.rename(&directory, b"new", taken.name(), replaces);
    assert_eq!(rename(false), Err(NamingError::System(Errno::EXIST)));
    let content = || fs::read_to_string(tree.host("jail/d/taken")).unwrap();
    assert_eq!(content(), "old");
    rename(true).unwrap();
    assert_eq!(content(), "new");
    assert!(!tree.host("jail/d/new").exists());
}
