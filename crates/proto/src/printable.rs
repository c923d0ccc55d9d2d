//! Text of strangers, made fit for terminals and logs.
//!
//! Names, banners and replies of a peer may hold anything: escape sequences that a terminal obeys,
//! line ends that forge a line of a log, marks that turn the direction of what follows. Whatever
//! shows such text goes through here.

use std::fmt;

/// Whether a character could act on a terminal, end a line, or change how its neighbours are shown:
/// controls (C0, DEL, C1 with NEL), line and paragraph separators, bidirectional marks and controls, the
/// byte order mark, and tag characters.
pub const fn needs_escape(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Bytes of a stranger as text on one line: what [`needs_escape`] becomes `\x1b` or `\u{202e}`, and a byte
/// that is no UTF-8 `\xff`.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(&'a [u8]);

/// Shows bytes safely.
pub fn printable<T: AsRef<[u8]> + ?Sized>(bytes: &T) -> Printable<'_> {
    Printable(bytes.as_ref())
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some(at) = rest.find(needs_escape) {
                f.write_str(&rest[..at])?;
                let mut after = rest[at..].chars();
                match after.next().map_or(0, u32::from) {
                    code @ ..0x80 => write!(f, "\\x{code:02x}")?,
                    code => write!(f, "\\u{{{code:x}}}")?,
                }
                rest = after.as_str();
            }
            f.write_str(rest)?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// JSON text with what [`needs_escape`] written as `\u202e`, which means the same to every reader. In JSON
/// such characters stand inside strings only.
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if needs_escape(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown_as_text() {
        let shown = |text: &[u8]| printable(text).to_string();
        assert_eq!(shown("grüße 日本 🚀".as_bytes()), "grüße 日本 🚀");
        assert_eq!(shown(b"\x1b]0;owned\x07"), "\\x1b]0;owned\\x07");
        assert_eq!(shown(b"a\r\nb\tc\x7f"), "a\\x0d\\x0ab\\x09c\\x7f");
        assert_eq!(shown("\u{85}\u{9b}31m".as_bytes()), "\\u{85}\\u{9b}31m");
        assert_eq!(shown("x\u{202e}gpj".as_bytes()), "x\\u{202e}gpj");
        assert_eq!(shown(b"l1\xe9\xff"), "l1\\xe9\\xff");
        for c in [
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{2066}',
            '\u{2069}',
            '\u{200e}',
            '\u{200f}',
            '\u{61c}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(needs_escape(c), "{c:?}");
        }
        assert!(!needs_escape('\u{200d}'), "emoji are joined with it");
    }

    #[test]
    fn json_says_the_same_in_other_letters() {
        assert_eq!(
            printable_json("\"a\u{2028}b\u{9b}\u{e0041}\""),
            "\"a\\u2028b\\u009b\\udb40\\udc41\""
        );
    }

    proptest! {
        #[test]
        fn nothing_unfit_is_left_of_any_bytes(bytes: Vec<u8>) {
            prop_assert!(!printable(&bytes).to_string().contains(needs_escape));
        }
    }
}
