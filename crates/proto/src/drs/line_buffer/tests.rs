use super::*;
use proptest::prelude::*;

fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let (mut lines, mut out) = (DrsLineBuffer::default(), Vec::new());
    for mut bytes in pieces.iter().copied() {
        while !bytes.is_empty() {
            match lines.next_line(&mut bytes) {
                Ok(line) => out.extend(line),
                Err(DrsLineTooLong) => return (out, false),
            }
            assert!(lines.partial_line.capacity() <= 2 * MAX_LINE);
        }
    }
    (out, true)
}

#[test]
fn lines_keep_their_endings() {
    let (lines, sound) = cut(&[b"a\r\nb\n", b"\n", b"c"]);
    assert_eq!(lines, [&b"a\r\n"[..], b"b\n", b"\n"]);
    assert!(sound);
    assert_eq!(ascii_text(b"a\r\n"), Some("a"));
    assert_eq!(ascii_text(b"a\r\r\n"), Some("a\r"));
    assert_eq!(ascii_text(b"\n"), Some(""));
    assert_eq!(ascii_text(b"\xe9\n"), None);
    assert_eq!(ascii_text("é\n".as_bytes()), None);
}

#[test]
fn a_line_of_maximum_length_passes_and_a_longer_one_does_not() {
    let longest = [vec![b'x'; MAX_LINE - 1], vec![b'\n']].concat();
    assert_eq!(cut(&[&longest]), (vec![longest.clone()], true));
    assert!(!cut(&[b"x", &longest]).1);
    assert!(!cut(&[&[b'x'; MAX_LINE]]).1);
}

proptest! {
    #[test]
    fn any_split_gives_the_same_lines(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
        at: prop::sample::Index,
    ) {
        let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
        let whole = cut(&[&bytes]);
        let split = cut(&[head, tail]);
        prop_assert_eq!(&whole, &split);
        prop_assert!(whole.0.iter().all(|line| line.len() <= MAX_LINE));
    }
}
