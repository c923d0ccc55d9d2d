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
        .unwrap()
        .abandon();
    session
        .storing_by(&session.client, announced("new", 40))
        .unwrap()
        .abandon();
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
        storing.abandon();
        assert!(!session.host(name).exists(), "{name}");
    }
    session.store(truncate("fits"), &"x".repeat(100)).unwrap();
}

#[test]
fn bytes_to_be_spliced_are_refused_before_they_are_in_the_file() {
    let session = session_with(Some(100), None);
    for disposition in [StoreDisposition::Truncate, StoreDisposition::AtOffset(0)] {
        let storing = session.storing(store("f", disposition), TransferMode::Stream);
        storing.sink.begin(100).unwrap();
        let error = storing.sink.begin(101).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
        storing.abandon();
        assert!(!session.host("f").exists());
    }
}

#[test]
fn a_refused_store_of_a_range_leaves_what_was_there_and_what_others_store() {
    let session = session_with(Some(100), None);
    let at = |offset| {
        session.storing(
            store("f", StoreDisposition::AtOffset(offset)),
            TransferMode::Extended,
        )
    };
    session.file("f", &"x".repeat(50));
    let alone = at(50);
    alone.sink.write_at(50, &[1; 40]).unwrap();
    assert_write_refused(&alone, 90, &[1; 40]);
    alone.abandon();
    assert_eq!(session.content("f"), "x".repeat(50));
    let (first, second) = (at(50), at(60));
    second.sink.write_at(60, b"second").unwrap();
    assert_write_refused(&first, 90, &[1; 40]);
    first.abandon();
    second.abandon();
    assert_eq!(fs::metadata(session.host("f")).unwrap().len(), 66);
}

#[test]
fn a_file_that_is_appended_to_gets_its_former_length() {
    let session = session_with(Some(100), None);
    session.file("log", &"x".repeat(50));
    let storing = session.storing(store("log", StoreDisposition::Append), TransferMode::Stream);
    storing.sink.write_at(50, &[1; 40]).unwrap();
    assert_write_refused(&storing, 90, &[1; 40]);
    storing.abandon();
    assert_eq!(session.content("log"), "x".repeat(50));
}

#[test]
fn stores_at_the_same_time_share_the_room() {
    let session = session_with(Some(100), None);
    let first = session.storing(announced("first", 70), TransferMode::Stream);
    assert_over_quota(session.storing_by(&session.client, announced("second", 40)));
    let second = session.storing(truncate("second"), TransferMode::Stream);
    assert_write_refused(&second, 0, &[1; 40]);
    first.abandon();
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
    first.abandon();
    second.abandon();
    assert_eq!(fs::metadata(session.host("f")).unwrap().len(), 100);
    session.run(&FileRequest::Delete(v("f"))).unwrap();
    session
        .storing(announced("g", 100), TransferMode::Stream)
        .abandon();
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
    session
        .storing(announced("c", 40), TransferMode::Stream)
        .abandon();
    session.run(&FileRequest::Truncate(v("b"), 10)).unwrap();
    session
        .storing(announced("c", 90), TransferMode::Stream)
        .abandon();
    assert_over_quota(session.run(&FileRequest::Truncate(v("b"), 101)));
    session.run(&FileRequest::RemoveTree(v("b"))).unwrap();
    session.run(&FileRequest::MakeDir(v("d"))).unwrap();
    session.run(&FileRequest::RemoveDir(v("d"))).unwrap();
    session
        .storing(announced("c", 100), TransferMode::Stream)
        .abandon();
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
    storing.abandon();
    session
        .storing(announced("g", 50), TransferMode::Stream)
        .abandon();
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
    other
        .storing_by(&other.client, announced("b", 80))
        .unwrap()
        .abandon();
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
    session
        .storing(announced("g", 20), TransferMode::Stream)
        .abandon();
    let full = session_with(Some(13), None);
    let [_, storing] = bundles("f");
    assert_over_quota(full.open(storing, TransferMode::Extended, DataType::Image));
}

#[test]
fn a_rename_that_changes_nothing_makes_no_room() {
    let session = session_with(Some(100), Some(10));
    session.file("a", &"x".repeat(60));
    session
        .storing(announced("probe", 40), TransferMode::Stream)
        .abandon();
    for (from, to) in [("a", "a"), ("a", "b"), ("b", "a")] {
        if to == "b" {
            fs::hard_link(session.host("a"), session.host("b")).unwrap();
        }
        let (from, to) = (v(from), v(to));
        session.run(&FileRequest::Rename { from, to }).unwrap();
        session
            .storing(announced("probe", 40), TransferMode::Stream)
            .abandon();
        assert_over_quota(session.storing_by(&session.client, announced("probe", 41)));
    }
}

#[test]
fn changes_of_one_file_at_the_same_time_make_room_once() {
    let session = session_with(Some(200), None);
    session.file("kept", &"x".repeat(100));
    for _ in 0..50 {
        session.store(truncate("a"), &"x".repeat(60)).unwrap();
        session.store(truncate("b"), "").unwrap();
        let change = |request: FileRequest| {
            let files = session.files.clone();
            move || files.run(&request, &mut |_| true).map(drop)
        };
        let (from, to) = (v("b"), v("a"));
        std::thread::scope(|threads| {
            threads.spawn(change(FileRequest::Delete(v("a"))));
            threads.spawn(change(FileRequest::Truncate(v("a"), 0)));
            threads.spawn(change(FileRequest::Rename { from, to }));
        });
        for name in ["a", "b"] {
            let _ = session.run(&FileRequest::Delete(v(name)));
        }
        session
            .storing(announced("probe", 100), TransferMode::Stream)
            .abandon();
        assert_over_quota(session.storing_by(&session.client, announced("probe", 101)));
    }
}

#[test]
fn a_count_in_the_middle_of_a_bundle_has_its_files_with_their_whole_size() {
    let session = session_with(Some(20), None);
    let [_, storing] = bundles("f");
    let opened = session.open(storing, TransferMode::Extended, DataType::Image);
    let Ok(OpenedTransfer::ReceiveBundle(bundle)) = opened else {
        panic!("no bundle");
    };
    // A part of a file of 14 bytes.
    bundle.sink.write_at(0, &[1; 5]).unwrap();
    session.files.quota.as_ref().unwrap().forget_count();
    assert_over_quota(session.storing_by(&session.client, announced("g", 7)));
    session
        .storing(announced("g", 6), TransferMode::Stream)
        .abandon();
    drop(bundle);
    session
        .storing(announced("g", 20), TransferMode::Stream)
        .abandon();
}

#[test]
fn a_bundle_has_the_room_of_the_files_that_it_replaces() {
    let session = session_with(Some(20), Some(1));
    session.store(truncate("f"), &"x".repeat(16)).unwrap();
    let begin = || {
        let [_, storing] = bundles("f");
        let opened = session.open(storing, TransferMode::Extended, DataType::Image);
        let Ok(OpenedTransfer::ReceiveBundle(bundle)) = opened else {
            panic!("no bundle");
        };
        bundle.sink.write_at(0, &[1; 14]).unwrap();
        bundle
    };
    // 14 bytes count instead of 16, until the bundle is given up.
    let bundle = begin();
    assert_over_quota(session.storing_by(&session.client, announced("f", 23)));
    drop(bundle);
    session
        .storing(announced("f", 20), TransferMode::Stream)
        .abandon();
    assert_over_quota(session.storing_by(&session.client, announced("f", 21)));
    let bundle = begin();
    assert_eq!(bundle.sink.finish().unwrap(), []);
    drop(bundle);
    assert_eq!(session.content("f").len(), 14);
    session
        .storing(announced("f", 20), TransferMode::Stream)
        .abandon();
    assert_over_quota(session.storing_by(&session.client, announced("f", 21)));
}

#[test]
fn two_bundles_do_not_have_the_room_of_the_same_file() {
    let session = session_with(Some(30), None);
    session.store(truncate("f"), &"x".repeat(16)).unwrap();
    let begin = || {
        let [_, storing] = bundles("f");
        let opened = session.open(storing, TransferMode::Extended, DataType::Image);
        let Ok(OpenedTransfer::ReceiveBundle(bundle)) = opened else {
            panic!("no bundle");
        };
        bundle.sink.write_at(0, &[1; 14]).unwrap();
        bundle
    };
    let (first, second) = (begin(), begin());
    let third = begin();
    assert_eq!(first.sink.finish().unwrap(), []);
    assert_eq!(second.sink.finish().unwrap(), []);
    let failures = third.sink.finish().unwrap();
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}");
    };
    assert!(failure.reason.contains("quota"), "{failure:?}");
    drop((first, second, third));
    session
        .storing(announced("f", 30), TransferMode::Stream)
        .abandon();
    assert_over_quota(session.storing_by(&session.client, announced("f", 31)));
}

#[test]
fn a_file_that_a_bundle_replaces_and_somebody_removes_makes_room_once() {
    for request in [
        FileRequest::Delete(v("f")),
        FileRequest::Truncate(v("f"), 0),
    ] {
        let session = session_with(Some(40), None);
        session.store(truncate("f"), &"x".repeat(16)).unwrap();
        let [_, storing] = bundles("f");
        let opened = session.open(storing, TransferMode::Extended, DataType::Image);
        let Ok(OpenedTransfer::ReceiveBundle(bundle)) = opened else {
            panic!("no bundle");
        };
        bundle.sink.write_at(0, &[1; 14]).unwrap();
        session.run(&request).unwrap();
        assert_eq!(bundle.sink.finish().unwrap(), []);
        drop(bundle);
        session
            .storing(announced("f", 40), TransferMode::Stream)
            .abandon();
        assert_over_quota(session.storing_by(&session.client, announced("f", 41)));
    }
}

#[test]
fn nothing_is_stored_while_what_the_root_holds_is_not_known() {
    let session = session_with(Some(100), None);
    let deep = ["d"; data::store::root::MAX_DEPTH].join("/");
    fs::create_dir_all(session.host(&deep)).unwrap();
    let error = session
        .storing_by(&session.client, announced("f", 1))
        .unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoSpace);
    assert!(error.text.contains("cannot be counted"), "{}", error.text);
    assert!(!session.host("f").exists());
}

#[test]
fn a_reload_does_not_wait_for_a_count() {
    let ledger = QuotaLedger::default();
    let session = with_quota(FilesFixture::new(), &ledger, Some(100), None);
    let quota = session.files.quota.as_ref().unwrap();
    let _counting = quota.hold_count();
    ledger.forget_counts();
    let bounds = QuotaBounds::default();
    ledger.quota(&session.files.root, bounds).unwrap();
}
