//! Modes and owners of what sessions create.

use super::*;
use crate::store::root::CreationRules;

/// Permission bits of a file on the host.
fn mode_of(tree: &JailTree, path: &str) -> u32 {
    fs::metadata(tree.host("jail").join(path)).unwrap().mode() & 0o7777
}

#[test]
fn modes_of_new_files_and_directories_are_exact() {
    let tree = JailTree::new();
    let rules = CreationRules {
        file_mode: Some(0o666),
        directory_mode: Some(0o733),
        owner: None,
    };
    let root = tree.root.with_creation_rules(rules);
    // The umask of the process takes bits away from both, as long as it is the usual one.
    root.open_write(&v("stored")).unwrap();
    root.open_new(&v("new")).unwrap();
    let (_, unique) = root.open_unique(&v("stored")).unwrap();
    root.make_dir(&v("made")).unwrap();
    let directory = root.open_parent(&v("named")).unwrap();
    root.open_new_in(&directory, &v("named"), b"partial")
        .unwrap();
    for name in ["stored", "new", "partial", &unique.to_string()[1..]] {
        assert_eq!(mode_of(&tree, name), 0o666, "{name}");
    }
    assert_eq!(mode_of(&tree, "made"), 0o733);
}

#[test]
fn the_mode_of_a_file_that_exists_stays() {
    let tree = JailTree::new();
    fs::write(tree.host("jail/old"), "x").unwrap();
    fs::set_permissions(tree.host("jail/old"), fs::Permissions::from_mode(0o600)).unwrap();
    let rules = CreationRules {
        file_mode: Some(0o644),
        ..CreationRules::default()
    };
    let root = tree.root.with_creation_rules(rules);
    root.open_write(&v("old")).unwrap();
    assert_eq!(mode_of(&tree, "old"), 0o600);
}

#[test]
fn a_directory_keeps_the_set_group_id_bit_of_its_parent() {
    let tree = JailTree::new();
    let rules = CreationRules {
        directory_mode: Some(0o750),
        ..CreationRules::default()
    };
    fs::create_dir(tree.host("jail/shared")).unwrap();
    fs::set_permissions(tree.host("jail/shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    let root = tree.root.with_creation_rules(rules);
    root.make_dir(&v("shared/below")).unwrap();
    assert_eq!(mode_of(&tree, "shared/below"), 0o2750);
}

#[test]
fn new_files_and_directories_get_their_owner() {
    let tree = JailTree::new();
    let me = fs::metadata(tree.host("jail")).unwrap();
    // Others than root can only give files to themselves.
    let owner = match me.uid() {
        0 => (4321, 4322),
        user => (user, me.gid()),
    };
    let rules = CreationRules {
        owner: Some(owner),
        ..CreationRules::default()
    };
    let root = tree.root.with_creation_rules(rules);
    root.open_write(&v("stored")).unwrap();
    root.make_dir(&v("made")).unwrap();
    for name in ["stored", "made"] {
        let meta = fs::metadata(tree.host("jail").join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), owner, "{name}");
    }
}

#[test]
fn a_file_that_cannot_get_its_owner_is_not_left() {
    let tree = JailTree::new();
    if fs::metadata(tree.host("jail")).unwrap().uid() == 0 {
        return; // root can give files to anybody
    }
    let rules = CreationRules {
        owner: Some((0, 0)),
        ..CreationRules::default()
    };
    let root = tree.root.with_creation_rules(rules);
    assert_eq!(root.open_new(&v("f")).unwrap_err().errno, Errno::PERM);
    assert_eq!(root.make_dir(&v("d")).unwrap_err().errno, Errno::PERM);
    assert!(!tree.host("jail/f").exists() && !tree.host("d").exists());
}
