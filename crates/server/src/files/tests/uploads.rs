//! Ownership of files during uploads, and files after uploads without data.

use super::*;

fn whole(content: &str) -> TransferReport {
    let mut stored = RangeSet::new();
    stored.insert(0, content.len() as u64);
    TransferReport {
        evidence: Evidence {
            bytes: content.len() as u64,
            ..Evidence::default()
        },
        stored,
        ..TransferReport::default()
    }
}

fn finish(storing: OpenedStore, content: &str) -> Result<Option<String>, TransferError> {
    storing.finish(&whole(content), &mut |_| true)
}

fn in_use<T: std::fmt::Debug>(result: Result<T, FileError>) -> bool {
    result.is_err_and(|error| error.kind == FileErrorKind::InUse)
}

#[test]
fn a_store_truncates_the_old_file_at_its_first_byte() {
    let session = FilesFixture::new();
    session.file("f", "old content");
    session
        .storing(store("f", StoreDisposition::Truncate), TransferMode::Stream)
        .abandon();
    assert_eq!(session.content("f"), "old content");
    let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    storing.sink.write_at(0, b"n").unwrap();
    assert_eq!(session.content("f"), "n");
}

#[test]
fn splicing_truncates_the_old_file_too() {
    let session = FilesFixture::new();
    session.file("f", "old content");
    let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    assert!(storing.sink.fd().is_some());
    assert_eq!(session.content("f"), "old content");
    storing.sink.begin(1).unwrap();
    assert_eq!(session.content("f"), "");
}

#[test]
fn an_empty_upload_truncates_the_file_at_its_end() {
    let session = FilesFixture::new();
    session.file("f", "old content");
    session
        .store(store("f", StoreDisposition::Truncate), "")
        .unwrap();
    assert_eq!(session.content("f"), "");
}

/// The outcome of storing `content` after `ALLO size`.
fn announced(
    session: &FilesFixture,
    disposition: StoreDisposition,
    size: u64,
    content: &str,
) -> Result<Option<String>, TransferError> {
    let mut kind = store("f", disposition);
    if let TransferKind::Store { announced_size, .. } = &mut kind {
        *announced_size = Some(size);
    }
    session.store(kind, content)
}

#[test]
fn a_stream_that_ends_before_the_announced_size_is_no_whole_file() {
    let session = FilesFixture::new();
    let resume = || StoreDisposition::Resume {
        already_stored: RangeSet::parse("0-4").unwrap(),
    };
    for (disposition, size, complete) in [
        (StoreDisposition::Truncate, 5, true),
        (StoreDisposition::Truncate, 4, true),
        (StoreDisposition::Truncate, 6, false),
        (StoreDisposition::Unique, 6, false),
        // The whole file, or what is sent of it.
        (resume(), 9, true),
        (resume(), 5, true),
        (resume(), 10, false),
        (StoreDisposition::Append, 13, true),
        (StoreDisposition::Append, 14, false),
        // A part: the size may be that of the whole file.
        (StoreDisposition::AtOffset(2), 100, true),
    ] {
        session.file("f", "previous");
        let stored = announced(&session, disposition.clone(), size, "12345");
        let name = format!("{disposition:?}, {size}");
        match stored {
            Ok(_) => assert!(complete, "{name}"),
            Err(TransferError::Broken(text)) => {
                assert!(!complete && text.contains("ALLO"), "{name}: {text}");
            }
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

#[test]
fn an_upload_that_is_cut_before_its_first_byte_keeps_the_old_file() {
    let session = FilesFixture::new();
    session.file("f", "old content");
    let mut kind = store("f", StoreDisposition::Truncate);
    if let TransferKind::Store { announced_size, .. } = &mut kind {
        *announced_size = Some(100);
    }
    let storing = session.storing(kind, TransferMode::Stream);
    assert!(finish(storing, "").is_err());
    assert_eq!(session.content("f"), "old content");
}

#[test]
fn a_disconnected_client_changes_nothing() {
    let session = FilesFixture::new();
    session.file("f", "old content");
    let kind = || store("f", StoreDisposition::Truncate);
    let late = session.storing(kind(), TransferMode::Stream);
    session.client.disconnect();
    late.sink.write_at(0, b"x").unwrap_err();
    assert_eq!(finish(late, "").unwrap_err(), TransferError::Aborted);
    let error = session
        .open(kind(), TransferMode::Stream, DataType::Image)
        .unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Aborted);
    let new = store("new", StoreDisposition::Truncate);
    session
        .open(new, TransferMode::Stream, DataType::Image)
        .unwrap_err();
    assert_eq!(session.content("f"), "old content");
    assert!(!session.host("new").exists());
}

#[test]
fn a_cancelled_store_creates_no_file() {
    let session = FilesFixture::new();
    session.client.storer.control.cancel();
    let kind = store("new", StoreDisposition::Truncate);
    let error = session
        .open(kind, TransferMode::Stream, DataType::Image)
        .unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Aborted);
    assert!(!session.host("new").exists());
}

#[test]
fn only_unused_files_that_the_store_created_are_removed() {
    let session = FilesFixture::new();
    for disposition in [
        StoreDisposition::Truncate,
        StoreDisposition::AtOffset(5),
        StoreDisposition::Append,
        StoreDisposition::Unique,
    ] {
        session
            .storing(store("new", disposition), TransferMode::Extended)
            .abandon();
        assert!(!session.host("new").exists());
    }
    // An existing empty file stays.
    session.file("empty", "");
    session
        .storing(
            store("empty", StoreDisposition::Truncate),
            TransferMode::Stream,
        )
        .abandon();
    assert!(session.host("empty").exists());
    // A file that another upload has opened meanwhile stays, too.
    let at = |offset| store("parts", StoreDisposition::AtOffset(offset));
    let first = session.storing(at(0), TransferMode::Extended);
    let second = session.storing(at(5), TransferMode::Extended);
    first.abandon();
    second.sink.write_at(5, b"x").unwrap();
    finish(second, "x").unwrap();
    assert!(session.host("parts").exists());
    // Another file that was renamed to the same name also stays.
    let storing = session.storing(
        store("new", StoreDisposition::Truncate),
        TransferMode::Stream,
    );
    session.file("other", "");
    fs::rename(session.host("other"), session.host("new")).unwrap();
    storing.abandon();
    assert!(session.host("new").exists());
}

#[test]
fn an_upload_owns_its_file_until_it_ends() {
    let session = FilesFixture::new();
    let other = UploadingClient::named("bob");
    let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    storing.sink.write_at(0, b"first").unwrap();
    let resume = StoreDisposition::Resume {
        already_stored: RangeSet::parse("0-5").unwrap(),
    };
    for disposition in [
        StoreDisposition::Truncate,
        resume,
        StoreDisposition::Append,
        StoreDisposition::AtOffset(0),
    ] {
        assert!(in_use(session.storing_by(&other, store("f", disposition))));
    }
    assert!(in_use(session.run(&FileRequest::Truncate(v("f"), 0))));
    // Other names of the same file are excluded, too.
    fs::hard_link(session.host("f"), session.host("hard")).unwrap();
    std::os::unix::fs::symlink("f", session.host("soft")).unwrap();
    for name in ["hard", "soft"] {
        let kind = store(name, StoreDisposition::Truncate);
        assert!(in_use(session.storing_by(&other, kind)));
    }
    finish(storing, "first").unwrap();
    assert_eq!(session.content("f"), "first");
    let second = session
        .storing_by(&other, store("f", StoreDisposition::Truncate))
        .unwrap();
    second.abandon();
    session.run(&FileRequest::Truncate(v("f"), 2)).unwrap();
    assert_eq!(session.content("f"), "fi");
}

#[test]
fn stores_of_ranges_share_a_file_and_exclude_truncation() {
    let session = FilesFixture::new();
    let other = UploadingClient::named("bob");
    let at = |offset| store("f", StoreDisposition::AtOffset(offset));
    let first = session.storing(at(0), TransferMode::Extended);
    let second = session.storing_by(&other, at(5)).unwrap();
    let truncating = store("f", StoreDisposition::Truncate);
    assert!(in_use(session.storing_by(&other, truncating)));
    assert!(in_use(session.run(&FileRequest::Truncate(v("f"), 0))));
    first.sink.write_at(0, b"first").unwrap();
    second.sink.write_at(5, b"second").unwrap();
    finish(first, "first").unwrap();
    finish(second, "second").unwrap();
    assert_eq!(session.content("f"), "firstsecond");
}

#[test]
fn the_lock_of_another_process_excludes_uploads() {
    let session = FilesFixture::new();
    session.file("f", "old");
    let theirs = fs::File::open(session.host("f")).unwrap();
    assert_eq!(
        data::store::write_lock::take_write_lock(&theirs, WriteLockKind::Exclusive).unwrap(),
        data::store::write_lock::WriteLockStatus::Held
    );
    let kind = || store("f", StoreDisposition::Truncate);
    assert!(in_use(session.open(
        kind(),
        TransferMode::Stream,
        DataType::Image
    )));
    assert!(in_use(session.run(&FileRequest::Truncate(v("f"), 0))));
    drop(theirs);
    session.store(kind(), "new").unwrap();
    assert_eq!(session.content("f"), "new");
}

#[test]
fn an_owner_with_a_disconnected_client_yields_to_any_account() {
    let session = FilesFixture::new();
    let other = UploadingClient::named("bob");
    let dead = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    dead.sink.write_at(0, b"half").unwrap();
    session.client.disconnect();
    let (control, upload) = (
        Arc::clone(&session.client.storer.control),
        Arc::clone(dead.upload()),
    );
    std::thread::scope(|scope| {
        let next = scope.spawn(|| session.storing_by(&other, store("f", StoreDisposition::Append)));
        while !control.is_cancelled() {
            std::thread::yield_now();
        }
        assert!(upload.was_taken_over());
        assert!(!next.is_finished(), "it waits until the owner has ended");
        dead.abandon();
        let next = next.join().unwrap().unwrap();
        assert_eq!(
            next.plan.origin, 4,
            "the size is read after the owner has ended"
        );
    });
}

#[test]
fn the_wait_for_a_file_ends_when_the_store_is_cancelled() {
    let session = FilesFixture::new();
    let again = UploadingClient::named("ann");
    let _owner = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    std::thread::scope(|scope| {
        let next =
            scope.spawn(|| session.storing_by(&again, store("f", StoreDisposition::Truncate)));
        again.storer.control.cancel();
        let error = next.join().unwrap().unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Aborted);
    });
    assert!(!session.client.storer.control.is_cancelled());
}

#[test]
fn a_store_fails_if_its_path_leads_to_another_file_at_the_end() {
    let session = FilesFixture::new();
    let replaced = |result: Result<_, TransferError>| match result {
        Err(TransferError::File(error)) => error.text.contains("was replaced while"),
        _ => false,
    };
    let begin = || {
        let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
        storing.sink.write_at(0, b"new").unwrap();
        storing
    };
    let rename = || fs::rename(session.host("f"), session.host("g")).unwrap();
    let storing = begin();
    rename();
    assert!(replaced(finish(storing, "new")));
    let storing = begin();
    session.run(&FileRequest::Delete(v("f"))).unwrap();
    assert!(replaced(finish(storing, "new")));
    let storing = begin();
    rename();
    session.file("f", "somebody else's");
    assert!(replaced(finish(storing, "new")));
    assert_eq!(session.content("f"), "somebody else's");
}

#[test]
fn a_file_that_another_client_stores_cannot_be_renamed() {
    let session = FilesFixture::new();
    let other = UploadingClient::named("bob");
    let kind = || store("f.longhaul-partial", StoreDisposition::Truncate);
    session.file("f", "before");
    session.store(kind(), "whole and verified").unwrap();
    let rename = FileRequest::Rename {
        from: v("f.longhaul-partial"),
        to: v("f"),
    };
    let second = session.storing_by(&other, kind()).unwrap();
    second.sink.write_at(0, b"half").unwrap();
    assert!(in_use(session.run(&rename)));
    assert_eq!(session.content("f"), "before");
    finish(second, "half").unwrap();
    // An upload whose client has disconnected does not prevent the rename.
    let dead = session.storing_by(&other, kind()).unwrap();
    assert!(in_use(session.run(&rename)));
    other.disconnect();
    session.run(&rename).unwrap();
    dead.abandon();
    assert_eq!(session.content("f"), "half");
}

/// Stores a file under a temporary name, lets others act, and renames it in the same session.
fn renamed_after(act: impl FnOnce(&mut FilesFixture)) -> Result<String, FileError> {
    let mut session = FilesFixture::new();
    let kind = store("f.longhaul-partial", StoreDisposition::Truncate);
    session.store(kind, "whole and verified").unwrap();
    let files = session.files.clone();
    act(&mut session);
    session.files = files;
    let (from, to) = (v("f.longhaul-partial"), v("f"));
    session.run(&FileRequest::Rename { from, to })?;
    Ok(session.content("f"))
}

/// Another session of the server, of the account `user`.
fn become_another(session: &mut FilesFixture, user: &str) {
    session.client = UploadingClient::named(user);
    session.files.last_upload = LastUpload::default();
}

fn stores(session: &FilesFixture, path: &str, content: &str) {
    let kind = store(path, StoreDisposition::Truncate);
    session.store(kind, content).unwrap();
}

fn renames(session: &FilesFixture, from: &str, to: &str) {
    let (from, to) = (v(from), v(to));
    session.run(&FileRequest::Rename { from, to }).unwrap();
}

const PARTIAL: &str = "f.longhaul-partial";

#[test]
fn a_file_that_another_program_has_put_in_the_place_of_an_upload_is_not_renamed() {
    assert!(in_use(renamed_after(|session| {
        session.file("planted", "not what was stored");
        fs::rename(session.host("planted"), session.host(PARTIAL)).unwrap();
    })));
    // A new file may even get the inode number of the old one.
    assert!(in_use(renamed_after(|session| {
        fs::remove_file(session.host(PARTIAL)).unwrap();
        session.file(PARTIAL, "not what was stored");
    })));
    assert!(in_use(renamed_after(|session| {
        fs::remove_file(session.host(PARTIAL)).unwrap();
        std::os::unix::fs::symlink("nothing", session.host(PARTIAL)).unwrap();
    })));
    let removed = renamed_after(|session| fs::remove_file(session.host(PARTIAL)).unwrap());
    assert_eq!(removed.unwrap_err().kind, FileErrorKind::NotFound);
}

#[test]
fn what_another_session_of_the_account_stores_in_the_place_of_an_upload_is_renamed() {
    let delete = |session: &FilesFixture| session.run(&FileRequest::Delete(v(PARTIAL))).unwrap();
    let again = renamed_after(|session| {
        become_another(session, "ann");
        delete(session);
        stores(session, PARTIAL, "again");
        // Its last upload is another one now.
        stores(session, "g", "more");
    });
    assert_eq!(again.unwrap(), "again");
    let moved = renamed_after(|session| {
        become_another(session, "ann");
        stores(session, "other", "moved");
        stores(session, "g", "more");
        renames(session, "other", PARTIAL);
    });
    assert_eq!(moved.unwrap(), "moved");
}

#[test]
fn what_another_account_stores_in_the_place_of_an_upload_is_not_renamed() {
    assert!(in_use(renamed_after(|session| {
        become_another(session, "bob");
        session.run(&FileRequest::Delete(v(PARTIAL))).unwrap();
        stores(session, PARTIAL, "of bob");
        stores(session, "g", "more");
    })));
    assert!(in_use(renamed_after(|session| {
        become_another(session, "bob");
        stores(session, "other", "of bob");
        renames(session, "other", PARTIAL);
    })));
}

#[test]
fn a_file_that_is_being_written_has_no_cached_checksum() {
    let session = FilesFixture::new();
    let content = "hello...".repeat(1 << 17);
    session
        .store(summed("f", ChecksumAlgorithm::Md5), &content)
        .unwrap();
    assert!(session.known("f", ChecksumAlgorithm::Md5).is_some());
    let storing = session.storing(
        store("f", StoreDisposition::AtOffset(0)),
        TransferMode::Extended,
    );
    storing.sink.write_at(0, b"HELLO").unwrap();
    let changed = digest(ChecksumAlgorithm::Md5, &format!("HELLO{}", &content[5..]));
    assert_eq!(session.sum("f", ChecksumAlgorithm::Md5).unwrap(), changed);
    assert_eq!(session.known("f", ChecksumAlgorithm::Md5), None);
}
