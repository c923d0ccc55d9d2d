//! Server to server.

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
) -> (Result<TransferAttempt, CopyFailure>, Vec<u64>) {
    let seen = Mutex::new(Vec::new());
    let progress = |bytes| seen.lock().unwrap().push(bytes);
    let outcome = third_party(source, b"/s", destination, b"/d", spec, &progress).await;
    (outcome, seen.into_inner().unwrap())
}

fn destination(rest: Vec<ScriptedAction>) -> Vec<Vec<ScriptedAction>> {
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

fn source(rest: Vec<ScriptedAction>) -> Vec<Vec<ScriptedAction>> {
    vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s")],
        rest,
    ]
}

fn five() -> TransferSpec {
    let mut spec = spec();
    spec.size = Some(5);
    spec
}

#[tokio::test]
async fn both_must_confirm() {
    let (mut a, first) = opened(source(vec![SendLine("150 go"), SendLine("226 sent")])).await;
    let (mut b, second) = opened(destination(vec![
        SendLine("150 go"),
        Sleep(100),
        SendLine("226 stored"),
    ]))
    .await;
    let (outcome, _) = copy(&mut a, &mut b, &five()).await;
    assert_eq!(outcome.unwrap().report.evidence.bytes, 5);
    first.finish().await;
    second.finish().await;
}

#[tokio::test]
async fn the_side_that_failed_first_is_named() {
    let (mut a, _first) = opened(source(vec![SendLine("550 No such file or directory")])).await;
    let (mut b, _second) = opened(destination(vec![Sleep(100), SendLine("425 nobody came")])).await;
    let (outcome, _) = copy(&mut a, &mut b, &five()).await;
    let failure = outcome.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    assert!(failure.message.contains("/s"), "{failure}");
    assert!(failure.message.contains("nobody came"), "{failure}");
}

#[tokio::test]
async fn the_reason_counts_more_than_the_broken_connection() {
    let (mut a, _first) = opened(source(vec![SendLine("426 broken pipe")])).await;
    let (mut b, _second) = opened(destination(vec![
        Sleep(100),
        SendLine("452 No space left on device"),
    ]))
    .await;
    let (outcome, _) = copy(&mut a, &mut b, &five()).await;
    let failure = outcome.unwrap_err();
    assert!(!failure.transient, "{failure}");
    assert!(failure.message.contains("No space left"), "{failure}");
}

#[tokio::test]
async fn a_refusal_of_either_server_disputes_what_was_moved() {
    for (sent, stored, disputed) in [
        ("226 sent", "451 Local error", true),
        ("451 Local error", "226 stored", true),
        ("426 broken pipe", "226 stored", true),
        ("426 broken pipe", "426 cut", false),
    ] {
        let (mut a, _first) = opened(source(vec![SendLine("150 go"), SendLine(sent)])).await;
        let (mut b, _second) =
            opened(destination(vec![SendLine("150 go"), SendLine(stored)])).await;
        let spec = five();
        copy(&mut a, &mut b, &spec).await.0.unwrap_err();
        assert_eq!(
            spec.confirmation.was_refused(),
            disputed,
            "{sent}, {stored}"
        );
    }
}

#[tokio::test]
async fn a_side_that_sends_markers_without_end_is_given_up_when_the_other_is_done() {
    const MARKERS: &str = "111 Range Marker 0-3";
    for endless in [EndlessMarkersFrom::Source, EndlessMarkersFrom::Destination] {
        let acts = |side, done| match side == endless {
            true => vec![SendLine("150 go"), ScriptedAction::SendLineForever(MARKERS)],
            false => vec![SendLine("150 go"), SendLine(done)],
        };
        let (mut a, _first) = opened(source(acts(EndlessMarkersFrom::Source, "226 sent"))).await;
        let (mut b, _second) = opened(destination(acts(
            EndlessMarkersFrom::Destination,
            "226 stored",
        )))
        .await;
        let mut spec = five();
        spec.options.stall = Duration::from_secs(3600);
        let copying = tokio::time::timeout(PATIENCE, copy(&mut a, &mut b, &spec)).await;
        let failure = copying.expect("it waits for ever").0.unwrap_err();
        assert_eq!(failure.exit, Exit::Protocol, "{failure}");
        assert!(failure.message.contains("preliminary replies"), "{failure}");
        assert!(!a.is_usable() || !b.is_usable());
    }
}

#[tokio::test]
async fn a_source_that_refuses_frees_the_destination() {
    let (mut a, _first) = opened(source(vec![SendLine("550 No such file")])).await;
    let (mut b, _second) = opened(destination(vec![ScriptedAction::ExpectEof])).await;
    let (outcome, _) = copy(&mut a, &mut b, &five()).await;
    assert_eq!(outcome.unwrap_err().exit, Exit::NotFound);
    assert!(b.delete(b"/x").await.unwrap_err().transient);
}

#[tokio::test]
async fn markers_tell_progress_and_length() {
    const MARKER: &str = "112-Perf Marker\n Timestamp:  1.0\n Stripe Index: 0\n \
        Stripe Bytes Transferred: 3\n Total Stripe Count: 1\n112 End.";
    let (mut a, _first) = opened(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR Parallelism=4,4,4;", "200 ok"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s"), SendLine("150 go\n226 sent")],
    ])
    .await;
    let (mut b, _second) = opened(vec![
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
    let mut spec = five();
    spec.streams = 4;
    let (outcome, seen) = copy(&mut a, &mut b, &spec).await;
    // Both confirm, but the last marker tells fewer bytes than the file has.
    assert_eq!(outcome.unwrap_err().exit, Exit::Integrity);
    assert_eq!(seen, [3]);
    assert_eq!(spec.stored_ranges.lock().unwrap().to_string(), "0-3");
}

#[tokio::test]
async fn one_side_without_extended_mode_brings_both_to_stream_mode() {
    let (mut a, first) = opened(vec![
        login_script_with_feat(GRIDFTP),
        command_and_reply("MODE E", "200 ok"),
        command_and_reply("OPTS RETR", "200 ok"),
        command_and_reply("MODE S", "200 ok"),
        command_and_reply("PORT 127,0,0,1,", "200 ok"),
        vec![ExpectLine("RETR /s"), SendLine("226 sent")],
    ])
    .await;
    let (mut b, second) = opened(vec![
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
    let mut spec = five();
    spec.streams = 4;
    let (outcome, _) = copy(&mut a, &mut b, &spec).await;
    let attempt = outcome.unwrap();
    assert!(!attempt.extended_mode);
    assert_eq!(attempt.warnings.len(), 1);
    first.finish().await;
    second.finish().await;
}
