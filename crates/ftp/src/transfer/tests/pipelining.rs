//! Transfers with servers that support pipelining: few round trips, and refusals within a pipeline.

use proto::checksum::ChecksumAlgorithm;
use proto::command::Command;

use super::*;
use crate::session::scripted_server::{LONGHAUL_GREETING, pipelined_login_script};
use ScriptedAction::{ConnectAndSendData, ExpectPassive, ExpectSilence, SendPassiveReply};

const FEAT: &str =
    "211-x\n PARALLEL\n MLST type*;size*;\n CKSM CRC32C:1;\n ERET\n REST STREAM\n211 End.";
const FACTS: &str = "250-Facts\n type=file;size=5; /f\n250 End.";
const GET_COMMANDS: [ScriptedAction; 4] = [
    ExpectLine("MODE E"),
    ExpectLine("OPTS RETR Parallelism=4,4,4;"),
    ExpectLine("PORT 127,0,0,1,"),
    ExpectLine("RETR /f"),
];

/// `hello` over one connection as MODE E blocks: header, data, then EOF with the number of EODs
/// (GFD.20 §3.4).
fn hello() -> Vec<u8> {
    let header = |flags: u8, count: u64, offset: u64| {
        let mut bytes = vec![flags];
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes
    };
    [header(0, 5, 0), b"hello".to_vec(), header(0x48, 0, 1)].concat()
}

fn four_stream_spec() -> TransferSpec {
    TransferSpec {
        streams: 4,
        size: Some(5),
        ..spec()
    }
}

/// The commands that the batch sends after a get.
fn followups(session: &ClientSession) -> Vec<Command> {
    let mut followups = session.checksum_commands(ChecksumAlgorithm::Crc32c, 0, None, b"/f");
    followups.extend(session.stat_commands(b"/f"));
    followups
}

const FOLLOWUP_COMMANDS: [ScriptedAction; 3] = [
    ExpectLine("OPTS CKSM Markers="),
    ExpectLine("CKSM CRC32C 0 -1 /f"),
    ExpectLine("MLST /f"),
];

#[tokio::test]
async fn a_get_is_one_pipeline_with_its_verification() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        GET_COMMANDS.into(),
        FOLLOWUP_COMMANDS.into(),
        vec![
            SendLine("200 E\n200 ok\n200 ok\n150 go"),
            ConnectAndSendData(hello()),
        ],
        vec![
            SendLine("226 done\n200 markers"),
            SendLine("113 nearly\n213 9a71bb4c"),
        ],
        vec![SendLine(FACTS), ExpectSilence(100)],
    ])
    .await;
    let memory = sink();
    session.followup_commands = followups(&session);
    let attempt = fetch(&mut session, &memory, &four_stream_spec())
        .await
        .unwrap();
    assert!(attempt.extended_mode);
    assert_eq!(memory.take(), b"hello");
    let checksum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await;
    assert_eq!(checksum.unwrap(), "9a71bb4c");
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(5));
    assert!(session.is_usable());
    peer.finish().await;
}

/// With chunks another transfer command follows; the reply to SBUF could not be distinguished
/// from the others.
#[tokio::test]
async fn followups_are_not_pipelined_with_drs1_or_without_pipelining() {
    let (mut session, peer) = open_session(vec![pipelined_login_script(FEAT, &[])]).await;
    let (mut without_pipelining, plain_peer) =
        open_session(vec![login_script_with_feat(FEAT)]).await;
    let mut drs1_spec = spec();
    drs1_spec.options.buffers.sizing = proto::sizing::BufferSizing::Drs1;
    let pipelined_count = |session: &mut ClientSession, spec: &TransferSpec| {
        session.pipeline_followups(spec, followups(session));
        session.followup_commands.len()
    };
    assert_eq!(pipelined_count(&mut session, &spec()), 3);
    assert_eq!(pipelined_count(&mut session, &drs1_spec), 0);
    assert_eq!(pipelined_count(&mut without_pipelining, &spec()), 0);
    peer.finish().await;
    plain_peer.finish().await;
}

#[tokio::test]
async fn a_refused_transfer_keeps_replies_and_commands_aligned() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        GET_COMMANDS.into(),
        FOLLOWUP_COMMANDS.into(),
        vec![SendLine("200 E\n200 ok\n200 ok\n550 /f: No such file")],
        vec![SendLine(
            "200 markers\n550 /f: No such file\n550 /f: No such file",
        )],
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    session.followup_commands = followups(&session);
    let failure = fetch(&mut session, &sink(), &four_stream_spec())
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    session.delete(b"/g").await.unwrap();
    peer.finish().await;
}

/// A login without pipelining, although the greeting is longhaul's.
fn login_without_pipelining() -> Vec<ScriptedAction> {
    let mut actions = login_script_with_feat(FEAT);
    actions[0] = SendLine(LONGHAUL_GREETING);
    actions
}

#[tokio::test]
async fn a_transfer_with_a_refused_setting_is_repeated_without_pipelining() {
    let peer = ScriptedFtpServer::start_sessions(vec![
        [
            pipelined_login_script(FEAT, &[]),
            GET_COMMANDS.into(),
            // In stream mode: these bytes must not be taken for MODE E blocks.
            vec![ConnectAndSendData(b"hello".to_vec())],
            vec![SendLine("504 no such mode\n200 ok\n200 ok\n150 go")],
        ]
        .concat(),
        [
            login_without_pipelining(),
            command_and_reply("MODE E", "504 no such mode"),
            vec![
                ExpectPassiveAndReply("PASV"),
                ExpectLine("RETR /f"),
                SendLine("150 go"),
            ],
            vec![SendData(b"hello".to_vec()), SendLine("226 done")],
            command_and_reply("DELE /g", "250 gone"),
        ]
        .concat(),
    ])
    .await;
    let mut session = ClientSession::open(&peer.server, TIMEOUT).await.unwrap();
    let memory = sink();
    let attempt = fetch(&mut session, &memory, &four_stream_spec())
        .await
        .unwrap();
    assert!(!attempt.extended_mode && session.habits().lockstep);
    assert_eq!(memory.take(), b"hello");
    session.delete(b"/g").await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn eprt_follows_a_refused_port() {
    let peer = ScriptedFtpServer::start_sessions(vec![
        [
            pipelined_login_script(FEAT, &[]),
            GET_COMMANDS.into(),
            vec![SendLine("200 E\n200 ok\n502 no PORT\n425 no address")],
        ]
        .concat(),
        [
            login_without_pipelining(),
            command_and_reply("MODE E", "200 E"),
            command_and_reply("OPTS RETR", "200 ok"),
            command_and_reply("PORT", "502 no PORT"),
            command_and_reply("EPRT |1|127.0.0.1|", "200 ok"),
            command_and_reply("RETR /f", "550 /f: No such file"),
        ]
        .concat(),
    ])
    .await;
    let mut session = ClientSession::open(&peer.server, TIMEOUT).await.unwrap();
    let failure = fetch(&mut session, &sink(), &four_stream_spec())
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    peer.finish().await;
}

#[tokio::test]
async fn a_refused_optional_setting_only_warns() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        GET_COMMANDS.into(),
        vec![SendLine("200 E\n501 what streams?\n200 ok\n150 go")],
        vec![ConnectAndSendData(hello()), SendLine("226 done")],
    ])
    .await;
    let attempt = fetch(&mut session, &sink(), &four_stream_spec())
        .await
        .unwrap();
    assert!(attempt.extended_mode);
    assert_eq!(attempt.warnings.len(), 1, "{:?}", attempt.warnings);
    peer.finish().await;
}

#[tokio::test]
async fn a_421_within_a_pipeline_is_reported() {
    let (mut session, _peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        GET_COMMANDS.into(),
        vec![SendLine("200 E\n421 shutting down")],
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &four_stream_spec())
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    assert!(failure.to_string().contains("shutting down"), "{failure}");
    assert!(!session.is_usable());
}

#[tokio::test]
async fn a_put_is_two_pipelines_with_its_checksum() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        vec![
            ExpectLine("MODE E"),
            ExpectPassive("PASV"),
            ExpectLine("ALLO 5"),
            ExpectSilence(50),
        ],
        vec![
            SendLine("200 E"),
            SendPassiveReply,
            ExpectSilence(50),
            SendLine("200 ok"),
        ],
        vec![
            ExpectLine("STOR /f"),
            ExpectLine("OPTS CKSM"),
            ExpectLine("CKSM CRC32C 0 -1 /f"),
        ],
        vec![
            SendLine("150 go"),
            AcceptAndHold,
            Sleep(200),
            SendLine("226 done\n200 ok\n213 9a71bb4c"),
        ],
    ])
    .await;
    let mut followups = followups(&session);
    followups.truncate(2);
    session.followup_commands = followups;
    let mut spec = four_stream_spec();
    spec.streams = 1;
    spec.mode = ModeChoice::Extended;
    let attempt = store(&mut session, b"hello", &spec).await.unwrap();
    assert!(attempt.extended_mode);
    let checksum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await;
    assert_eq!(checksum.unwrap(), "9a71bb4c");
    peer.finish().await;
}

/// STOR would truncate the file, so nothing is stored before every setting is known to be in force.
#[tokio::test]
async fn a_put_falls_back_to_stream_mode_in_the_same_session() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        vec![
            ExpectLine("MODE E"),
            ExpectPassive("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("504 no"),
        ],
        vec![
            SendPassiveReply,
            SendLine("200 ok"),
            ExpectPassive("PASV"),
            ExpectLine("ALLO 5"),
        ],
        vec![
            SendPassiveReply,
            SendLine("200 ok"),
            ExpectLine("STOR /f"),
            SendLine("150 go"),
            ReceiveData,
        ],
        vec![SendLine("226 done")],
    ])
    .await;
    let attempt = store(&mut session, b"hello", &four_stream_spec())
        .await
        .unwrap();
    assert!(!attempt.extended_mode && !session.habits().lockstep);
    assert_eq!(peer.finish().await, b"hello");
}

#[tokio::test]
async fn a_refused_restart_sends_no_stor() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        vec![
            ExpectLine("MODE E"),
            ExpectPassive("PASV"),
            ExpectLine("ALLO 5"),
            ExpectLine("REST 0-2"),
        ],
        vec![
            SendLine("200 E"),
            SendPassiveReply,
            SendLine("200 ok\n501 what?"),
            ExpectSilence(50),
        ],
    ])
    .await;
    let mut spec = four_stream_spec();
    spec.completed_ranges.insert(0, 2);
    store(&mut session, b"hello", &spec).await.unwrap_err();
    peer.finish().await;
}

#[tokio::test]
async fn epsv_follows_a_refused_pasv_in_a_pipeline() {
    let (mut session, peer) = open_session(vec![
        pipelined_login_script(FEAT, &[]),
        vec![
            ExpectLine("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("502 no\n200 ok"),
        ],
        vec![
            ExpectPassiveAndReply("EPSV"),
            ExpectLine("STOR /f"),
            SendLine("150 go"),
            ReceiveData,
        ],
        vec![SendLine("226 done")],
    ])
    .await;
    store(&mut session, b"hello", &spec()).await.unwrap();
    assert_eq!(peer.finish().await, b"hello");
}

fn receiving_script(rest: Vec<ScriptedAction>) -> Vec<ScriptedAction> {
    let pipeline = [
        ExpectLine("MODE E"),
        ExpectPassive("PASV"),
        ExpectLine("ALLO 5"),
        SendLine("200 E"),
    ];
    let mut actions = [pipelined_login_script(FEAT, &[]), pipeline.into()].concat();
    actions.extend([SendPassiveReply, SendLine("200 ok")]);
    actions.extend(rest);
    actions
}

fn sending_script(rest: Vec<ScriptedAction>) -> Vec<ScriptedAction> {
    let pipeline = [
        ExpectLine("MODE E"),
        ExpectLine("OPTS RETR"),
        SendLine("200 E\n200 ok"),
    ];
    let mut actions = [pipelined_login_script(FEAT, &[]), pipeline.into()].concat();
    actions.extend([ExpectLine("PORT 127,0,0,1,"), ExpectLine("RETR /s")]);
    actions.extend(rest);
    actions
}

/// The result, and the sessions, which are still open.
async fn copy_between_servers(
    from: &ScriptedFtpServer,
    to: &ScriptedFtpServer,
) -> (Result<TransferAttempt, Failure>, [ClientSession; 2]) {
    let mut source = ClientSession::open(&from.server, TIMEOUT).await.unwrap();
    let mut destination = ClientSession::open(&to.server, TIMEOUT).await.unwrap();
    let (from, to) = (&mut source, &mut destination);
    let result = third_party(
        from,
        b"/s",
        to,
        b"/d",
        &four_stream_spec(),
        &Arc::default(),
        &|_| (),
    )
    .await;
    (result, [source, destination])
}

#[tokio::test]
async fn a_third_party_transfer_takes_two_pipelines_per_server() {
    let from = ScriptedFtpServer::start_session(sending_script(vec![SendLine(
        "200 ok\n150 go\n226 sent",
    )]))
    .await;
    let to = ScriptedFtpServer::start_session(receiving_script(vec![
        ExpectLine("STOR /d"),
        SendLine("150 go\n226 stored"),
    ]))
    .await;
    let (done, _sessions) = copy_between_servers(&from, &to).await;
    assert!(done.unwrap().extended_mode);
    from.finish().await;
    to.finish().await;
}

/// For example where the administrator forbids transfers to other hosts: the destination must not
/// store anything.
#[tokio::test]
async fn a_source_that_refuses_port_is_retried_without_pipelining() {
    let from = ScriptedFtpServer::start_sessions(vec![
        sending_script(vec![SendLine("500 not to others\n425 no address")]),
        [
            login_without_pipelining(),
            command_and_reply("MODE E", "200 E"),
            command_and_reply("OPTS RETR", "200 ok"),
            command_and_reply("PORT", "501 Permission denied: not to others"),
        ]
        .concat(),
    ])
    .await;
    // The destination stays in the mode it was set to.
    let again = vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("ALLO 5"),
        SendLine("200 ok"),
        ExpectSilence(100),
    ];
    let to = ScriptedFtpServer::start_session(receiving_script(again)).await;
    let (failed, _sessions) = copy_between_servers(&from, &to).await;
    let failure = failed.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused, "{failure}");
    from.finish().await;
    to.finish().await;
}
