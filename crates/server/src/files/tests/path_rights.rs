//! Sessions with the rights of a token: without the scope no byte is read or written.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use data::store::{Sink, Source};
use proptest::prelude::*;
use security::token::{PathScopes, TokenProfile};

use super::*;

const LATER: Duration = Duration::from_secs(3600);

/// A tree with `/in` and `/out`, each with files, a directory and links into the other, and a session
/// with a token for it.
pub(super) fn session(scope: &str) -> FilesFixture {
    session_until(scope, SystemTime::now() + LATER)
}

fn session_until(scope: &str, expires: SystemTime) -> FilesFixture {
    let all = FilesFixture::new();
    for top in ["in", "out"] {
        fs::create_dir_all(all.host(&format!("{top}/dir/deep"))).unwrap();
        all.file(&format!("{top}/file"), &format!("content of {top}"));
        all.file(&format!("{top}/dir/file"), &format!("content of {top}"));
    }
    symlink("../out/file", all.host("in/link")).unwrap();
    symlink("../out", all.host("in/way")).unwrap();
    symlink("../in", all.host("out/way")).unwrap();
    let scopes = PathScopes::parse(TokenProfile::Wlcg, scope, b"/").unwrap();
    let rights = PathRights::of_token(scopes, expires);
    FilesFixture {
        files: all.files.clone().with_path_rights(rights).unwrap(),
        ..all
    }
}

fn retrieve(path: &str) -> TransferKind {
    TransferKind::Retrieve {
        path: v(path),
        partial: None,
        already_received: RangeSet::new(),
        checksum_algorithm: None,
    }
}

/// Every kind of request on a path. The compiler asks here about a new one.
fn requests(path: &str) -> Vec<FileRequest> {
    let name = |request: &FileRequest| match request {
        FileRequest::Stat(_)
        | FileRequest::ChangeDir(_)
        | FileRequest::MakeDir(_)
        | FileRequest::RemoveDir(_)
        | FileRequest::Delete(_)
        | FileRequest::RemoveTree(_)
        | FileRequest::Rename { .. }
        | FileRequest::SetModified(..)
        | FileRequest::Chmod(..)
        | FileRequest::Chgrp(..)
        | FileRequest::Symlink { .. }
        | FileRequest::SymlinkAmong(_)
        | FileRequest::Truncate(..)
        | FileRequest::List(_)
        | FileRequest::EndBundle(_)
        | FileRequest::Checksum { .. } => (),
    };
    let recursive = ListRequest {
        recursive: true,
        deflate: false,
        ..list(path, ListFormat::Names)
    };
    let requests = vec![
        FileRequest::Stat(v(path)),
        FileRequest::ChangeDir(v(path)),
        FileRequest::List(list(path, ListFormat::Names)),
        FileRequest::List(recursive),
        checksum(path),
        FileRequest::MakeDir(v(path)),
        FileRequest::Rename {
            from: v(path),
            to: v("/in/renamed"),
        },
        FileRequest::Rename {
            from: v("/in/file"),
            to: v(path),
        },
        FileRequest::SetModified(v(path), Timestamp(7)),
        FileRequest::Chmod(v(path), 0o700),
        FileRequest::Chgrp(v(path), "0".to_owned()),
        FileRequest::Symlink {
            target: b"/in/file".to_vec(),
            link: v(path),
        },
        FileRequest::Symlink {
            target: path.as_bytes().to_vec(),
            link: v("/in/new-link"),
        },
        FileRequest::SymlinkAmong(vec![
            (b"/in/file".to_vec(), v(path)),
            (path.as_bytes().to_vec(), v("/in/another-link")),
        ]),
        FileRequest::Truncate(v(path), 1),
        FileRequest::Delete(v(path)),
        FileRequest::RemoveDir(v(path)),
        FileRequest::RemoveTree(v(path)),
    ];
    requests.iter().for_each(name);
    requests
}

fn stores(path: &str) -> Vec<TransferKind> {
    let mut already_stored = RangeSet::new();
    already_stored.insert(0, 3);
    [
        StoreDisposition::Truncate,
        StoreDisposition::Unique,
        StoreDisposition::Append,
        StoreDisposition::AtOffset(2),
        StoreDisposition::Resume { already_stored },
    ]
    .map(|disposition| store(path, disposition))
    .to_vec()
}

/// The state of every file below a directory, by path: kind and mode, time, content.
fn snapshot(top: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match (metadata.is_dir(), metadata.is_symlink()) {
            (true, _) => {
                let entries = fs::read_dir(&path).unwrap();
                open.extend(entries.map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            (_, true) => fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes(),
            _ => fs::read(&path).unwrap(),
        };
        found.insert(path, (metadata.mode(), metadata.mtime(), content));
    }
    found
}

pub(super) fn is_denied<T: std::fmt::Debug>(result: Result<T, FileError>) -> bool {
    match result {
        Err(error) => error.kind == FileErrorKind::Denied,
        Ok(_) => false,
    }
}

#[test]
fn without_a_scope_nothing_is_read_or_written() {
    for scope in [
        "storage.read:/in storage.create:/in storage.modify:/in",
        "storage.modify:/in",
        "storage.create:/in",
        "storage.read:/in",
    ] {
        let session = session(scope);
        let before = snapshot(&session.host("out"));
        for path in ["/out", "/out/file", "/out/dir", "/out/new", "/out/way/file"] {
            for request in requests(path) {
                let result = session.run(&request);
                assert!(is_denied(result), "{scope}: {request:?}");
            }
            for kind in stores(path) {
                let result = session.open(kind, TransferMode::Stream, DataType::Image);
                assert!(is_denied(result), "{scope}: store {path}");
            }
            let result = session.open(retrieve(path), TransferMode::Stream, DataType::Image);
            assert!(is_denied(result), "{scope}: retrieve {path}");
            let listing = TransferKind::List(list(path, ListFormat::Names));
            let result = session.open(listing, TransferMode::Stream, DataType::Image);
            assert!(is_denied(result), "{scope}: list {path}");
        }
        assert_eq!(snapshot(&session.host("out")), before, "{scope}");
    }
}

#[test]
fn links_lead_nowhere() {
    let session = session("storage.read:/in storage.modify:/in");
    let before = snapshot(&session.host("out"));
    for path in ["/in/link", "/in/way/file", "/in/way/dir/file"] {
        session
            .open(retrieve(path), TransferMode::Stream, DataType::Image)
            .unwrap_err();
        session.run(&checksum(path)).unwrap_err();
        for kind in stores(path) {
            if !matches!(
                &kind,
                TransferKind::Store {
                    disposition: StoreDisposition::Unique,
                    ..
                }
            ) {
                session
                    .open(kind, TransferMode::Stream, DataType::Image)
                    .unwrap_err();
            }
        }
        for request in [
            FileRequest::Chmod(v(path), 0o777),
            FileRequest::SetModified(v(path), Timestamp(7)),
            FileRequest::Truncate(v(path), 0),
        ] {
            session.run(&request).unwrap_err();
        }
    }
    for path in ["/in/way", "/in/way/dir"] {
        session.run(&FileRequest::ChangeDir(v(path))).unwrap_err();
        let mut names = Vec::new();
        if let Ok(FileResponse::Lines(lines)) =
            session.run(&FileRequest::List(list(path, ListFormat::Names)))
        {
            names = lines;
        }
        assert!(names.len() <= 1, "at most the link itself: {names:?}");
    }
    assert_eq!(snapshot(&session.host("out")), before);
}

#[test]
fn a_new_link_leads_only_where_its_session_may_go() {
    let session = session("storage.modify:/in");
    for (target, is_allowed) in [
        ("file", true),
        ("/in/dir", true),
        ("../in/x", true),
        ("../out/file", false),
        ("/out", false),
        ("/", false),
        ("..", false),
    ] {
        let _ = fs::remove_file(session.host("in/new"));
        let request = FileRequest::Symlink {
            target: target.as_bytes().to_vec(),
            link: v("/in/new"),
        };
        assert_eq!(session.run(&request).is_ok(), is_allowed, "{target}");
    }
}

#[test]
fn a_read_scope_reads_and_changes_nothing() {
    let session = session("storage.read:/in");
    let before = snapshot(session.dir.path());
    for request in [
        FileRequest::Stat(v("/in/file")),
        FileRequest::ChangeDir(v("/in/dir")),
        FileRequest::List(list("/in", ListFormat::Names)),
        checksum("/in/dir/file"),
    ] {
        session.run(&request).unwrap();
    }
    session
        .open(retrieve("/in/file"), TransferMode::Stream, DataType::Image)
        .unwrap();
    for path in ["/in/file", "/in/new", "/in/dir"] {
        for request in requests(path) {
            if !matches!(
                request,
                FileRequest::Stat(_)
                    | FileRequest::ChangeDir(_)
                    | FileRequest::List(_)
                    | FileRequest::Checksum { .. }
            ) {
                assert!(is_denied(session.run(&request)), "{request:?}");
            }
        }
        for kind in stores(path) {
            let result = session.open(kind, TransferMode::Stream, DataType::Image);
            assert!(is_denied(result), "{path}");
        }
    }
    assert_eq!(snapshot(session.dir.path()), before);
}

#[test]
fn a_create_scope_makes_new_files_and_changes_no_old_one() {
    let session = session("storage.create:/in");
    let old = "content of in";
    for kind in stores("/in/file") {
        let is_unique = matches!(
            &kind,
            TransferKind::Store {
                disposition: StoreDisposition::Unique,
                ..
            }
        );
        let result = session.open(kind, TransferMode::Stream, DataType::Image);
        assert_eq!(is_denied(result), !is_unique);
    }
    session
        .store(store("/in/new", StoreDisposition::Truncate), "stored")
        .unwrap();
    assert_eq!(session.content("in/new"), "stored");
    // The upload is verified, gets its time and its final name.
    session.run(&checksum("/in/new")).unwrap();
    session
        .run(&FileRequest::SetModified(v("/in/new"), Timestamp(7)))
        .unwrap();
    let rename = |from: &str, to: &str| {
        session.run(&FileRequest::Rename {
            from: v(from),
            to: v(to),
        })
    };
    let error = rename("/in/new", "/in/file").unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Exists);
    rename("/in/new", "/in/dir/final").unwrap();
    assert_eq!(session.content("in/dir/final"), "stored");
    session.run(&FileRequest::MakeDir(v("/in/made"))).unwrap();
    // Nothing else is touched or read.
    for request in [
        checksum("/in/file"),
        FileRequest::SetModified(v("/in/file"), Timestamp(7)),
        FileRequest::Delete(v("/in/file")),
        FileRequest::RemoveDir(v("/in/made")),
        FileRequest::RemoveTree(v("/in/dir")),
        FileRequest::Truncate(v("/in/file"), 0),
        FileRequest::Chmod(v("/in/file"), 0o700),
        FileRequest::List(list("/in", ListFormat::Names)),
    ] {
        assert!(is_denied(session.run(&request)), "{request:?}");
    }
    let read = session.open(retrieve("/in/file"), TransferMode::Stream, DataType::Image);
    assert!(is_denied(read));
    assert_eq!(session.content("in/file"), old);
}

#[test]
fn a_modify_scope_changes_everything_below_it() {
    let session = session("storage.modify:/in");
    session
        .store(store("/in/file", StoreDisposition::Truncate), "new")
        .unwrap();
    assert_eq!(session.content("in/file"), "new");
    for request in [
        FileRequest::Chmod(v("/in/file"), 0o640),
        FileRequest::SetModified(v("/in/dir/file"), Timestamp(7)),
        FileRequest::Rename {
            from: v("/in/file"),
            to: v("/in/dir/file"),
        },
        FileRequest::RemoveTree(v("/in/dir")),
    ] {
        session.run(&request).unwrap();
    }
    assert!(!session.host("in/dir").exists());
    let read = session.open(
        retrieve("/in/dir/file"),
        TransferMode::Stream,
        DataType::Image,
    );
    assert!(is_denied(read), "writing is not reading");
}

#[test]
fn an_expired_token_gives_no_right_at_all() {
    let all = "storage.read:/ storage.modify:/";
    let session = session_until(all, SystemTime::now() - Duration::from_secs(1));
    let before = snapshot(session.dir.path());
    for request in requests("/in/dir/file") {
        let error = session.run(&request).unwrap_err();
        assert!(
            error.text.contains("expired"),
            "{request:?}: {}",
            error.text
        );
    }
    for kind in stores("/in/new").into_iter().chain([retrieve("/in/file")]) {
        let result = session.open(kind, TransferMode::Stream, DataType::Image);
        assert!(is_denied(result));
    }
    assert_eq!(snapshot(session.dir.path()), before);
}

#[test]
fn the_rights_of_the_account_bound_those_of_the_token() {
    let session = session("storage.modify:/in");
    let rights = AccountRights {
        write: false,
        third_party: false,
    };
    let session = FilesFixture {
        files: DirectoryFiles {
            rights,
            ..session.files.clone()
        },
        ..session
    };
    assert!(is_denied(session.run(&FileRequest::Delete(v("/in/file")))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a session does, in any order, what is outside of its scopes stays as it is, and no
    /// content of it is read.
    #[test]
    fn no_sequence_of_requests_leaves_the_scopes(
        rights in prop::sample::subsequence(vec!["read", "create", "modify"], 1..=3),
        steps in prop::collection::vec((0usize..26, 0usize..10), 1..24),
    ) {
        const PATHS: [&str; 10] = [
            "/", "/in", "/in/file", "/in/dir/file", "/in/new", "/in/way/file", "/in/link",
            "/out/file", "/out/way/dir", "/inside",
        ];
        let scope: Vec<_> = rights.iter().map(|right| format!("storage.{right}:/in")).collect();
        let session = session(&scope.join(" "));
        session.file("inside", "content of out");
        fs::set_permissions(session.host("inside"), fs::Permissions::from_mode(0o644)).unwrap();
        let before = (snapshot(&session.host("out")), snapshot(&session.host("inside")));
        let secret = digest(ChecksumAlgorithm::Md5, "content of out");
        for (step, path) in steps {
            let path = PATHS[path];
            let requests = requests(path);
            if let Some(request) = requests.get(step) {
                if let Ok(FileResponse::Checksum(sum)) = session.run(request) {
                    prop_assert_ne!(&sum, &secret);
                }
                continue;
            }
            let kinds = [stores(path), bundles(path).to_vec()].concat();
            let kind = kinds.get(step - requests.len()).cloned();
            match session.open(kind.unwrap_or_else(|| retrieve(path)), TransferMode::Stream, DataType::Image) {
                Ok(OpenedTransfer::Send(source)) => {
                    let mut content = [0; 32];
                    if let Ok(count) = source.source.read_at(0, &mut content) {
                        prop_assert!(!content[..count].starts_with(b"content of out"));
                    }
                }
                Ok(OpenedTransfer::Receive(store)) => drop(store.sink.write_at(0, b"written")),
                Ok(OpenedTransfer::SendBundle(bundle)) => {
                    let mut content = [0; 32];
                    let count = bundle.source.read_at(0, &mut content).unwrap();
                    prop_assert!(!content[..count].starts_with(b"content of out"));
                }
                Ok(OpenedTransfer::ReceiveBundle(bundle)) => {
                    bundle.sink.write_at(0, b"written content").unwrap_err();
                    bundle.sink.write_at(0, b"writtencontent").unwrap();
                    drop(bundle.sink.finish());
                }
                Err(_) => {}
            }
        }
        prop_assert_eq!(snapshot(&session.host("out")), before.0);
        prop_assert_eq!(snapshot(&session.host("inside")), before.1);
        prop_assert_eq!(fs::read_dir(session.dir.path()).unwrap().filter(|entry| {
            !["in", "out", "inside"].contains(&entry.as_ref().unwrap().file_name().to_str().unwrap())
        }).count(), 0);
    }
}
