//! Servers that begin to answer and never end.

use super::*;
use crate::session::control::MAX_PRELIMINARY_REPLIES;

/// Outcome of such an answer in a session whose patience is an hour: neither that nor the end of the
/// connection ends it.
async fn endless<T>(
    asked: Vec<ScriptedAction>,
    ask: impl AsyncFnOnce(&mut ClientSession) -> Result<T, CopyFailure>,
) {
    let fake = ScriptedFtpServer::start_session(asked).await;
    let opening = ClientSession::open(&fake.server, Duration::from_secs(3600));
    let mut session = opening.await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, ask(&mut session)).await;
    let failure = answer.expect("it waits for ever").err().unwrap();
    assert_eq!((failure.exit, failure.transient), (Exit::Protocol, false));
    assert!(failure.message.contains("preliminary replies"), "{failure}");
    assert_eq!(failure.message.lines().count(), 1);
    assert!(!session.is_usable());
}

#[tokio::test]
async fn preliminary_replies_without_end_are_no_answer() {
    let asked = vec![
        ExpectLine("DELE /a"),
        ScriptedAction::SendLineForever("150 x"),
    ];
    endless(script([login_script(), asked]), async |session| {
        session.delete(b"/a").await
    })
    .await;
}

#[tokio::test]
async fn markers_without_end_are_no_checksum() {
    let acts = script([
        login_script_with_feat("211-x\n CKSM CRC32:1;\n211 End"),
        command_and_reply("OPTS", "200 ok"),
        vec![
            ExpectLine("CKSM CRC32"),
            ScriptedAction::SendLineForever("113 x"),
        ],
    ]);
    endless(acts, async |session| {
        let sum = session.checksum(ChecksumAlgorithm::Crc32, 0, None, b"/a");
        sum.await
    })
    .await;
}

#[tokio::test]
async fn a_few_preliminary_replies_are_no_harm() {
    let few = String::leak(["150 x"].repeat(MAX_PRELIMINARY_REPLIES).join("\n"));
    let acts = script([
        login_script(),
        vec![ExpectLine("DELE /a"), SendLine(few), SendLine("250 gone")],
    ]);
    let (mut session, fake) = opened(acts).await;
    session.delete(b"/a").await.unwrap();
    fake.finish().await;
}
