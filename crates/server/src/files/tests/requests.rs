//! Requests that change files or query them.

use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn read_only_sessions_cannot_change_files() {
    let session = FilesFixture::with_rights(false);
    session.file("f", "old");
    let changes = [
        FileRequest::MakeDir(v("d")),
        FileRequest::RemoveDir(v("d")),
        FileRequest::Delete(v("f")),
        FileRequest::RemoveTree(v("f")),
        FileRequest::Rename {
            from: v("f"),
            to: v("g"),
        },
        FileRequest::SetModified(v("f"), Timestamp(0)),
        FileRequest::Chmod(v("f"), 0o777),
        FileRequest::Chgrp(v("f"), "0".to_owned()),
        FileRequest::Symlink {
            target: b"f".to_vec(),
            link: v("l"),
        },
        FileRequest::Truncate(v("f"), 0),
    ];
    for change in changes {
        let error = session.run(&change).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Denied, "{change:?}");
        assert!(error.text.contains("Permission denied"), "{}", error.text);
    }
    for disposition in [
        StoreDisposition::Truncate,
        StoreDisposition::Append,
        StoreDisposition::Unique,
    ] {
        let opened = session.open(
            store("f", disposition),
            TransferMode::Stream,
            DataType::Image,
        );
        assert_eq!(opened.unwrap_err().kind, FileErrorKind::Denied);
    }
    assert_eq!(session.content("f"), "old");
    let FileResponse::Entry(entry) = session.run(&FileRequest::Stat(v("f"))).unwrap() else {
        panic!("not an entry");
    };
    assert!(entry.permissions.read && !entry.permissions.write);
}

#[test]
fn requests_are_carried_out_in_the_root() {
    let session = FilesFixture::new();
    session.file("f", "12345");
    for request in [
        FileRequest::MakeDir(v("d")),
        FileRequest::ChangeDir(v("d")),
        FileRequest::Rename {
            from: v("f"),
            to: v("d/g"),
        },
        FileRequest::Truncate(v("d/g"), 3),
        FileRequest::Chmod(v("d/g"), 0o600),
        FileRequest::Symlink {
            target: b"d".to_vec(),
            link: v("l"),
        },
    ] {
        assert_eq!(session.run(&request), Ok(FileResponse::Done), "{request:?}");
    }
    let time = Timestamp(1_000_000_000);
    let set = session.run(&FileRequest::SetModified(v("d/g"), time));
    assert_eq!(set, Ok(FileResponse::Modified(time)));
    let FileResponse::Entry(entry) = session.run(&FileRequest::Stat(v("l/g"))).unwrap() else {
        panic!("not an entry");
    };
    assert_eq!(
        (entry.kind, entry.size, entry.mode),
        (EntryKind::File, 3, 0o600)
    );
    assert_eq!(entry.modified, time);
    for request in [
        FileRequest::Delete(v("l")),
        FileRequest::RemoveTree(v("d")),
        FileRequest::MakeDir(v("e")),
        FileRequest::RemoveDir(v("e")),
    ] {
        assert_eq!(session.run(&request), Ok(FileResponse::Done), "{request:?}");
    }
    let error = session.run(&FileRequest::Stat(v("d"))).unwrap_err();
    assert_eq!(
        (error.kind, error.errno),
        (FileErrorKind::NotFound, Some(2))
    );
    assert!(
        error.text.contains("No such file or directory"),
        "{}",
        error.text
    );
}

#[test]
fn of_names_with_spaces_the_target_that_exists_is_meant() {
    let session = FilesFixture::new();
    fs::create_dir(session.host("d")).unwrap();
    session.file("d/a b", "content");
    let meant = |target: &str, link: &str| (target.into(), v(link));
    let names = |link: &str| {
        FileRequest::SymlinkAmong(vec![
            meant("a", &format!("d/b {link}")),
            meant("a b", &format!("d/{link}")),
        ])
    };
    assert_eq!(session.run(&names("link one")), Ok(FileResponse::Done));
    let target = fs::read_link(session.host("d/link one")).unwrap();
    assert_eq!(target.to_str(), Some("a b"));
    let refused = |request: &FileRequest| session.run(request).unwrap_err().text;
    assert!(
        refused(&names("link one")).contains("SYMLINKFROM"),
        "it exists"
    );
    session.file("d/a", "too");
    assert!(
        refused(&names("link two")).contains("SYMLINKFROM"),
        "which one?"
    );
    let listed = session.lines(list("/d", ListFormat::Names));
    assert_eq!(listed, ["a", "a b", "link one"]);
}

#[test]
fn modification_times_before_1970_can_be_set() {
    let session = FilesFixture::new();
    let mut kind = store("f", StoreDisposition::Truncate);
    if let TransferKind::Store {
        modified: modify, ..
    } = &mut kind
    {
        *modify = Some(Timestamp(-1000));
    }
    session.store(kind, "x").unwrap();
    let modified = fs::metadata(session.host("f")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH - Duration::from_secs(1000));
}

#[test]
fn the_mode_of_the_root_cannot_be_changed() {
    let session = FilesFixture::new();
    std::os::unix::fs::symlink("/", session.host("up")).unwrap();
    for path in ["/", ".", "up", "up/up"] {
        let refused = session
            .run(&FileRequest::Chmod(v(path), 0o777))
            .unwrap_err();
        assert_eq!(refused.kind, FileErrorKind::Denied, "{path}");
    }
}

#[test]
fn a_time_that_the_file_system_cannot_keep_is_refused_and_not_confirmed() {
    let session = FilesFixture::new();
    session.file("f", "content");
    for seconds in [1_000_000_000, 5_000_000_000, 253_402_300_799] {
        let modified = || fs::metadata(session.host("f")).unwrap().mtime();
        let before = modified();
        match session.run(&FileRequest::SetModified(v("f"), Timestamp(seconds))) {
            Ok(FileResponse::Modified(kept)) => {
                assert_eq!(kept, Timestamp(modified()));
                assert!(kept.0.abs_diff(seconds) <= 2, "{seconds}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(error.text.contains("keep this time"), "{}", error.text);
                assert_eq!(modified(), before, "{seconds}");
            }
        }
    }
}

/// In /sys not even root may make files.
#[test]
fn what_the_servers_account_may_not_change_is_not_blamed_on_the_client() {
    let files = DirectoryFiles {
        root: Arc::new(Root::open(std::path::Path::new("/sys")).unwrap()),
        ..FilesFixture::new().files
    };
    let session = FilesFixture {
        files,
        ..FilesFixture::new()
    };
    let made = session.run(&FileRequest::MakeDir(v("kernel/d")));
    let opened = session.open(
        store("kernel/f", StoreDisposition::Truncate),
        TransferMode::Stream,
        DataType::Image,
    );
    for error in [made.unwrap_err(), opened.unwrap_err()] {
        assert_eq!(error.kind, FileErrorKind::Denied, "{error:?}");
        assert!(error.text.contains("administrator can change"), "{error:?}");
    }
}
