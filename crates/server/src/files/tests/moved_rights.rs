//! Sessions with the rights of a token: a new name gives no more rights than the old one.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use security::token::{PathScopes, TokenProfile};

use super::*;

const SCOPE: &str = "storage.create:/ storage.read:/pub storage.modify:/tmp storage.read:/dir/pub";

/// A tree with a file in every directory, whose content is its path, and a session with a token for it.
fn session(scope: &str) -> FilesFixture {
    let all = FilesFixture::new();
    for directory in ["secret/pub", "pub", "tmp", "dir/pub"] {
        fs::create_dir_all(all.host(directory)).unwrap();
        all.file(&format!("{directory}/x"), &format!("/{directory}/x"));
    }
    all.file("secret/x", "/secret/x");
    symlink("secret/x", all.host("link")).unwrap();
    let scopes = PathScopes::parse(TokenProfile::Wlcg, scope, b"/").unwrap();
    let later = SystemTime::now() + Duration::from_secs(3600);
    FilesFixture {
        files: all
            .files
            .clone()
            .with_path_rights(PathRights::of_token(scopes, later))
            .unwrap(),
        ..all
    }
}

fn rename(from: &str, to: &str) -> FileRequest {
    FileRequest::Rename {
        from: v(from),
        to: v(to),
    }
}

fn link(target: &str, link: &str) -> FileRequest {
    FileRequest::Symlink {
        target: target.as_bytes().to_vec(),
        link: v(link),
    }
}

#[test]
fn a_new_name_gives_no_more_rights() {
    let session = session(SCOPE);
    for request in [
        rename("/secret/x", "/pub/new"),
        rename("/secret/x", "/tmp/new"),
        rename("/secret", "/pub/new"),
        rename("/pub/x", "/tmp/new"),
        rename("/link", "/pub/new"),
        link("/secret/x", "/pub/new"),
        link("../secret", "/tmp/new"),
    ] {
        let error = session.run(&request).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Denied, "{request:?}");
    }
    // A directory brings its content below the other scope.
    session.run(&rename("/dir", "/old")).unwrap();
    let error = session.run(&rename("/secret", "/dir")).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Denied);
    session.run(&rename("/pub/x", "/secret/new")).unwrap();
    session.run(&link("/pub", "/secret/link")).unwrap();
}

#[test]
fn an_own_upload_may_get_any_name() {
    let session = session(SCOPE);
    session
        .store(store("/in", StoreDisposition::Truncate), "stored")
        .unwrap();
    session.run(&rename("/in", "/pub/in")).unwrap();
    session.run(&checksum("/pub/in")).unwrap();
}

/// A file that a session appends to is not its own: the beginning may be a secret.
#[test]
fn an_upload_that_continues_a_file_is_not_an_own_one() {
    for disposition in [StoreDisposition::Append, StoreDisposition::AtOffset(3)] {
        let session = session("storage.modify:/ storage.read:/pub");
        let expected = TransferKind::Store {
            path: v("/secret/x"),
            disposition,
            announced_size: None,
            checksum_algorithm: None,
            expected_checksum: Some((ChecksumAlgorithm::Md5, "0".repeat(32))),
            modified: None,
        };
        let error = session.store(expected, "more").unwrap_err();
        assert!(matches!(error, TransferError::File(_)), "{error:?}");
        session
            .store(store("/secret/x", StoreDisposition::Append), "")
            .unwrap();
        for request in [checksum("/secret/x"), rename("/secret/x", "/pub/new")] {
            let error = session.run(&request).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Denied, "{request:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever names a session gives to what is there, it reads and changes only what it might read and
    /// change under its first name.
    #[test]
    fn no_sequence_of_names_gives_a_right(
        steps in prop::collection::vec((0usize..5, 0usize..12, 0usize..12), 1..24),
    ) {
        const PATHS: [&str; 12] = [
            "/secret", "/secret/x", "/secret/pub", "/secret/pub/x", "/pub", "/pub/x", "/pub/new",
            "/tmp/x", "/dir", "/dir/pub", "/dir/pub/x", "/link",
        ];
        let session = session(SCOPE);
        for (step, first, second) in steps {
            let (first, second) = (PATHS[first], PATHS[second]);
            let request = match step {
                0 => link(first, second),
                1 => FileRequest::MakeDir(v(first)),
                2 => FileRequest::Delete(v(first)),
                _ => rename(first, second),
            };
            let _ = session.run(&request);
            for path in PATHS {
                let read = TransferKind::Retrieve {
                    path: v(path),
                    partial: None,
                    already_received: RangeSet::new(),
                    checksum_algorithm: None,
                };
                if let Ok(OpenedTransfer::Send(opened)) =
                    session.open(read, TransferMode::Stream, DataType::Image)
                {
                    let mut content = [0; 32];
                    if let Ok(count) = opened.source.read_at(0, &mut content) {
                        let first = String::from_utf8_lossy(&content[..count]).into_owned();
                        prop_assert!(first.starts_with("/pub") || first.starts_with("/dir/pub"),
                            "{path}: {first}");
                    }
                }
            }
            // Only what lay in /tmp may be gone.
            let mut found = Vec::new();
            let mut open = vec![session.dir.path().to_owned()];
            while let Some(directory) = open.pop() {
                for entry in fs::read_dir(directory).unwrap() {
                    let entry = entry.unwrap();
                    match entry.file_type().unwrap() {
                        kind if kind.is_dir() => open.push(entry.path()),
                        kind if kind.is_file() => {
                            found.push(fs::read_to_string(entry.path()).unwrap());
                        }
                        _ => {}
                    }
                }
            }
            for kept in ["/secret/x", "/secret/pub/x", "/pub/x", "/dir/pub/x"] {
                prop_assert!(found.iter().any(|content| content == kept), "{kept}");
            }
        }
    }
}
