//! Bytes of files that are sent before their store commands are answered: files `a` to `d`, of five bytes each.

use proto::checksum::ChecksumAlgorithm;

use super::*;
use crate::ModeChoice;
use ScriptedAction::{ExpectDataSilence, ExpectEof, ReceiveBlocks};

const FEAT: &str = "211-x\n PARALLEL\n SIZE\n CKSM ADLER32:1;\n211 End.";
const CHECKSUMS: [&str; 4] = [
    "213 05b401e6",
    "213 05c301eb",
    "213 05d201f0",
    "213 05e101f5",
];

fn puts() -> (FileSeries, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        std::fs::write(dir.path().join(name), name.repeat(5)).unwrap();
    }
    let path = dir.path().to_owned();
    let open = move |index: usize| File::open(path.join(names[index]));
    let member = BundleMember {
        size: 5,
        modified: None,
    };
    let series = FileSeries {
        files: files(&names),
        end: SeriesEnd::Send(Arc::new(BundleSource::new(vec![member; 4], open))),
        stale: Vec::new(),
        lead: CommandLead::WithBytes,
    };
    (series, dir)
}

fn extended_spec(checksum: Option<ChecksumAlgorithm>) -> TransferSpec {
    TransferSpec {
        mode: ModeChoice::Extended,
        checksum,
        ..spec()
    }
}

fn lines(lines: &[&'static str]) -> Vec<ScriptedAction> {
    lines.iter().map(|line| ExpectLine(line)).collect()
}

/// The first file has nothing ahead, the second its commands. Then the commands of the other two are on their way.
fn first_files() -> Vec<ScriptedAction> {
    let stored = |start| vec![SendLine(start), ReceiveBlocks, SendLine("226 done")];
    [
        login_script_with_feat(FEAT),
        command_and_reply("MODE E", "200 ok"),
        vec![ExpectPassive("PASV"), ExpectLine("ALLO 5")],
        vec![SendPassiveReply, SendLine("200 ok")],
        lines(&["STOR /.a"]),
        stored("150 go"),
        lines(&["CKSM ADLER32 0 -1 /.a", "STOR /.b"]),
        vec![SendLine(CHECKSUMS[0]), ExpectDataSilence(50)],
        stored("125 go"),
        lines(&["RNFR /.a", "RNTO /a", "CKSM ADLER32 0 -1 /.b", "STOR /.c"]),
        vec![SendLine("350 go on\n250 done")],
        lines(&["STOR /.d", "CKSM ADLER32 0 -1 /.d"]),
    ]
    .concat()
}

/// The bytes of the last two files arrive while neither store command is answered; the second file gets its name.
fn bytes_of_two() -> Vec<ScriptedAction> {
    [
        vec![ReceiveBlocks, ReceiveBlocks, SendLine(CHECKSUMS[1])],
        lines(&["RNFR /.b", "RNTO /b"]),
    ]
    .concat()
}

async fn run_verified(script: &[Vec<ScriptedAction>]) -> (SeriesReport, Option<Failure>) {
    let (series, _dir) = puts();
    let spec = extended_spec(Some(ChecksumAlgorithm::Adler32));
    let (report, result, received) = run_as(script.to_vec(), &series, &spec).await;
    assert_eq!(received, b"aaaaabbbbbcccccddddd");
    (report, result.err())
}

#[tokio::test]
async fn bytes_go_ahead_of_the_reply_to_the_store_command() {
    let script = [
        first_files(),
        bytes_of_two(),
        vec![SendLine("125 go\n226 done")],
        lines(&["CKSM ADLER32 0 -1 /.c"]),
        vec![SendLine("125 go\n226 done"), SendLine(CHECKSUMS[3])],
        lines(&["RNFR /.d", "RNTO /d"]),
        vec![SendLine("350 go on\n250 done"), SendLine(CHECKSUMS[2])],
        lines(&["RNFR /.c", "RNTO /c"]),
        vec![SendLine("350 go on\n250 done\n350 go on\n250 done")],
    ];
    let (report, failure) = run_verified(&script).await;
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(report.moved, [0, 1, 3, 2]);
    assert_eq!(report.lead, CommandLead::WithBytes);
    assert_eq!(report.attempt.report.evidence.bytes, 20);
}

/// The server takes the bytes of the refused file for those of the next one, and says so only afterwards.
#[tokio::test]
async fn a_refused_file_with_bytes_ahead_ends_the_session_before_another_gets_a_name() {
    let script = [
        first_files(),
        bytes_of_two(),
        vec![
            SendLine("500-Command failed.\n500 Permission denied"),
            SendLine("125 go\n226 done"),
            SendLine(CHECKSUMS[2]),
            ExpectEof,
        ],
    ];
    let (report, failure) = run_verified(&script).await;
    assert!(failure.unwrap().may_retry());
    assert_eq!(report.moved, [0]);
    let failed: Vec<usize> = report.failed.iter().map(|failure| failure.index).collect();
    assert_eq!(failed, [2]);
    assert_eq!(report.begun, [0, 1, 2, 3]);
    assert_eq!(report.lead, CommandLead::AcrossTransfers);
}

/// The server drops what it has received before a store command.
#[tokio::test]
async fn a_file_with_the_bytes_of_another_is_moved_again_without_bytes_ahead() {
    let script = [
        first_files(),
        bytes_of_two(),
        vec![SendLine("125 go\n226 done")],
        lines(&["CKSM ADLER32 0 -1 /.c"]),
        vec![
            SendLine("125 go\n226 done"),
            SendLine(CHECKSUMS[2]),
            ExpectEof,
        ],
    ];
    let (report, failure) = run_verified(&script).await;
    let failure = failure.unwrap();
    assert!(failure.may_retry() && failure.kind() == FailureKind::Integrity);
    assert_eq!(report.moved, [0]);
    assert!(report.failed.is_empty());
    assert_eq!(report.lead, CommandLead::AcrossTransfers);
}

#[tokio::test]
async fn a_lost_connection_with_bytes_ahead_leaves_all_unconfirmed_files() {
    let script = [first_files(), bytes_of_two()];
    let (report, failure) = run_verified(&script).await;
    assert!(failure.unwrap().may_retry());
    assert_eq!(report.moved, [0]);
    assert!(report.failed.is_empty());
    assert_eq!(report.lead, CommandLead::AcrossTransfers);
}

/// The size of a file does not tell it from another one.
#[tokio::test]
async fn without_a_checksum_bytes_wait_for_the_reply_to_the_store_command() {
    let (mut series, _dir) = puts();
    series.files.truncate(3);
    let stored = |start| vec![SendLine(start), ReceiveBlocks, SendLine("226 done")];
    let script = vec![
        login_script_with_feat(FEAT),
        command_and_reply("MODE E", "200 ok"),
        vec![ExpectPassive("PASV"), ExpectLine("ALLO 5")],
        vec![SendPassiveReply, SendLine("200 ok")],
        lines(&["STOR /.a"]),
        stored("150 go"),
        lines(&["SIZE /.a", "STOR /.b"]),
        vec![SendLine("213 5")],
        stored("125 go"),
        lines(&["RNFR /.a", "RNTO /a", "SIZE /.b", "STOR /.c"]),
        vec![SendLine("350 go on\n250 done\n213 5")],
        lines(&["RNFR /.b", "RNTO /b"]),
        vec![ExpectDataSilence(50)],
        stored("125 go"),
        lines(&["SIZE /.c"]),
        vec![SendLine("350 go on\n250 done\n213 5")],
        lines(&["RNFR /.c", "RNTO /c"]),
        vec![SendLine("350 go on\n250 done")],
    ];
    let (report, result, _) = run_as(script, &series, &extended_spec(None)).await;
    result.unwrap();
    assert_eq!(report.moved, [0, 1, 2]);
}

#[tokio::test]
async fn partial_files_of_earlier_attempts_are_removed_at_the_end() {
    let (mut series, _dir) = put();
    series.stale = vec![b"/.old".to_vec()];
    let script = vec![
        login_script_with_feat(SIZE_FEAT),
        stored(),
        command_and_reply("SIZE /.a", "213 5"),
        lines(&["RNFR /.a", "RNTO /a"]),
        vec![SendLine("350 go on\n250 done")],
        command_and_reply("DELE /.old", "550 not there"),
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert_eq!(report.moved, [0]);
}
