//! Failures: refusals, false or missing final replies, lost connections.

use super::*;

#[tokio::test]
async fn an_early_refusal_stops_the_data_side_and_keeps_the_session() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![ExpectPassiveAndReply("PASV"), ExpectLine("RETR /f")],
        vec![Sleep(50), SendLine("550 /f: No such file or directory")],
        command_and_reply("DELE /g", "250 gone"),
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(!failure.may_retry());
    assert!(failure.to_string().contains("No such file"), "{failure}");
    session.delete(b"/g").await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn a_get_succeeds_only_with_226() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hello".to_vec()), SendLine("226 done")],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hel".to_vec()), SendLine("426 cut")],
    ])
    .await;
    let memory = sink();
    let attempt = fetch(&mut session, &memory, &spec()).await.unwrap();
    assert_eq!(
        (attempt.report.evidence.bytes, attempt.extended_mode),
        (5, false)
    );
    assert_eq!(memory.take(), b"hello");
    let failure = fetch(&mut session, &memory, &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    peer.finish().await;
}

/// Whether the received bytes of `/f` are disputed.
async fn disputed(bytes: &[u8], final_reply: &'static str) -> bool {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(bytes.to_vec()), SendLine(final_reply)],
    ])
    .await;
    let spec = spec();
    fetch(&mut session, &sink(), &spec).await.unwrap_err();
    peer.finish().await;
    spec.confirmation.was_refused()
}

#[tokio::test]
async fn a_refusal_after_the_data_disputes_it() {
    for final_reply in ["451 Local error", "426 cut", "550 Read error", "421 bye"] {
        assert!(disputed(b"hello", final_reply).await, "{final_reply}");
    }
}

/// A MODE E block: descriptor, length, offset.
fn block(descriptor: u8, payload: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = vec![descriptor];
    bytes.extend((payload.len() as u64).to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A MODE E get of five bytes over one connection, which then closes.
async fn extended(blocks: Vec<u8>, final_reply: &'static str) -> (Failure, TransferSpec) {
    let (mut session, _peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR", "200 ok"),
        command_and_reply("PORT", "200 ok"),
        vec![
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            ScriptedAction::ConnectAndSendData(blocks),
        ],
        vec![SendLine(final_reply)],
    ])
    .await;
    let mut spec = spec();
    spec.streams = 4;
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    (failure, spec)
}

#[tokio::test]
async fn a_226_without_eod_or_eof_disputes_the_data() {
    let end_without_eof = block(8, b"hello", 0);
    for blocks in [block(0, b"hello", 0), end_without_eof] {
        let (failure, spec) = extended(blocks, "226 done").await;
        assert!(spec.confirmation.was_refused(), "{failure}");
    }
}

#[tokio::test]
async fn a_lost_data_connection_does_not_dispute_received_bytes() {
    let (failure, spec) = extended(block(0, b"hel", 0), "426 Connection closed").await;
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    assert!(!spec.confirmation.was_refused());
}

#[tokio::test]
async fn a_short_file_fails() {
    let (mut session, peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hel".to_vec()), SendLine("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Integrity);
    assert!(failure.to_string().contains("3 of 5"), "{failure}");
    peer.finish().await;
}

#[tokio::test]
async fn a_grown_file_fails() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
        ],
        vec![SendData(b"hello and more".to_vec()), SendLine("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Protocol);
}

#[tokio::test]
async fn a_lost_control_connection_ends_the_data_side() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            AcceptAndHold,
        ],
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &spec()).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    assert!(
        failure.to_string().contains("control connection"),
        "{failure}"
    );
}

#[tokio::test]
async fn stalled_data_runs_into_the_timeout() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            AcceptAndHold,
        ],
        vec![ScriptedAction::ExpectEof],
    ])
    .await;
    let mut spec = spec();
    spec.options.stall = Duration::from_secs(1);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    assert!(failure.to_string().contains("stalled"), "{failure}");
}

#[tokio::test]
async fn a_dropped_transfer_makes_the_session_unusable() {
    let (mut session, _peer) = open_session(vec![
        login_script(),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("RETR /f"),
            SendLine("150 go"),
            AcceptAndHold,
        ],
        vec![Sleep(60_000)],
    ])
    .await;
    let spec = spec();
    let memory = sink();
    let limit = Duration::from_millis(200);
    let cut = tokio::time::timeout(limit, fetch(&mut session, &memory, &spec)).await;
    assert!(cut.is_err());
    let failure = session.delete(b"/g").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
}

#[tokio::test]
async fn endless_preliminary_replies_fail_the_transfer() {
    let peer = ScriptedFtpServer::start_session(
        [
            login_script(),
            vec![
                ExpectPassiveAndReply("PASV"),
                ExpectLine("ALLO 5"),
                SendLine("200 ok"),
            ],
            vec![
                ExpectLine("STOR /f"),
                SendLine("150 go"),
                ReceiveData,
                ScriptedAction::SendLineForever("150 x"),
            ],
        ]
        .concat(),
    )
    .await;
    let opening = ClientSession::open(&peer.server, Duration::from_secs(3600));
    let mut session = opening.await.unwrap();
    let mut spec = spec();
    spec.options.stall = Duration::from_secs(3600);
    let storing = store(&mut session, b"hello", &spec);
    let ended = tokio::time::timeout(TIMEOUT, storing).await;
    let failure = ended.expect("it waits for ever").unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Protocol);
    assert!(!failure.may_retry());
    assert!(
        failure.to_string().contains("preliminary replies"),
        "{failure}"
    );
}
