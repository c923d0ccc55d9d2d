use super::*;

mod rows;

const NOW: Timestamp = Timestamp(1_795_162_863);

fn entry() -> DirectoryEntry {
    DirectoryEntry {
        name: b"f3m".to_vec(),
        kind: EntryKind::File,
        size: 3_000_000,
        modified: NOW,
        mode: 0o644,
        link_count: 1,
        uid: 1001,
        gid: 0,
        owner: "testuser".to_owned(),
        group: "root".to_owned(),
        device_and_inode: (0xfe00, 0x99_0761),
        link_target: None,
        permissions: EntryPermissions {
            read: true,
            write: true,
            execute: false,
        },
    }
}

fn mlsx(entry: &DirectoryEntry, facts: FactSet) -> String {
    String::from_utf8(format_mlsx(entry, facts, None)).unwrap()
}

fn ls(entry: &DirectoryEntry) -> String {
    String::from_utf8(format_ls(entry, NOW)).unwrap()
}

#[test]
fn the_default_facts_have_a_star_in_the_feat_line() {
    assert_eq!(
        FactSet::default().feature_line(),
        "MLST Type*;Modify*;Charset;Size*;Perm*;UNIX.mode*;UNIX.owner*;UNIX.group*;UNIX.slink*;\
         Unique*;UNIX.uid*;UNIX.gid*;X.count;"
    );
    assert_eq!(
        FactSet::parse("size;TYPE;foo;").selected(),
        "Type;Size;",
        "output order is the server's"
    );
    assert_eq!(FactSet::parse("").selected(), "");
}

#[test]
fn facts_of_a_file_are_written() {
    assert_eq!(
        mlsx(&entry(), FactSet::default()),
        "Type=file;Modify=20261120082103;Size=3000000;Perm=awr;UNIX.mode=0644;\
         UNIX.owner=testuser;UNIX.group=root;Unique=fe00-990761;UNIX.uid=1001;UNIX.gid=0; f3m"
    );
    let none = FactSet::parse("");
    assert_eq!(mlsx(&entry(), none), " f3m");
}

#[test]
fn perm_shows_the_permissions_on_a_directory() {
    let facts = FactSet::parse("type;perm;x.count");
    let mut dir = entry();
    dir.kind = EntryKind::CurrentDir;
    dir.permissions.execute = true;
    assert_eq!(
        format_mlsx(&dir, facts, Some(11)),
        b"Type=cdir;Perm=cfmpel;X.count=11; f3m"
    );
    dir.permissions.write = false;
    assert_eq!(mlsx(&dir, facts), "Type=cdir;Perm=el; f3m");
    dir.permissions = EntryPermissions::default();
    assert_eq!(mlsx(&dir, facts), "Type=cdir;Perm=; f3m");
}

#[test]
fn control_bytes_in_names_and_link_targets_cannot_forge_a_line() {
    let mut e = entry();
    e.name = b"a\r\nType=dir; b\0".to_vec();
    e.owner = "domain users".to_owned();
    e.group = String::new();
    e.link_target = Some(b"/a; b".to_vec());
    let line = mlsx(&e, FactSet::parse("type;unix.slink;unix.owner;unix.group"));
    assert_eq!(
        line,
        "Type=file;UNIX.owner=1001;UNIX.group=0; a??Type=dir; b?"
    );
    assert!(!ls(&e).contains(['\r', '\n', '\0']));
    e.link_target = Some(b"/a".to_vec());
    assert_eq!(
        mlsx(&e, FactSet::parse("UNIX.slink")),
        "UNIX.slink=/a; a??Type=dir; b?"
    );
}

#[test]
fn a_link_to_a_directory_is_shown_as_a_link_without_unix_slink() {
    let mut link = entry();
    link.kind = EntryKind::Dir;
    link.link_target = Some(b"..".to_vec());
    assert_eq!(
        mlsx(&link, FactSet::parse("type;size")),
        "Type=OS.unix=slink:..;Size=3000000; f3m"
    );
    assert_eq!(
        mlsx(&link, FactSet::parse("type;unix.slink")),
        "Type=dir;UNIX.slink=..; f3m"
    );
    link.link_target = Some(b"../a; b".to_vec());
    for facts in ["type", "type;unix.slink"] {
        let line = mlsx(&link, FactSet::parse(facts));
        assert_eq!(
            line, "Type=OS.unix=slink; f3m",
            "the target breaks the line"
        );
    }
    assert!(
        ls(&link).starts_with("lrwxrwxrwx   1 "),
        "LIST: {}",
        ls(&link)
    );
    assert!(ls(&link).ends_with(" f3m -> ../a; b"));
}

#[test]
fn a_dangling_link_is_listed_with_its_target() {
    let mut link = entry();
    link.kind = EntryKind::SymLink;
    link.permissions = EntryPermissions::default();
    link.link_target = Some(b"gone".to_vec());
    let facts = FactSet::parse("type;perm;unix.slink");
    assert_eq!(
        mlsx(&link, facts),
        "Type=OS.unix=slink:gone;Perm=;UNIX.slink=gone; f3m"
    );
    let line = mlsx(&link, facts);
    let read = parse_mlsx(line.as_bytes()).unwrap();
    assert_eq!(
        (read.kind, read.link_target.as_deref()),
        (EntryKind::SymLink, Some(&b"gone"[..]))
    );
}

#[test]
fn facts_of_real_servers_are_parsed() {
    let globus = b" Type=dir;Modify=20261120082103;Size=4096;Perm=cfmpel;UNIX.mode=0777;\
        UNIX.owner=testuser;UNIX.uid=1001;UNIX.group=domain users;Unique=fe00-99075f; a b; c\r\r\n";
    let entry = parse_mlsx(globus).unwrap();
    assert_eq!(entry.name, b"a b; c");
    assert_eq!(entry.kind, EntryKind::Dir);
    assert_eq!(entry.size, Some(4096));
    assert_eq!(entry.modified, Some(NOW));
    assert_eq!(entry.mode, Some(0o777));
    assert_eq!(entry.owner.as_deref(), Some("testuser"));
    assert_eq!(entry.group.as_deref(), Some("domain users"));

    let plain = parse_mlsx(b"modify=20261120082103;type=OS.unix=slink:x;size=6 link").unwrap();
    assert_eq!(
        (plain.name.as_slice(), plain.kind),
        (&b"link"[..], EntryKind::SymLink)
    );
    assert_eq!(plain.link_target.as_deref(), Some(&b"x"[..]));
    let followed = parse_mlsx(b"Type=dir;Unique=fe00-2;UNIX.slink=/a=b; link").unwrap();
    assert_eq!(followed.kind, EntryKind::Dir);
    assert_eq!(followed.link_target.as_deref(), Some(&b"/a=b"[..]));
    assert!(followed.is_symlink() && plain.is_symlink() && !entry.is_symlink());
    let pipe = parse_mlsx(b"Type=OS.unix=pipe; fifo").unwrap();
    assert_eq!(pipe.kind, EntryKind::Other);
}

#[test]
fn invalid_facts_are_ignored() {
    let entry = parse_mlsx(b"Type=file;Size=+1;Modify=x;UNIX.mode=99;foo;bar=; x").unwrap();
    assert_eq!((entry.size, entry.modified, entry.mode), (None, None, None));
    for line in [
        &b""[..],
        b" ",
        b"x",
        b"Type=file;",
        b"Type=file; ",
        b" name only",
        b"size=1;modify=20260101000000; no kind",
        b"type=folder; an unknown kind",
        b"perm=d; of what?",
    ] {
        assert_eq!(parse_mlsx(line), None, "{line:?}");
    }
}

#[test]
fn the_kind_of_an_entry_without_type_is_that_of_its_permissions() {
    for (line, kind) in [
        ("perm=el; x", EntryKind::Dir),
        ("Perm=adfrw;size=1; x", EntryKind::File),
        ("sizd=4096; x", EntryKind::Dir),
    ] {
        let entry = parse_mlsx(line.as_bytes()).unwrap();
        assert_eq!(entry.kind, kind, "{line}");
    }
}

#[test]
fn ls_lines_are_written() {
    assert_eq!(
        ls(&entry()),
        "-rw-r--r--   1 testuser root          3000000 Nov 20 08:21 f3m"
    );
    let mut e = entry();
    e.kind = EntryKind::Dir;
    e.mode = 0o7644;
    assert!(ls(&e).starts_with("drwSr-Sr-T "), "{}", ls(&e));
    e.mode = 0o7755;
    assert!(ls(&e).starts_with("drwsr-sr-t "), "{}", ls(&e));
    e.kind = EntryKind::SymLink;
    e.link_target = Some(b"gone".to_vec());
    assert!(ls(&e).ends_with(" f3m -> gone"));
}

#[test]
fn ls_lines_of_many_servers_are_parsed() {
    let link = parse_ls(b"lrwxrwxrwx 1 u g 4 Nov 20 08:21 a -> ../b", NOW).unwrap();
    assert_eq!(link.link_target.as_deref(), Some(&b"../b"[..]));
    for (line, name, kind, size) in [
        (
            "-rwxrwxrwx   1  testuser     root      3000000 Nov 20 08:21 f3m",
            "f3m",
            EntryKind::File,
            Some(3_000_000),
        ),
        (
            "drwxr-xr-x  12     root     root         4096 Nov 20 09:07 ..",
            "..",
            EntryKind::ParentDir,
            Some(4096),
        ),
        (
            "-rw-r--r-- 1 0 0 6 Jan  1  2024  two  spaces ",
            " two  spaces ",
            EntryKind::File,
            Some(6),
        ),
        (
            "lrwxrwxrwx 1 u g 4 Nov 20 08:21 a b -> c -> d",
            "a b",
            EntryKind::SymLink,
            Some(4),
        ),
        (
            "-rw-r--r--. 1 u 6 Nov 20 08:21 no group",
            "no group",
            EntryKind::File,
            Some(6),
        ),
        (
            "-rw-r--r--+ 1 6 Nov 20 08:21 neither",
            "neither",
            EntryKind::File,
            Some(6),
        ),
        (
            "-rw-r--r-- 6 Nov 20 08:21 bare",
            "bare",
            EntryKind::File,
            Some(6),
        ),
        (
            "-rw-r--r-- 1 May 12 2000 Nov 20 08:21 x",
            "x",
            EntryKind::File,
            Some(2000),
        ),
        (
            "-rw-r--r-- 1 u g 6 20 nov 2024 x",
            "x",
            EntryKind::File,
            Some(6),
        ),
        (
            "-rw-r--r-- 1 u g 6 2026-11-20 08:21 x",
            "x",
            EntryKind::File,
            Some(6),
        ),
        (
            "crw-rw-rw- 1 root root 1, 3 Nov 20 08:21 null",
            "null",
            EntryKind::Other,
            None,
        ),
        (
            "11-20-26  08:21AM       <DIR>          my dir",
            "my dir",
            EntryKind::Dir,
            None,
        ),
        (
            "11-20-26  08:21AM       <DIR>            two spaces",
            "  two spaces",
            EntryKind::Dir,
            None,
        ),
        (
            "11-20-2026  08:21PM              3000 a b",
            "a b",
            EntryKind::File,
            Some(3000),
        ),
    ] {
        let entry = parse_ls(format!("{line}\r\n").as_bytes(), NOW).expect(line);
        assert_eq!(entry.name, name.as_bytes(), "{line}");
        assert_eq!((entry.kind, entry.size), (kind, size), "{line}");
    }
}

#[test]
fn owner_and_group_are_parsed_if_present() {
    let entry = parse_ls(b"drwsr-x--T 2 u g 6 Nov 20 08:21 x", NOW).unwrap();
    assert_eq!(entry.owner.as_deref(), Some("u"));
    assert_eq!(entry.group.as_deref(), Some("g"));
    assert_eq!(entry.mode, Some(0o5750));
    let entry = parse_ls(b"-rw-r----- u 6 Nov 20 08:21 x", NOW).unwrap();
    assert_eq!((entry.owner.as_deref(), entry.group), (Some("u"), None));
}

#[test]
fn lines_that_are_no_entries_are_not_parsed() {
    for line in [
        "",
        "total 12",
        "-rw-r--r--",
        "-rw-r--r-- 1 u g 6 Nov 20 08:21",
        "-rw-r--r-- 1 u g 6 Nov 20 08:21 ",
        "-rw-r--r-- 1 u g x Nov 20 08:21 x",
        "-rw-r--r-- 1 u g 6 Nov 99 08:21 x",
        "-rw-r--r-- 1 u g 99999999999999999999999 Nov 20 08:21 x",
        "xrw-r--r-- 1 u g 6 Nov 20 08:21 x",
        "-rwzr--r-- 1 u g 6 Nov 20 08:21 x",
        "11-20-26  08:21AM  <DIR>",
        "11-20-26  99:21AM  6 x",
    ] {
        assert_eq!(parse_ls(line.as_bytes(), NOW), None, "{line:?}");
    }
}
