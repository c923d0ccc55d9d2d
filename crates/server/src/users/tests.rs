use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::test_pipe::make_pipe;

fn account(name: &str) -> UserAccount {
    UserAccount {
        name: name.to_owned(),
        root: None,
        rights: AccountRights {
            write: true,
            third_party: false,
        },
        home: VPath::root(),
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_pipe_is_no_users_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    make_pipe(&path);
    let error = Users::load(&path).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn added_users_can_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"sesam").unwrap();
    assert_eq!(mode(&path), 0o600);
    let users = Users::load(&path).unwrap();
    assert_eq!(users.verify("ann", b"sesam"), Some(account("ann")));
    assert_eq!(users.verify("ann", b"Sesam"), None);
    assert_eq!(users.verify("ann", b""), None);
    assert_eq!(users.verify("bob", b"sesam"), None);
    assert_eq!(users.verify("", b""), None);
}

#[test]
fn changes_of_the_file_are_noticed_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"one").unwrap();
    let users = Users::load(&path).unwrap();
    let new_password = AccountChange {
        password: Some(b"two".to_vec()),
        ..AccountChange::default()
    };
    assert!(change(&path, "ann", &new_password).unwrap());
    assert_eq!(users.verify("ann", b"one"), None);
    assert!(users.verify("ann", b"two").is_some());
    write(&path, "nonsense\n");
    assert!(
        users.verify("ann", b"two").is_some(),
        "the last good file holds"
    );
    write(&path, "");
    assert_eq!(users.verify("ann", b"two"), None);
}

#[test]
fn a_change_leaves_what_it_does_not_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    let mut ann = account("ann");
    ann.root = Some("/srv/ann".into());
    write(&path, "# staff\n");
    add(&path, &ann, b"one").unwrap();
    add(&path, &account("bob"), b"two").unwrap();
    let before = std::fs::read_to_string(&path).unwrap();
    let error = add(&path, &account("ann"), b"three").unwrap_err();
    assert!(matches!(error, UsersError::Taken { .. }), "{error}");
    let error = add(&path, &account("Anonymous"), b"three").unwrap_err();
    assert!(matches!(error, UsersError::Anonymous { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let read_only = AccountChange {
        write: Some(false),
        ..AccountChange::default()
    };
    assert!(change(&path, "ann", &read_only).unwrap());
    ann.rights.write = false;
    assert_eq!(list(&path).unwrap(), [ann.clone(), account("bob")]);
    let users = Users::load(&path).unwrap();
    assert_eq!(users.verify("ann", b"one"), Some(ann.clone()));
    let to_the_servers_root = AccountChange {
        root: Some(None),
        home: Some(VPath::root().resolve(b"in").unwrap()),
        third_party: Some(true),
        ..AccountChange::default()
    };
    assert!(change(&path, "ann", &to_the_servers_root).unwrap());
    let changed = list(&path).unwrap().remove(0);
    assert_eq!((changed.root, changed.home.as_bytes()), (None, &b"/in"[..]));
    assert!(changed.rights.third_party && !changed.rights.write);
    assert!(!change(&path, "eve", &read_only).unwrap());
}

#[test]
fn a_changed_file_keeps_its_owner() {
    const OTHER: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"one").unwrap();
    if std::os::unix::fs::chown(&path, Some(OTHER), Some(OTHER)).is_err() {
        return; // only root may change the owner of a file
    }
    add(&path, &account("bob"), b"two").unwrap();
    let meta = path.metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid()), (OTHER, OTHER));
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn other_lines_of_the_file_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    write(&path, "# staff\n\n");
    add(&path, &account("ann"), b"1").unwrap();
    add(&path, &account("anna"), b"2").unwrap();
    let names =
        |path: &Path| -> Vec<String> { list(path).unwrap().into_iter().map(|a| a.name).collect() };
    assert_eq!(names(&path), ["ann", "anna"]);
    assert!(remove(&path, "ann").unwrap());
    assert!(!remove(&path, "ann").unwrap());
    assert_eq!(names(&path), ["anna"]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# staff\n\nanna:$argon2id$"), "{text}");
    assert!(!dir.path().join("users.new").exists());
}

#[test]
fn files_that_others_may_access_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"1").unwrap();
    for bits in [0o640, 0o604, 0o620] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).unwrap();
        let error = Users::load(&path).unwrap_err();
        assert!(matches!(error, UsersError::Exposed { .. }), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}

#[test]
fn only_one_change_runs_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    let other = file::UsersFileChange::begin(&path).unwrap();
    let error = add(&path, &account("ann"), b"1").unwrap_err();
    assert!(matches!(error, UsersError::Busy { .. }), "{error}");
    drop(other);
    add(&path, &account("ann"), b"1").unwrap();
}

#[test]
fn errors_name_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"1").unwrap();
    let line = std::fs::read_to_string(&path).unwrap();
    write(&path, &format!("{line}{line}"));
    let error = Users::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("twice"),
        "{error}"
    );
    let mut bad = account("a:b");
    assert!(add(&path, &bad, b"1").is_err());
    bad = account("x");
    bad.root = Some("/srv\nroot:x".into());
    assert!(add(&path, &bad, b"1").is_err());
}

#[test]
fn checking_unknown_users_takes_as_long_as_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    add(&path, &account("ann"), b"1").unwrap();
    let users = Users::load(&path).unwrap();
    let fastest = |user: &str| {
        (0..5)
            .map(|_| {
                let start = std::time::Instant::now();
                users.verify(user, b"wrong");
                start.elapsed()
            })
            .min()
            .unwrap()
    };
    // A busy machine may delay one kind of check once, but not every time.
    let alike = (0..10).any(|_| {
        let (known, unknown) = (fastest("ann"), fastest("nobody"));
        known < unknown * 3 && unknown < known * 3
    });
    assert!(alike);
}
