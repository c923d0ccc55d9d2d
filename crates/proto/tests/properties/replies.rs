use proptest::collection::vec;
use proptest::prelude::*;
use proto::reply::{ProtectedReplyReader, Reply, ReplyReader};

use crate::split::pieces;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ -~]{0,20}".prop_map(String::into_bytes),
        "[0-9]{3}[ -][a-z]{0,5}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..20),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let code = || 100..700u16;
    let words = || "[ -~\r\n]{0,20}";
    prop_oneof![
        (code(), text()).prop_map(|(code, text)| Reply::new(code, text)),
        (code(), words(), vec(text(), 0..6), words()).prop_map(|(code, first, inner, last)| {
            Reply::with_inner_lines(code, &first, inner, &last)
        }),
        (code(), vec(text(), 0..6)).prop_map(|(code, lines)| Reply::multi_line(code, lines)),
    ]
}

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

proptest! {
    #[test]
    fn encoded_replies_are_read_back(
        replies in vec(reply(), 0..6),
        cuts in vec(0..40usize, 0..40),
    ) {
        let mut wire = Vec::new();
        for reply in &replies {
            reply.encode(&mut wire);
        }
        prop_assert_eq!(read(&pieces(&wire, &cuts)), replies);
    }

    /// The fake mechanism inverts all bits.
    #[test]
    fn protected_replies_are_read_back(
        replies in vec(reply(), 0..6),
        cuts in vec(0..60usize, 0..40),
    ) {
        let invert = |bytes: &[u8]| Ok::<Vec<u8>, ()>(bytes.iter().map(|b| !b).collect());
        let wire: Vec<u8> = replies
            .iter()
            .flat_map(|reply| reply.encode_protected(invert).unwrap_or_default())
            .collect();
        let (mut reader, mut plain) = (ProtectedReplyReader::default(), Vec::new());
        for piece in pieces(&wire, &cuts) {
            prop_assert!(reader.feed(piece, invert, &mut plain).is_ok());
        }
        prop_assert_eq!(read(&[&plain]), replies);
    }

    #[test]
    fn any_split_gives_the_same_replies(
        bytes in "([0-9]{3}[ -]|[a-z ]{0,3}|211-|211 |\r|\n|\r\n){0,30}",
        cuts in vec(0..9usize, 0..40),
    ) {
        let bytes = bytes.as_bytes();
        let whole = read(&[bytes]);
        prop_assert_eq!(read(&pieces(bytes, &cuts)), whole.clone());
        for reply in whole {
            prop_assert!((100..700).contains(&reply.code) && !reply.lines.is_empty());
        }
    }

    #[test]
    fn a_reply_with_arbitrary_lines_stays_one_reply(code in 100..700u16, lines in vec(text(), 1..5)) {
        let mut wire = Vec::new();
        let reply = Reply { code, lines };
        reply.encode(&mut wire);
        wire.extend(b"299 next\r\n");
        let replies = read(&[&wire]);
        prop_assert_eq!(replies.len(), 2);
        prop_assert_eq!(replies.last(), Some(&Reply::new(299, "next")));
        let _ = reply.summary();
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        for reply in read(&[&bytes]) {
            let _ = (reply.summary(), reply.text());
        }
    }
}
