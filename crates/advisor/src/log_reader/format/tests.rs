//! Logs that real servers wrote: one download of 3 000 000 bytes, one upload of 500 000 and one aborted download
//! each, from 127.0.0.1.

use std::path::Path;

use jiff::tz::Offset;
use proptest::prelude::*;

use super::*;
use crate::log_reader::client_names::tests::with_names;
use crate::log_reader::follower::{FollowFrom, FollowLimits, LogFollower};
use crate::log_reader::{LogCounts, LogReader};

/// Parses a line in a zone of UTC, where these names are known.
fn parsed(format: TransferLogFormat, line: &str) -> Option<LogEntry> {
    let names = [("c.example", "192.0.2.3"), ("client.example", "192.0.2.3")];
    with_names(&names, |s| format.parse(line.as_bytes(), s))
}

fn read(name: &str) -> (Vec<LogEntry>, LogCounts) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/logs")
        .join(name);
    let follower = LogFollower::new(&path, FollowFrom::Beginning, FollowLimits::default());
    let mut reader = LogReader::new(follower, None, TimeZone::UTC);
    let mut entries = Vec::new();
    reader.turn(&mut entries).unwrap();
    (entries, reader.counts())
}

#[test]
fn the_logs_of_every_server_are_recognised_and_read() {
    for (name, other_lines) in [
        ("vsftpd.xferlog", 0),
        ("vsftpd.log", 4),
        ("proftpd.xferlog", 0),
        ("pure-ftpd.clf", 0),
        ("pure-ftpd.stats", 0),
        ("pure-ftpd.w3c", 4),
        ("pure-ftpd.xferlog", 0),
        ("globus.ftp-info", 0),
    ] {
        let (entries, counts) = read(name);
        assert_eq!(entries.len(), 3, "{name}");
        assert_eq!(counts.other_lines, other_lines, "{name}");
        let sizes: Vec<_> = entries.iter().map(|entry| entry.bytes).collect();
        assert_eq!(sizes[..2], [Some(3_000_000), Some(500_000)], "{name}");
        assert_eq!(entries[0].direction, LogDirection::Sent, "{name}");
        assert_eq!(entries[1].direction, LogDirection::Received, "{name}");
        for entry in entries {
            assert!(entry.client.is_loopback(), "{name}");
            let near = "2026-11-23T02:29:00Z".parse::<Timestamp>().unwrap();
            assert!(
                entry.at.duration_since(near).as_secs().abs() < 120,
                "{name}"
            );
        }
    }
    let (entries, _) = read("nginx.combined");
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0].bytes, Some(3_000_000));
}

#[test]
fn servers_that_tell_of_an_aborted_transfer_are_believed() {
    for name in [
        "vsftpd.xferlog",
        "vsftpd.log",
        "proftpd.xferlog",
        "pure-ftpd.xferlog",
    ] {
        let complete: Vec<bool> = read(name).0.iter().map(|entry| entry.complete).collect();
        // pure-ftpd always writes `c`.
        let last = name.starts_with("pure");
        assert_eq!(complete, [true, true, last], "{name}");
    }
}

#[test]
fn junk_between_lines_is_counted_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixed.log");
    let xferlog = "Mon Nov 23 02:27:23 2026 0 192.0.2.1 500000 /up.dat b _ i r alice ftp 1 * c\n";
    let web = "192.0.2.2 - - [23/Nov/2026:02:27:23 +0000] \"GET / HTTP/1.1\" 200 30 \"-\" \"x\"\n";
    let mut bytes = xferlog.as_bytes().to_vec();
    bytes.extend_from_slice(b"\xff\xfe\0 junk\n\n{\"end\":\n");
    bytes.extend_from_slice(web.as_bytes());
    bytes.extend_from_slice(xferlog.as_bytes());
    std::fs::write(&path, bytes).unwrap();
    let follower = LogFollower::new(&path, FollowFrom::Beginning, FollowLimits::default());
    let mut reader = LogReader::new(follower, None, TimeZone::UTC);
    let mut entries = Vec::new();
    reader.turn(&mut entries).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(reader.counts().other_lines, 3);
    assert_eq!(entries[1].client.to_string(), "192.0.2.2");
}

const LINES: [&str; 7] = [
    "Mon Nov 23 02:29:43 2026 3 127.0.0.1 3000000 /pub/a_b.dat b _ o a <no_password> ftp 0 * c",
    "Mon Nov 23 02:29:43 2026 [pid 9] [ftp] OK UPLOAD: Client \"127.0.0.1\", \"/up\", 500000 bytes, 935.22Kbyte/sec",
    "127.0.0.1 - - [23/Nov/2026:02:27:23 +0000] \"GET /a%20b.dat HTTP/1.1\" 200 3000000 \"-\" \"curl/7.88.1\"",
    "1795400841 6b03a489.14a6 alice 127.0.0.1 D 3000000 0 /srv/pub/a b.dat",
    "2026-11-23 02:27:22 127.0.0.1 []sent /srv/pub/a%20b.dat 226 alice 3000000",
    "DATE=20261123022723.450169 HOST=vm PROG=x NL.EVNT=FTP_INFO START=20261123022723.437704 USER=a FILE=/a b BUFFER=1 BLOCK=2 NBYTES=3 VOLUME=/ STREAMS=1 STRIPES=1 DEST=[127.0.0.1] TYPE=RETR CODE=226 TASKID=none retrans=0",
    "{\"end\":\"2026-11-20T11:03:55Z\",\"seconds\":1e400,\"bytes\":1,\"direction\":\"store\",\"client\":\"127.0.0.1:4711\"}",
];

fn parse_with_all(line: &[u8]) {
    for format in TransferLogFormat::ALL {
        with_names(&[], |surroundings| {
            if let Some(entry) = format.parse(line, surroundings) {
                assert!(entry.seconds.is_none_or(|seconds| seconds > 0.0));
                let _ = entry.measurement();
            }
        });
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_with_all(&line);
    }

    #[test]
    fn no_change_of_a_line_makes_a_parser_panic(
        which in 0..LINES.len(),
        cut in 0..300_usize,
        at in 0..300_usize,
        piece in "[0-9a-zé\\[\\]\"\\\\ .,:=/+-]{0,12}",
    ) {
        let line = LINES[which];
        let mut bytes = line.as_bytes().to_vec();
        let from = at.min(bytes.len());
        let to = (from + cut % 20).min(bytes.len());
        bytes.splice(from..to, piece.bytes());
        parse_with_all(&bytes);
        bytes.truncate(cut);
        parse_with_all(&bytes);
    }
}

const LONGHAUL_LINE: &str = r#"{"start":"2026-11-20T11:03:45.195241Z","end":"2026-11-20T11:03:55.195241Z","seconds":10.0,"bytes":1000000,"direction":"retrieve","user":"ann","client":"[::ffff:192.0.2.9]:4711","data_peers":["192.0.2.7"],"family":"ipv4","root":"/srv","path":"/f","path_hex":null,"stored_as":null,"mode":"E","streams":4,"block":262144,"buffer":131072,"sizing":"auto","memory_bytes":65536,"min_rtt_us":31000,"retransmits":2,"decision":null,"limiter":"receive window","congestion":"bbr","checksum":null,"protection":"private","identity":null,"code":226,"result":"ok","error":null,"task":null,"application":null}"#;

#[test]
fn a_record_of_the_server_is_read() {
    let entry = parsed(TransferLogFormat::Longhaul, LONGHAUL_LINE).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.7", "the data's peer");
    assert_eq!(entry.at, "2026-11-20T11:03:55.195241Z".parse().unwrap());
    assert_eq!((entry.bytes, entry.seconds), (Some(1_000_000), Some(10.0)));
    assert_eq!((entry.streams, entry.buffer), (Some(4), Some(131_072)));
    assert_eq!((entry.retransmits, entry.min_rtt), (Some(2), Some(0.031)));
    assert_eq!(entry.protocol, LogProtocol::GridFtp);
    assert!(entry.complete);
}

#[test]
fn without_one_data_peer_the_transfer_measures_no_path() {
    let none = LONGHAUL_LINE.replace(r#"["192.0.2.7"]"#, "[]");
    let entry = parsed(TransferLogFormat::Longhaul, &none).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.9");
    let two = LONGHAUL_LINE.replace(r#"["192.0.2.7"]"#, r#"["192.0.2.7","192.0.2.8"]"#);
    let entry = parsed(TransferLogFormat::Longhaul, &two).unwrap();
    assert_eq!((entry.seconds, entry.min_rtt), (None, None));
    let list = LONGHAUL_LINE.replace("retrieve", "list");
    assert_eq!(parsed(TransferLogFormat::Longhaul, &list), None);
}

const FTP_INFO_LINE: &str = "DATE=20260107092754.223249 HOST=data1 PROG=globus-gridftp-server NL.EVNT=FTP_INFO \
    START=20260107092753.658868 USER=ann FILE=/a b BUFFER=235104 BLOCK=4194304 NBYTES=218103808 VOLUME=/ STREAMS=4 \
    STRIPES=1 DEST=[192.0.2.174] TYPE=RETR CODE=226 TASKID=none";

#[test]
fn a_line_of_globus_is_read() {
    let entry = parsed(TransferLogFormat::FtpInfo, FTP_INFO_LINE).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.174");
    assert_eq!(entry.bytes, Some(218_103_808));
    assert!((entry.seconds.unwrap() - 0.564_381).abs() < 1e-6);
    assert_eq!((entry.streams, entry.buffer), (Some(4), Some(235_104)));
    assert_eq!(entry.retransmits, None);
    let line = format!("{FTP_INFO_LINE} retrans=1,2,0,4");
    assert_eq!(
        parsed(TransferLogFormat::FtpInfo, &line)
            .unwrap()
            .retransmits,
        Some(7)
    );
}

#[test]
fn file_names_forge_no_fields() {
    let line = FTP_INFO_LINE.replace(
        "/a b",
        "/a TYPE=STOR NBYTES=5 DEST=[192.0.2.66] BUFFER=1 CODE=500",
    );
    let entry = parsed(TransferLogFormat::FtpInfo, &line).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.174");
    assert_eq!(entry.direction, LogDirection::Sent);
    assert!(entry.complete);
}

#[test]
fn the_destination_has_several_forms() {
    for (dest, client) in [
        ("1[192.0.2.5]", Some("192.0.2.5")),
        ("[[2001:db8::1]]", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("[0.0.0.0]", None),
        ("[]", None),
    ] {
        let line = FTP_INFO_LINE.replace("[192.0.2.174]", dest);
        let found = parsed(TransferLogFormat::FtpInfo, &line).map(|entry| entry.client.to_string());
        assert_eq!(found.as_deref(), client, "{dest}");
    }
    let striped = FTP_INFO_LINE.replace("[192.0.2.174]", "[192.0.2.1,192.0.2.2]");
    assert_eq!(
        parsed(TransferLogFormat::FtpInfo, &striped)
            .unwrap()
            .seconds,
        None
    );
}

#[test]
fn the_lines_of_three_servers_are_read() {
    let vsftpd = "Mon Nov  2 02:29:43 2026 13 ::ffff:192.0.2.1 3000000 /pub/a_b.dat b _ o a <no_password> ftp 0 * c";
    let entry = parsed(TransferLogFormat::Xferlog, vsftpd).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.1");
    assert_eq!(entry.at, "2026-11-02T02:29:43Z".parse().unwrap());
    assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(13.0)));
    let proftpd = "Mon Nov 23 02:27:20 2026 0 client.example 500000 /a b _ i a x ftp 0 * c";
    let entry = parsed(TransferLogFormat::Xferlog, proftpd).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.3");
    assert_eq!(
        (entry.direction, entry.seconds),
        (LogDirection::Received, None)
    );
    let pure = "Mon Nov 23 02:27:23 2026 1 2001:db8::1 131072 /a_b.dat b _ o r alice ftp 1 * i";
    assert!(!parsed(TransferLogFormat::Xferlog, pure).unwrap().complete);
}

#[test]
fn lines_that_are_no_transfer_of_an_xferlog_are_none() {
    for line in [
        "Mon Nov 23 02:27:20 2026 0 unknown.example 500000 /a b _ i a x ftp 0 * c",
        "Mon Nov 23 02:27:20 2026 0 192.0.2.1 0 /a b _ d a x ftp 0 * c",
        "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 b _ i a x ftp 0 * c",
        "Mon Nov 23 02:27:20 2026 0 192.0.2.1 -1 /a b _ i a x ftp 0 * c",
        "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 /a b _ i a x ftp 0",
    ] {
        assert_eq!(parsed(TransferLogFormat::Xferlog, line), None, "{line}");
    }
}

#[test]
fn transfers_are_read_and_other_lines_are_none() {
    let line = "Mon Nov 23 02:29:43 2026 [pid 9546] [daemon] OK DOWNLOAD: Client \"::ffff:192.0.2.1\", \
                \"/pub/a \", 5 bytes, b.dat\", 3000000 bytes, 960.97Kbyte/sec";
    let entry = parsed(TransferLogFormat::Vsftpd, line).unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.1");
    assert_eq!(entry.bytes, Some(3_000_000));
    assert!((entry.seconds.unwrap() - 3.0487).abs() < 1e-3);
    assert!(entry.complete);
    let failed = line.replace("OK DOWNLOAD", "FAIL UPLOAD");
    let entry = parsed(TransferLogFormat::Vsftpd, &failed).unwrap();
    assert_eq!(
        (entry.complete, entry.direction),
        (false, LogDirection::Received)
    );
    let login = "Mon Nov 23 02:29:40 2026 [pid 9539] [daemon] OK LOGIN: Client \"192.0.2.1\", anon password \"x\"";
    assert_eq!(parsed(TransferLogFormat::Vsftpd, login), None);
    assert_eq!(
        parsed(TransferLogFormat::Vsftpd, &line.replace("960.97", "0.00"))
            .unwrap()
            .seconds,
        None
    );
}

#[test]
fn both_formats_are_read() {
    let entry = parsed(
        TransferLogFormat::PureFtpd,
        "1795400841 6b03a489.14a6 alice c.example D 3000000 12 /pub/a b.dat",
    )
    .unwrap();
    assert_eq!(entry.client.to_string(), "192.0.2.3");
    assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(12.0)));
    assert_eq!(entry.at, "2026-11-23T02:27:21Z".parse().unwrap());
    let entry = parsed(
        TransferLogFormat::PureFtpd,
        "2026-11-23 02:27:22 192.0.2.1 []created /pub/up.dat 226 alice 500000",
    )
    .unwrap();
    assert_eq!((entry.bytes, entry.seconds), (Some(500_000), None));
    assert_eq!(entry.direction, LogDirection::Received);
}

#[test]
fn lines_that_are_no_transfer_of_pure_ftpd_are_none() {
    for line in [
        "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs-username sc-bytes",
        "1795400841 nohex alice 192.0.2.1 D 3000000 12 /a",
        "1795400841 6b03a489.14a6 alice 192.0.2.1 D 3000000",
        "99999999999999999 6b03a489.14a6 alice 192.0.2.1 D 3000000 12 /a",
    ] {
        assert_eq!(parsed(TransferLogFormat::PureFtpd, line), None, "{line}");
    }
}

#[test]
fn lines_of_web_servers_and_pure_ftpd_are_read() {
    let nginx = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "GET /a%20b HTTP/1.1" 200 3000000 "-" "curl/7.88.1""#;
    let entry = parsed(TransferLogFormat::Web, nginx).unwrap();
    assert_eq!(
        (entry.bytes, entry.protocol),
        (Some(3_000_000), LogProtocol::Http)
    );
    assert_eq!(entry.seconds, None);
    let apache =
        r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\\" y HTTP/1.1" 201 -"#;
    assert_eq!(
        parsed(TransferLogFormat::Web, apache),
        None,
        "the request ends at its quote"
    );
    let apache =
        r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\" y HTTP/1.1" 201 -"#;
    let entry = parsed(TransferLogFormat::Web, apache).unwrap();
    assert_eq!(
        (entry.bytes, entry.direction),
        (None, LogDirection::Received)
    );
    let pure = r#"2001:db8::1 - alice [23/Nov/2026:02:27:21 -0000] "PUT /up.dat" 200 500000"#;
    let entry = parsed(TransferLogFormat::Web, pure).unwrap();
    assert_eq!(
        (entry.bytes, entry.protocol),
        (Some(500_000), LogProtocol::Ftp)
    );
    let binary = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "\x16\x03\x01" 400 166 "-" "-""#;
    assert!(!parsed(TransferLogFormat::Web, binary).unwrap().complete);
}

#[test]
fn each_form_gives_the_same_moment() {
    let expected: Timestamp = "2026-11-23T02:27:23Z".parse().unwrap();
    let zone = TimeZone::fixed(Offset::constant(1));
    assert_eq!(compact_time("20261123022723"), Some(expected));
    assert_eq!(
        ctime(&["Nov", "23", "03:27:23", "2026"], &zone),
        Some(expected)
    );
    assert_eq!(
        common_log_time("23/Nov/2026:02:27:23 -0000"),
        Some(expected)
    );
    assert_eq!(
        common_log_time("23/Nov/2026:07:57:23 +0530"),
        Some(expected)
    );
    assert_eq!(
        compact_time("20261123022723.25"),
        "2026-11-23T02:27:23.25Z".parse().ok()
    );
}

#[test]
fn impossible_times_are_none() {
    for text in [
        "20261323022723",
        "2026",
        "2026112302272x",
        "20261123022723.x",
        "é0261123022723",
    ] {
        assert_eq!(compact_time(text), None, "{text}");
    }
    for text in [
        "23/Nov/2026:02:27:23",
        "23/Nov/2026:02:27 +0000",
        "31/Feb/2026:02:27:23 +0000",
        "1/Nov/2026:0:0:0 +99",
    ] {
        assert_eq!(common_log_time(text), None, "{text}");
    }
}
