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

#[tokio::test]
async fn a_part_by_rest_is_cut_off_at_its_end() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("REST 10"),
            SendLine("350 ok"),
        ],
        vec![ExpectLine("RETR /f"), SendLine("150 go")],
        vec![SendData(vec![7; 300_000]), SendLine("426 peer closed")],
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(1000);
    spec.part = Some((10, 1000));
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 1000);
    assert_eq!(memory.take(), vec![7; 1000]);
    assert!(session.is_usable());
    session.delete(b"/g").await.unwrap();
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
    assert_eq!(failure.exit, Exit::NotFound);
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
