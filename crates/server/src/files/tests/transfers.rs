//! Files opened for transfers, and the files that stores leave.

use super::*;

#[test]
fn a_retrieve_of_a_part_sends_the_missing_range() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let kind = TransferKind::Retrieve {
        path: v("f"),
        partial: Some((2, 5)),
        already_received: RangeSet::parse("0-1").unwrap(),
        checksum_algorithm: None,
    };
    let OpenedTransfer::Send(sending) = session
        .open(kind, TransferMode::Extended, DataType::Image)
        .unwrap()
    else {
        panic!("not sending");
    };
    assert_eq!(
        (
            sending.plan.ranges.to_string().as_str(),
            sending.plan.origin
        ),
        ("3-7", 2)
    );
    assert_eq!(sending.source.len().unwrap(), Some(10));
}

#[test]
fn each_disposition_stores_at_its_offset() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let resume = |n| {
        let mut have = RangeSet::new();
        have.insert(0, n);
        StoreDisposition::Resume {
            already_stored: have,
        }
    };
    session.store(store("f", resume(4)), "ab").unwrap();
    assert_eq!(session.content("f"), "0123ab", "MODE S ends the file");
    session
        .store(store("f", StoreDisposition::Append), "cd")
        .unwrap();
    assert_eq!(session.content("f"), "0123abcd");
    session
        .store(store("f", StoreDisposition::AtOffset(2)), "XY")
        .unwrap();
    assert_eq!(session.content("f"), "01XYabcd");
    session
        .store(store("f", StoreDisposition::Unique), "new")
        .unwrap();
    assert_eq!(
        (session.content("f"), session.content("f.1")),
        ("01XYabcd".into(), "new".into())
    );
    session
        .store(store("f", StoreDisposition::Truncate), "t")
        .unwrap();
    assert_eq!(session.content("f"), "t");
    session.store(store("f", resume(9)), "").unwrap();
    assert_eq!(
        session.content("f"),
        "t",
        "an empty resume does not extend the file"
    );
}

#[test]
fn a_resumed_store_in_mode_e_keeps_the_rest_of_the_file() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let have = RangeSet::parse("0-2,6-10").unwrap();
    let storing = session.storing(
        store(
            "f",
            StoreDisposition::Resume {
                already_stored: have,
            },
        ),
        TransferMode::Extended,
    );
    storing
        .sink
        .write_at(storing.plan.origin + 2, b"abcd")
        .unwrap();
    storing
        .finish(&TransferReport::default(), &mut |_| true)
        .unwrap();
    assert_eq!(session.content("f"), "01abcd6789");
}

#[test]
fn a_resumed_store_in_type_a_truncates_the_rest_at_the_first_byte() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let have = RangeSet::parse("0-4").unwrap();
    let kind = store(
        "f",
        StoreDisposition::Resume {
            already_stored: have,
        },
    );
    let opened = session
        .open(kind, TransferMode::Stream, DataType::Ascii)
        .unwrap();
    assert_eq!(session.content("f"), "0123456789");
    let OpenedTransfer::Receive(storing) = opened else {
        panic!("{opened:?}");
    };
    storing.sink.write_at(4, b"ab").unwrap();
    assert_eq!(session.content("f"), "0123ab");
}

#[test]
fn a_unique_store_reports_its_name() {
    let session = FilesFixture::new();
    session.file("f", "");
    let storing = session.storing(store("f", StoreDisposition::Unique), TransferMode::Stream);
    assert!(storing.has_unique_name);
    assert_eq!(storing.path, v("f.1"));
}

#[test]
fn a_store_that_does_not_fit_keeps_the_old_file() {
    let session = FilesFixture::new();
    session.file("f", "old");
    let mut kind = store("f", StoreDisposition::Truncate);
    if let TransferKind::Store {
        announced_size: allocate,
        ..
    } = &mut kind
    {
        *allocate = Some(u64::MAX / 2);
    }
    let error = session
        .open(kind, TransferMode::Stream, DataType::Image)
        .unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoSpace);
    assert!(error.text.contains("No space left"), "{}", error.text);
    assert_eq!(session.content("f"), "old");
}
