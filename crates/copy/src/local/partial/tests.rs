use std::io::Write;

use super::*;

#[test]
fn partial_names_are_hashed_when_too_long() {
    assert_eq!(partial_name(b"a b"), b"a b.longhaul-partial");
    assert_eq!(partial_path(b"/d/\xff"), b"/d/\xff.longhaul-partial");
    let long = partial_path(&[b"/d/", [b'x'; 250].as_slice()].concat());
    assert!(long.len() < 60 && long.ends_with(PARTIAL_SUFFIX));
    assert_ne!(partial_name(&[b'x'; 250]), partial_name(&[b'x'; 251]));
    assert_eq!(hashed_partial_path(b"/d/f"), None);
    assert!(hashed_partial_path(&[b'x'; 250]).is_some());
}

fn target(path: &Path) -> Result<WriteTarget, Failure> {
    WriteTarget::for_name(&LocalName::of_user(path).unwrap())
}

#[test]
fn a_finished_file_gets_time_permissions_and_final_name() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("f");
    fs::write(&destination, "old").unwrap();
    fs::set_permissions(&destination, Permissions::from_mode(0o600)).unwrap();
    let Ok(WriteTarget::File(partial)) = target(&destination) else {
        panic!("a regular file is written under its partial name");
    };
    let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
    assert!(
        partial.lock(SyncPolicy::default()).unwrap_err().kind() == FailureKind::DestinationBusy
    );
    sink.file().write_all(b"new").unwrap();
    assert_eq!(fs::read(&destination).unwrap(), b"old");
    let kept = KeptMetadata {
        modified: Some(Timestamp(1_000_000_000)),
        mode: None,
    };
    partial.sync_with_metadata(&sink, kept).unwrap();
    partial.put_in_place(&sink).unwrap();
    let meta = fs::metadata(&destination).unwrap();
    assert_eq!(fs::read(&destination).unwrap(), b"new");
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&meta), 1_000_000_000);
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert!(!partial.name.path().exists());
}

fn partial_at(destination: &Path) -> PartialFile {
    match target(destination) {
        Ok(WriteTarget::File(partial)) => partial,
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn partial_files_are_private_and_finished_files_not_setuid() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, "old").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o6755)).unwrap();
    let usual = dir.path().join("usual");
    fs::write(&usual, "").unwrap();
    for (destination, wanted) in [(&old, 0o755), (&new, mode(&usual))] {
        let partial = partial_at(destination);
        fs::write(partial.name.path(), "left by an earlier version").unwrap();
        fs::set_permissions(partial.name.path(), Permissions::from_mode(0o4777)).unwrap();
        let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
        assert_eq!(mode(partial.name.path()), 0o600);
        partial
            .sync_with_metadata(&sink, KeptMetadata::default())
            .unwrap();
        partial.put_in_place(&sink).unwrap();
        assert_eq!(mode(destination), wanted);
    }
}

#[test]
fn a_foreign_file_under_the_partial_name_is_not_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let partial = partial_at(&dir.path().join("f"));
    let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
    sink.file().write_all(b"verified").unwrap();
    fs::remove_file(partial.name.path()).unwrap();
    partial
        .sync_with_metadata(&sink, KeptMetadata::default())
        .unwrap();
    assert_eq!(
        partial.put_in_place(&sink).unwrap_err().kind(),
        FailureKind::Local
    );
    fs::write(partial.name.path(), "somebody else's").unwrap();
    let failure = partial.put_in_place(&sink).unwrap_err();
    assert!(failure.to_string().contains("replaced"), "{failure}");
    assert!(!partial.destination.path().exists());
    partial.remove_if_empty(&sink);
    assert!(partial.name.path().exists());
}

#[test]
fn a_partial_file_replaced_after_the_sync_leaves_the_destination_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let partial = partial_at(&dir.path().join("f"));
    fs::write(partial.destination.path(), "old").unwrap();
    let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
    sink.file().write_all(b"verified").unwrap();
    partial
        .sync_with_metadata(&sink, KeptMetadata::default())
        .unwrap();
    let other = dir.path().join("other");
    fs::write(&other, "somebody else's").unwrap();
    fs::rename(&other, partial.name.path()).unwrap();
    let failure = partial.put_in_place(&sink).unwrap_err();
    assert_eq!((failure.exit() as u8, failure.may_retry()), (7, false));
    assert_eq!(fs::read(partial.destination.path()).unwrap(), b"old");
    assert_eq!(fs::read(partial.name.path()).unwrap(), b"somebody else's");
}

#[test]
fn too_long_names_are_refused_before_the_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let failure = target(&dir.path().join("x".repeat(256))).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Local);
    assert!(failure.to_string().contains("too long"), "{failure}");
}

#[test]
fn names_of_unfinished_files_are_recognized() {
    for name in [&b"a"[..], b"a.longhaul-partial", &[b'x'; 250]] {
        assert!(companion_names(name).iter().all(|name| is_unfinished(name)));
    }
    for name in [
        &b"a"[..],
        b"a~",
        b".longhaul-partial",
        b"~",
        b"a.longhaul-partial.gz",
        b"a.longhaul-partial.old",
    ] {
        assert!(!is_unfinished(name));
    }
}

#[test]
fn links_are_followed_and_devices_written_directly() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "x").unwrap();
    let link = dir.path().join("l");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let Ok(WriteTarget::File(partial)) = target(&link) else {
        panic!("a link to a file is a file");
    };
    assert_eq!(partial.destination.path(), fs::canonicalize(&file).unwrap());
    assert!(matches!(
        target(Path::new("/dev/null")),
        Ok(WriteTarget::Direct { .. })
    ));
    assert_eq!(target(dir.path()).unwrap_err().kind(), FailureKind::Local);
}
