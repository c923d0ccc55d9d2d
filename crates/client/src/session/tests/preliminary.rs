//! Servers that begin to answer and never end.

use super::*;
use crate::session::control::MOST_PRELIMINARY;

/// Outcome of such an answer in a session whose patience is an hour: neither that nor the end of the
/// connection ends it.
async fn endless<T>(asked: Vec<Act>, ask: impl AsyncFnOnce(&mut Session) -> Result<T, Failure>) {
    let fake = Fake::start(asked).await;
    let opening = Session::open(&fake.server, Duration::from_secs(3600));
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
    let asked = vec![Hear("DELE /a"), Act::SayWithoutEnd("150 x")];
    endless(script([login(), asked]), async |session| {
        session.delete(b"/a").await
    })
    .await;
}

#[tokio::test]
async fn markers_without_end_are_no_checksum() {
    let acts = script([
        login_with("211-x\n CKSM CRC32:1;\n211 End"),
        call("OPTS", "200 ok"),
        vec![Hear("CKSM CRC32"), Act::SayWithoutEnd("113 x")],
    ]);
    endless(acts, async |session| {
        let sum = session.checksum(Algorithm::Crc32, 0, None, b"/a");
        sum.await
    })
    .await;
}

#[tokio::test]
async fn a_few_preliminary_replies_are_no_harm() {
    let few = String::leak(["150 x"].repeat(MOST_PRELIMINARY).join("\n"));
    let acts = script([login(), vec![Hear("DELE /a"), Say(few), Say("250 gone")]]);
    let (mut session, fake) = opened(acts).await;
    session.delete(b"/a").await.unwrap();
    fake.finish().await;
}
