//! Servers that send preliminary replies without end.

use super::*;
use crate::session::control::MAX_PRELIMINARY_REPLIES;

/// Runs a command that never gets a final reply, in a session with a reply timeout of an hour: only
/// the limit on preliminary replies can end it.
async fn assert_endless_replies_fail<T>(
    asked: Vec<ScriptedAction>,
    ask: impl AsyncFnOnce(&mut ClientSession) -> Result<T, Failure>,
) {
    let peer = ScriptedFtpServer::start_session(asked).await;
    let opening = ClientSession::open(&peer.server, Duration::from_secs(3600));
    let mut session = opening.await.unwrap();
    let answer = tokio::time::timeout(TIMEOUT, ask(&mut session)).await;
    let failure = answer.expect("it waits for ever").err().unwrap();
    assert_eq!(failure.kind(), FailureKind::Protocol);
    assert!(!failure.may_retry());
    assert!(
        failure.to_string().contains("preliminary replies"),
        "{failure}"
    );
    assert_eq!(failure.to_string().lines().count(), 1);
    assert!(!session.is_usable());
}

#[tokio::test]
async fn endless_preliminary_replies_fail_the_command() {
    let asked = vec![
        ExpectLine("DELE /a"),
        ScriptedAction::SendLineForever("150 x"),
    ];
    assert_endless_replies_fail(script([login_script(), asked]), async |session| {
        session.delete(b"/a").await
    })
    .await;
}

#[tokio::test]
async fn endless_markers_fail_the_checksum() {
    let actions = script([
        login_script_with_feat("211-x\n CKSM CRC32:1;\n211 End"),
        command_and_reply("OPTS", "200 ok"),
        vec![
            ExpectLine("CKSM CRC32"),
            ScriptedAction::SendLineForever("113 x"),
        ],
    ]);
    assert_endless_replies_fail(actions, async |session| {
        let checksum = session.checksum(ChecksumAlgorithm::Crc32, 0, None, b"/a");
        checksum.await
    })
    .await;
}

#[tokio::test]
async fn preliminary_replies_up_to_the_limit_are_accepted() {
    let few = String::leak(["150 x"].repeat(MAX_PRELIMINARY_REPLIES).join("\n"));
    let actions = script([
        login_script(),
        vec![ExpectLine("DELE /a"), SendLine(few), SendLine("250 gone")],
    ]);
    let (mut session, peer) = open_session(actions).await;
    session.delete(b"/a").await.unwrap();
    peer.finish().await;
}
