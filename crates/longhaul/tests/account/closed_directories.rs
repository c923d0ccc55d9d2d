//! Directories that the kernel closes or opens to the account, whatever their permission bits say: a listing shows which of
//! them it does not contain.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};

use crate::harness::{NOBODY, NobodysServer, root_for_nobody};

/// Sets an access control list by which `nobody` has the rights `bits` (acl(5); the form is that of Linux's
/// `posix_acl_xattr.h`).
fn set_acl(directory: &Path, bits: u16) {
    const NO_ID: u32 = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    // Owner, the account, group, mask, others.
    for (tag, bits, id) in [
        (1_u16, 7_u16, NO_ID),
        (2, bits, NOBODY),
        (4, 5, NO_ID),
        (16, 7, NO_ID),
        (32, 5, NO_ID),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    setxattr(directory, name, &list, XattrFlags::empty()).unwrap();
}

/// The `Perm` fact in the line of a name.
fn permissions(lines: &[String], name: &str) -> String {
    let line = lines
        .iter()
        .find(|line| line.ends_with(&format!("; {name}")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {lines:?}"));
    let (_, fact) = line.split_once("Perm=").unwrap();
    fact.split(';').next().unwrap().to_owned()
}

#[test]
fn a_tree_shows_which_directories_it_does_not_contain() {
    let Some((_place, root)) = root_for_nobody() else {
        return;
    };
    for name in ["closed", "unsearchable", "open", "private"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("f"), b"content").unwrap();
    }
    set_acl(&root.join("closed"), 0);
    set_acl(&root.join("unsearchable"), 4);
    set_acl(&root.join("open"), 5);
    fs::set_permissions(root.join("private"), Permissions::from_mode(0o700)).unwrap();
    let server = NobodysServer::start(&root, &[]);
    let mut session = server.session();
    let (tree, end) = session.list("MLSR");
    assert!(end.starts_with("226"), "{end}");
    for (name, letters) in [
        ("closed", "e"),
        ("unsearchable", "e"),
        ("private", ""),
        ("open", "el"),
    ] {
        let shown = permissions(&tree, name);
        assert_eq!(
            shown.contains('l'),
            letters.contains('l'),
            "{name}: {shown}"
        );
        let (alone, end) = session.list(&format!("MLSD {name}"));
        assert_eq!(
            end.starts_with("226"),
            letters.contains('l'),
            "{name}: {end}"
        );
        assert_eq!(alone.is_empty(), !letters.contains('l'), "{alone:?}");
        let (_, end) = session.list(&format!("MLSR {name}"));
        assert_eq!(
            end.starts_with("226"),
            letters.contains('l'),
            "{name}: {end}"
        );
    }
    assert!(permissions(&tree, "open/f").contains('r'));
    // Without the fact nothing would show that something is missing.
    assert!(session.ask("OPTS MLST type;size;").starts_with("200"));
    let (_, end) = session.list("MLSR");
    assert!(end.starts_with("550"), "{end}");
    let (_, end) = session.list("MLSR open");
    assert!(end.starts_with("226"), "{end}");
}

#[test]
fn a_directory_that_an_access_control_list_opens_is_listed() {
    let Some((_place, root)) = root_for_nobody() else {
        return;
    };
    let directory = root.join("shared");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("f"), b"content").unwrap();
    set_acl(&directory, 5);
    fs::set_permissions(&directory, Permissions::from_mode(0o770)).unwrap();
    let server = NobodysServer::start(&root, &[]);
    let mut session = server.session();
    for command in ["MLSD shared", "MLSR shared"] {
        let (lines, end) = session.list(command);
        assert!(end.starts_with("226"), "{end}");
        assert_eq!(permissions(&lines, "."), "el", "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with("; f")), "{lines:?}");
    }
}
