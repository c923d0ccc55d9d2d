use proptest::collection::vec;
use proptest::prelude::*;
use proto::line::{LineEvent, LineReader};

use crate::split::pieces;

const LIMIT: usize = 24;

/// Bytes with frequent line endings and Telnet commands.
fn control_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        2 => Just(b'\r'),
        2 => Just(b'\n'),
        1 => Just(0),
        2 => 240..=255u8,
    ];
    vec(byte, 0..120)
}

/// The encoded form of a line (RFC 854): IAC doubled, CR followed by NUL.
fn escaped(line: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    for byte in line {
        wire.push(*byte);
        match byte {
            255 => wire.push(255),
            b'\r' => wire.push(0),
            _ => {}
        }
    }
    wire.extend(b"\r\n");
    wire
}

fn read(pieces: &[&[u8]]) -> Vec<LineEvent> {
    let mut reader = LineReader::new(LIMIT);
    let mut out = Vec::new();
    for piece in pieces {
        reader.feed(piece, &mut out);
    }
    out
}

proptest! {
    #[test]
    fn any_split_gives_the_same_lines(bytes in control_bytes(), cuts in vec(0..9usize, 0..40)) {
        prop_assert_eq!(read(&pieces(&bytes, &cuts)), read(&[&bytes]));
    }

    #[test]
    fn each_line_ending_gives_at_most_one_event_within_the_limit(bytes in control_bytes()) {
        let events = read(&[&bytes]);
        prop_assert!(events.len() <= bytes.iter().filter(|b| **b == b'\n').count());
        for event in events {
            if let LineEvent::Line(line) = &event {
                prop_assert!(line.len() <= LIMIT && !line.contains(&b'\n'));
            }
        }
    }

    #[test]
    fn an_escaped_line_is_read_back(lines in vec(vec(any::<u8>(), 0..LIMIT), 1..5)) {
        // Each line starts with a letter, since leading bytes above 239 are treated as Telnet.
        let lines: Vec<Vec<u8>> = lines
            .into_iter()
            .map(|l| std::iter::once(b'V').chain(l.into_iter().filter(|b| *b != b'\n')).collect())
            .collect();
        let wire: Vec<u8> = lines.iter().flat_map(|l| escaped(l)).collect();
        let expected: Vec<_> = lines.into_iter().map(LineEvent::Line).collect();
        prop_assert_eq!(read(&[&wire]), expected);
    }
}
