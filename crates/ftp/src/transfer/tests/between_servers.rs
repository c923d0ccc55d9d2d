//! Third-party transfers.

use super::*;

#[derive(Clone, Copy, PartialEq)]
enum EndlessMarkersFrom {
    Source,
    Destination,
}

async fn copy(
    source: &mut ClientSession,
    destination: &mut ClientSession,
    spec: &TransferSpec,
) -> (Result<TransferAttempt, Failure>, Vec<u64>) {
    let reported = Mutex::new(Vec::new());
    let progress = |bytes| reported.lock().push(bytes);
    let outcome = third_party(
        source,
        b"/s",
        destination,
        b"/d",
        spec,
        &Arc::default(),
        &progress,
    )
    .await;
    (outcome, reported.into_inner())
}

fn destination_script(rest: Vec<ScriptedAction>) -> Vec<Vec<ScriptedAction>> {
    vec![
        login_script_with_feat(GRIDFTP),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ],
        vec![ExpectLine("STOR /d")],
        rest,
    ]
}

fn source_script(rest: Vec<ScriptedAction>) -> Vec<Vec<ScriptedAction>> {
    vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s")],
        rest,
    ]
}

fn five_byte_spec() -> TransferSpec {
    let mut spec = spec();
    spec.size = Some(5);
    spec
}

#[tokio::test]
async fn a_third_party_transfer_needs_both_confirmations() {
    let (mut source_session, source_peer) = open_session(source_script(vec![
        SendLine("150 go"),
        SendLine("226 sent"),
    ]))
    .await;
    let (mut destination_session, destination_peer) = open_session(destination_script(vec![
        SendLine("150 go"),
        Sleep(100),
        SendLine("226 stored"),
    ]))
    .await;
    let (outcome, _) = copy(
        &mut source_session,
        &mut destination_session,
        &five_byte_spec(),
    )
    .await;
    assert_eq!(outcome.unwrap().report.evidence.bytes, 5);
    source_peer.finish().await;
    destination_peer.finish().await;
}

#[tokio::test]
async fn the_server_that_failed_first_is_named() {
    let (mut source_session, _source_peer) = open_session(source_script(vec![SendLine(
        "550 No such file or directory",
    )]))
    .await;
    let (mut destination_session, _destination_peer) = open_session(destination_script(vec![
        Sleep(100),
        SendLine("425 nobody came"),
    ]))
    .await;
    let (outcome, _) = copy(
        &mut source_session,
        &mut destination_session,
        &five_byte_spec(),
    )
    .await;
    let failure = outcome.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(failure.to_string().contains("/s"), "{failure}");
    assert!(failure.to_string().contains("nobody came"), "{failure}");
}

#[tokio::test]
async fn servers_without_a_data_connection_are_apart() {
    for (source_reply, destination_reply, is_apart) in [
        ("425 cannot connect", "426 nobody came", true),
        ("426 broken pipe", "425 nobody came", true),
        ("426 broken pipe", "426 cut", false),
        ("425 cannot connect", "226 stored", false),
        ("425 cannot connect", "452 No space left on device", false),
    ] {
        let (mut source_session, _source_peer) =
            open_session(source_script(vec![SendLine(source_reply)])).await;
        let (mut destination_session, _destination_peer) =
            open_session(destination_script(vec![SendLine(destination_reply)])).await;
        let (outcome, _) = copy(
            &mut source_session,
            &mut destination_session,
            &five_byte_spec(),
        )
        .await;
        let kind = outcome.unwrap_err().kind();
        assert_eq!(
            kind == FailureKind::Apart,
            is_apart,
            "{source_reply}, {destination_reply}"
        );
    }
}

#[tokio::test]
async fn a_reason_is_reported_before_a_broken_connection() {
    let (mut source_session, _source_peer) =
        open_session(source_script(vec![SendLine("426 broken pipe")])).await;
    let (mut destination_session, _destination_peer) = open_session(destination_script(vec![
        Sleep(100),
        SendLine("452 No space left on device"),
    ]))
    .await;
    let (outcome, _) = copy(
        &mut source_session,
        &mut destination_session,
        &five_byte_spec(),
    )
    .await;
    let failure = outcome.unwrap_err();
    assert!(!failure.may_retry(), "{failure}");
    assert!(failure.to_string().contains("No space left"), "{failure}");
}

#[tokio::test]
async fn a_refusal_by_either_server_disputes_the_bytes() {
    for (source_reply, destination_reply, disputed) in [
        ("226 sent", "451 Local error", true),
        ("451 Local error", "226 stored", true),
        ("426 broken pipe", "226 stored", true),
        ("426 broken pipe", "426 cut", false),
    ] {
        let (mut source_session, _source_peer) = open_session(source_script(vec![
            SendLine("150 go"),
            SendLine(source_reply),
        ]))
        .await;
        let (mut destination_session, _destination_peer) = open_session(destination_script(vec![
            SendLine("150 go"),
            SendLine(destination_reply),
        ]))
        .await;
        let spec = five_byte_spec();
        copy(&mut source_session, &mut destination_session, &spec)
            .await
            .0
            .unwrap_err();
        assert_eq!(
            spec.confirmation.was_refused(),
            disputed,
            "{source_reply}, {destination_reply}"
        );
    }
}

#[tokio::test]
async fn endless_markers_after_the_other_side_ended_fail_the_transfer() {
    const MARKERS: &str = "111 Range Marker 0-3";
    for endless_side in [EndlessMarkersFrom::Source, EndlessMarkersFrom::Destination] {
        let actions = |side, done| match side == endless_side {
            true => vec![SendLine("150 go"), ScriptedAction::SendLineForever(MARKERS)],
            false => vec![SendLine("150 go"), SendLine(done)],
        };
        let (mut source_session, _source_peer) = open_session(source_script(actions(
            EndlessMarkersFrom::Source,
            "226 sent",
        )))
        .await;
        let (mut destination_session, _destination_peer) = open_session(destination_script(
            actions(EndlessMarkersFrom::Destination, "226 stored"),
        ))
        .await;
        let mut spec = five_byte_spec();
        spec.options.stall = Duration::from_secs(3600);
        let copying = tokio::time::timeout(
            TIMEOUT,
            copy(&mut source_session, &mut destination_session, &spec),
        )
        .await;
        let failure = copying.expect("it waits for ever").0.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Protocol, "{failure}");
        assert!(
            failure.to_string().contains("preliminary replies"),
            "{failure}"
        );
        assert!(!source_session.is_usable() || !destination_session.is_usable());
    }
}

#[tokio::test]
async fn a_refusing_source_abandons_the_destination_session() {
    let (mut source_session, _source_peer) =
        open_session(source_script(vec![SendLine("550 No such file")])).await;
    let (mut destination_session, _destination_peer) =
        open_session(destination_script(vec![ScriptedAction::ExpectEof])).await;
    let (outcome, _) = copy(
        &mut source_session,
        &mut destination_session,
        &five_byte_spec(),
    )
    .await;
    assert_eq!(outcome.unwrap_err().kind(), FailureKind::NotFound);
    assert!(
        destination_session
            .delete(b"/x")
            .await
            .unwrap_err()
            .may_retry()
    );
}

#[tokio::test]
async fn markers_report_progress_and_a_wrong_length_fails() {
    const MARKER: &str = "112-Perf Marker\n Timestamp:  1.0\n Stripe Index: 0\n \
        Stripe Bytes Transferred: 3\n Total Stripe Count: 1\n112 End.";
    let (mut source_session, _source_peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR Parallelism=4,4,4;", "200 ok"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s"), SendLine("150 go\n226 sent")],
    ])
    .await;
    let (mut destination_session, _destination_peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ],
        vec![ExpectLine("STOR /d"), SendLine("150 go"), SendLine(MARKER)],
        vec![SendLine("111 Range Marker 0-3"), SendLine("226 stored")],
    ])
    .await;
    let mut spec = five_byte_spec();
    spec.streams = 4;
    let (outcome, reported) = copy(&mut source_session, &mut destination_session, &spec).await;
    // Both confirm, but the last marker reports fewer bytes than the file has.
    assert_eq!(outcome.unwrap_err().kind(), FailureKind::Integrity);
    assert_eq!(reported, [3]);
    assert_eq!(spec.stored_ranges.lock().to_string(), "0-3");
}

#[tokio::test]
async fn one_server_without_mode_e_puts_both_in_stream_mode() {
    let (mut source_session, source_peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR", "200 ok"),
        command_and_reply("MODE S", "200 ok"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s"), SendLine("226 sent")],
    ])
    .await;
    let (mut destination_session, destination_peer) = open_session(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "504 no"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("ALLO 5"),
            SendLine("200 ok"),
        ],
        vec![ExpectLine("STOR /d"), SendLine("226 stored")],
    ])
    .await;
    let mut spec = five_byte_spec();
    spec.streams = 4;
    let (outcome, _) = copy(&mut source_session, &mut destination_session, &spec).await;
    let attempt = outcome.unwrap();
    assert!(!attempt.extended_mode);
    assert_eq!(attempt.warnings.len(), 1);
    source_peer.finish().await;
    destination_peer.finish().await;
}
