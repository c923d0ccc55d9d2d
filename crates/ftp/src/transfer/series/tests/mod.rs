//! Series against scripted servers that follow, and that do not.

use std::fs::File;
use std::io;
use std::time::Duration;

use data::store::Sink;
use data::store::bundle::{BundleMember, BundleSource};
use data::store::memory::MemorySink;
use proto::timestamp::Timestamp;

use super::files::{SeriesEnd, SeriesFile};
use super::*;
use crate::FailureKind;
use crate::session::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script, login_script_with_feat,
};
use crate::transfer::tests::spec;
use ScriptedAction::{
    AcceptAndHold, ExpectLine, ExpectPassive, ExpectPassiveAndReply, ExpectSilence, ReceiveData,
    SendData, SendLine, SendPassiveReply,
};

mod bytes_ahead;

const SIZE_FEAT: &str = "211-x\n SIZE\n211 End.";

/// Files of five bytes.
fn files(names: &[&str]) -> Vec<SeriesFile> {
    let file = |(index, name): (usize, &&str)| SeriesFile {
        index,
        start: 5 * index as u64,
        size: 5,
        path: format!("/{name}").into_bytes(),
        partial: format!("/.{name}").into_bytes(),
        modified: None::<Timestamp>,
    };
    names.iter().enumerate().map(file).collect()
}

async fn run(
    script: Vec<Vec<ScriptedAction>>,
    series: &FileSeries,
) -> (SeriesReport, Result<(), Failure>, Vec<u8>) {
    run_as(script, series, &spec()).await
}

async fn run_as(
    script: Vec<Vec<ScriptedAction>>,
    series: &FileSeries,
    spec: &TransferSpec,
) -> (SeriesReport, Result<(), Failure>, Vec<u8>) {
    let peer = ScriptedFtpServer::start_session(script.concat()).await;
    let mut session = ClientSession::open(&peer.server, Duration::from_secs(60))
        .await
        .unwrap();
    let mut report = SeriesReport::default();
    let control = Arc::new(TransferControl::new());
    let result = move_series(&mut session, series, spec, &control, &mut report).await;
    drop(session);
    (report, result, peer.finish().await)
}

fn get(names: &[&str]) -> (FileSeries, Arc<MemorySink>) {
    let sink = Arc::new(MemorySink::new(1 << 20, "memory"));
    let series = FileSeries {
        files: files(names),
        end: SeriesEnd::Receive(Arc::clone(&sink) as Arc<dyn Sink>),
        stale: Vec::new(),
        lead: CommandLead::AcrossTransfers,
    };
    (series, sink)
}

/// The first file, with nothing ahead.
fn first_file() -> Vec<ScriptedAction> {
    vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("RETR /a"),
        SendLine("150 go"),
        SendData(b"aaaaa".to_vec()),
        SendLine("226 done"),
    ]
}

/// The commands of two more files arrive before the first of them is answered.
fn two_ahead() -> Vec<ScriptedAction> {
    vec![
        ExpectPassive("PASV"),
        SendPassiveReply,
        ExpectLine("RETR /b"),
        ExpectLine("PASV"),
        ExpectLine("RETR /c"),
    ]
}

#[tokio::test]
async fn commands_of_the_next_file_go_ahead_of_the_end_of_a_transfer() {
    let (series, sink) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![
            SendLine("150 go"),
            SendData(b"bbbbb".to_vec()),
            SendLine("226 done"),
            SendPassiveReply,
            SendLine("150 go"),
            SendData(b"ccccc".to_vec()),
            SendLine("226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert_eq!(report.moved, [0, 1, 2]);
    assert_eq!(report.lead, CommandLead::AcrossTransfers);
    assert_eq!(report.attempt.report.evidence.bytes, 15);
    assert_eq!(sink.take(), b"aaaaabbbbbccccc");
}

#[tokio::test]
async fn a_server_that_refuses_commands_during_transfers_gets_none_later() {
    let (series, _) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![SendLine("150 go\n450 PASV: data transfer in progress")],
    ];
    let (report, result, _) = run(script, &series).await;
    assert!(result.unwrap_err().may_retry());
    assert_eq!(report.moved, [0]);
    assert!(report.failed.is_empty());
    assert_eq!(report.lead, CommandLead::BetweenTransfers);
}

#[tokio::test]
async fn a_reply_too_many_ends_the_series_before_it_counts_for_another_file() {
    let (series, _) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![
            SendLine("150 go"),
            SendData(b"bbbbb".to_vec()),
            SendLine("226 done\n226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    assert_eq!(result.unwrap_err().kind(), FailureKind::Protocol);
    assert_eq!(report.moved, [0, 1]);
    assert_eq!(report.lead, CommandLead::BetweenTransfers);
}

#[tokio::test]
async fn a_file_shorter_than_announced_is_not_moved_in_spite_of_226() {
    let (series, _) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![
            SendLine("150 go"),
            SendData(b"bb".to_vec()),
            SendLine("226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    assert_eq!(result.unwrap_err().kind(), FailureKind::Integrity);
    assert_eq!(report.moved, [0]);
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_leaves_the_rest_unmoved() {
    let (series, _) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![
            SendLine("150 go"),
            SendData(b"bbbbb".to_vec()),
            SendLine("226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    let failure = result.unwrap_err();
    assert!(failure.is_lost());
    assert_eq!(report.moved, [0, 1]);
    assert!(report.failed.is_empty());
}

#[tokio::test]
async fn a_missing_file_does_not_hold_up_the_others() {
    let (series, _) = get(&["a", "b", "c"]);
    let script = vec![
        login_script(),
        first_file(),
        two_ahead(),
        vec![
            AcceptAndHold,
            SendLine("550 /b: No such file"),
            SendPassiveReply,
            SendLine("150 go"),
            SendData(b"ccccc".to_vec()),
            SendLine("226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert_eq!(report.moved, [0, 2]);
    let failed: Vec<usize> = report.failed.iter().map(|failure| failure.index).collect();
    assert_eq!(failed, [1]);
}

#[tokio::test]
async fn in_lockstep_each_command_waits_for_the_reply_before() {
    let (mut series, _) = get(&["a", "b"]);
    series.lead = CommandLead::Lockstep;
    let script = vec![
        login_script(),
        first_file(),
        vec![
            ExpectPassive("PASV"),
            ExpectSilence(50),
            SendPassiveReply,
            ExpectLine("RETR /b"),
            SendLine("150 go"),
            SendData(b"bbbbb".to_vec()),
            SendLine("226 done"),
        ],
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert_eq!(report.moved, [0, 1]);
    assert_eq!(report.lead, CommandLead::Lockstep);
}

/// Stores `aaaaa` as `/a`.
fn put() -> (FileSeries, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, b"aaaaa").unwrap();
    let member = BundleMember {
        size: 5,
        modified: None,
    };
    let open = move |_: usize| -> io::Result<File> { File::open(&path) };
    let series = FileSeries {
        files: files(&["a"]),
        end: SeriesEnd::Send(Arc::new(BundleSource::new(vec![member], open))),
        stale: Vec::new(),
        lead: CommandLead::AcrossTransfers,
    };
    (series, dir)
}

fn stored() -> Vec<ScriptedAction> {
    vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("ALLO 5"),
        SendLine("202 no"),
        ExpectLine("STOR /.a"),
        SendLine("150 go"),
        ReceiveData,
        SendLine("226 done"),
    ]
}

#[tokio::test]
async fn a_stored_file_gets_its_name_after_its_size_is_known_to_be_right() {
    let (series, _dir) = put();
    let script = vec![
        login_script_with_feat(SIZE_FEAT),
        stored(),
        command_and_reply("SIZE /.a", "213 5"),
        vec![
            ExpectLine("RNFR /.a"),
            ExpectLine("RNTO /a"),
            SendLine("350 go on\n250 done"),
        ],
    ];
    let (report, result, received) = run(script, &series).await;
    result.unwrap();
    assert_eq!(report.moved, [0]);
    assert_eq!(received, b"aaaaa");
}

#[tokio::test]
async fn a_stored_file_of_another_size_gets_no_name_and_is_removed() {
    let (series, _dir) = put();
    let script = vec![
        login_script_with_feat(SIZE_FEAT),
        stored(),
        command_and_reply("SIZE /.a", "213 4"),
        command_and_reply("DELE /.a", "250 gone"),
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert!(report.moved.is_empty());
    assert_eq!(report.failed.len(), 1);
}

#[tokio::test]
async fn a_file_that_may_not_be_renamed_is_not_reported_moved() {
    let (series, _dir) = put();
    let script = vec![
        login_script_with_feat(SIZE_FEAT),
        stored(),
        command_and_reply("SIZE /.a", "213 5"),
        vec![
            ExpectLine("RNFR /.a"),
            ExpectLine("RNTO /a"),
            SendLine("350 go on\n553 exists"),
        ],
        command_and_reply("DELE /.a", "250 gone"),
    ];
    let (report, result, _) = run(script, &series).await;
    result.unwrap();
    assert!(report.moved.is_empty());
    assert_eq!(report.failed.len(), 1);
}
