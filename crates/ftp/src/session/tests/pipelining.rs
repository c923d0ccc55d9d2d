//! Pipelined commands, and their failures.

use super::super::scripted_server::{
    LONGHAUL_GREETING, TOOLKIT_GREETING, login_script_with_feat, pipelined_login_script,
    toolkit_login_script,
};
use super::super::{ServerHabits, SessionOpening};
use super::*;
use ScriptedAction::ExpectEof;
use proto::command::Command;

const FEAT: &str = "211-x\n PARALLEL\n MLST type*;size*;\n MFMT\n CKSM CRC32C:1;\n211 End.";
const FACTS: &str = "250-Facts\n type=file;size=7; /f\n250 End.";

async fn open_with_first_path(
    actions: Vec<ScriptedAction>,
) -> (Result<ClientSession, Failure>, ScriptedFtpServer) {
    let peer = ScriptedFtpServer::start_session(actions).await;
    let opening = SessionOpening {
        habits: ServerHabits::default(),
        is_further: false,
        first_path: Some(b"/f"),
        lease: None,
    };
    let session = ClientSession::open_with(&peer.server, TIMEOUT, opening).await;
    (session, peer)
}

#[tokio::test]
async fn login_and_first_stat_are_one_pipeline() {
    let actions = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS)],
        command_and_reply("MLST /f", "550 gone: No such file"),
    ]);
    let (session, peer) = open_with_first_path(actions).await;
    let mut session = session.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    // A prefetched reply is used once.
    let missing = session.stat(b"/f").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    peer.finish().await;
}

#[tokio::test]
async fn an_unused_prefetched_reply_is_not_taken_for_another() {
    let actions = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS)],
        command_and_reply("DELE /g", "550 /g: No such file"),
        command_and_reply("MLST /f", "250-Facts\n type=file;size=8; /f\n250 End."),
    ]);
    let (session, peer) = open_with_first_path(actions).await;
    let mut session = session.unwrap();
    assert!(session.is_usable());
    let failure = session.delete(b"/g").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(8));
    peer.finish().await;
}

#[tokio::test]
async fn range_checksums_are_requested_in_one_pipeline() {
    let ranges = [(0, 8), (8, 4)];
    let actions = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS)],
        command_and_reply("OPTS CKSM Markers=", "200 ok"),
        vec![
            ExpectLine("CKSM CRC32C 0 8 /f"),
            ExpectLine("CKSM CRC32C 8 4 /f"),
        ],
        vec![SendLine("213 0000000A\n213 0000000b")],
        vec![
            ExpectLine("CKSM CRC32C 0 8 /f"),
            ExpectLine("CKSM CRC32C 8 4 /f"),
        ],
        vec![SendLine("550 /f: No such file\n213 0000000b")],
        command_and_reply("MLST /f", FACTS),
    ]);
    let (session, peer) = open_with_first_path(actions).await;
    let mut session = session.unwrap();
    let checksums = session
        .checksums(ChecksumAlgorithm::Crc32c, &ranges, b"/f")
        .await;
    assert_eq!(checksums.unwrap(), ["0000000a", "0000000b"]);
    // A refusal leaves no reply behind that another command would take for its own.
    let refused = session
        .checksums(ChecksumAlgorithm::Crc32c, &ranges, b"/f")
        .await;
    assert_eq!(refused.unwrap_err().kind(), FailureKind::NotFound);
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    peer.finish().await;
}

/// A later command would take the late reply for its own.
#[tokio::test]
async fn a_cancelled_wait_makes_the_session_unusable() {
    let actions = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![Sleep(60_000)],
    ]);
    let (session, _peer) = open_with_first_path(actions).await;
    let mut session = session.unwrap();
    let limit = Duration::from_millis(50);
    let cut = tokio::time::timeout(limit, session.delete(b"/g")).await;
    assert!(cut.is_err() && !session.is_usable());
    let failure = session.stat(b"/f").await.unwrap_err();
    assert!(failure.may_retry(), "{failure}");
}

#[tokio::test]
async fn a_path_with_a_line_break_is_not_prefetched() {
    let peer = ScriptedFtpServer::start_session(pipelined_login_script(FEAT, &[])).await;
    let opening = SessionOpening {
        habits: ServerHabits::default(),
        is_further: false,
        first_path: Some(b"/f\r\nDELE /g"),
        lease: None,
    };
    ClientSession::open_with(&peer.server, TIMEOUT, opening)
        .await
        .unwrap();
    peer.finish().await;
}

/// The messages are the same as without pipelining, whatever the replies to the later commands.
#[tokio::test]
async fn refused_pipelined_logins_give_the_reason() {
    let not_in = "211-x\n PARALLEL\n211 End.\n530 log in\n530 log in";
    let table: &[(&[&'static str], &str, FailureKind, bool)] = &[
        (
            &["331 pw", "530 Login incorrect.", not_in],
            "check user name",
            FailureKind::Refused,
            false,
        ),
        (
            &["530 Must perform GSSAPI authentication.", "503 user?"],
            "needs GSI security",
            FailureKind::Refused,
            false,
        ),
        (
            &["331 pw", "421 Too many failures; closing."],
            "try again later",
            FailureKind::SessionLimit,
            true,
        ),
        (
            &["421 too many sessions"],
            "try again later",
            FailureKind::SessionLimit,
            true,
        ),
        (&["332 account?"], "ACCT", FailureKind::Refused, false),
    ];
    for (replies, words, kind, may_retry) in table {
        let mut actions = vec![SendLine(LONGHAUL_GREETING)];
        actions.extend(["USER", "PASS", "FEAT", "SITE", "TYPE"].map(ExpectLine));
        actions.extend(replies.iter().map(|reply| SendLine(reply)));
        let failure = open_script(actions).await.unwrap_err();
        assert!(failure.to_string().contains(words), "{failure}");
        assert_eq!((failure.kind(), failure.may_retry()), (*kind, *may_retry));
    }
}

#[tokio::test]
async fn a_user_without_password_is_logged_in_despite_503_to_pass() {
    let mut actions = vec![SendLine(LONGHAUL_GREETING)];
    actions.extend(["USER", "PASS", "FEAT", "SITE", "TYPE"].map(ExpectLine));
    actions.extend([SendLine("230 in\n503 in already"), SendLine(FEAT)]);
    actions.push(SendLine("250 ok\n200 ok"));
    let (session, peer) = open_session(actions).await;
    assert!(session.features().mlst);
    peer.finish().await;
}

/// A middlebox that follows the dialogue and closes what it does not expect.
#[tokio::test]
async fn a_connection_lost_during_the_pipelined_login_is_retried_without_pipelining() {
    let mut without_pipelining = login_script_with_feat(FEAT);
    without_pipelining[0] = SendLine(LONGHAUL_GREETING);
    without_pipelining.extend(command_and_reply("MLST /f", FACTS));
    let peer = ScriptedFtpServer::start_sessions(vec![
        vec![SendLine(LONGHAUL_GREETING), ExpectLine("USER joe")],
        without_pipelining,
    ])
    .await;
    let mut session = ClientSession::open(&peer.server, TIMEOUT).await.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    assert!(session.habits().lockstep);
    peer.finish().await;
}

#[tokio::test]
async fn a_toolkit_server_gets_the_settings_and_the_first_stat_together_after_the_login() {
    let actions = script([
        toolkit_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS), ExpectLine("QUIT"), ExpectEof],
    ]);
    let (session, peer) = open_with_first_path(actions).await;
    let mut session = session.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    assert!(!session.planner.supports_pipelining());
    // Without the reply, which never comes.
    session.close().await;
    peer.finish().await;
}

#[tokio::test]
async fn a_toolkit_server_that_is_lost_behind_the_login_gets_one_command_at_a_time() {
    let mut lost = toolkit_login_script(FEAT, &["MLST /f"]);
    lost.truncate(lost.len() - 2);
    let mut careful = login_script_with_feat(FEAT);
    careful[0] = SendLine(TOOLKIT_GREETING);
    let peer = ScriptedFtpServer::start_sessions(vec![lost, careful]).await;
    let opening = SessionOpening {
        habits: ServerHabits::default(),
        is_further: false,
        first_path: Some(b"/f"),
        lease: None,
    };
    let session = ClientSession::open_with(&peer.server, TIMEOUT, opening).await;
    assert!(session.unwrap().habits().lockstep);
    peer.finish().await;
}

#[tokio::test]
async fn a_refused_login_at_a_toolkit_server_is_not_repeated() {
    let actions = script([
        vec![SendLine(TOOLKIT_GREETING)],
        command_and_reply("USER joe", "331 pw"),
        command_and_reply("PASS secret", "530 Login incorrect."),
        vec![ExpectEof],
    ]);
    let (session, peer) = open_with_first_path(actions).await;
    assert_eq!(session.unwrap_err().kind(), FailureKind::Refused);
    peer.finish().await;
}

#[tokio::test]
async fn quit_waits_for_no_reply() {
    let mut shortest = Duration::MAX;
    // A busy machine may delay one run, but not all.
    for _ in 0..3 {
        let actions = script([
            pipelined_login_script(FEAT, &[]),
            vec![ExpectLine("QUIT"), ExpectEof],
        ]);
        let (session, peer) = open_session(actions).await;
        let start = std::time::Instant::now();
        session.close().await;
        shortest = shortest.min(start.elapsed());
        peer.finish().await;
    }
    assert!(shortest < super::super::QUIT_TIMEOUT);
}

#[tokio::test]
async fn time_and_name_are_set_in_one_pipeline() {
    let time = proto::timestamp::Timestamp::parse("20240102030405");
    let pipeline = |answers| {
        let mut actions = vec![ExpectLine("MFMT 20240102030405 /a"), ExpectLine("RNFR /a")];
        actions.extend([ExpectLine("RNTO /b"), SendLine(answers)]);
        actions
    };
    let actions = script([
        pipelined_login_script(FEAT, &[]),
        pipeline("213 ok\n350 and?\n250 renamed"),
        pipeline("550 no\n350 and?\n553 Permission denied"),
        pipeline("550 no\n550 /a: No such file\n503 RNFR first"),
        vec![
            ExpectLine("RNFR /a"),
            ExpectLine("RNTO /b"),
            SendLine("350 and?\n250 renamed"),
        ],
    ]);
    let (mut session, peer) = open_session(actions).await;
    session
        .set_time_and_rename(b"/a", b"/b", time)
        .await
        .unwrap();
    for exit in [FailureKind::Refused, FailureKind::NotFound] {
        let refused = session
            .set_time_and_rename(b"/a", b"/b", time)
            .await
            .unwrap_err();
        assert_eq!(refused.failure.kind(), exit, "{refused:?}");
    }
    session
        .set_time_and_rename(b"/a", b"/b", None)
        .await
        .unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn a_421_within_a_pipeline_is_quoted() {
    let mut actions = pipelined_login_script(FEAT, &[]);
    actions.extend([
        ExpectLine("MFMT"),
        ExpectLine("RNFR /a"),
        ExpectLine("RNTO /b"),
    ]);
    actions.push(SendLine("421 shutting down"));
    let (mut session, _peer) = open_session(actions).await;
    let time = proto::timestamp::Timestamp::parse("20240102030405");
    let refused = session
        .set_time_and_rename(b"/a", b"/b", time)
        .await
        .unwrap_err();
    let failure = refused.failure;
    assert!(
        failure.may_retry() && failure.to_string().contains("shutting down"),
        "{failure}"
    );
}

#[tokio::test]
async fn nothing_is_pipelined_behind_auth() {
    let mut actions = pipelined_login_script(FEAT, &[]);
    actions.push(ExpectEof);
    let (mut session, peer) = open_session(actions).await;
    let auth = Command::Auth("TLS".to_owned());
    let login = [auth, Command::User("joe".to_owned())];
    assert!(session.control.send_pipelined(&login).await.is_err());
    let again = session.control.call(&Command::Noop).await;
    assert!(again.is_err(), "the connection is given up");
    drop(session);
    peer.finish().await;
}

#[tokio::test]
async fn directories_go_ahead_of_replies_in_groups_that_grow() {
    let actions = script([
        login_script(),
        command_and_reply("MKD /a", "257 made"),
        vec![
            ExpectLine("MKD /b"),
            ExpectLine("MKD /c"),
            SendLine("257 made"),
            SendLine("550 it exists"),
        ],
        vec![
            ExpectLine("MKD /d"),
            ExpectLine("MKD /e"),
            SendLine("257 made"),
            SendLine("257 made"),
        ],
        command_and_reply("NOOP", "200 ok"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let paths = [&b"/a"[..], b"/b", b"/c", b"/d", b"/e"];
    // Nothing is sent to a server that may not be tried.
    let none = session.make_dirs(&paths, false).await.unwrap();
    assert_eq!(none, [false; 5]);
    let made = session.make_dirs(&paths, true).await.unwrap();
    assert_eq!(made, [true, true, false, true, true]);
    session.control.call(&Command::Noop).await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn a_server_that_drops_commands_ahead_loses_the_session_and_no_directory_counts() {
    let actions = script([
        login_script(),
        command_and_reply("MKD /a", "257 made"),
        vec![
            ExpectLine("MKD /b"),
            ExpectLine("MKD /c"),
            SendLine("257 made"),
            SendLine("421 too fast"),
        ],
    ]);
    let (mut session, _peer) = open_session(actions).await;
    let paths = [&b"/a"[..], b"/b", b"/c"];
    let made = session.make_dirs(&paths, true).await;
    assert!(made.is_err_and(|failure| failure.may_retry()) || !session.control.is_usable());
}
