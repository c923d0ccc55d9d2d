//! Servers that take commands ahead: settings, transfer command and what is asked afterwards in as few
//! flights as can be, and refusals among them.

use proto::checksum::ChecksumAlgorithm;
use proto::command::Command;

use super::*;
use crate::session::scripted_server::{LONGHAUL_GREETING, pipelined_login_script};
use ScriptedAction::{ConnectAndSendData, ExpectPassive, ExpectSilence, SendPassiveReply};

const FEAT: &str =
    "211-x\n PARALLEL\n MLST type*;size*;\n CKSM CRC32C:1;\n ERET\n REST STREAM\n211 End.";
const FACTS: &str = "250-Facts\n type=file;size=5; /f\n250 End.";
const FLIGHT: [ScriptedAction; 4] = [
    ExpectLine("MODE E"),
    ExpectLine("OPTS RETR Parallelism=4,4,4;"),
    ExpectLine("PORT 127,0,0,1,"),
    ExpectLine("RETR /f"),
];

/// `hello` over one connection, which is all there are: header, bytes, EOF with the count.
fn hello() -> Vec<u8> {
    let header = |flags: u8, count: u64, offset: u64| {
        let mut bytes = vec![flags];
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes
    };
    [header(0, 5, 0), b"hello".to_vec(), header(0x48, 0, 1)].concat()
}

fn four() -> TransferSpec {
    TransferSpec {
        streams: 4,
        size: Some(5),
        ..spec()
    }
}

/// Questions of the batch after a get.
fn questions(session: &ClientSession) -> Vec<Command> {
    let mut questions = session.checksum_commands(ChecksumAlgorithm::Crc32c, 0, None, b"/f");
    questions.extend(session.stat_commands(b"/f"));
    questions
}

const ASKED: [ScriptedAction; 3] = [
    ExpectLine("OPTS CKSM Markers="),
    ExpectLine("CKSM CRC32C 0 -1 /f"),
    ExpectLine("MLST /f"),
];

#[tokio::test]
async fn a_get_is_one_flight_and_its_verification_comes_with_its_end() {
    let (mut session, fake) = opened(vec![
        pipelined_login_script(FEAT, &[]),
        FLIGHT.into(),
        ASKED.into(),
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
    session.followup_commands = questions(&session);
    let attempt = fetch(&mut session, &memory, &four()).await.unwrap();
    assert!(attempt.extended_mode);
    assert_eq!(memory.take(), b"hello");
    let sum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await;
    assert_eq!(sum.unwrap(), "9a71bb4c");
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(5));
    assert!(session.is_usable());
    fake.finish().await;
}

/// In chunks another command follows the first; SBUF's answer could not be told from theirs.
#[tokio::test]
async fn not_every_transfer_is_asked_about_ahead() {
    let (mut session, fake) = opened(vec![pipelined_login_script(FEAT, &[])]).await;
    let (mut careful, other) = opened(vec![login_script_with_feat(FEAT)]).await;
    let mut told = spec();
    told.options.buffers.sizing = proto::sizing::BufferSizing::Drs1;
    let asked = |session: &mut ClientSession, spec: &TransferSpec| {
        session.pipeline_followups(spec, questions(session));
        session.followup_commands.len()
    };
    assert_eq!(asked(&mut session, &spec()), 3);
    assert_eq!(asked(&mut session, &told), 0);
    assert_eq!(asked(&mut careful, &spec()), 0);
    fake.finish().await;
    other.finish().await;
}

#[tokio::test]
async fn a_refused_transfer_leaves_the_session_in_step() {
    let (mut session, fake) = opened(vec![
        pipelined_login_script(FEAT, &[]),
        FLIGHT.into(),
        ASKED.into(),
        vec![SendLine("200 E\n200 ok\n200 ok\n550 /f: No such file")],
        vec![SendLine(
            "200 markers\n550 /f: No such file\n550 /f: No such file",
        )],
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    session.followup_commands = questions(&session);
    let failure = fetch(&mut session, &sink(), &four()).await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    session.delete(b"/g").await.unwrap();
    fake.finish().await;
}

/// A login that is done with care although the greeting is longhaul's.
fn careful_login() -> Vec<ScriptedAction> {
    let mut acts = login_script_with_feat(FEAT);
    acts[0] = SendLine(LONGHAUL_GREETING);
    acts
}

#[tokio::test]
async fn a_transfer_with_other_settings_than_asked_for_is_given_up_and_made_with_care() {
    let fake = ScriptedFtpServer::start_sessions(vec![
        [
            pipelined_login_script(FEAT, &[]),
            FLIGHT.into(),
            // In stream mode: what must not be taken for the file's blocks.
            vec![ConnectAndSendData(b"hello".to_vec())],
            vec![SendLine("504 no such mode\n200 ok\n200 ok\n150 go")],
        ]
        .concat(),
        [
            careful_login(),
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
    let mut session = ClientSession::open(&fake.server, PATIENCE).await.unwrap();
    let memory = sink();
    let attempt = fetch(&mut session, &memory, &four()).await.unwrap();
    assert!(!attempt.extended_mode && session.avoids_pipelining());
    assert_eq!(memory.take(), b"hello");
    session.delete(b"/g").await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn a_refused_address_is_told_in_its_other_form() {
    let fake = ScriptedFtpServer::start_sessions(vec![
        [
            pipelined_login_script(FEAT, &[]),
            FLIGHT.into(),
            vec![SendLine("200 E\n200 ok\n502 no PORT\n425 no address")],
        ]
        .concat(),
        [
            careful_login(),
            command_and_reply("MODE E", "200 E"),
            command_and_reply("OPTS RETR", "200 ok"),
            command_and_reply("PORT", "502 no PORT"),
            command_and_reply("EPRT |1|127.0.0.1|", "200 ok"),
            command_and_reply("RETR /f", "550 /f: No such file"),
        ]
        .concat(),
    ])
    .await;
    let mut session = ClientSession::open(&fake.server, PATIENCE).await.unwrap();
    let failure = fetch(&mut session, &sink(), &four()).await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    fake.finish().await;
}

#[tokio::test]
async fn a_courtesy_that_is_refused_costs_a_warning_and_no_more() {
    let (mut session, fake) = opened(vec![
        pipelined_login_script(FEAT, &[]),
        FLIGHT.into(),
        vec![SendLine("200 E\n501 what streams?\n200 ok\n150 go")],
        vec![ConnectAndSendData(hello()), SendLine("226 done")],
    ])
    .await;
    let attempt = fetch(&mut session, &sink(), &four()).await.unwrap();
    assert!(attempt.extended_mode);
    assert_eq!(attempt.warnings.len(), 1, "{:?}", attempt.warnings);
    fake.finish().await;
}

#[tokio::test]
async fn the_end_of_a_session_in_a_flight_is_told_as_such() {
    let (mut session, _fake) = opened(vec![
        pipelined_login_script(FEAT, &[]),
        FLIGHT.into(),
        vec![SendLine("200 E\n421 shutting down")],
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &four()).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    assert!(failure.message.contains("shutting down"), "{failure}");
    assert!(!session.is_usable());
}

#[tokio::test]
async fn a_store_is_two_flights_and_its_sum_comes_with_its_end() {
    let (mut session, fake) = opened(vec![
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
    let mut questions = questions(&session);
    questions.truncate(2);
    session.followup_commands = questions;
    let mut spec = four();
    spec.streams = 1;
    spec.mode = ModeChoice::Extended;
    let attempt = store(&mut session, b"hello", &spec).await.unwrap();
    assert!(attempt.extended_mode);
    let sum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await;
    assert_eq!(sum.unwrap(), "9a71bb4c");
    fake.finish().await;
}

/// STOR would cut the file; so nothing is stored before every setting is known to be in force.
#[tokio::test]
async fn a_store_whose_mode_is_refused_goes_on_in_the_other() {
    let (mut session, fake) = opened(vec![
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
    let attempt = store(&mut session, b"hello", &four()).await.unwrap();
    assert!(!attempt.extended_mode && !session.avoids_pipelining());
    assert_eq!(fake.finish().await, b"hello");
}

#[tokio::test]
async fn a_restart_that_is_refused_destroys_nothing() {
    let (mut session, fake) = opened(vec![
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
    let mut spec = four();
    spec.completed_ranges.insert(0, 2);
    store(&mut session, b"hello", &spec).await.unwrap_err();
    fake.finish().await;
}

#[tokio::test]
async fn epsv_follows_when_pasv_is_refused_among_others() {
    let (mut session, fake) = opened(vec![
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
    assert_eq!(fake.finish().await, b"hello");
}

fn receiving(rest: Vec<ScriptedAction>) -> Vec<ScriptedAction> {
    let flight = [
        ExpectLine("MODE E"),
        ExpectPassive("PASV"),
        ExpectLine("ALLO 5"),
        SendLine("200 E"),
    ];
    let mut acts = [pipelined_login_script(FEAT, &[]), flight.into()].concat();
    acts.extend([SendPassiveReply, SendLine("200 ok")]);
    acts.extend(rest);
    acts
}

fn sending(rest: Vec<ScriptedAction>) -> Vec<ScriptedAction> {
    let flight = [
        ExpectLine("MODE E"),
        ExpectLine("OPTS RETR"),
        SendLine("200 E\n200 ok"),
    ];
    let mut acts = [pipelined_login_script(FEAT, &[]), flight.into()].concat();
    acts.extend([ExpectLine("PORT 127,0,0,1,"), ExpectLine("RETR /s")]);
    acts.extend(rest);
    acts
}

/// The outcome, and the sessions, which are still open.
async fn pass(
    from: &ScriptedFtpServer,
    to: &ScriptedFtpServer,
) -> (Result<TransferAttempt, CopyFailure>, [ClientSession; 2]) {
    let mut source = ClientSession::open(&from.server, PATIENCE).await.unwrap();
    let mut destination = ClientSession::open(&to.server, PATIENCE).await.unwrap();
    let (from, to) = (&mut source, &mut destination);
    let passed = third_party(from, b"/s", to, b"/d", &four(), &|_| ()).await;
    (passed, [source, destination])
}

#[tokio::test]
async fn between_two_such_servers_each_hears_two_flights() {
    let from =
        ScriptedFtpServer::start_session(sending(vec![SendLine("200 ok\n150 go\n226 sent")])).await;
    let to = ScriptedFtpServer::start_session(receiving(vec![
        ExpectLine("STOR /d"),
        SendLine("150 go\n226 stored"),
    ]))
    .await;
    let (done, _sessions) = pass(&from, &to).await;
    assert!(done.unwrap().extended_mode);
    from.finish().await;
    to.finish().await;
}

/// As one may whose administrator lets nobody send to other hosts: nothing is stored there for nothing.
#[tokio::test]
async fn a_source_that_refuses_the_address_is_asked_again_with_care() {
    let from = ScriptedFtpServer::start_sessions(vec![
        sending(vec![SendLine("500 not to others\n425 no address")]),
        [
            careful_login(),
            command_and_reply("MODE E", "200 E"),
            command_and_reply("OPTS RETR", "200 ok"),
            command_and_reply("PORT", "500 Permission denied: not to others"),
        ]
        .concat(),
    ])
    .await;
    // A destination that takes commands ahead stays in the mode that it was told.
    let again = vec![
        ExpectPassiveAndReply("PASV"),
        ExpectLine("ALLO 5"),
        SendLine("200 ok"),
        ExpectSilence(100),
    ];
    let to = ScriptedFtpServer::start_session(receiving(again)).await;
    let (failed, _sessions) = pass(&from, &to).await;
    let failure = failed.unwrap_err();
    assert_eq!(failure.exit, Exit::Refused, "{failure}");
    from.finish().await;
    to.finish().await;
}
