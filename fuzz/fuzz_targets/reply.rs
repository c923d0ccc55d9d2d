//! Replies: any split gives the same ones, and each is written and read back unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::remark::Said;
use proto::reply::{Reply, ReplyReader};
use proto::sizing::{MAX_BUFFER, MIN_BUFFER, parse_buffer_reply};

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

fn holds_controls(reply: &Reply) -> bool {
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
        if let Some(bytes) = parse_buffer_reply(&reply) {
            assert!((MIN_BUFFER..=MAX_BUFFER).contains(&bytes));
        }
        let Said { verdict, remark } = Said::of_reply(&reply);
        if let Some(remark) = &remark {
            assert!(!remark.chars().any(char::is_control));
        }
        if let Some(verdict) = verdict {
            let again = Reply::new(226, format!("Transfer Complete. {verdict}"));
            assert_eq!(Said::of_reply(&again).verdict, Some(verdict));
        }
        let mut written = Vec::new();
        reply.encode(&mut written);
        let back = read(&[&written]);
        assert_eq!(back.len(), 1, "a reply is never two");
        if !holds_controls(&reply) {
            assert_eq!(back, [reply]);
        }
    }
});
