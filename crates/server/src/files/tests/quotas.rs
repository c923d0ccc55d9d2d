//! Quotas of bytes and files.

use data::store::Sink as _;

use super::*;
use crate::config::QuotaBounds;

/// A session whose root may hold so many bytes and files.
fn session_with(bytes: Option<u64>, files: Option<u64>) -> FilesFixture {
    let fixture = FilesFixture::new();
    with_quota(fixture, &QuotaLedger::default(), bytes, files)
}

fn with_quota(
    fixture: FilesFixture,
    ledger: &QuotaLedger,
    bytes: Option<u64>,
    files: Option<u64>,
) -> FilesFixture {
    let quota = ledger.quota(&fixture.files.root, QuotaBounds { bytes, files });
    FilesFixture {
        files: fixture.files.with_quota(quota.unwrap()),
        ..fixture
    }
}

fn truncate(path: &str) -> TransferKind {
    store(path, StoreDisposition::Truncate)
}

/// A store that announces its size.
fn announced(path: &str, bytes: u64) -> TransferKind {
    match truncate(path) {
        TransferKind::Store {
            path, disposition, ..
        } => TransferKind::Store {
            path,
            disposition,
            announced_size: Some(bytes),
            checksum_algorithm: None,
            expected_checksum: None,
            modified: None,
        },
        other => other,
    }
}

fn assert_over_quota<T: std::fmt::Debug>(result: Result<T, FileError>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoSpace);
    assert!(error.text.contains("Disk quota exceeded"), "{}", error.text);
}

fn assert_write_refused(storing: &OpenedStore, offset: u64, bytes: &[u8]) {
    let error = storing.sink.write_at(offset, bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
}

#[test]
fn an_announced_size_above_the_quota_is_refused_before_anything_changes() {
    let session = session_with(Some(100), None);
    session.file("old", &"x".repeat(60));
    assert_over_quota(session.storing_by(&session.client, announced("new", 41)));
    assert!(!session.host("new").exists());
    // The old content makes room for the new one.
    assert_over_quota(session.storing_by(&session.client, announced("old", 101)));
    assert_eq!(session.content("old"), "x".repeat(60));
    session
        .storing_by(&session.client, announced("old", 100))
        .unwrap();
    session
        .storing_by(&session.client, announced("new", 40))
        .unwrap();
}

#[test]
fn a_store_that_exceeds_the_quota_leaves_no_part_under_the_name() {
    let session = session_with(Some(100), None);
    session.file("old", "some");
    // The first store leaves the room that the second one needs.
    for (name, more) in [("new", 7), ("old", 11)] {
        let storing = session.storing(truncate(name), TransferMode::Stream);
        storing.sink.write_at(0, &[1; 90]).unwrap();
        assert_write_refused(&storing, 90, &vec![1; more]);
        drop(storing);
        assert!(!session.host(name).exists(), "{name}");
    }
    session.store(truncate("fits"), &"x".repeat(100)).unwrap();
}

#[test]
fn bytes_that_are_spliced_count_too() {
    let session = session_with(Some(100), None);
    let storing = session.storing(truncate("f"), TransferMode::Stream);
    storing.sink.begin().unwrap();
    fs::write(session.host("f"), [1; 120]).unwrap();
    storing.sink.spliced(0, 100).unwrap();
    let error = storing.sink.spliced(100, 20).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
    drop(storing);
    assert!(!session.host("f").exists());
}

#[test]
fn a_file_that_is_appended_to_gets_its_former_length() {
    let session = session_with(Some(100), None);
    session.file("log", &"x".repeat(50));
    let storing = session.storing(store("log", StoreDisposition::Append), TransferMode::Stream);
    storing.sink.write_at(50, &[1; 40]).unwrap();
    assert_write_refused(&storing, 90, &[1; 40]);
    drop(storing);
    assert_eq!(session.content("log"), "x".repeat(50));
}

#[test]
fn stores_at_the_same_time_share_the_room() {
    let session = session_with(Some(100), None);
    let first = session.storing(announced("first", 70), TransferMode::Stream);
    assert_over_quota(session.storing_by(&session.client, announced("second", 40)));
    let second = session.storing(truncate("second"), TransferMode::Stream);
    assert_write_refused(&second, 0, &[1; 40]);
    drop(first);
    // The room that the first store had reserved is free again.
    second.sink.write_at(0, &[1; 40]).unwrap();
}

#[test]
fn stores_of_ranges_of_one_file_are_charged_once() {
    let session = session_with(Some(100), None);
    let at = |offset| store("f", StoreDisposition::AtOffset(offset));
    let first = session.storing(at(0), TransferMode::Extended);
    let second = session.storing(at(50), TransferMode::Extended);
    second.sink.write_at(50, &[2; 50]).unwrap();
    first.sink.write_at(0, &[1; 50]).unwrap();
    assert_write_refused(&first, 90, &[1; 20]);
    drop(first);
    drop(second);
    assert_eq!(fs::metadata(session.host("f")).unwrap().len(), 100);
    session.run(&FileRequest::Delete(v("f"))).unwrap();
    session.storing(announced("g", 100), TransferMode::Stream);
}

#[test]
fn removed_and_replaced_files_make_room() {
    let session = session_with(Some(100), Some(2));
    session.store(truncate("a"), &"x".repeat(60)).unwrap();
    session.store(truncate("b"), &"x".repeat(40)).unwrap();
    assert_over_quota(session.storing_by(&session.client, truncate("c")));
    assert_over_quota(session.run(&FileRequest::MakeDir(v("d"))));
    let (from, to) = (v("a"), v("b"));
    session.run(&FileRequest::Rename { from, to }).unwrap();
    session.storing(announced("c", 40), TransferMode::Stream);
    session.run(&FileRequest::Truncate(v("b"), 10)).unwrap();
    session.storing(announced("c", 90), TransferMode::Stream);
    assert_over_quota(session.run(&FileRequest::Truncate(v("b"), 101)));
    session.run(&FileRequest::RemoveTree(v("b"))).unwrap();
    session.run(&FileRequest::MakeDir(v("d"))).unwrap();
    session.run(&FileRequest::RemoveDir(v("d"))).unwrap();
    session.storing(announced("c", 100), TransferMode::Stream);
}

#[test]
fn a_file_that_is_removed_while_it_is_stored_is_returned_once() {
    let session = session_with(Some(100), None);
    session.file("other", &"x".repeat(50));
    let storing = session.storing(truncate("f"), TransferMode::Stream);
    storing.sink.write_at(0, &[1; 50]).unwrap();
    session.run(&FileRequest::Delete(v("f"))).unwrap();
    assert_over_quota(session.storing_by(&session.client, announced("g", 1)));
    // A count does not find the file, which still takes space.
    session.files.quota.as_ref().unwrap().forget_count();
    assert_over_quota(session.storing_by(&session.client, announced("g", 1)));
    drop(storing);
    session.storing(announced("g", 50), TransferMode::Stream);
    assert_over_quota(session.storing_by(&session.client, announced("g", 51)));
}

#[test]
fn sessions_of_one_root_share_its_quota_and_a_reload_counts_again() {
    let ledger = QuotaLedger::default();
    let session = with_quota(FilesFixture::new(), &ledger, Some(100), None);
    session.store(truncate("a"), &"x".repeat(60)).unwrap();
    let other = ledger.quota(
        &session.files.root,
        QuotaBounds {
            bytes: Some(80),
            files: None,
        },
    );
    let other = FilesFixture {
        files: session.files.clone().with_quota(other.unwrap()),
        dir: tempfile::tempdir().unwrap(),
        client: UploadingClient::named("bob"),
    };
    assert_over_quota(other.storing_by(&other.client, announced("b", 21)));
    // Another program makes room; the count is too young to be repeated for a refusal.
    fs::remove_file(session.host("a")).unwrap();
    assert_over_quota(other.storing_by(&other.client, announced("b", 21)));
    ledger.forget_counts();
    other.storing_by(&other.client, announced("b", 80)).unwrap();
}

#[test]
fn a_bundle_is_charged_file_by_file_and_returns_what_it_does_not_keep() {
    let session = session_with(Some(20), Some(1));
    let [_, storing] = bundles("f");
    let open = |kind| session.open(kind, TransferMode::Extended, DataType::Image);
    let Ok(OpenedTransfer::ReceiveBundle(bundle)) = open(storing) else {
        panic!("no bundle");
    };
    bundle.sink.write_at(0, &[1; 14]).unwrap();
    assert_over_quota(session.storing_by(&session.client, announced("g", 7)));
    drop(bundle);
    session.storing(announced("g", 20), TransferMode::Stream);
    let full = session_with(Some(13), None);
    let [_, storing] = bundles("f");
    assert_over_quota(full.open(storing, TransferMode::Extended, DataType::Image));
}
