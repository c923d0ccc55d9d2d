use std::os::unix::fs::PermissionsExt;

use nix::unistd::{getgid, getuid};
use tune::limiter::Role;

use super::*;
use crate::sandbox::{self, FileAccess, SandboxMode};
use crate::test_pipe::make_pipe;

/// Opening a pipe for writing blocks until somebody reads it.
#[test]
fn a_log_in_a_pipe_that_nobody_reads_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    make_pipe(&path);
    assert!(TransferLog::open(Some(&path), None).is_err());
}

fn record() -> TransferRecord {
    TransferRecord {
        start: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_172_625_195_241),
        elapsed: Duration::from_micros(1181),
        direction: LoggedTransferKind::Retrieve,
        user: "ann".to_owned(),
        client: "127.0.0.1:4711".parse().unwrap(),
        data_peers: vec!["127.0.0.1".parse().unwrap()],
        path: b"/gz/f q.dat".to_vec(),
        stored_as: None,
        root: "/srv".into(),
        mode: TransferMode::Extended,
        streams: 4,
        block: 262_144,
        evidence: Evidence {
            bytes: 1_000_000,
            buffer_bytes: 131_072,
            socket_memory_bytes: 65_536,
            min_rtt: Duration::from_micros(31),
            retransmits: 2,
            ..Evidence::for_role(Role::Sender)
        },
        sizing: "auto",
        decision: Some("the receiver's buffer has this size".to_owned()),
        limiter: Some("receive window"),
        congestion: Some("bbr".to_owned()),
        checksum: Some((ChecksumAlgorithm::Adler32, "00000001".to_owned())),
        protection: "private",
        identity: Some("/O=Grid/CN=Ann".to_owned()),
        code: 226,
        error: None,
        task: None,
        application: Some("globus-url-copy 10.12".to_owned()),
    }
}

#[test]
fn ftp_info_line_has_the_fields_of_the_original() {
    let line = String::from_utf8(ftp_info::line(&record(), "vm")).unwrap();
    assert_eq!(
        line,
        "DATE=20261120110345.196422 HOST=vm PROG=longhaul NL.EVNT=FTP_INFO \
         START=20261120110345.195241 USER=ann FILE=/srv/gz/f q.dat BUFFER=131072 BLOCK=262144 \
         NBYTES=1000000 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[127.0.0.1] TYPE=RETR CODE=226 \
         TASKID=none retrans=2\n"
    );
}

#[test]
fn file_names_cannot_forge_fields_or_lines() {
    let mut record = record();
    record.root = "/".into();
    record.path = b"/a\nDATE=1 \"x\\y\xff\xc3\xa9 NBYTES=5".to_vec();
    record.user = "a b\r".to_owned();
    let line = String::from_utf8(ftp_info::line(&record, "vm")).unwrap();
    let file = r"FILE=/a\x0aDATE\x3d1 \x22x\x5cy\xffé NBYTES\x3d5 BUFFER=";
    assert!(line.contains(file), "{line}");
    assert!(line.contains(r"USER=a\x20b\x0d "), "{line}");
    assert_eq!(line.matches('\n').count(), 1);
}

#[test]
fn json_line_has_every_field() {
    let line = json::line(&record()).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "start": "2026-11-20T11:03:45.195241Z",
            "end": "2026-11-20T11:03:45.196422Z",
            "seconds": 0.001_181,
            "bytes": 1_000_000,
            "direction": "retrieve",
            "user": "ann",
            "client": "127.0.0.1:4711",
            "data_peers": ["127.0.0.1"],
            "family": "ipv4",
            "root": "/srv",
            "path": "/gz/f q.dat",
            "path_hex": null,
            "stored_as": null,
            "mode": "E",
            "streams": 4,
            "block": 262_144,
            "buffer": 131_072,
            "sizing": "auto",
            "memory_bytes": 65_536,
            "min_rtt_us": 31,
            "retransmits": 2,
            "decision": "the receiver's buffer has this size",
            "limiter": "receive window",
            "congestion": "bbr",
            "checksum": {"algorithm": "ADLER32", "hex": "00000001"},
            "protection": "private", "identity": "/O=Grid/CN=Ann",
            "code": 226,
            "result": "ok",
            "error": null,
            "task": null,
            "application": "globus-url-copy 10.12",
        })
    );
}

#[test]
fn separators_and_marks_of_direction_are_escaped_in_both_logs() {
    let mut record = record();
    let name = "/a\u{2028}b\u{85}c\u{202e}gpj\u{1b}[2J";
    record.path = name.as_bytes().to_vec();
    record.user = "u\u{2029}".to_owned();
    let json = String::from_utf8(json::line(&record).unwrap()).unwrap();
    let classic = String::from_utf8(ftp_info::line(&record, "vm")).unwrap();
    for line in [&json, &classic] {
        let shown = line.strip_suffix('\n').unwrap();
        assert!(!shown.contains(proto::printable::needs_escape), "{shown:?}");
    }
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["path"], name, "a JSON parser restores the name");
    assert!(
        classic.contains(r"FILE=/srv/a\xe2\x80\xa8b\xc2\x85c"),
        "{classic}"
    );
}

#[test]
fn json_has_the_exact_bytes_of_names() {
    let mut record = record();
    record.path = b"/a\n\"\xff".to_vec();
    record.error = Some("No space left on device".to_owned());
    let line = json::line(&record).unwrap();
    assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["path"], "/a\n\"\u{fffd}");
    assert_eq!(value["path_hex"], "2f610a22ff");
    assert_eq!(value["result"], "error");
}

#[test]
fn both_logs_have_the_final_and_the_partial_name() {
    let mut record = record();
    record.direction = LoggedTransferKind::Store;
    record.stored_as = Some(b"/gz/f q.dat.longhaul-partial".to_vec());
    let line = json::line(&record).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["path"], "/gz/f q.dat");
    assert_eq!(value["stored_as"], "/gz/f q.dat.longhaul-partial");
    let line = String::from_utf8(ftp_info::line(&record, "vm")).unwrap();
    assert!(line.contains(" FILE=/srv/gz/f q.dat BUFFER="), "{line}");
    let end = " retrans=2 stored_as=/srv/gz/f\\x20q.dat.longhaul-partial\n";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn records_are_appended_and_rotation_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (json, classic) = (dir.path().join("t.json"), dir.path().join("t.log"));
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    for _ in 0..2 {
        let log = TransferLog::open(Some(&json), Some(&classic)).unwrap();
        log.record(&record());
    }
    assert_eq!((lines(&json), lines(&classic)), (2, 2));
    let log = TransferLog::open(Some(&json), None).unwrap();
    std::fs::rename(&json, dir.path().join("t.json.1")).unwrap();
    log.record(&record());
    assert_eq!((lines(&json), lines(&classic)), (1, 2));
    assert_eq!(json.metadata().unwrap().permissions().mode() & 0o037, 0);
}

#[test]
fn a_full_disk_does_not_fail_the_log() {
    let log = TransferLog::open(Some(Path::new("/dev/full")), None).unwrap();
    log.record(&record());
    log.record(&record());
}

#[test]
fn lines_of_several_threads_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.json");
    let log = TransferLog::open(Some(&path), None).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| log.record(&record())));
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 100);
    assert!(
        text.lines()
            .all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok())
    );
}

/// Confinement holds for a thread, so a thread of its own can be tested.
#[test]
fn a_confined_server_gives_a_new_log_to_its_account() {
    let dir = tempfile::tempdir().unwrap();
    let access = FileAccess {
        read: Vec::new(),
        write: vec![dir.path().to_owned()],
    };
    let path = dir.path().join("log");
    let account = LogOwner {
        user: getuid().as_raw(),
        group: getgid().as_raw(),
    };
    std::thread::spawn(move || {
        sandbox::enter(SandboxMode::Auto, &access).unwrap();
        TransferLog::open_as(Some(&path), None, Some(account)).unwrap();
    })
    .join()
    .unwrap();
}
