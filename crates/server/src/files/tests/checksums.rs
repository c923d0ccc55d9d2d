//! Checksums: requested, announced and cached.

use super::*;

/// Content so large that a store waits for the clock tick that makes its checksum cacheable.
fn large(fill: &str) -> String {
    fill.repeat((1 << 20) / fill.len())
}

#[test]
fn a_checksum_computed_during_a_store_is_cached() {
    let session = FilesFixture::new();
    let content = large("hello...");
    let hex = session
        .store(summed("f", ChecksumAlgorithm::Sha256), &content)
        .unwrap();
    assert_eq!(hex, Some(digest(ChecksumAlgorithm::Sha256, &content)));
    assert_eq!(session.known("f", ChecksumAlgorithm::Sha256), hex);
    for request in [
        FileRequest::Chmod(v("f"), 0o600),
        FileRequest::Rename {
            from: v("f"),
            to: v("g"),
        },
    ] {
        session.run(&request).unwrap();
    }
    assert_eq!(session.known("g", ChecksumAlgorithm::Sha256), hex);
    session
        .store(store("g", StoreDisposition::AtOffset(0)), "HELLO")
        .unwrap();
    assert_eq!(session.known("g", ChecksumAlgorithm::Sha256), None);
    let changed = format!("HELLO{}", &content[5..]);
    assert_eq!(
        session.sum("g", ChecksumAlgorithm::Sha256).unwrap(),
        digest(ChecksumAlgorithm::Sha256, &changed)
    );
}

#[test]
fn a_write_right_after_a_store_invalidates_the_cached_checksum() {
    let session = FilesFixture::new();
    for (mut content, round) in [("hello".to_owned(), 300), (large("hello..."), 30)] {
        for _ in 0..round {
            session
                .store(summed("f", ChecksumAlgorithm::Adler32), &content)
                .unwrap();
            let (old, new) = (content.as_bytes()[0], content.as_bytes()[1]);
            content = [&content[1..2], &content[0..1], &content[2..]].concat();
            let file = fs::OpenOptions::new().write(true).open(session.host("f"));
            std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &[new, old], 0).unwrap();
            assert_eq!(
                session.sum("f", ChecksumAlgorithm::Adler32).unwrap(),
                digest(ChecksumAlgorithm::Adler32, &content)
            );
        }
    }
}

#[test]
fn setting_the_modification_time_invalidates_the_cached_checksum() {
    let session = FilesFixture::new();
    session
        .store(summed("f", ChecksumAlgorithm::Md5), &large("hello..."))
        .unwrap();
    assert!(session.known("f", ChecksumAlgorithm::Md5).is_some());
    session
        .run(&FileRequest::SetModified(v("f"), Timestamp(1_000_000_000)))
        .unwrap();
    assert_eq!(session.known("f", ChecksumAlgorithm::Md5), None);
}

#[test]
fn a_checksum_of_a_part_is_not_cached_for_the_file() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let mut kind = summed("f", ChecksumAlgorithm::Md5);
    if let TransferKind::Store { disposition, .. } = &mut kind {
        *disposition = StoreDisposition::AtOffset(0);
    }
    assert_eq!(session.store(kind.clone(), "abc").unwrap(), None);
    assert_eq!(session.known("f", ChecksumAlgorithm::Md5), None);
    if let TransferKind::Store { disposition, .. } = &mut kind {
        *disposition = StoreDisposition::Append;
    }
    assert_eq!(session.store(kind, "abc").unwrap(), None);
}

#[test]
fn a_checksum_computed_while_a_file_is_sent_is_cached_unless_the_file_changes() {
    let session = FilesFixture::new();
    session.file("f", "hello");
    wait_until_cacheable(&session, "f");
    let open = || {
        let kind = TransferKind::Retrieve {
            path: v("f"),
            partial: None,
            already_received: RangeSet::new(),
            checksum_algorithm: Some(ChecksumAlgorithm::Md5),
        };
        match session.open(kind, TransferMode::Stream, DataType::Image) {
            Ok(OpenedTransfer::Send(sending)) => sending.checksum,
            other => panic!("{other:?}"),
        }
    };
    let hex = digest(ChecksumAlgorithm::Md5, "hello");
    let report = |bytes| TransferReport {
        checksum: Some(hex.clone()),
        evidence: Evidence {
            bytes,
            ..Evidence::default()
        },
        ..TransferReport::default()
    };
    let known = || session.known("f", ChecksumAlgorithm::Md5);
    open().unwrap().sent(&report(4));
    assert_eq!(known(), None, "a part");
    open().unwrap().sent(&report(5));
    assert_eq!(known(), Some(hex.clone()));
    assert!(open().is_none(), "known already");
    session.file("f", "other");
    wait_until_cacheable(&session, "f");
    let changed_meanwhile = open().unwrap();
    session.file("f", "third");
    changed_meanwhile.sent(&report(5));
    assert_eq!(known(), None);
}

#[test]
fn a_checksum_of_the_whole_file_is_cached_once_the_file_is_old_enough() {
    let session = FilesFixture::new();
    session.file("f", "hello");
    let hex = digest(ChecksumAlgorithm::Adler32, "hello");
    wait_until_cacheable(&session, "f");
    assert_eq!(session.sum("f", ChecksumAlgorithm::Adler32).unwrap(), hex);
    assert_eq!(
        session.known("f", ChecksumAlgorithm::Adler32),
        Some(hex.clone())
    );
    session.file("f", "other");
    assert_eq!(
        session.sum("f", ChecksumAlgorithm::Adler32).unwrap(),
        digest(ChecksumAlgorithm::Adler32, "other")
    );
}

#[test]
fn checksums_of_ranges_are_computed() {
    let session = FilesFixture::new();
    session.file("f", "0123456789");
    let part = |offset, length| {
        session.run(&FileRequest::Checksum {
            algorithm: ChecksumAlgorithm::Md5,
            path: v("f"),
            offset,
            length,
            marker_seconds: 0,
        })
    };
    let is = |text| Ok(FileResponse::Checksum(digest(ChecksumAlgorithm::Md5, text)));
    assert_eq!(part(2, Some(3)), is("234"));
    assert_eq!(part(8, Some(30)), is("89"));
    assert_eq!(part(7, None), is("789"));
    assert_eq!(part(20, None), is(""));
}

#[test]
fn a_checksum_can_be_aborted() {
    let session = FilesFixture::new();
    session.file("f", &"x".repeat(8 << 20));
    let request = FileRequest::Checksum {
        algorithm: ChecksumAlgorithm::Md5,
        path: v("f"),
        offset: 0,
        length: None,
        marker_seconds: 0,
    };
    let error = session.files.run(&request, &mut |_| false).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Aborted, "{}", error.text);
}

#[test]
fn an_announced_checksum_is_verified() {
    let session = FilesFixture::new();
    let expecting = |hex: String, disposition| TransferKind::Store {
        path: v("f"),
        disposition,
        announced_size: None,
        checksum_algorithm: None,
        expected_checksum: Some((ChecksumAlgorithm::Md5, hex)),
        modified: Some(Timestamp(1_000_000_000)),
    };
    let right = digest(ChecksumAlgorithm::Md5, "hello").to_uppercase();
    session
        .store(expecting(right, StoreDisposition::Truncate), "hello")
        .unwrap();
    let modified = fs::metadata(session.host("f")).unwrap().modified().unwrap();
    assert_eq!(
        modified,
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    );
    let wrong = digest(ChecksumAlgorithm::Md5, "HELLO");
    let error = session
        .store(
            expecting(wrong.clone(), StoreDisposition::Truncate),
            "hello",
        )
        .unwrap_err();
    assert_eq!(
        error,
        TransferError::Checksum {
            computed: digest(ChecksumAlgorithm::Md5, "hello"),
            expected: wrong,
        }
    );
    assert_eq!(session.content("f"), "hello", "the file stays");
    let whole = digest(ChecksumAlgorithm::Md5, "hello, world");
    session
        .store(expecting(whole, StoreDisposition::Append), ", world")
        .unwrap();
}

#[test]
fn a_verification_can_be_aborted() {
    let session = FilesFixture::new();
    session.file("f", "hello");
    let mut kind = store("f", StoreDisposition::Append);
    if let TransferKind::Store {
        expected_checksum: expect,
        ..
    } = &mut kind
    {
        *expect = Some((
            ChecksumAlgorithm::Md5,
            digest(ChecksumAlgorithm::Md5, "hello"),
        ));
    }
    let storing = session.storing(kind, TransferMode::Stream);
    let stopped = storing.finish(&TransferReport::default(), &mut |_| false);
    assert_eq!(stopped, Err(TransferError::Aborted));
}

fn wait_until_cacheable(session: &FilesFixture, path: &str) {
    let state = session.files.root.identity(&v(path)).unwrap();
    while !state.detects_changes_since(file_clock()) {
        std::thread::yield_now();
    }
}
