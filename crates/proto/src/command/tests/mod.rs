use super::*;
use crate::ranges::RangeSet;
use crate::security::{MAX_CREDENTIAL, MAX_TOKEN};

mod opts;
mod site;
mod transfers;

const NONCE: &str = "000102030405060708090a0b0c0d0eff";

fn ok(line: &str) -> Command {
    Command::parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn opts(line: &str) -> OptsCommand {
    match ok(line) {
        Command::Opts(opts) => opts,
        other => panic!("{line}: {other:?}"),
    }
}

fn site(line: &str) -> SiteCommand {
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
            matches!(result, Err(CommandError::UnsupportedParameter { .. })),
            "{line}: {result:?}"
        );
    }
}

#[test]
fn a_log_shows_commands_without_their_secrets() {
    for line in [
        "PASS swordfish",
        "ACCT swordfish",
        "ADAT c3dvcmRmaXNo",
        "MIC c3dvcmRmaXNo",
        "CONF c3dvcmRmaXNo",
        "ENC c3dvcmRmaXNo",
        "DCSC P c3dvcmRmaXNo",
        &format!("DPRT |1|192.0.2.1|2811|{NONCE}|"),
    ] {
        let shown = ok(line).for_log();
        let secret = line.rsplit([' ', '|']).find(|word| !word.is_empty());
        assert!(!shown.contains(secret.unwrap()), "{line}: {shown}");
        assert!(shown.ends_with("***"), "{line}: {shown}");
        assert!(shown.starts_with(ok(line).verb()), "{line}: {shown}");
    }
    for line in ["USER alice", "RETR a b", "EPSV", "DCSC D"] {
        assert_eq!(ok(line).for_log(), line);
    }
    assert_eq!(
        Command::Retr(b"a\x1b[2J".to_vec()).for_log(),
        "RETR a\\x1b[2J"
    );
}

#[test]
fn verbs_are_case_insensitive_and_end_at_a_space() {
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
            matches!(Command::parse(line), Err(CommandError::UnknownVerb(_))),
            "{line:?}"
        );
    }
    let long = [b'x'; 100_000];
    let Err(CommandError::UnknownVerb(quoted)) = Command::parse(&long) else {
        panic!("taken");
    };
    assert_eq!(quoted.len(), 32);
}

#[test]
fn spaces_after_the_first_belong_to_the_file_name() {
    let name = || b"  a b ".to_vec();
    assert_eq!(ok("RETR   a b "), Command::Retr(name()));
    assert_eq!(ok("STOR   a b "), Command::Stor(name()));
    assert_eq!(ok("DELE   a b "), Command::Dele(name()));
    assert_eq!(ok("RNFR   a b "), Command::Rnfr(name()));
    assert_eq!(ok("RNTO   a b "), Command::Rnto(name()));
    assert_eq!(ok("MLSD   a b "), Command::Mlsd(Some(name())));
    assert_eq!(ok("MLST   a b "), Command::Mlst(Some(name())));
    assert_eq!(ok("LIST -la   a b "), Command::List(Some(name())));
    assert_eq!(
        ok("ESTO A 5   a b "),
        Command::Esto(ExtendedStore::Adjusted { offset: 5 }, name())
    );
    assert_eq!(
        ok("SITE CHMOD 644   a b "),
        Command::Site(SiteCommand::Chmod(0o644, name()))
    );
    assert_eq!(
        ok("SITE RDEL   a b "),
        Command::Site(SiteCommand::RemoveTree(name()))
    );
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
fn extra_spaces_are_accepted_before_arguments_that_are_no_path() {
    assert_eq!(ok("TYPE  I "), Command::Type(DataType::Image));
    assert_eq!(ok("MODE  E "), Command::Mode(TransferMode::Extended));
    assert_eq!(ok("USER  ann "), Command::User("ann".to_owned()));
    assert!(matches!(ok("PORT  127,0,0,1,8,1 "), Command::Port(_)));
    assert_eq!(ok("REST  10 "), Command::Rest(RestartMarker::Offset(10)));
    assert_eq!(ok("NOOP "), Command::Noop);
    assert_eq!(
        ok("SITE  CHMOD  644 a"),
        Command::Site(SiteCommand::Chmod(0o644, b"a".to_vec()))
    );
}

#[test]
fn names_with_spaces_are_encoded_and_parsed_back() {
    for command in [
        Command::Stor(b" ls.txt ".to_vec()),
        Command::Rnto(b"  x".to_vec()),
        Command::Mlst(Some(b" x ".to_vec())),
        Command::Site(SiteCommand::SymlinkTo(b" x".to_vec())),
    ] {
        assert_eq!(Command::parse(&command.encode()), Ok(command));
    }
}

#[test]
fn x_verbs_are_aliases() {
    assert_eq!(ok("XPWD"), Command::Pwd);
    assert_eq!(ok("XCUP"), Command::Cdup);
    assert_eq!(ok("XCWD a"), Command::Cwd(b"a".to_vec()));
    assert_eq!(ok("XMKD a"), Command::Mkd(b"a".to_vec()));
    assert_eq!(ok("XRMD a"), Command::Rmd(b"a".to_vec()));
}

#[test]
fn unsupported_verbs_are_reported_as_not_implemented() {
    for verb in ["SMNT", "HOST", "XCRC"] {
        assert_eq!(
            Command::parse(verb.to_lowercase().as_bytes()),
            Err(CommandError::NotImplemented(verb))
        );
    }
}

#[test]
fn dcsc_holds_the_decoded_credential() {
    let pem = || Command::Dcsc(DataCredential::Pem(Secret(b"pem".to_vec())));
    assert_eq!(ok("DCSC D"), Command::Dcsc(DataCredential::Default));
    assert_eq!(ok("dcsc d"), Command::Dcsc(DataCredential::Default));
    assert_eq!(ok("DCSC P cGVt"), pem());
    assert_eq!(ok("DCSC p  cGVt "), pem());
    assert_eq!(pem().encode(), b"DCSC P cGVt");
    assert_eq!(format!("{:?}", pem()), "Dcsc(Pem(Secret(***)))");
    all_syntax(&[
        "DCSC",
        "DCSC P",
        "DCSC P cGV",
        "DCSC P !",
        "DCSC P cGVt cGVt",
        "DCSC D x",
        "DCSC PP",
    ]);
    assert!(matches!(
        Command::parse(b"DCSC X"),
        Err(CommandError::UnsupportedParameter { .. })
    ));
    // Errors are logged, and do not quote the credential.
    let error = Command::parse(b"DCSC P c2VjcmV0!").unwrap_err();
    assert!(!error.to_string().contains("c2V"), "{error}");
}

#[test]
fn the_largest_credential_fits_a_token() {
    let of = |size: usize| Command::Dcsc(DataCredential::Pem(Secret(vec![b'x'; size]))).encode();
    let largest = of(MAX_CREDENTIAL);
    assert!(Command::parse(&largest).is_ok());
    // Protection by TLS adds less than this.
    assert!(largest.len() + 1024 < MAX_TOKEN);
    for size in [MAX_CREDENTIAL + 1, MAX_CREDENTIAL + 3] {
        assert!(matches!(
            Command::parse(&of(size)),
            Err(CommandError::Syntax { .. })
        ));
    }
}

#[test]
fn security_commands_hold_decoded_tokens() {
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
fn debug_output_and_errors_hide_tokens() {
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
fn a_nul_is_a_syntax_error_in_every_command() {
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
fn surplus_arguments_are_syntax_errors() {
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
        "SITE SBUF 1 2",
        "SITE RETRBUFSIZE 1 2",
    ]);
    assert_eq!(ok("ALLO 100 r 10 "), Command::Allo(100));
    assert_eq!(site("SITE IDLE 5 "), SiteCommand::Idle(Some(5)));
    let hosts = |count| format!("SITE DATAPEER{}", " 192.0.2.1".repeat(count));
    let SiteCommand::DataPeer(most) = site(&hosts(256)) else {
        panic!("another command");
    };
    assert_eq!(most.len(), 256);
    all_syntax(&[&hosts(257)]);
}

#[test]
fn a_password_is_all_bytes_after_one_space() {
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
fn a_user_name_must_be_utf8() {
    assert_eq!(ok("USER  a b  "), Command::User("a b".to_owned()));
    assert!(matches!(
        Command::parse(b"USER \xff"),
        Err(CommandError::Syntax { verb: "USER", .. })
    ));
}

#[test]
fn options_of_list_and_nlst_are_ignored() {
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
fn times_and_checksums_are_parsed() {
    assert_eq!(
        ok("MFMT 19700101000001 a b"),
        Command::Mfmt(Timestamp(1), b"a b".to_vec())
    );
    assert_eq!(
        ok("MDTM 20260101000000 a"),
        Command::Mdtm(b"20260101000000 a".to_vec()),
        "MDTM cannot set a time"
    );
    let cksm = |length| Command::Cksm {
        algorithm: ChecksumAlgorithm::Adler32,
        offset: 1,
        length,
        path: b"a b".to_vec(),
    };
    assert_eq!(ok("CKSM adler32 1 -1 a b"), cksm(None));
    assert_eq!(ok("CKSM ADLER32 1 7 a b"), cksm(Some(7)));
    assert_eq!(
        ok("SCKS crc32 ABC"),
        Command::Scks(ChecksumAlgorithm::Crc32, "00000abc".to_owned())
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
fn encoding_cannot_split_a_command_in_two() {
    let command = Command::Retr(b"a\r\nDELE b\0".to_vec());
    assert_eq!(command.encode(), b"RETR a??DELE b?");
}

#[test]
fn an_empty_range_set_is_encoded_as_an_empty_range() {
    let command = Command::Rest(RestartMarker::Ranges(RangeSet::new()));
    assert_eq!(command.encode(), b"REST 0-0");
}
