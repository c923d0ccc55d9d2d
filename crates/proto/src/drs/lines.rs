//! Bytes of a DRS channel to lines, with a bound.

/// Longest line, bytes, with its ending.
pub const MAX_LINE: usize = 64;

/// A line grew longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a byte stream after each LF. Unlike [`crate::line::LineReader`] it keeps the ending, since
/// an echo repeats what came, and it has no Telnet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A line whose end has not come yet, shorter than [`MAX_LINE`].
    begun: Vec<u8>,
}

impl Lines {
    /// Takes bytes up to and with the end of a line, and leaves the rest in `bytes`. `None`: they
    /// were all taken, and the line goes on.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, TooLong> {
        let end = bytes.iter().position(|b| *b == b'\n').map(|at| at + 1);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let length = self.begun.len() + piece.len();
        if length > MAX_LINE || (end.is_none() && length == MAX_LINE) {
            return Err(TooLong);
        }
        self.begun.extend_from_slice(piece);
        *bytes = rest;
        Ok(end.map(|_| std::mem::take(&mut self.begun)))
    }
}

/// The text of a line without its ending; `None` when it is not ASCII.
pub(super) fn text(line: &[u8]) -> Option<&str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).ok()?;
    text.is_ascii().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for mut bytes in pieces.iter().copied() {
            while !bytes.is_empty() {
                match lines.next(&mut bytes) {
                    Ok(line) => out.extend(line),
                    Err(TooLong) => return (out, false),
                }
                assert!(lines.begun.capacity() <= 2 * MAX_LINE);
            }
        }
        (out, true)
    }

    #[test]
    fn lines_keep_their_endings() {
        let (lines, sound) = cut(&[b"a\r\nb\n", b"\n", b"c"]);
        assert_eq!(lines, [&b"a\r\n"[..], b"b\n", b"\n"]);
        assert!(sound);
        assert_eq!(text(b"a\r\n"), Some("a"));
        assert_eq!(text(b"a\r\r\n"), Some("a\r"));
        assert_eq!(text(b"\n"), Some(""));
        assert_eq!(text(b"\xe9\n"), None);
        assert_eq!(text("é\n".as_bytes()), None);
    }

    #[test]
    fn the_longest_line_passes_and_one_more_does_not() {
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
}
