//! Replies: any split of the input gives the same replies, each is encoded and read back unchanged, and so are
//! the values in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::address::{PassiveAddress, find_in_227, find_in_229, parse_spas_lines};
use proto::bundle::BundleOutcome;
use proto::feature::ServerFeatures;
use proto::marker::{
    PerformanceMarker, parse_checksum_marker, parse_range_marker, range_marker_replies,
};
use proto::remark::CompletionRemarks;
use proto::reply::{Reply, ReplyReader};
use proto::sizing::{MAX_BUFFER, MIN_BUFFER, parse_buffer_size_reply};
use proto::stripes::MAX_STRIPES;

fn read(pieces: &[&[u8]]) -> Vec<Reply> {
    let mut reader = ReplyReader::new();
    let mut out = Vec::new();
    for piece in pieces {
        if reader.feed(piece, &mut out).is_err() {
            break;
        }
    }
    out
}

fn has_line_endings(reply: &Reply) -> bool {
    let mut bytes = reply.lines.iter().flatten();
    bytes.any(|b| matches!(b, 0 | b'\r' | b'\n'))
}

/// Tokens, markers and addresses in a reply of any code.
fn check_values(reply: &Reply) {
    if let Ok(Some(token)) = reply.token() {
        assert!(
            !reply
                .for_log()
                .contains(&format!("ADAT={}", token.encode()))
                || token.encode().is_empty()
        );
        assert_eq!(Reply::with_token(335, &token).token(), Ok(Some(token)));
    }
    let _ = ServerFeatures::from_reply(reply);
    let coded = |code| Reply {
        code,
        ..reply.clone()
    };
    if let Some(marker) = PerformanceMarker::from_reply(&coded(112)) {
        assert!(marker.stripe_count >= 1 && marker.timestamp.is_finite());
    }
    if let Some(ranges) = parse_range_marker(&coded(111)) {
        let mut parts = range_marker_replies(&ranges);
        if parts.len() == 1 {
            let again = parts.pop().and_then(|part| parse_range_marker(&part));
            assert_eq!(again, Some(ranges));
        }
    }
    let _ = parse_checksum_marker(&coded(113));
    if let Some(outcome) = BundleOutcome::from_reply(&coded(250), 100) {
        assert!(outcome.failures.iter().all(|failure| failure.index < 100));
        let again = BundleOutcome::from_reply(&outcome.reply(), 100);
        assert_eq!(again.map(|again| again.checksum), Some(outcome.checksum));
    }
    let text = reply.summary();
    for address in [find_in_227(&text), find_in_229(&text)]
        .into_iter()
        .flatten()
    {
        check_address(address);
    }
    let lines: Vec<String> = reply
        .lines
        .iter()
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    if let Ok(stripes) = parse_spas_lines(lines.iter().map(String::as_str)) {
        assert!((1..=MAX_STRIPES).contains(&stripes.len()));
        stripes.into_iter().for_each(check_address);
    }
}

fn check_address(address: PassiveAddress) {
    assert_ne!(address.port, 0, "a port that can be connected to");
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    let (head, tail) = wire.split_at(usize::from(*first).min(wire.len()));
    let replies = read(&[wire]);
    assert_eq!(read(&[head, tail]), replies);
    for reply in replies {
        let _ = (reply.summary(), reply.for_log());
        check_values(&reply);
        if let Some(bytes) = parse_buffer_size_reply(&reply) {
            assert!((MIN_BUFFER..=MAX_BUFFER).contains(&bytes));
        }
        let CompletionRemarks {
            limiter, remark, ..
        } = CompletionRemarks::from_reply(&reply);
        if let Some(remark) = &remark {
            assert!(!remark.chars().any(char::is_control));
        }
        if let Some(limiter) = limiter {
            let again = Reply::new(226, format!("Transfer Complete. {limiter}"));
            assert_eq!(CompletionRemarks::from_reply(&again).limiter, Some(limiter));
        }
        let mut encoded = Vec::new();
        reply.encode(&mut encoded);
        let back = read(&[&encoded]);
        assert_eq!(back.len(), 1, "a reply stays one reply");
        if !has_line_endings(&reply) {
            assert_eq!(back, [reply]);
        }
    }
});
