use super::*;
use crate::ranges::RangeSet;
use crate::sizing::Sizing;
use crate::streams::StreamRange;

fn ok(line: &str) -> Command {
    Command::parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn opts(line: &str) -> Opts {
    match ok(line) {
        Command::Opts(opts) => opts,
        other => panic!("{line}: {other:?}"),
    }
}

fn site(line: &str) -> Site {
    match ok(line) {
        Command::Site(site) => site,
        other => panic!("{line}: {other:?}"),
    }
}

fn all_syntax(lines: &[&str]) {
    for line in lines {
        let result = Command::parse(line.as_bytes());
        assert!(
            matches!(result, Err(CommandError::Syntax { .. })),
            "{line}: {result:?}"
        );
    }
}

fn all_not_offered(lines: &[&str]) {
    for line in lines {
        let result = Command::parse(line.as_bytes());
        assert!(
            matches!(result, Err(CommandError::Parameter { .. })),
            "{line}: {result:?}"
        );
    }
}

#[test]
fn verbs_have_no_case_and_end_at_a_space() {
    assert_eq!(ok("noop"), Command::Noop);
    assert_eq!(ok("NoOp x y"), Command::Noop);
    for line in [
        &b""[..],
        b" ",
        b"FOO",
        b"RETR\t/a",
        b"RETRX",
        b"\xff\xfe",
        b" NOOP",
    ] {
        assert!(
            matches!(Command::parse(line), Err(CommandError::Unknown(_))),
            "{line:?}"
        );
    }
    let long = [b'x'; 100_000];
    let Err(CommandError::Unknown(quoted)) = Command::parse(&long) else {
        panic!("taken");
    };
    assert_eq!(quoted.len(), 32);
}

#[test]
fn one_space_ends_the_verb_and_all_others_belong_to_the_name() {
    let name = || b"  a b ".to_vec();
    assert_eq!(ok("RETR   a b "), Command::Retr(name()));
    assert_eq!(ok("STOR   a b "), Command::Stor(name()));
    assert_eq!(ok("DELE   a b "), Command::Dele(name()));
    assert_eq!(ok("RNFR   a b "), Command::Rnfr(name()));
    assert_eq!(ok("RNTO   a b "), Command::Rnto(name()));
    assert_eq!(ok("MLSD   a b "), Command::Mlsd(Some(name())));
    assert_eq!(ok("MLST   a b "), Command::Mlst(Some(name())));
    assert_eq!(ok("LIST -la   a b "), Command::List(Some(name())));
    assert_eq!(ok("ESTO A 5   a b "), Command::Esto(5, name()));
    assert_eq!(
        ok("SITE CHMOD 644   a b "),
        Command::Site(Site::Chmod(0o644, name()))
    );
    assert_eq!(ok("SITE RDEL   a b "), Command::Site(Site::Rdel(name())));
    let sum = ok("CKSM MD5 0 -1   a b ");
    assert!(matches!(sum, Command::Cksm { path, .. } if path == name()));
    assert_eq!(ok("STOR  "), Command::Stor(b" ".to_vec()));
    for line in ["LIST ", "LIST -a ", "NLST "] {
        let command = ok(line);
        assert!(
            matches!(command, Command::List(None) | Command::Nlst(None)),
            "{line:?}: {command:?}"
        );
    }
}

#[test]
fn spaces_too_many_are_taken_where_no_name_follows() {
    assert_eq!(ok("TYPE  I "), Command::Type(Type::Image));
    assert_eq!(ok("MODE  E "), Command::Mode(Mode::Extended));
    assert_eq!(ok("USER  ann "), Command::User("ann".to_owned()));
    assert!(matches!(ok("PORT  127,0,0,1,8,1 "), Command::Port(_)));
    assert_eq!(ok("REST  10 "), Command::Rest(Restart::Offset(10)));
    assert_eq!(ok("NOOP "), Command::Noop);
    assert_eq!(
        ok("SITE  CHMOD  644 a"),
        Command::Site(Site::Chmod(0o644, b"a".to_vec()))
    );
}

#[test]
fn names_with_spaces_come_back_from_their_lines() {
    for command in [
        Command::Stor(b" ls.txt ".to_vec()),
        Command::Rnto(b"  x".to_vec()),
        Command::Mlst(Some(b" x ".to_vec())),
        Command::Site(Site::SymlinkTo(b" x".to_vec())),
    ] {
        assert_eq!(Command::parse(&command.encode()), Ok(command));
    }
}

#[test]
fn the_old_verbs_mean_the_new_ones() {
    assert_eq!(ok("XPWD"), Command::Pwd);
    assert_eq!(ok("XCUP"), Command::Cdup);
    assert_eq!(ok("XCWD a"), Command::Cwd(b"a".to_vec()));
    assert_eq!(ok("XMKD a"), Command::Mkd(b"a".to_vec()));
    assert_eq!(ok("XRMD a"), Command::Rmd(b"a".to_vec()));
}

#[test]
fn verbs_that_are_known_but_not_offered_say_so() {
    for verb in ["SMNT", "ABUF", "GET", "PUT", "HOST", "XCRC", "DCSC"] {
        assert_eq!(
            Command::parse(verb.to_lowercase().as_bytes()),
            Err(CommandError::NotImplemented(verb))
        );
    }
}

#[test]
fn security_commands_keep_their_tokens() {
    let token = || SecurityToken::new(b"token".to_vec()).unwrap();
    assert_eq!(ok("AUTH GSSAPI"), Command::Auth("GSSAPI".to_owned()));
    assert_eq!(ok("adat dG9rZW4="), Command::Adat(token()));
    assert_eq!(ok("MIC dG9rZW4= "), Command::Mic(token()));
    assert_eq!(ok("CONF  dG9rZW4="), Command::Conf(token()));
    assert_eq!(ok("ENC dG9rZW4="), Command::Enc(token()));
    assert_eq!(ok("CCC"), Command::Ccc);
    assert_eq!(Command::Adat(token()).encode(), b"ADAT dG9rZW4=");
    all_syntax(&[
        "ADAT",
        "MIC",
        "CONF",
        "ENC",
        "ADAT x",
        "ADAT dG9rZW4",
        "MIC dG9rZW4= x",
    ]);
}

#[test]
fn a_token_is_not_shown() {
    for verb in ["ADAT", "MIC", "CONF", "ENC"] {
        let shown = format!("{:?}", ok(&format!("{verb} dG9rZW4=")));
        assert!(
            !shown.contains("dG9") && !shown.contains("oken\""),
            "{shown}"
        );
        let spoiled = format!("{verb} dG9rZW4");
        let error = Command::parse(spoiled.as_bytes()).unwrap_err();
        assert!(!format!("{error:?}").contains("dG9"), "{error:?}");
    }
}

#[test]
fn every_verb_is_listed_once() {
    let mut names: Vec<&str> = parse::VERBS.iter().map(|(name, _)| *name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(names.iter().all(|n| {
        n.bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    }));
}

#[test]
fn a_nul_is_a_syntax_error_everywhere() {
    all_syntax(&["RETR a\0b", "NOOP \0", "PASS \0", "USER \0"]);
}

#[test]
fn missing_arguments_are_syntax_errors() {
    all_syntax(&[
        "USER",
        "USER  ",
        "ACCT",
        "CLNT",
        "OPTS",
        "TYPE",
        "MODE",
        "STRU",
        "ALLO",
        "SBUF",
        "DCAU",
        "PBSZ",
        "PROT",
        "PORT",
        "EPRT",
        "SPOR",
        "RETR",
        "STOR",
        "APPE",
        "ERET",
        "ERET P",
        "ERET P 0 1",
        "ESTO",
        "ESTO A 0",
        "REST",
        "SIZE",
        "MDTM",
        "MFMT",
        "MFMT 20261120082103",
        "CWD",
        "MKD",
        "RMD",
        "DELE",
        "RNFR",
        "RNTO",
        "CKSM",
        "CKSM MD5 0 -1",
        "SCKS",
        "SCKS MD5",
        "TREV PERF",
        "SITE",
        "SITE CHMOD 755",
        "SITE UTIME",
        "SITE SYMLINK a",
        "SITE TRNC 1",
        "SITE STORATTR",
        "SITE SBUF",
    ]);
}

#[test]
fn one_argument_too_many_is_a_syntax_error() {
    all_syntax(&[
        "TYPE I N",
        "TYPE A N x",
        "TYPE L 8 8",
        "MODE E S",
        "STRU F R",
        "ALLO 100 10",
        "ALLO 100 R 10 x",
        "SBUF 1 2",
        "DCAU N x",
        "PBSZ 0 0",
        "PROT C P",
        "PORT 127,0,0,1,1,0 127,0,0,1,1,1",
        "EPRT |2|::1|99| |2|::1|98|",
        &format!("DPRT |1|127.0.0.1|256|{NONCE}| x"),
        "EPSV 1 2",
        "SPAS 1 2",
        "REST 1 2",
        "REST 0-1 2-3",
        "SCKS CRC32 0a1b2c3d 0a1b2c3d",
        "SITE UMASK 022 x",
        "SITE IDLE 5 6",
        "SITE DATAPEER 192.0.2.1 192.0.2.2",
        "SITE SBUF 1 2",
        "SITE RETRBUFSIZE 1 2",
    ]);
    assert_eq!(ok("ALLO 100 r 10 "), Command::Allo(100));
    assert_eq!(site("SITE IDLE 5 "), Site::Idle(Some(5)));
}

#[test]
fn a_password_is_everything_after_one_space() {
    let pass = |line: &[u8]| Command::parse(line).unwrap();
    assert_eq!(pass(b"PASS"), Command::Pass(Secret(vec![])));
    assert_eq!(pass(b"PASS "), Command::Pass(Secret(vec![])));
    assert_eq!(
        pass(b"pass  a\xff\t "),
        Command::Pass(Secret(b" a\xff\t ".to_vec()))
    );
    assert!(!format!("{:?}", pass(b"PASS hunter2")).contains("hunter2"));
}

#[test]
fn a_user_name_is_text() {
    assert_eq!(ok("USER  a b  "), Command::User("a b".to_owned()));
    assert!(matches!(
        Command::parse(b"USER \xff"),
        Err(CommandError::Syntax { verb: "USER", .. })
    ));
}

#[test]
fn transfer_parameters() {
    for line in ["TYPE A", "type a n", "TYPE A  "] {
        assert_eq!(ok(line), Command::Type(Type::Ascii), "{line}");
    }
    for line in ["TYPE I", "TYPE i  ", "TYPE L 8"] {
        assert_eq!(ok(line), Command::Type(Type::Image), "{line}");
    }
    assert_eq!(ok("MODE e"), Command::Mode(Mode::Extended));
    assert_eq!(ok("STRU f"), Command::Stru('F'));
    assert_eq!(ok("ALLO 100 R 10"), Command::Allo(100));
    assert_eq!(ok("PBSZ 4294967295"), Command::Pbsz(u32::MAX));
    assert_eq!(
        ok("DCAU s /O=Grid/CN=a b"),
        Command::Dcau(Dcau::Subject("/O=Grid/CN=a b".into()))
    );
    assert_eq!(ok("PROT p"), Command::Prot(Prot::Private));
    assert_eq!(ok("TREV perf 5"), Command::Trev(TrevEvent::Perf, 5));
    all_not_offered(&[
        "TYPE E",
        "TYPE A T",
        "TYPE L 7",
        "TYPE L",
        "MODE B",
        "MODE X",
        "DCAU X",
        "PROT X",
        "TREV FOO 1",
    ]);
    all_syntax(&[
        "TYPE IMAGE",
        "MODE 1",
        "STRU FF",
        "ALLO x",
        "ALLO -1",
        "ALLO 100 R",
        "ALLO 100 R abc",
        "PBSZ 4294967296",
        "PBSZ +1",
        "DCAU S",
        "DCAU NONE",
        "PROT Clear",
        "TREV PERF -1",
        "SBUF 9223372036854775808",
        "ALLO 99999999999999999999999",
    ]);
}

#[test]
fn addresses() {
    let v4 = "127.0.0.1:256".parse().unwrap();
    let v6 = "[::1]:99".parse().unwrap();
    assert_eq!(ok("PORT 127,0,0,1,1,0"), Command::Port(v4));
    assert_eq!(ok("EPRT |2|::1|99|"), Command::Eprt(v6));
    assert_eq!(
        ok("SPOR 127,0,0,1,1,0  |2|::1|99|"),
        Command::Spor(vec![v4, v6])
    );
    assert_eq!(ok("EPSV"), Command::Epsv(EpsvArg::Any));
    assert_eq!(ok("EPSV 2"), Command::Epsv(EpsvArg::Family(Family::V6)));
    assert_eq!(ok("EPSV all"), Command::Epsv(EpsvArg::All));
    assert_eq!(ok("SPAS"), Command::Spas(None));
    assert_eq!(ok("SPAS 1"), Command::Spas(Some(Family::V4)));
    all_syntax(&["PORT 1,2,3", "EPRT x", "SPOR x", "EPSV x", "SPAS x"]);
    for line in ["EPRT |3|::1|99|", "EPSV 3", "SPAS 3", "SPOR |7|::1|99|"] {
        assert_eq!(
            Command::parse(line.as_bytes()),
            Err(CommandError::Address(AddressError::Protocol)),
            "{line}"
        );
    }
}

const NONCE: &str = "000102030405060708090a0b0c0d0eff";

#[test]
fn right_sizing() {
    assert_eq!(ok("dpsv"), Command::Dpsv);
    let Command::Dprt(to) = ok(&format!("DPRT |1|127.0.0.1|256|{NONCE}|")) else {
        panic!("no DPRT");
    };
    assert_eq!(to.at, "127.0.0.1:256".parse().unwrap());
    assert_eq!(
        Command::parse(format!("DPRT |3|::1|99|{NONCE}|").as_bytes()),
        Err(CommandError::Address(AddressError::Protocol))
    );
    all_syntax(&[
        "DPRT",
        "DPRT |1|127.0.0.1|256|",
        "DPRT |1|127.0.0.1|256||",
        "DPRT |1|127.0.0.1|256|xyz|",
        &format!("DPRT |1|127.0.0.1|256|{NONCE}0|"),
        &format!("DPRT 127,0,0,1,1,0 {NONCE}"),
    ]);
    for sizing in Sizing::ALL {
        let line = format!("opts drs {}", sizing.name().to_uppercase());
        assert_eq!(opts(&line), Opts::Sizing(sizing), "{line}");
    }
    all_syntax(&[
        "OPTS DRS",
        "OPTS DRS drs2",
        "OPTS DRS drs x",
        "OPTS DRS =drs",
    ]);
}

#[test]
fn a_nonce_is_not_shown() {
    let line = format!("DPRT |1|127.0.0.1|256|{NONCE}|");
    let shown = format!("{:?}", ok(&line));
    assert!(!shown.contains(&NONCE[..8]), "{shown}");
    let spoiled = format!("DPRT |1|127.0.0.1|256|{NONCE}");
    let error = Command::parse(spoiled.as_bytes()).unwrap_err();
    assert!(!format!("{error:?}").contains(&NONCE[..8]), "{error:?}");
}

#[test]
fn restart_markers() {
    assert_eq!(ok("REST 100"), Command::Rest(Restart::Offset(100)));
    assert_eq!(
        ok("REST 0-100,200-300"),
        Command::Rest(Restart::Ranges(RangeSet::parse("0-100,200-300").unwrap()))
    );
    assert_eq!(
        ok("REST 9223372036854775807"),
        Command::Rest(Restart::Offset(MAX_NUMBER))
    );
    all_syntax(&[
        "REST 0-",
        "REST -5",
        "REST x",
        "REST 5-4",
        "REST 9223372036854775808",
        "REST 0-9223372036854775808",
        "REST 99999999999999999999999",
        "REST +1",
    ]);
}

#[test]
fn parts_of_files() {
    let part = Retrieve::Partial {
        offset: 5,
        length: 10,
    };
    assert_eq!(
        ok("ERET p 5 10 a b"),
        Command::Eret(part.clone(), b"a b".to_vec())
    );
    assert_eq!(
        ok("ERET Partial 5 10 x"),
        Command::Eret(part, b"x".to_vec())
    );
    assert_eq!(ok("ESTO a 5 x"), Command::Esto(5, b"x".to_vec()));
    all_not_offered(&["ERET X 1 2 a", "ESTO P 1 a", "ERET NAME=\"x\" a"]);
    all_syntax(&["ERET P -1 2 a", "ERET P 1 x a", "ESTO A x a"]);
}

#[test]
fn options_of_listings_are_dropped() {
    assert_eq!(ok("LIST"), Command::List(None));
    assert_eq!(ok("NLST -CF"), Command::Nlst(None));
    assert_eq!(
        ok("LIST -la  -R a -b"),
        Command::List(Some(b"a -b".to_vec()))
    );
    assert_eq!(
        ok("MLSD -a"),
        Command::Mlsd(Some(b"-a".to_vec())),
        "MLSD has none"
    );
}

#[test]
fn times_and_checksums() {
    assert_eq!(
        ok("MFMT 19700101000001 a b"),
        Command::Mfmt(Timestamp(1), b"a b".to_vec())
    );
    assert_eq!(
        ok("MDTM 20260101000000 a"),
        Command::Mdtm(b"20260101000000 a".to_vec()),
        "has no form that sets"
    );
    let cksm = |length| Command::Cksm {
        algorithm: Algorithm::Adler32,
        offset: 1,
        length,
        path: b"a b".to_vec(),
    };
    assert_eq!(ok("CKSM adler32 1 -1 a b"), cksm(None));
    assert_eq!(ok("CKSM ADLER32 1 7 a b"), cksm(Some(7)));
    assert_eq!(
        ok("SCKS crc32 ABC"),
        Command::Scks(Algorithm::Crc32, "00000abc".to_owned())
    );
    all_not_offered(&["CKSM FOO 0 -1 a", "SCKS FOO 00"]);
    all_syntax(&[
        "MFMT x a",
        "CKSM MD5 0 -2 a",
        "CKSM MD5 -1 -1 a",
        "SCKS MD5 00",
        "SCKS CRC32 x",
    ]);
}

#[test]
fn opts_retr() {
    use RetrOption as R;
    let range = |start, least, most| R::Parallelism(StreamRange { start, least, most });
    for (line, expected) in [
        ("OPTS RETR Parallelism=4,1,8;", vec![range(4, 1, 8)]),
        ("OPTS RETR Parallelism=4,6,2;", vec![range(4, 4, 4)]),
        ("opts retr parallelism=4", vec![range(4, 4, 4)]),
        ("OPTS RETR StripeLayout=Partitioned;", vec![R::Partitioned]),
        (
            "OPTS RETR StripeLayout=Blocked;BlockSize=1000;Markers=1;",
            vec![R::Blocked, R::BlockSize(1000), R::Markers(1)],
        ),
    ] {
        assert_eq!(opts(line), Opts::Retr(expected), "{line}");
    }
    all_syntax(&[
        "OPTS RETR Parallelism=0;",
        "OPTS RETR Parallelism=4097;",
        "OPTS RETR Parallelism=1,2,3,4;",
        "OPTS RETR Parallelism=1,x;",
        "OPTS RETR Parallelism=;",
        "OPTS RETR StripeLayout=Foo;",
        "OPTS RETR BlockSize=0;",
        "OPTS RETR Markers=4294967296;",
    ]);
    for line in [
        "RETR",
        "RETR PacketSize=10;",
        "RETR Foo",
        "FOO x",
        "STOR Parallelism=4;",
    ] {
        assert_eq!(
            opts(&format!("OPTS {line}")),
            Opts::Unknown(line.to_owned())
        );
    }
}

#[test]
fn opts_of_other_commands() {
    for (line, expected) in [
        (
            "OPTS STOR Checksum=sha256;",
            Opts::StorChecksum(Some(Algorithm::Sha256)),
        ),
        ("OPTS STOR Checksum=None", Opts::StorChecksum(None)),
        ("OPTS PASV AllowDelayed=1;", Opts::AllowDelayed(true)),
        ("OPTS EPSV allowdelayed=0", Opts::AllowDelayed(false)),
        (
            "OPTS MLST type;size;",
            Opts::Facts(Some("type;size;".to_owned())),
        ),
        ("OPTS MLST", Opts::Facts(None)),
        ("OPTS MLSR OnError=Continue;", Opts::Mlsr),
        (
            "OPTS MLSR OnError=Fail;TraverseSymbolicLinks=true;",
            Opts::Mlsr,
        ),
        ("OPTS MLSR type;", Opts::Facts(Some("type;".to_owned()))),
        ("OPTS CKSM Markers=5;", Opts::ChecksumMarkers(5)),
        ("OPTS UTF8 ON", Opts::Utf8(true)),
        ("OPTS UTF8", Opts::Utf8(true)),
        ("OPTS UTF-8 NLST", Opts::Utf8(true)),
        ("OPTS UTF8 off", Opts::Utf8(false)),
        ("OPTS PASV x", Opts::Unknown("PASV x".to_owned())),
        ("OPTS MLST a=b;", Opts::Unknown("MLST a=b;".to_owned())),
    ] {
        assert_eq!(opts(line), expected, "{line}");
    }
    all_syntax(&[
        "OPTS STOR Checksum=FOO;",
        "OPTS PASV AllowDelayed=2;",
        "OPTS CKSM Markers=x;",
        "OPTS MLSR OnError=x;",
    ]);
}

#[test]
fn site_commands_on_files() {
    let time = Timestamp(1_609_556_645);
    for (line, expected) in [
        (
            "SITE chmod 755 ./a b",
            Site::Chmod(0o755, b"./a b".to_vec()),
        ),
        ("SITE CHMOD 0644 a", Site::Chmod(0o644, b"a".to_vec())),
        (
            "SITE CHGRP g a b",
            Site::Chgrp("g".to_owned(), b"a b".to_vec()),
        ),
        (
            "SITE UTIME 20210102030405 a b",
            Site::Utime(time, b"a b".to_vec()),
        ),
        (
            "SITE UTIME a b 20200101000000 20210102030405 20220101000000 UTC",
            Site::Utime(time, b"a b".to_vec()),
        ),
        (
            "SITE SYMLINK a b c",
            Site::Symlink(b"a".to_vec(), b"b c".to_vec()),
        ),
        ("SITE SYMLINKFROM a", Site::SymlinkFrom(b"a".to_vec())),
        ("SITE SYMLINKTO a", Site::SymlinkTo(b"a".to_vec())),
        ("SITE RDEL a", Site::Rdel(b"a".to_vec())),
        ("SITE TRNC 3 a", Site::Truncate(3, b"a".to_vec())),
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
fn site_commands_of_the_session() {
    for (line, expected) in [
        ("SITE HELP", Site::Help),
        ("SITE RETRBUFSIZE 5", Site::Buffer(BufferSide::Send, 5)),
        ("SITE SBUFSIZ 5", Site::Buffer(BufferSide::Receive, 5)),
        ("SITE BUFSIZE 5", Site::Buffer(BufferSide::Both, 5)),
        (
            "SITE CLIENTINFO a=\"b c\";",
            Site::ClientInfo("a=\"b c\";".to_owned()),
        ),
        ("SITE TASKID 7", Site::TaskId("7".to_owned())),
        ("SITE UMASK", Site::Umask(None)),
        ("SITE UMASK 022", Site::Umask(Some(0o22))),
        ("SITE IDLE", Site::Idle(None)),
        ("SITE IDLE 60", Site::Idle(Some(60))),
        ("SITE FOO bar", Site::Unknown("FOO bar".to_owned())),
        (
            "SITE STORATTR modify=19700101000001;checksum.MD5=0123456789ABCDEF0123456789abcdef;",
            Site::StorAttr {
                modify: Some(Timestamp(1)),
                checksum: Some((Algorithm::Md5, "0123456789abcdef".repeat(2))),
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
    ]);
    all_not_offered(&["SITE STORATTR checksum.FOO=1;", "SITE STORATTR foo=1;"]);
}

#[test]
fn writing_cannot_make_two_commands_of_one() {
    let command = Command::Retr(b"a\r\nDELE b\0".to_vec());
    assert_eq!(command.encode(), b"RETR a??DELE b?");
}

#[test]
fn an_empty_range_list_is_written_as_one() {
    let command = Command::Rest(Restart::Ranges(RangeSet::new()));
    assert_eq!(command.encode(), b"REST 0-0");
}
