//! Last words that do not come.

use super::*;

#[tokio::test]
async fn a_server_that_sends_preliminary_replies_without_end_does_not_hold_the_client() {
    let fake = Fake::start(
        [
            login(),
            vec![Listen("PASV"), Hear("ALLO 5"), Say("200 ok")],
            vec![
                Hear("STOR /f"),
                Say("150 go"),
                Take,
                Act::SayWithoutEnd("150 x"),
            ],
        ]
        .concat(),
    )
    .await;
    let opening = Session::open(&fake.server, Duration::from_secs(3600));
    let mut session = opening.await.unwrap();
    let mut spec = spec();
    spec.options.stall = Duration::from_secs(3600);
    let storing = store(&mut session, b"hello", &spec);
    let ended = tokio::time::timeout(PATIENCE, storing).await;
    let failure = ended.expect("it waits for ever").unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Protocol, false));
    assert!(failure.message.contains("preliminary replies"), "{failure}");
}
