//! MODE E blocks: any split of the input gives the same events, and no data lies beyond the largest file offset.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::eblock::{BlockDecoder, BlockError, BlockEvent};

/// Events with adjacent data merged, so that they do not depend on splits.
#[derive(Debug, Default, PartialEq)]
struct DecodedStream {
    events: Vec<BlockEvent>,
    error: Option<BlockError>,
}

impl DecodedStream {
    fn record(&mut self, event: BlockEvent) {
        match (self.events.last_mut(), event) {
            (
                Some(BlockEvent::Data { offset, len }),
                BlockEvent::Data {
                    offset: next,
                    len: more,
                },
            ) if *offset + *len as u64 == next => *len += more,
            (Some(BlockEvent::Skip { len }), BlockEvent::Skip { len: more }) => *len += more,
            _ => self.events.push(event),
        }
    }
}

fn decode(pieces: &[&[u8]]) -> DecodedStream {
    let mut decoder = BlockDecoder::new();
    let mut decoded = DecodedStream::default();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.decode(rest) {
                Ok((used, Some(event))) => {
                    rest = &rest[used..];
                    decoded.record(event);
                }
                Ok((_, None)) => break,
                Err(error) => {
                    decoded.error = Some(error);
                    return decoded;
                }
            }
        }
    }
    decoded
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    let (head, tail) = wire.split_at(usize::from(*first).min(wire.len()));
    let whole = decode(&[wire]);
    assert_eq!(decode(&[head, tail]), whole);
    for event in whole.events {
        if let BlockEvent::Data { offset, len } = event {
            assert!(offset + len as u64 <= i64::MAX as u64);
        }
    }
});
