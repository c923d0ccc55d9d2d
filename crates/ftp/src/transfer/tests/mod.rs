//! Single attempts against scripted servers with unusual behaviour.

use std::sync::Arc;
use std::time::Duration;

use data::job::TransferControl;
use data::options::{IoMethod, TransferOptions};
use data::store::memory::{MemorySink, MemorySource};
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;

use super::{RestartProof, TransferAttempt, TransferSpec, get, put, third_party};
use crate::session::ClientSession;
use crate::session::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script, login_script_with_feat,
};
use crate::{Failure, FailureKind, ModeChoice};
use ScriptedAction::{
    AcceptAndHold, ExpectLine, ExpectPassiveAndReply, ReceiveData, SendData, SendLine, Sleep,
};

mod between_servers;
mod failures;
mod partial_transfers;
mod pipelining;
mod right_sizing;
mod stripes;
mod surplus_replies;

const TIMEOUT: Duration = Duration::from_secs(60);
const GRIDFTP: &str = "211-x\n PARALLEL\n SIZE\n ERET\n REST STREAM\n211 End.";

pub(crate) fn spec() -> TransferSpec {
    TransferSpec {
        size: None,
        part: None,
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: None,
        completed_ranges: RangeSet::new(),
        streams: 1,
        max_streams: 1,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ModeChoice::Auto,
        checksum: None,
        server_checksum: None,
        options: TransferOptions {
            buffers: SocketBuffers::default(),
            io: IoMethod::Copy,
            block: 64 << 10,
            stall: TIMEOUT,
            ..TransferOptions::default()
        },
        started: Arc::default(),
        stored_ranges: Arc::new(Mutex::new(RangeSet::new())),
        confirmation: Arc::default(),
        data_ports: None,
    }
}

async fn open_session(actions: Vec<Vec<ScriptedAction>>) -> (ClientSession, ScriptedFtpServer) {
    let peer = ScriptedFtpServer::start_session(actions.concat()).await;
    let session = ClientSession::open(&peer.server, TIMEOUT).await.unwrap();
    (session, peer)
}

fn sink() -> MemorySink {
    MemorySink::new(1 << 20, "memory")
}

async fn fetch(
    session: &mut ClientSession,
    sink: &MemorySink,
    spec: &TransferSpec,
) -> Result<TransferAttempt, Failure> {
    let control = Arc::new(TransferControl::new());
    get(session, b"/f", Arc::new(sink.clone()), spec, &control).await
}

async fn store(
    session: &mut ClientSession,
    text: &[u8],
    spec: &TransferSpec,
) -> Result<TransferAttempt, Failure> {
    let source = Arc::new(MemorySource::new(text, "memory"));
    let control = Arc::new(TransferControl::new());
    put(session, source, b"/f", spec, &control).await
}

#[tokio::test]
async fn a_put_into_a_missing_directory_names_the_directory() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO"),
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![SendLine("553 Could not create file.")],
        command_and_reply("CWD /", "550 Failed to change directory."),
    ])
    .await;
    let failure = store(&mut session, b"hello", &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(failure.to_string().contains("no directory / "), "{failure}");
    peer.finish().await;
}

/// A full disk that reports its error slowly.
#[derive(Debug)]
struct FullDiskSink;

impl data::store::Sink for FullDiskSink {
    fn name(&self) -> String {
        "full disk".to_owned()
    }

    fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(50));
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_full_local_disk_is_reported_before_the_servers_reply() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![
            SendData(vec![7; 1000]),
            SendLine("426 Failure writing to network"),
        ],
    ])
    .await;
    let control = Arc::new(TransferControl::new());
    let outcome = get(
        &mut session,
        b"/f",
        Arc::new(FullDiskSink),
        &spec(),
        &control,
    )
    .await;
    let failure = outcome.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::LocalDiskFull);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("full disk"), "{failure}");
}

#[tokio::test]
async fn puts_in_stream_mode_start_and_restart() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("202 no need"),
        ],
        vec![
            ExpectLine("STOR /f"),
            SendLine("150 go"),
            ReceiveData,
            SendLine("226 done"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("202 no need"),
        ],
        vec![
            ExpectLine("REST 2"),
            SendLine("350 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![SendLine("150 go"), ReceiveData, SendLine("226 done")],
    ])
    .await;
    store(&mut session, b"hello", &spec()).await.unwrap();
    let mut rest = spec();
    rest.completed_ranges.insert(0, 2);
    let attempt = store(&mut session, b"hello", &rest).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 3);
    assert_eq!(peer.finish().await, b"hellollo");
}

#[tokio::test]
async fn a_server_that_waits_for_the_data_connection_behind_its_address_gets_it() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat("211-x\n REST STREAM\n211 End."),
        vec![ExpectPassiveAndReply("PASV"), ScriptedAction::AcceptAhead],
        command_and_reply("REST 2", "350 ok"),
        vec![ExpectLine("RETR /f"), SendLine("150 go")],
        vec![SendData(b"llo".to_vec()), SendLine("226 done")],
        vec![ExpectPassiveAndReply("PASV"), ScriptedAction::AcceptAhead],
        command_and_reply("ALLO 5", "200 ok"),
        vec![ExpectLine("STOR /f"), SendLine("150 go")],
        vec![ReceiveData, SendLine("226 done")],
    ])
    .await;
    let mut rest = spec();
    rest.size = Some(5);
    rest.completed_ranges.insert(0, 2);
    fetch(&mut session, &sink(), &rest).await.unwrap();
    store(&mut session, b"hello", &spec()).await.unwrap();
    assert_eq!(peer.finish().await, b"hello");
}

#[tokio::test]
async fn a_full_disk_at_the_server_is_reported() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO"),
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
        ],
        vec![
            SendLine("150 go"),
            ReceiveData,
            SendLine("452 No space left on device"),
        ],
    ])
    .await;
    let failure = store(&mut session, b"hello", &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::ServerDiskFull);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("disk"), "{failure}");
}

#[tokio::test]
async fn a_mode_e_put_collects_range_markers() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ],
        vec![ExpectLine("STOR /f"), SendLine("150 go")],
        vec![
            SendLine("111 Range Marker 0-3"),
            SendLine("111 Range Marker 3-5"),
        ],
        // The connection stays open for the next transfer, so it is not read to its end here.
        vec![AcceptAndHold, Sleep(200), SendLine("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.mode = ModeChoice::Extended;
    let attempt = store(&mut session, b"hello", &spec).await.unwrap();
    assert!(attempt.extended_mode);
    assert_eq!(attempt.report.evidence.bytes, 5);
    assert_eq!(spec.stored_ranges.lock().to_string(), "0-5");
    peer.finish().await;
}

#[tokio::test]
async fn a_missing_mode_e_is_warned_of_once() {
    let actions = |mode: &'static str| {
        let mut actions = vec![login_script_with_feat(GRIDFTP)];
        if !mode.is_empty() {
            actions.push(command_and_reply(mode, "501 unrecognized transfer mode"));
        }
        for _ in 0..2 {
            actions.push(vec![
                ExpectPassiveAndReply("PASV"),
                ExpectLine("RETR /f"),
                SendLine("150 go"),
            ]);
            actions.push(vec![SendData(b"hello".to_vec()), SendLine("226 done")]);
        }
        actions
    };
    let (mut session, peer) = open_session(actions("MODE E")).await;
    let mut spec = spec();
    spec.streams = 4;
    let first = fetch(&mut session, &sink(), &spec).await.unwrap();
    let second = fetch(&mut session, &sink(), &spec).await.unwrap();
    assert_eq!((first.warnings.len(), second.warnings.len()), (1, 0));
    assert!(!first.extended_mode);
    peer.finish().await;
}

#[tokio::test]
async fn a_server_that_cannot_connect_sends_in_stream_mode() {
    let (mut session, peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR", "200 ok"),
        command_and_reply("PORT", "200 ok"),
        command_and_reply(
            "RETR /f",
            "500-Command failed\n500 Unable to connect to x:5",
        ),
        command_and_reply("MODE S", "200 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hello".to_vec()), SendLine("226 done")],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.streams = 4;
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert!(!attempt.extended_mode);
    assert_eq!(attempt.warnings.len(), 1);
    assert_eq!(memory.take(), b"hello");
    peer.finish().await;
}

/// Result of a MODE E transfer whose server is silent after RETR.
async fn with_a_server_that_says_nothing() -> Result<Failure, Failure> {
    let peer = ScriptedFtpServer::start_session(
        [
            login_script_with_feat(GRIDFTP),
            command_and_reply("MODE E", "200 ok"),
            command_and_reply("OPTS RETR", "200 ok"),
            command_and_reply("PORT", "200 ok"),
            vec![ExpectLine("RETR /f"), ScriptedAction::ExpectEof],
        ]
        .concat(),
    )
    .await;
    let reply_timeout = Duration::from_millis(500);
    let mut session = ClientSession::open(&peer.server, reply_timeout).await?;
    let mut spec = spec();
    spec.streams = 4;
    Ok(fetch(&mut session, &sink(), &spec).await.unwrap_err())
}

#[tokio::test]
async fn a_silent_server_after_retr_is_taken_for_unable_to_connect() {
    let mut failures = Vec::new();
    // A busy machine may time out earlier, but not every time.
    for _ in 0..5 {
        let failure = match with_a_server_that_says_nothing().await {
            Ok(failure) | Err(failure) => failure,
        };
        assert_eq!(failure.kind(), FailureKind::Unreachable);
        assert!(failure.may_retry());
        if failure.to_string().contains("--mode s") {
            return;
        }
        failures.push(failure);
    }
    panic!("{failures:?}");
}
