//! Listings in each form.

use super::*;

#[test]
fn each_form_of_listing_has_its_format() {
    let session = FilesFixture::new();
    session.file("b", "12345");
    fs::create_dir(session.host("a")).unwrap();
    session.file("a/x\ny", "");
    let names = |path| session.lines(list(path, ListFormat::Names));
    assert_eq!(names("/"), ["a", "b"]);
    assert_eq!(names("/b"), ["b"]);
    assert_eq!(names("/a"), ["x?y"], "no name makes two lines");
    let long = session.lines(list("/", ListFormat::LsLong));
    assert!(
        long[0].starts_with('d') && long[0].ends_with(" a"),
        "{long:?}"
    );
    assert!(
        long[1].starts_with('-') && long[1].ends_with(" b"),
        "{long:?}"
    );
    let facts = FactSet::parse("Type;Size;X.count;");
    let lines = session.lines(list("/a", ListFormat::Facts(facts)));
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
    assert!(facts.contains(Fact::XCount));
    let top = session.lines(list("/", ListFormat::Facts(FactSet::parse("Type;"))));
    assert_eq!(top, ["Type=cdir; .", "Type=dir; a", "Type=file; b"]);
    let file = session.lines(list("/b", ListFormat::Facts(FactSet::parse("Type;"))));
    assert_eq!(file, ["Type=file; b"]);
}

#[test]
fn dangling_links_are_in_every_listing() {
    let session = FilesFixture::new();
    std::os::unix::fs::symlink("none", session.host("gone")).unwrap();
    std::os::unix::fs::symlink("/", session.host("up")).unwrap();
    assert_eq!(session.lines(list("/", ListFormat::Names)), ["gone", "up"]);
    let long = session.lines(list("/", ListFormat::LsLong));
    assert!(
        long[0].starts_with("lrwxrwxrwx ") && long[0].ends_with(" gone -> none"),
        "{long:?}"
    );
    assert!(
        long[1].starts_with("lrwxrwxrwx ") && long[1].ends_with(" up -> /"),
        "{long:?}"
    );
    let facts = session.lines(list("/", ListFormat::Facts(FactSet::parse("Type;"))));
    assert_eq!(
        facts[1..],
        ["Type=OS.unix=slink:none; gone", "Type=OS.unix=slink:/; up"]
    );
    let facts = session.lines(list(
        "/",
        ListFormat::Facts(FactSet::parse("Type;UNIX.slink;")),
    ));
    assert_eq!(
        facts[1..],
        [
            "Type=OS.unix=slink:none;UNIX.slink=none; gone",
            "Type=dir;UNIX.slink=/; up"
        ]
    );
}

#[test]
fn recursive_listings_have_relative_paths() {
    let session = FilesFixture::new();
    fs::create_dir_all(session.host("top/deep")).unwrap();
    session.file("top/deep/x", "");
    let request = ListRequest {
        recursive: true,
        deflate: false,
        ..list("/top", ListFormat::Facts(FactSet::parse("Type;X.count;")))
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
fn a_name_that_looks_like_a_pattern_matches_itself_first() {
    let session = FilesFixture::new();
    for name in ["a.dat", "b.dat", "c[1].txt", "c1.txt"] {
        session.file(name, "");
    }
    let matching = |pattern: &str| {
        session.lines(ListRequest {
            pattern: Some(pattern.into()),
            ..list("/", ListFormat::Names)
        })
    };
    assert_eq!(matching("*.dat"), ["a.dat", "b.dat"]);
    assert_eq!(
        matching("c[1].txt"),
        ["c[1].txt"],
        "the exact name comes first"
    );
    assert_eq!(matching("c[12].txt"), ["c1.txt"]);
    assert!(matching("x*").is_empty());
}

#[test]
fn names_of_a_pattern_or_a_file_lead_to_it() {
    let session = FilesFixture::new();
    fs::create_dir_all(session.host("d/sub[1]")).unwrap();
    session.file("d/a.txt", "");
    session.file("d/sub[1]/b.txt", "");
    let names = |path: &str, pattern: Option<&str>, prefix: &str| {
        session.lines(ListRequest {
            pattern: pattern.map(Into::into),
            prefix: prefix.into(),
            ..list(path, ListFormat::Names)
        })
    };
    assert_eq!(names("/d", Some("*.txt"), "../d/"), ["../d/a.txt"]);
    assert_eq!(names("/d/a.txt", None, "d/"), ["d/a.txt"]);
    // Names in a directory are those below it.
    assert_eq!(names("/d", None, "/"), ["a.txt", "sub[1]"]);
    assert_eq!(names("/d", Some("sub[1]"), "d/"), ["b.txt"]);
}

#[test]
fn listings_for_data_connections_have_crlf_line_ends() {
    let session = FilesFixture::new();
    session.file("a", "");
    session.file("b", "");
    let kind = TransferKind::List(list("/", ListFormat::Names));
    let OpenedTransfer::Send(sending) = session
        .open(kind, TransferMode::Stream, DataType::Ascii)
        .unwrap()
    else {
        panic!("not sending");
    };
    let mut text = [0; 100];
    let n = sending.source.read_at(0, &mut text).unwrap();
    assert_eq!(&text[..n], b"a\r\nb\r\n");
    assert_eq!(sending.source.len().unwrap(), None, "sent to its end");
    let kind = TransferKind::List(list("/none", ListFormat::Names));
    let error = session
        .open(kind, TransferMode::Stream, DataType::Ascii)
        .unwrap_err();
    assert_eq!(error.kind, FileErrorKind::NotFound);
}

#[test]
fn listings_in_replies_share_a_memory_budget() {
    let session = FilesFixture::new();
    for n in 0..5000 {
        fs::File::create(session.host(&format!("{n:0>250}"))).unwrap();
    }
    let request = ListRequest {
        path: VPath::root(),
        pattern: None,
        prefix: Vec::new(),
        format: ListFormat::Names,
        recursive: false,
        deflate: false,
    };
    let (_, share) = session.files.list(&request).unwrap();
    let error = session.files.list(&request).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Busy, "{}", error.text);
    // A listing over a data connection is produced while it is sent, and reserves no memory.
    let kind = TransferKind::List(request.clone());
    let sending = session.open(kind, TransferMode::Stream, DataType::Image);
    assert!(sending.is_ok());
    drop(share);
    session.files.list(&request).unwrap();
}
