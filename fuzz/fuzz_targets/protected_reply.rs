//! Protected replies: any split of the input gives the same plain bytes, and each reply is read back from its
//! protected form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::reply::{ProtectedReplyReader, Reply, ReplyReader};

/// The fake mechanism refuses tokens that start with `!`.
fn unwrap(token: &[u8]) -> Result<Vec<u8>, ()> {
    match token.first() {
        Some(b'!') => Err(()),
        _ => Ok(token.to_vec()),
    }
}

/// The plain bytes up to the first error, and whether there was one.
fn read(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut reader = ProtectedReplyReader::default();
    let mut plain = Vec::new();
    let failed = pieces
        .iter()
        .any(|piece| reader.feed(piece, unwrap, &mut plain).is_err());
    (plain, failed)
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    let (head, tail) = wire.split_at(usize::from(*first).min(wire.len()));
    let whole = read(&[wire]);
    assert_eq!(read(&[head, tail]), whole);
    let mut replies = Vec::new();
    if ReplyReader::new().feed(&whole.0, &mut replies).is_err() {
        return;
    }
    // Any text may stand in a reply, so the input itself serves too.
    replies.push(Reply::multi_line(550, vec![wire.to_vec()]));
    for reply in replies {
        let mut plain = Vec::new();
        reply.encode(&mut plain);
        let Ok(protected) = reply.encode_protected(unwrap) else {
            panic!("a reply starts with a digit");
        };
        assert_eq!(read(&[&protected]), (plain, false));
    }
});
