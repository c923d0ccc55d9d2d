//! Control lines: any split of the input gives the same lines, and none exceeds the limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::line::{LineEvent, LineReader};

const LIMIT: usize = 64;

fn read(pieces: &[&[u8]]) -> Vec<LineEvent> {
    let mut reader = LineReader::new(LIMIT);
    let mut out = Vec::new();
    for piece in pieces {
        reader.feed(piece, &mut out);
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    let (head, tail) = wire.split_at(usize::from(*first).min(wire.len()));
    let events = read(&[wire]);
    assert_eq!(read(&[head, tail]), events);
    assert!(events.len() <= wire.iter().filter(|b| **b == b'\n').count());
    for event in events {
        if let LineEvent::Line(line) = &event {
            assert!(line.len() <= LIMIT && !line.contains(&b'\n'));
        }
    }
});
