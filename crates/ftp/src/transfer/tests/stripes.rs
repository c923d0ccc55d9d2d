//! Servers that name data nodes, and cannot use them.

use super::*;

const FEAT: &str = "211-x\n PARALLEL\n SIZE\n SPAS\n211 End.";

fn large_spec() -> TransferSpec {
    TransferSpec {
        size: Some(1 << 30),
        streams: 4,
        ..spec()
    }
}

/// One data node, of another host than the server's.
fn asked_for_nodes() -> Vec<ScriptedAction> {
    [
        login_script_with_feat(FEAT),
        command_and_reply("MODE E", "200 E"),
        command_and_reply(
            "SPAS",
            "229-Entering Striped Passive Mode\n 127,0,0,2,16,1\n229 End",
        ),
        command_and_reply("OPTS RETR", "200 ok"),
    ]
    .concat()
}

#[tokio::test]
async fn port_follows_a_refused_spor() {
    let (mut session, peer) = open_session(vec![
        asked_for_nodes(),
        command_and_reply("SPOR 127,0,0,1,", "500 command not recognized"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        command_and_reply("RETR /f", "550 /f: No such file"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        command_and_reply("RETR /f", "550 /f: No such file"),
    ])
    .await;
    for _ in 0..2 {
        let failure = fetch(&mut session, &sink(), &large_spec())
            .await
            .unwrap_err();
        assert_eq!(failure.kind(), FailureKind::NotFound, "{failure}");
    }
    peer.finish().await;
}

#[tokio::test]
async fn nodes_that_do_not_reach_this_end_are_not_asked_again() {
    let (mut session, peer) = open_session(vec![
        asked_for_nodes(),
        command_and_reply("SPOR 127,0,0,1,", "200 ok"),
        command_and_reply("RETR /f", "425 a node cannot connect"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        command_and_reply("RETR /f", "550 /f: No such file"),
    ])
    .await;
    let failed = fetch(&mut session, &sink(), &large_spec()).await;
    assert_eq!(failed.unwrap_err().kind(), FailureKind::NotFound);
    assert!(
        session.habits().is_without_stripes(),
        "for later sessions, too"
    );
    peer.finish().await;
}

#[tokio::test]
async fn a_lost_session_says_nothing_of_the_nodes() {
    let (mut session, peer) = open_session(vec![
        asked_for_nodes(),
        command_and_reply("SPOR 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /f")],
    ])
    .await;
    let failed = fetch(&mut session, &sink(), &large_spec()).await;
    assert_eq!(failed.unwrap_err().kind(), FailureKind::Unreachable);
    assert!(!session.habits().is_without_stripes());
    peer.finish().await;
}
