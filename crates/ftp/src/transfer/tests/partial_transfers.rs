//! Partial transfers: restarts, and parts of files.

use super::*;

#[tokio::test]
async fn resume_continues_after_the_stored_bytes() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("REST 3"),
            SendLine("350 ok"),
        ],
        vec![ExpectLine("RETR /f"), SendLine("150 go")],
        vec![SendData(b"lo".to_vec()), SendLine("226 done")],
    ])
    .await;
    let memory = sink();
    data::store::Sink::write_at(&memory, 0, b"hel").unwrap();
    let mut spec = spec();
    spec.size = Some(5);
    spec.completed_ranges.insert(0, 3);
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 2);
    assert_eq!(memory.take(), b"hello");
    peer.finish().await;
}

#[tokio::test]
async fn a_server_without_rest_starts_from_zero() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("REST 3"),
            SendLine("502 no"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hello".to_vec()), SendLine("226 done")],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(5);
    spec.completed_ranges.insert(0, 3);
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 5);
    assert_eq!(memory.take(), b"hello");
    peer.finish().await;
}

/// A server of a file of 300 010 bytes is asked for the last one, to see whether REST has effect.
fn proof_of_rest() -> Vec<ScriptedAction> {
    [
        login_script(),
        command_and_reply("CWD /f", "550 no"),
        command_and_reply("SIZE /f", "213 300010"),
        command_and_reply("MDTM /f", "500 what?"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("REST 300009"),
            SendLine("350 ok"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
    ]
    .concat()
}

fn part_by_rest() -> TransferSpec {
    TransferSpec {
        size: Some(1000),
        part: Some((10, 1000)),
        ..spec()
    }
}

#[tokio::test]
async fn a_part_by_rest_is_cut_off_at_its_end() {
    let part = || {
        [
            vec![
                ExpectPassiveAndReply("PASV"),
                ExpectLine("REST 10"),
                SendLine("350 ok"),
            ],
            vec![ExpectLine("RETR /f"), SendLine("150 go")],
            vec![SendData(vec![7; 300_000]), SendLine("426 peer closed")],
        ]
        .concat()
    };
    let (mut session, peer) = open_session(vec![
        proof_of_rest(),
        vec![SendData(b"7".to_vec()), SendLine("226 done")],
        part(),
        command_and_reply("DELE /g", "250 gone"),
        // The server is known by now.
        part(),
    ])
    .await;
    let memory = sink();
    let spec = part_by_rest();
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 1000);
    assert_eq!(memory.take(), vec![7; 1000]);
    assert!(session.is_usable());
    session.delete(b"/g").await.unwrap();
    fetch(&mut session, &memory, &spec).await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn no_part_is_taken_from_a_server_that_ignores_rest() {
    let (mut session, peer) = open_session(vec![
        proof_of_rest(),
        vec![
            SendData(b"the whole file".to_vec()),
            ScriptedAction::ExpectEof,
        ],
    ])
    .await;
    let memory = sink();
    let failure = fetch(&mut session, &memory, &part_by_rest())
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Protocol);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("in part"), "{failure}");
    assert_eq!(memory.take(), b"");
    drop(session);
    peer.finish().await;
}

#[tokio::test]
async fn a_resumed_get_does_without_rest_after_it_had_no_effect() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("REST 2"),
            SendLine("350 ok"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hello".to_vec()), ScriptedAction::ExpectEof],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(5);
    spec.completed_ranges.insert(0, 2);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert!(failure.may_retry(), "{failure}");
    assert!(spec.confirmation.has_misplaced());
    assert!(session.features().ignores_rest);
    drop(session);
    peer.finish().await;
}

#[tokio::test]
async fn a_part_is_complete_without_a_final_reply() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 97.6 kbytes"),
        ],
        vec![SendData(vec![7; 300_000]), SendLine("150 0.005 seconds")],
        vec![ScriptedAction::ExpectEof],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(99_999);
    spec.part = Some((0, 99_999));
    let control = Arc::new(TransferControl::new());
    let sink = Arc::new(memory.clone());
    let attempt = get(&mut session, b"/f", sink, &spec, &control).await;
    assert_eq!(attempt.unwrap().report.evidence.bytes, 99_999);
    assert_eq!(control.bytes(), 99_999);
    assert_eq!(memory.take(), vec![7; 99_999]);
    // A later reply would be taken for the answer to another command.
    assert!(!session.is_usable());
}

#[tokio::test]
async fn an_empty_part_of_a_missing_file_is_refused() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("550 No such file"),
        ],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(0);
    spec.part = Some((0, 0));
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
}

#[tokio::test]
async fn a_part_of_a_source_becomes_the_whole_destination() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 4"),
            SendLine("200 ok"),
        ],
        vec![
            ExpectLine("STOR /f"),
            SendLine("150 go"),
            ReceiveData,
            SendLine("226 done"),
        ],
    ])
    .await;
    let mut spec = spec();
    spec.part = Some((2, 4));
    store(&mut session, b"0123456789", &spec).await.unwrap();
    assert_eq!(peer.finish().await, b"2345");
}
