use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use data::job::Report;
use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::listing::{Fact, FactSet, Kind};
use proto::ranges::RangeSet;
use proto::server::{
    Disposition, ListForm, ListRequest, TransferError, TransferKind, TransferRequest,
};
use proto::timestamp::Timestamp;
use tempfile::TempDir;

use super::*;

struct Session {
    dir: TempDir,
    files: Files,
}

impl Session {
    fn new() -> Self {
        Self::with_rights(true)
    }

    fn with_rights(write: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rights = Rights {
            write,
            third_party: false,
        };
        Self {
            dir,
            files: Files::new(root, rights, Arc::default(), Room::new(1)),
        }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        fs::write(self.host(path), content).unwrap();
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.host(path)).unwrap()
    }

    fn run(&self, request: &FileRequest) -> Result<FileAnswer, FileError> {
        self.files.run(request, &mut |_| true)
    }

    fn sum(&self, path: &str, algorithm: Algorithm) -> Result<String, FileError> {
        let request = FileRequest::Checksum {
            algorithm,
            path: v(path),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        match self.run(&request)? {
            FileAnswer::Digest(hex) => Ok(hex),
            other => panic!("{other:?}"),
        }
    }

    /// What is known without reading.
    fn known(&self, path: &str, algorithm: Algorithm) -> Option<String> {
        let state = self.files.root.identity(&v(path)).unwrap();
        self.files.sums.get(&state, algorithm)
    }

    fn lines(&self, request: ListRequest) -> Vec<String> {
        match self.run(&FileRequest::List(request)).unwrap() {
            FileAnswer::Lines(lines) => lines
                .into_iter()
                .map(|line| String::from_utf8_lossy(&line).into_owned())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn open(&self, what: TransferKind, mode: Mode, type_: Type) -> Result<Opened, FileError> {
        self.files.open(&TransferRequest {
            what,
            mode,
            type_,
            streams: 1,
            delayed_passive: None,
            send_buffer: None,
            receive_buffer: None,
            perf_marker_seconds: 0,
            range_marker_seconds: 0,
        })
    }

    fn storing(&self, what: TransferKind, mode: Mode) -> Storing {
        match self.open(what, mode, Type::Image).unwrap() {
            Opened::Receive(storing) => storing,
            other @ Opened::Send(_) => panic!("{other:?}"),
        }
    }

    /// Stores `content` in MODE S as the driver does.
    fn store(&self, what: TransferKind, content: &str) -> Result<Option<String>, TransferError> {
        let storing = self.storing(what, Mode::Stream);
        let plan = storing.plan;
        storing
            .sink
            .write_at(plan.origin + plan.stream_start, content.as_bytes())
            .unwrap();
        let mut stored = RangeSet::new();
        let start = plan.stream_start;
        stored.insert(start, start + content.len() as u64);
        let digest = storing
            .sum
            .filter(|_| start == 0)
            .map(|algorithm| digest(algorithm, content));
        let report = Report {
            bytes: content.len() as u64,
            stored,
            digest,
            ..Report::default()
        };
        storing.finish(&report, &mut |_| true)
    }
}

fn v(path: &str) -> VPath {
    VPath::root().resolve(path.as_bytes()).unwrap()
}

fn digest(algorithm: Algorithm, text: &str) -> String {
    let mut digest = data::digest::Digest::new(algorithm);
    digest.update(text.as_bytes());
    digest.finish()
}

fn store(path: &str, disposition: Disposition) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition,
        allocate: None,
        sum: None,
        expect: None,
        modify: None,
    }
}

fn summed(path: &str, algorithm: Algorithm) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition: Disposition::Truncate,
        allocate: None,
        sum: Some(algorithm),
        expect: None,
        modify: None,
    }
}

fn list(path: &str, form: ListForm) -> ListRequest {
    ListRequest {
        path: v(path),
        pattern: None,
        form,
        recursive: false,
    }
}

#[test]
fn readers_change_nothing() {
    let session = Session::with_rights(false);
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
        Disposition::Truncate,
        Disposition::Append,
        Disposition::Unique,
    ] {
        let opened = session.open(store("f", disposition), Mode::Stream, Type::Image);
        assert_eq!(opened.unwrap_err().kind, FileErrorKind::Denied);
    }
    assert_eq!(session.content("f"), "old");
    let FileAnswer::Entry(entry) = session.run(&FileRequest::Stat(v("f"))).unwrap() else {
        panic!("not an entry");
    };
    assert!(entry.access.read && !entry.access.write);
}

#[test]
fn requests_reach_the_root() {
    let session = Session::new();
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
        FileRequest::SetModified(v("d/g"), Timestamp(1_000_000_000)),
        FileRequest::Symlink {
            target: b"d".to_vec(),
            link: v("l"),
        },
    ] {
        assert_eq!(session.run(&request), Ok(FileAnswer::Done), "{request:?}");
    }
    let FileAnswer::Entry(entry) = session.run(&FileRequest::Stat(v("l/g"))).unwrap() else {
        panic!("not an entry");
    };
    assert_eq!((entry.kind, entry.size, entry.mode), (Kind::File, 3, 0o600));
    assert_eq!(entry.modified, Timestamp(1_000_000_000));
    for request in [
        FileRequest::Delete(v("l")),
        FileRequest::RemoveTree(v("d")),
        FileRequest::MakeDir(v("e")),
        FileRequest::RemoveDir(v("e")),
    ] {
        assert_eq!(session.run(&request), Ok(FileAnswer::Done), "{request:?}");
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
fn listings_of_each_form() {
    let session = Session::new();
    session.file("b", "12345");
    fs::create_dir(session.host("a")).unwrap();
    session.file("a/x\ny", "");
    let names = |path| session.lines(list(path, ListForm::Names));
    assert_eq!(names("/"), ["a", "b"]);
    assert_eq!(names("/b"), ["b"]);
    assert_eq!(names("/a"), ["x?y"], "no name makes two lines");
    let long = session.lines(list("/", ListForm::Long));
    assert!(
        long[0].starts_with('d') && long[0].ends_with(" a"),
        "{long:?}"
    );
    assert!(
        long[1].starts_with('-') && long[1].ends_with(" b"),
        "{long:?}"
    );
    let facts = FactSet::parse("Type;Size;X.count;");
    let lines = session.lines(list("/a", ListForm::Facts(facts)));
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("Type=cdir;") && lines[0].ends_with("X.count=3; ."),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("Type=pdir;") && lines[1].ends_with("; .."),
        "{lines:?}"
    );
    assert_eq!(lines[2], "Type=file;Size=0; x?y");
    assert!(facts.has(Fact::XCount));
    let top = session.lines(list("/", ListForm::Facts(FactSet::parse("Type;"))));
    assert_eq!(top, ["Type=cdir; .", "Type=dir; a", "Type=file; b"]);
    let file = session.lines(list("/b", ListForm::Facts(FactSet::parse("Type;"))));
    assert_eq!(file, ["Type=file; b"]);
}

#[test]
fn recursive_listings_name_paths() {
    let session = Session::new();
    fs::create_dir_all(session.host("top/deep")).unwrap();
    session.file("top/deep/x", "");
    let request = ListRequest {
        recursive: true,
        ..list("/top", ListForm::Facts(FactSet::parse("Type;X.count;")))
    };
    assert_eq!(
        session.lines(request),
        [
            "Type=cdir;X.count=3; .",
            "Type=dir; deep",
            "Type=file; deep/x"
        ]
    );
}

#[test]
fn patterns_and_names_that_look_like_them() {
    let session = Session::new();
    for name in ["a.dat", "b.dat", "c[1].txt", "c1.txt"] {
        session.file(name, "");
    }
    let matching = |pattern: &str| {
        session.lines(ListRequest {
            pattern: Some(pattern.into()),
            ..list("/", ListForm::Names)
        })
    };
    assert_eq!(matching("*.dat"), ["a.dat", "b.dat"]);
    assert_eq!(
        matching("c[1].txt"),
        ["c[1].txt"],
        "the very name comes first"
    );
    assert_eq!(matching("c[12].txt"), ["c1.txt"]);
    assert!(matching("x*").is_empty());
}

#[test]
fn listings_for_a_data_connection_have_line_ends() {
    let session = Session::new();
    session.file("a", "");
    session.file("b", "");
    let kind = TransferKind::List(list("/", ListForm::Names));
    let Opened::Send(sending) = session.open(kind, Mode::Stream, Type::Ascii).unwrap() else {
        panic!("not sending");
    };
    let mut text = [0; 100];
    let n = sending.source.read_at(0, &mut text).unwrap();
    assert_eq!(&text[..n], b"a\r\nb\r\n");
    assert_eq!(sending.plan.ranges.to_string(), "0-6");
    let kind = TransferKind::List(list("/none", ListForm::Names));
    let error = session.open(kind, Mode::Stream, Type::Ascii).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NotFound);
}

#[test]
fn retrieves_parts() {
    let session = Session::new();
    session.file("f", "0123456789");
    let kind = TransferKind::Retrieve {
        path: v("f"),
        part: Some((2, 5)),
        have: RangeSet::parse("0-1").unwrap(),
    };
    let Opened::Send(sending) = session.open(kind, Mode::Extended, Type::Image).unwrap() else {
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
fn stores_of_each_disposition() {
    let session = Session::new();
    session.file("f", "0123456789");
    let resume = |n| {
        let mut have = RangeSet::new();
        have.insert(0, n);
        Disposition::Resume { have }
    };
    session.store(store("f", resume(4)), "ab").unwrap();
    assert_eq!(session.content("f"), "0123ab", "MODE S ends the file");
    session
        .store(store("f", Disposition::Append), "cd")
        .unwrap();
    assert_eq!(session.content("f"), "0123abcd");
    session.store(store("f", Disposition::At(2)), "XY").unwrap();
    assert_eq!(session.content("f"), "01XYabcd");
    session
        .store(store("f", Disposition::Unique), "new")
        .unwrap();
    assert_eq!(
        (session.content("f"), session.content("f.1")),
        ("01XYabcd".into(), "new".into())
    );
    session
        .store(store("f", Disposition::Truncate), "t")
        .unwrap();
    assert_eq!(session.content("f"), "t");
    session.store(store("f", resume(9)), "").unwrap();
    assert_eq!(session.content("f"), "t", "nothing is never longer");
}

#[test]
fn resumed_in_mode_e_the_rest_is_kept() {
    let session = Session::new();
    session.file("f", "0123456789");
    let have = RangeSet::parse("0-2,6-10").unwrap();
    let storing = session.storing(store("f", Disposition::Resume { have }), Mode::Extended);
    storing
        .sink
        .write_at(storing.plan.origin + 2, b"abcd")
        .unwrap();
    storing.finish(&Report::default(), &mut |_| true).unwrap();
    assert_eq!(session.content("f"), "01abcd6789");
}

#[test]
fn resumed_in_type_a_the_rest_is_cut_first() {
    let session = Session::new();
    session.file("f", "0123456789");
    let have = RangeSet::parse("0-4").unwrap();
    let kind = store("f", Disposition::Resume { have });
    session.open(kind, Mode::Stream, Type::Ascii).unwrap();
    assert_eq!(session.content("f"), "0123");
}

#[test]
fn unique_stores_tell_their_name() {
    let session = Session::new();
    session.file("f", "");
    let storing = session.storing(store("f", Disposition::Unique), Mode::Stream);
    assert!(storing.unique);
    assert_eq!(storing.path, v("f.1"));
}

#[test]
fn a_store_that_cannot_fit_leaves_the_old_file() {
    let session = Session::new();
    session.file("f", "old");
    let mut kind = store("f", Disposition::Truncate);
    if let TransferKind::Store { allocate, .. } = &mut kind {
        *allocate = Some(u64::MAX / 2);
    }
    let error = session.open(kind, Mode::Stream, Type::Image).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NoSpace);
    assert!(error.text.contains("No space left"), "{}", error.text);
    assert_eq!(session.content("f"), "old");
}

#[test]
fn what_was_summed_while_stored_is_not_read_again() {
    let session = Session::new();
    let hex = session
        .store(summed("f", Algorithm::Sha256), "hello")
        .unwrap();
    assert_eq!(hex, Some(digest(Algorithm::Sha256, "hello")));
    assert_eq!(session.known("f", Algorithm::Sha256), hex);
    for request in [
        FileRequest::SetModified(v("f"), Timestamp(1_000_000_000)),
        FileRequest::Chmod(v("f"), 0o600),
        FileRequest::Rename {
            from: v("f"),
            to: v("g"),
        },
    ] {
        session.run(&request).unwrap();
    }
    assert_eq!(session.known("g", Algorithm::Sha256), hex);
    session
        .store(store("g", Disposition::At(0)), "HELLO")
        .unwrap();
    assert_eq!(session.known("g", Algorithm::Sha256), None);
    assert_eq!(
        session.sum("g", Algorithm::Sha256).unwrap(),
        digest(Algorithm::Sha256, "HELLO")
    );
}

#[test]
fn a_sum_of_a_part_is_not_the_files() {
    let session = Session::new();
    session.file("f", "0123456789");
    let mut kind = summed("f", Algorithm::Md5);
    if let TransferKind::Store { disposition, .. } = &mut kind {
        *disposition = Disposition::At(0);
    }
    assert_eq!(session.store(kind.clone(), "abc").unwrap(), None);
    assert_eq!(session.known("f", Algorithm::Md5), None);
    if let TransferKind::Store { disposition, .. } = &mut kind {
        *disposition = Disposition::Append;
    }
    assert_eq!(session.store(kind, "abc").unwrap(), None);
}

#[test]
fn whole_sums_are_remembered_when_the_file_is_settled() {
    let session = Session::new();
    session.file("f", "hello");
    let hex = digest(Algorithm::Adler32, "hello");
    assert_eq!(session.sum("f", Algorithm::Adler32).unwrap(), hex);
    assert_eq!(
        session.known("f", Algorithm::Adler32),
        None,
        "changed just now"
    );
    std::thread::sleep(Duration::from_millis(80));
    assert_eq!(session.sum("f", Algorithm::Adler32).unwrap(), hex);
    assert_eq!(session.known("f", Algorithm::Adler32), Some(hex.clone()));
    session.file("f", "other");
    assert_eq!(
        session.sum("f", Algorithm::Adler32).unwrap(),
        digest(Algorithm::Adler32, "other")
    );
}

#[test]
fn checksums_of_parts() {
    let session = Session::new();
    session.file("f", "0123456789");
    let part = |offset, length| {
        session.run(&FileRequest::Checksum {
            algorithm: Algorithm::Md5,
            path: v("f"),
            offset,
            length,
            marker_seconds: 0,
        })
    };
    let is = |text| Ok(FileAnswer::Digest(digest(Algorithm::Md5, text)));
    assert_eq!(part(2, Some(3)), is("234"));
    assert_eq!(part(8, Some(30)), is("89"));
    assert_eq!(part(7, None), is("789"));
    assert_eq!(part(20, None), is(""));
}

#[test]
fn a_checksum_can_be_stopped() {
    let session = Session::new();
    session.file("f", &"x".repeat(8 << 20));
    let request = FileRequest::Checksum {
        algorithm: Algorithm::Md5,
        path: v("f"),
        offset: 0,
        length: None,
        marker_seconds: 0,
    };
    let error = session.files.run(&request, &mut |_| false).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Aborted, "{}", error.text);
}

#[test]
fn announced_checksums_are_verified() {
    let session = Session::new();
    let expecting = |hex: String, disposition| TransferKind::Store {
        path: v("f"),
        disposition,
        allocate: None,
        sum: None,
        expect: Some((Algorithm::Md5, hex)),
        modify: Some(Timestamp(1_000_000_000)),
    };
    let right = digest(Algorithm::Md5, "hello").to_uppercase();
    session
        .store(expecting(right, Disposition::Truncate), "hello")
        .unwrap();
    let modified = fs::metadata(session.host("f")).unwrap().modified().unwrap();
    assert_eq!(
        modified,
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    );
    let wrong = digest(Algorithm::Md5, "HELLO");
    let error = session
        .store(expecting(wrong.clone(), Disposition::Truncate), "hello")
        .unwrap_err();
    assert_eq!(
        error,
        TransferError::Checksum {
            computed: digest(Algorithm::Md5, "hello"),
            expected: wrong,
        }
    );
    assert_eq!(session.content("f"), "hello", "the file stays");
    let whole = digest(Algorithm::Md5, "hello, world");
    session
        .store(expecting(whole, Disposition::Append), ", world")
        .unwrap();
}

#[test]
fn large_listings_share_a_bounded_memory() {
    let session = Session::new();
    for n in 0..5000 {
        fs::File::create(session.host(&format!("{n:0>250}"))).unwrap();
    }
    let request = ListRequest {
        path: VPath::root(),
        pattern: None,
        form: ListForm::Names,
        recursive: false,
    };
    let (_, share) = session.files.list(&request).unwrap();
    let error = session.files.list(&request).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Busy, "{}", error.text);
    let kind = TransferKind::List(request.clone());
    let refused = session.open(kind.clone(), Mode::Stream, Type::Image);
    assert_eq!(refused.unwrap_err().kind, FileErrorKind::Busy);
    drop(share);
    let sending = session.open(kind, Mode::Stream, Type::Image).unwrap();
    session.files.list(&request).unwrap_err();
    drop(sending);
    session.files.list(&request).unwrap();
}

#[test]
fn a_verification_can_be_stopped() {
    let session = Session::new();
    session.file("f", "hello");
    let mut kind = store("f", Disposition::Append);
    if let TransferKind::Store { expect, .. } = &mut kind {
        *expect = Some((Algorithm::Md5, digest(Algorithm::Md5, "hello")));
    }
    let storing = session.storing(kind, Mode::Stream);
    let stopped = storing.finish(&Report::default(), &mut |_| false);
    assert_eq!(stopped, Err(TransferError::Aborted));
}

#[test]
fn times_before_1970_can_be_announced() {
    let session = Session::new();
    let mut kind = store("f", Disposition::Truncate);
    if let TransferKind::Store { modify, .. } = &mut kind {
        *modify = Some(Timestamp(-1000));
    }
    session.store(kind, "x").unwrap();
    let modified = fs::metadata(session.host("f")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH - Duration::from_secs(1000));
}
