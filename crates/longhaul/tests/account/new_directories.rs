//! Modes of directories that clients make, with settings about modes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::harness::{NOBODY, NobodysServer, root_for_nobody};

/// A group of which nobody is a member.
const FOREIGN_GROUP: u32 = 4321;

#[test]
fn a_directory_stays_with_the_group_of_the_one_it_is_made_in() {
    let Some((_place, shared)) = root_for_nobody() else {
        return;
    };
    chown(&shared, Some(NOBODY), Some(FOREIGN_GROUP)).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2770)).unwrap();
    let server = NobodysServer::start(&shared, &["--umask", "007"]);
    let mut session = server.session();
    assert!(session.ask("MKD a").starts_with("257"));
    assert!(session.ask("MKD a/b").starts_with("257"));
    for name in ["a", "a/b"] {
        let made = fs::metadata(shared.join(name)).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o2770, "{name}");
        assert_eq!(made.gid(), FOREIGN_GROUP, "{name}");
    }
}
