//! Logs that real servers wrote: one download of 3 000 000 bytes, one upload of 500 000 and one aborted download
//! each, from 127.0.0.1.

use std::path::Path;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use crate::log_reader::client_names::tests::with_names;
use crate::log_reader::entry::{LogDirection, LogEntry};
use crate::log_reader::follower::{FollowFrom, FollowLimits, LogFollower};
use crate::log_reader::format::TransferLogFormat;
use crate::log_reader::reader::{LogCounts, LogReader};

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
            let near = "2026-11-23T02:29:00Z".parse::<jiff::Timestamp>().unwrap();
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
                let _ = crate::log_reader::transfer_measurement::measurement(&entry);
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
