//! Parsing of SITE.

use super::*;

#[test]
fn site_commands_on_files_are_parsed() {
    let time = Timestamp(1_609_556_645);
    for (line, expected) in [
        (
            "SITE chmod 755 ./a b",
            SiteCommand::Chmod(0o755, b"./a b".to_vec()),
        ),
        (
            "SITE CHMOD 0644 a",
            SiteCommand::Chmod(0o644, b"a".to_vec()),
        ),
        (
            "SITE CHGRP g a b",
            SiteCommand::Chgrp("g".to_owned(), b"a b".to_vec()),
        ),
        (
            "SITE UTIME 20210102030405 a b",
            SiteCommand::Utime(time, b"a b".to_vec()),
        ),
        (
            "SITE UTIME a b 20200101000000 20210102030405 20220101000000 UTC",
            SiteCommand::Utime(time, b"a b".to_vec()),
        ),
        (
            "SITE SYMLINK a b c",
            SiteCommand::Symlink(b"a b c".to_vec()),
        ),
        (
            "SITE SYMLINKFROM a",
            SiteCommand::SymlinkFrom(b"a".to_vec()),
        ),
        ("SITE SYMLINKTO a", SiteCommand::SymlinkTo(b"a".to_vec())),
        ("SITE RDEL a", SiteCommand::RemoveTree(b"a".to_vec())),
        (
            "SITE SETDISKSTACK  file ",
            SiteCommand::DriverStack(DriverStack::Disk, "file".to_owned()),
        ),
        // Of white space, only spaces separate arguments.
        (
            "SITE SETNETSTACK \u{b}",
            SiteCommand::DriverStack(DriverStack::Net, "\u{b}".to_owned()),
        ),
        ("SITE TRNC 3 a", SiteCommand::Truncate(3, b"a".to_vec())),
    ] {
        assert_eq!(site(line), expected, "{line}");
    }
    all_syntax(&[
        "SITE CHMOD 888 a",
        "SITE CHMOD 10000 a",
        "SITE CHMOD +7 a",
        "SITE UTIME x a",
        "SITE UTIME 1 2 3 4 UTC",
        "SITE TRNC -1 a",
    ]);
}

#[test]
fn site_commands_of_the_session_are_parsed() {
    for (line, expected) in [
        ("SITE HELP", SiteCommand::Help),
        (
            "SITE RETRBUFSIZE 5",
            SiteCommand::Buffer(BufferDirection::Send, 5),
        ),
        (
            "SITE SBUFSIZ 5",
            SiteCommand::Buffer(BufferDirection::Receive, 5),
        ),
        (
            "SITE BUFSIZE 5",
            SiteCommand::Buffer(BufferDirection::Both, 5),
        ),
        (
            "SITE CLIENTINFO a=\"b c\";",
            SiteCommand::ClientInfo("a=\"b c\";".to_owned()),
        ),
        ("SITE TASKID 7", SiteCommand::TaskId("7".to_owned())),
        ("SITE UMASK", SiteCommand::Umask(None)),
        ("SITE UMASK 022", SiteCommand::Umask(Some(0o22))),
        ("SITE IDLE", SiteCommand::Idle(None)),
        ("SITE IDLE 60", SiteCommand::Idle(Some(60))),
        ("SITE FOO bar", SiteCommand::Unknown("FOO bar".to_owned())),
        (
            "SITE STORATTR modify=19700101000001;checksum.MD5=0123456789ABCDEF0123456789abcdef;",
            SiteCommand::StorAttr {
                modify: Some(Timestamp(1)),
                checksum: Some((ChecksumAlgorithm::Md5, "0123456789abcdef".repeat(2))),
            },
        ),
    ] {
        assert_eq!(site(line), expected, "{line}");
    }
    all_syntax(&[
        "SITE UMASK 9",
        "SITE IDLE x",
        "SITE STORATTR modify=x;",
        "SITE STORATTR x",
        "SITE STORATTR ;",
    ]);
    all_not_offered(&["SITE STORATTR checksum.FOO=1;", "SITE STORATTR foo=1;"]);
}
