//! Replies that belong to earlier commands.

use super::*;

#[tokio::test]
async fn a_late_reply_does_not_confirm_a_store() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![ExpectPassiveAndReply("PASV"), ExpectLine("ALLO 5")],
        vec![SendLine("200 ok"), ExpectLine("STOR /f")],
        vec![SendLine("250 Directory changed"), ReceiveData],
        vec![
            SendLine("150 go"),
            SendLine("452 Insufficient storage space"),
        ],
    ])
    .await;
    let failure = store(&mut session, b"hello", &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::ServerDiskFull, "{failure}");
    peer.finish().await;
}

#[tokio::test]
async fn a_late_reply_is_not_taken_for_a_data_address() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ScriptedAction::ExpectPassive("PASV"),
            SendLine("250 Directory changed"),
            ScriptedAction::SendPassiveReply,
        ],
        vec![ExpectLine("RETR /f"), SendLine("150 go")],
        // Nor is what follows the final reply taken for that of the next command.
        vec![
            SendData(b"hello".to_vec()),
            SendLine("226 done\n426 aborted"),
        ],
        command_and_reply("PASV", "426 aborted once more\n500 no\n500 no again"),
        command_and_reply("EPSV", "226 late\n502 no"),
    ])
    .await;
    let memory = sink();
    fetch(&mut session, &memory, &spec()).await.unwrap();
    assert_eq!(memory.take(), b"hello");
    let failure = fetch(&mut session, &memory, &spec()).await.unwrap_err();
    assert!(failure.to_string().contains("500 no"), "{failure}");
    peer.finish().await;
}

#[tokio::test]
async fn a_confirmation_without_a_preliminary_reply_counts() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![ExpectPassiveAndReply("PASV"), ExpectLine("RETR /f")],
        vec![SendLine("226 done"), SendData(b"hello".to_vec())],
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    let memory = sink();
    fetch(&mut session, &memory, &spec()).await.unwrap();
    assert_eq!(memory.take(), b"hello");
    session.delete(b"/g").await.unwrap();
    peer.finish().await;
}
