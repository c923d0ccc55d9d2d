//! Files after a store that failed, because the disk refused a write or for another reason.

use super::*;

const PAGE: u64 = 4096;

fn page(fill: u8) -> Vec<u8> {
    vec![fill; 4096]
}

fn checksum_of_range(session: &FilesFixture, offset: u64, length: u64) -> String {
    let request = FileRequest::Checksum {
        algorithm: ChecksumAlgorithm::Md5,
        path: v("f"),
        offset,
        length: Some(length),
        marker_seconds: 0,
    };
    match session.run(&request).unwrap() {
        FileResponse::Checksum(hex) => hex,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_that_the_disk_refused_are_removed_from_the_file() {
    let session = FilesFixture::new();
    let storing = session.storing(
        store("f", StoreDisposition::Truncate),
        TransferMode::Extended,
    );
    let write = |n: u64, fill| storing.sink.write_at(n * PAGE, &page(fill)).unwrap();
    write(0, b'a');
    write(2, b'c');
    storing.sink.sync().unwrap();
    write(1, b'b');
    write(3, b'd');
    storing.fail_disk();
    storing.abandon();
    // A client that resumes asks for checksums of blocks, or for the size.
    let expected = [page(b'a'), page(0), page(b'c')].concat();
    assert_eq!(fs::read(session.host("f")).unwrap(), expected);
    let zeros = String::from_utf8(page(0)).unwrap();
    assert_eq!(
        checksum_of_range(&session, PAGE, PAGE),
        digest(ChecksumAlgorithm::Md5, &zeros)
    );
}

#[test]
fn a_shared_file_is_not_truncated_after_a_disk_error() {
    let session = FilesFixture::new();
    let storing = session.storing(
        store("f", StoreDisposition::AtOffset(PAGE)),
        TransferMode::Extended,
    );
    storing.sink.write_at(0, &page(b'a')).unwrap();
    storing.sink.sync().unwrap();
    storing.sink.write_at(PAGE, &page(b'b')).unwrap();
    storing.fail_disk();
    storing.abandon();
    let expected = [page(b'a'), page(0)].concat();
    assert_eq!(fs::read(session.host("f")).unwrap(), expected);
}

#[test]
fn bytes_that_another_upload_stored_too_are_kept() {
    let session = FilesFixture::new();
    let ranges = || {
        session.storing(
            store("f", StoreDisposition::AtOffset(0)),
            TransferMode::Extended,
        )
    };
    let (early, failing) = (ranges(), ranges());
    early.sink.write_at(0, &page(b'a')).unwrap();
    failing.sink.write_at(0, &page(b'a')).unwrap();
    failing.sink.write_at(PAGE, &page(b'b')).unwrap();
    let late = ranges();
    late.sink.write_at(PAGE, &page(b'b')).unwrap();
    // Both clients are told that their bytes are on disk.
    early.sink.sync().unwrap();
    late.sink.sync().unwrap();
    early.abandon();
    late.abandon();
    failing.fail_disk();
    failing.abandon();
    let expected = [page(b'a'), page(b'b')].concat();
    assert_eq!(fs::read(session.host("f")).unwrap(), expected);
}

#[test]
fn unsynced_bytes_are_kept_with_sync_policy_none() {
    let session = FilesFixture::new();
    let lax = session.files.clone().with_sync(SyncPolicy::None);
    let session = FilesFixture {
        files: lax,
        ..session
    };
    let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    storing.sink.write_at(0, b"some").unwrap();
    storing.fail_disk();
    storing.abandon();
    assert_eq!(session.content("f"), "some");
}

#[test]
fn a_store_that_fails_without_a_byte_leaves_no_file() {
    let session = FilesFixture::new();
    let kind = || store("new", StoreDisposition::Truncate);
    // The store has begun, but nothing could be written.
    let storing = session.storing(kind(), TransferMode::Stream);
    storing.sink.begin(1).unwrap();
    storing.abandon();
    assert!(!session.host("new").exists());
    // None of the received bytes is on disk.
    let storing = session.storing(kind(), TransferMode::Stream);
    storing.sink.write_at(0, b"some").unwrap();
    storing.fail_disk();
    storing.abandon();
    assert!(!session.host("new").exists());
    // An empty upload with a wrong checksum leaves no file, either.
    let wrong = TransferKind::Store {
        path: v("new"),
        disposition: StoreDisposition::Truncate,
        announced_size: None,
        checksum_algorithm: None,
        expected_checksum: Some((
            ChecksumAlgorithm::Md5,
            digest(ChecksumAlgorithm::Md5, "some"),
        )),
        modified: None,
    };
    session.store(wrong, "").unwrap_err();
    assert!(!session.host("new").exists());
    // A successful empty upload leaves an empty file, and a failed store keeps an existing file.
    session.store(kind(), "").unwrap();
    assert!(session.host("new").exists());
    session.storing(kind(), TransferMode::Stream).abandon();
    assert!(session.host("new").exists());
}

#[test]
fn a_store_that_nobody_ends_leaves_no_file_either() {
    let session = FilesFixture::new();
    let storing = session.storing(
        store("new", StoreDisposition::Truncate),
        TransferMode::Stream,
    );
    storing.sink.write_at(0, b"some").unwrap();
    storing.fail_disk();
    // As after a panic in its thread.
    drop(storing);
    assert!(!session.host("new").exists());
}

#[test]
fn a_store_that_has_ended_takes_no_more_bytes() {
    let session = FilesFixture::new();
    let storing = session.storing(store("f", StoreDisposition::Truncate), TransferMode::Stream);
    let sink = Arc::clone(&storing.sink);
    sink.write_at(0, b"some").unwrap();
    storing.abandon();
    sink.write_at(4, b"more").unwrap_err();
    assert_eq!(session.content("f"), "some");
}
