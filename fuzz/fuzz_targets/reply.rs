//! Replies: any split of the input gives the same replies, and each is encoded and read back unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::remark::CompletionRemarks;
use proto::reply::{Reply, ReplyReader};
use proto::sizing::{MAX_BUFFER, MIN_BUFFER, parse_buffer_size_reply};

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

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    let (head, tail) = wire.split_at(usize::from(*first).min(wire.len()));
    let replies = read(&[wire]);
    assert_eq!(read(&[head, tail]), replies);
    for reply in replies {
        let _ = (reply.summary(), reply.for_log());
        if let Some(bytes) = parse_buffer_size_reply(&reply) {
            assert!((MIN_BUFFER..=MAX_BUFFER).contains(&bytes));
        }
        let CompletionRemarks { limiter, remark } = CompletionRemarks::from_reply(&reply);
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
