//! Servers that take commands ahead: several of them in one flight, and what can go wrong with that.

use super::super::SessionOpening;
use super::super::scripted_server::{LONGHAUL_GREETING, pipelined_login_script};
use super::*;
use ScriptedAction::ExpectEof;
use proto::command::Command;

const FEAT: &str = "211-x\n PARALLEL\n MLST type*;size*;\n MFMT\n CKSM CRC32C:1;\n211 End.";
const FACTS: &str = "250-Facts\n type=file;size=7; /f\n250 End.";

async fn looking(
    acts: Vec<ScriptedAction>,
) -> (Result<ClientSession, CopyFailure>, ScriptedFtpServer) {
    let fake = ScriptedFtpServer::start_session(acts).await;
    let opening = SessionOpening {
        avoid_pipelining: false,
        first_path: Some(b"/f"),
    };
    let session = ClientSession::open_with(&fake.server, PATIENCE, opening).await;
    (session, fake)
}

#[tokio::test]
async fn login_and_first_question_are_one_flight() {
    let acts = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS)],
        command_and_reply("MLST /f", "550 gone: No such file"),
    ]);
    let (session, fake) = looking(acts).await;
    let mut session = session.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    // The answer serves once.
    let gone = session.stat(b"/f").await.unwrap_err();
    assert_eq!(gone.exit, Exit::NotFound);
    fake.finish().await;
}

#[tokio::test]
async fn an_answer_that_nobody_fetches_is_not_taken_for_another() {
    let acts = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![SendLine(FACTS)],
        command_and_reply("DELE /g", "550 /g: No such file"),
        command_and_reply("MLST /f", "250-Facts\n type=file;size=8; /f\n250 End."),
    ]);
    let (session, fake) = looking(acts).await;
    let mut session = session.unwrap();
    assert!(session.is_usable());
    let failure = session.delete(b"/g").await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(8));
    fake.finish().await;
}

#[tokio::test]
async fn sums_of_ranges_are_asked_for_in_one_flight() {
    let ranges = [(0, 8), (8, 4)];
    let acts = script([
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
    let (session, fake) = looking(acts).await;
    let mut session = session.unwrap();
    let sums = session
        .checksums(ChecksumAlgorithm::Crc32c, &ranges, b"/f")
        .await;
    assert_eq!(sums.unwrap(), ["0000000a", "0000000b"]);
    // A refusal leaves no answer behind that another question would take for its own.
    let refused = session
        .checksums(ChecksumAlgorithm::Crc32c, &ranges, b"/f")
        .await;
    assert_eq!(refused.unwrap_err().exit, Exit::NotFound);
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    fake.finish().await;
}

/// Whoever comes next would take the late answer for its own.
#[tokio::test]
async fn a_wait_that_is_given_up_makes_the_session_useless_rather_than_wrong() {
    let acts = script([
        pipelined_login_script(FEAT, &["MLST /f"]),
        vec![Sleep(60_000)],
    ]);
    let (session, _fake) = looking(acts).await;
    let mut session = session.unwrap();
    let limit = Duration::from_millis(50);
    let cut = tokio::time::timeout(limit, session.delete(b"/g")).await;
    assert!(cut.is_err() && !session.is_usable());
    let failure = session.stat(b"/f").await.unwrap_err();
    assert!(failure.transient, "{failure}");
}

#[tokio::test]
async fn a_path_that_no_line_can_carry_is_not_asked_ahead() {
    let fake = ScriptedFtpServer::start_session(pipelined_login_script(FEAT, &[])).await;
    let opening = SessionOpening {
        avoid_pipelining: false,
        first_path: Some(b"/f\r\nDELE /g"),
    };
    ClientSession::open_with(&fake.server, PATIENCE, opening)
        .await
        .unwrap();
    fake.finish().await;
}

/// The same words as when each command waits for its answer, whatever the rest of the flight comes to.
#[tokio::test]
async fn refused_logins_say_why_as_ever() {
    let not_in = "211-x\n PARALLEL\n211 End.\n530 log in\n530 log in";
    let table: &[(&[&'static str], &str, Exit, bool)] = &[
        (
            &["331 pw", "530 Login incorrect.", not_in],
            "check user name",
            Exit::Refused,
            false,
        ),
        (
            &["530 Must perform GSSAPI authentication.", "503 user?"],
            "needs GSI security",
            Exit::Refused,
            false,
        ),
        (
            &["331 pw", "421 Too many failures; closing."],
            "try again later",
            Exit::Unreachable,
            true,
        ),
        (
            &["421 too many sessions"],
            "try again later",
            Exit::Unreachable,
            true,
        ),
        (&["332 account?"], "ACCT", Exit::Refused, false),
    ];
    for (replies, words, exit, transient) in table {
        let mut acts = vec![SendLine(LONGHAUL_GREETING)];
        acts.extend(["USER", "PASS", "FEAT", "SITE", "TYPE"].map(ExpectLine));
        acts.extend(replies.iter().map(|reply| SendLine(reply)));
        let failure = open_on(acts).await.unwrap_err();
        assert!(failure.message.contains(words), "{failure}");
        assert_eq!((failure.exit, failure.transient), (*exit, *transient));
    }
}

#[tokio::test]
async fn a_user_without_password_is_in_whatever_is_said_to_it() {
    let mut acts = vec![SendLine(LONGHAUL_GREETING)];
    acts.extend(["USER", "PASS", "FEAT", "SITE", "TYPE"].map(ExpectLine));
    acts.extend([SendLine("230 in\n503 in already"), SendLine(FEAT)]);
    acts.push(SendLine("250 ok\n200 ok"));
    let (session, fake) = opened(acts).await;
    assert!(session.features().mlst);
    fake.finish().await;
}

/// Something between that reads along, and gives up on what it does not expect.
#[tokio::test]
async fn a_connection_that_ends_over_the_flight_is_made_again_with_care() {
    let mut careful = login_script_with_feat(FEAT);
    careful[0] = SendLine(LONGHAUL_GREETING);
    careful.extend(command_and_reply("MLST /f", FACTS));
    let fake = ScriptedFtpServer::start_sessions(vec![
        vec![SendLine(LONGHAUL_GREETING), ExpectLine("USER joe")],
        careful,
    ])
    .await;
    let mut session = ClientSession::open(&fake.server, PATIENCE).await.unwrap();
    assert_eq!(session.stat(b"/f").await.unwrap().size, Some(7));
    assert!(session.avoids_pipelining());
    fake.finish().await;
}

#[tokio::test]
async fn goodbye_needs_no_answer() {
    let mut shortest = Duration::MAX;
    // A busy machine may delay one, not each.
    for _ in 0..3 {
        let acts = script([
            pipelined_login_script(FEAT, &[]),
            vec![ExpectLine("QUIT"), ExpectEof],
        ]);
        let (session, fake) = opened(acts).await;
        let start = std::time::Instant::now();
        session.close().await;
        shortest = shortest.min(start.elapsed());
        fake.finish().await;
    }
    assert!(shortest < super::super::QUIT_TIMEOUT);
}

#[tokio::test]
async fn time_and_name_are_given_in_one_flight() {
    let time = proto::timestamp::Timestamp::parse("20240102030405");
    let flight = |answers| {
        let mut acts = vec![ExpectLine("MFMT 20240102030405 /a"), ExpectLine("RNFR /a")];
        acts.extend([ExpectLine("RNTO /b"), SendLine(answers)]);
        acts
    };
    let acts = script([
        pipelined_login_script(FEAT, &[]),
        flight("213 ok\n350 and?\n250 renamed"),
        flight("550 no\n350 and?\n553 Permission denied"),
        flight("550 no\n550 /a: No such file\n503 RNFR first"),
        vec![
            ExpectLine("RNFR /a"),
            ExpectLine("RNTO /b"),
            SendLine("350 and?\n250 renamed"),
        ],
    ]);
    let (mut session, fake) = opened(acts).await;
    session
        .set_time_and_rename(b"/a", b"/b", time)
        .await
        .unwrap();
    for exit in [Exit::Refused, Exit::NotFound] {
        let refused = session
            .set_time_and_rename(b"/a", b"/b", time)
            .await
            .unwrap_err();
        assert_eq!(refused.failure.exit, exit, "{refused:?}");
    }
    session
        .set_time_and_rename(b"/a", b"/b", None)
        .await
        .unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn a_server_that_leaves_in_a_flight_is_quoted() {
    let mut acts = pipelined_login_script(FEAT, &[]);
    acts.extend([
        ExpectLine("MFMT"),
        ExpectLine("RNFR /a"),
        ExpectLine("RNTO /b"),
    ]);
    acts.push(SendLine("421 shutting down"));
    let (mut session, _fake) = opened(acts).await;
    let time = proto::timestamp::Timestamp::parse("20240102030405");
    let refused = session
        .set_time_and_rename(b"/a", b"/b", time)
        .await
        .unwrap_err();
    let failure = refused.failure;
    assert!(
        failure.transient && failure.message.contains("shutting down"),
        "{failure}"
    );
}

#[tokio::test]
async fn nothing_goes_out_behind_auth_before_its_answer() {
    let mut acts = pipelined_login_script(FEAT, &[]);
    acts.push(ExpectEof);
    let (mut session, fake) = opened(acts).await;
    let auth = Command::Auth("TLS".to_owned());
    let login = [auth, Command::User("joe".to_owned())];
    assert!(session.control.send_pipelined(&login).await.is_err());
    let again = session.control.call(&Command::Noop).await;
    assert!(again.is_err(), "the connection is given up");
    drop(session);
    fake.finish().await;
}
