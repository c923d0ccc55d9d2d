use super::*;

/// XRootD 5.5.
const XROOTD: &str = "Perf Marker\nTimestamp: 1537788010\nStripe Index: 0\nStripe Bytes Transferred: 238745\n\
                      Total Stripe Count: 1\nRemoteConnections: tcp:129.93.3.4:1234,tcp:[2600:900::1]:2345\nEnd\n\
                      Perf Marker\nTimestamp: 1537788015\nStripe Index: 0\nStripe Bytes Transferred: 500000\n\
                      Total Stripe Count: 1\nEnd\nsuccess: Created\n";

fn read(pieces: &[&[u8]]) -> CopyReport {
    let mut report = CopyReport::default();
    for piece in pieces {
        report.receive(piece).unwrap();
    }
    report
}

fn end(text: &str) -> Option<CopyEnd> {
    read(&[text.as_bytes()]).finish(true)
}

fn failure(reason: &str) -> Option<CopyEnd> {
    Some(CopyEnd::Failure(reason.as_bytes().to_vec()))
}

#[test]
fn a_report_has_progress_and_an_end_wherever_it_is_cut() {
    for at in 0..=XROOTD.len() {
        let (before, after) = XROOTD.as_bytes().split_at(at);
        let report = read(&[before, after]);
        assert_eq!(report.bytes(), Some(500_000), "{at}");
        assert_eq!(report.finish(true), Some(CopyEnd::Success), "{at}");
    }
    let early = read(&[&XROOTD.as_bytes()[..190]]);
    assert_eq!(early.bytes(), Some(238_745));
}

#[test]
fn the_first_markers_of_dcache_have_no_bytes() {
    let queued = "Perf Marker\r\n    Timestamp: 1360578938\r\n    State: Queued\r\n    State description: waiting\r\n    \
                  Stripe Index: 0\r\n    Total Stripe Count: 1\r\nEnd\r\n";
    assert_eq!(read(&[queued.as_bytes()]).bytes(), None);
    let all = format!("{queued}failure: rejected GET: 403 Forbidden\r\n");
    assert_eq!(end(&all), failure("rejected GET: 403 Forbidden"));
}

#[test]
fn a_report_without_an_end_says_nothing() {
    let markers = XROOTD.strip_suffix("success: Created\n").unwrap();
    for text in [
        "",
        markers,
        "<title>201 Created</title>\n",
        "successful\n",
        "no success: Created\n",
    ] {
        assert_eq!(end(text), None, "{text}");
    }
    // The connection broke within the line.
    let cut = XROOTD.strip_suffix('\n').unwrap().as_bytes();
    assert_eq!(read(&[cut]).finish(false), None);
    assert_eq!(read(&[cut]).finish(true), Some(CopyEnd::Success));
    assert_eq!(
        read(&[XROOTD.as_bytes()]).finish(false),
        Some(CopyEnd::Success)
    );
}

#[test]
fn a_report_that_says_both_is_of_a_failure() {
    assert_eq!(end("success: x\nfailure: y\n"), failure("y"));
    assert_eq!(end("failure: y\nsuccess: x\n"), failure("y"));
    assert_eq!(end("Perf Marker\nFAILURE: in it\nEnd\n"), failure("in it"));
}

#[test]
fn stripes_are_summed_and_bounded() {
    let marker = |stripe: usize, bytes: u64| {
        format!(
            "Perf Marker\nTimestamp: 1\nStripe Index: {stripe}\nStripe Bytes Transferred: {bytes}\nTotal Stripe Count: 9\nEnd\n"
        )
    };
    let two = marker(0, 5) + &marker(1, 7) + &marker(0, 6);
    assert_eq!(read(&[two.as_bytes()]).bytes(), Some(13));
    let many: String = (0..1000).map(|stripe| marker(stripe, 1)).collect();
    let most = crate::stripes::MAX_STRIPES as u64;
    assert_eq!(read(&[many.as_bytes()]).bytes(), Some(most));
    let huge = marker(0, u64::MAX) + &marker(1, 1);
    assert_eq!(read(&[huge.as_bytes()]).bytes(), Some(u64::MAX));
}

#[test]
fn long_lines_markers_and_reports_take_bounded_memory() {
    let mut report = read(&[b"Perf Marker\n"]);
    let line = [b'x'; 1 << 16];
    for _ in 0..100 {
        report.receive(&line).unwrap();
    }
    assert_eq!(report.line.len(), MAX_LINE);
    for _ in 0..100 {
        report.receive(b"a: b\n").unwrap();
    }
    assert_eq!(report.marker.as_ref().map(Vec::len), Some(MAX_MARKER_LINES));
    let rest = read(&[b"failure: ", &line, b"\nsuccess: no\n"]).finish(true);
    assert!(matches!(rest, Some(CopyEnd::Failure(reason)) if reason.len() < MAX_LINE));
    report.received = MAX_REPORT;
    assert_eq!(report.receive(b"x"), Err(EndlessReport));
}
