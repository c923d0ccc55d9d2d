//! Escaping of untrusted text for terminals and logs, and quoting for a shell.
//!
//! Names, banners and replies of a peer may contain terminal escape sequences, line endings that forge
//! log lines, and marks that change the direction of text. All output of such text must be escaped by
//! this module.

use std::fmt;

/// Whether a character must be escaped, since it could control a terminal, end a line, or change the
/// display of its neighbours: control characters (C0, DEL, C1 with NEL), line and paragraph separators,
/// bidirectional marks and controls, the byte order mark, and tag characters.
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

/// Untrusted bytes as text on one line. Characters with [`needs_escape`] become `\x1b` or `\u{202e}`, and
/// bytes that are not UTF-8 become `\xff`.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(&'a [u8]);

/// Displays untrusted bytes with escapes.
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
                    // `\x` escapes stay unambiguous, since `\x80` and above stand for bytes that are not UTF-8.
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

/// Escapes characters with [`needs_escape`] in JSON text as `\u202e`, which a JSON parser reads as the same
/// character. Valid JSON contains such characters only inside strings.
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if needs_escape(c) {
            // JSON escapes characters beyond U+FFFF as surrogate pairs (RFC 8259 §7).
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A word quoted for a POSIX shell, if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the shell is the judge")]
    fn a_shell_reads_a_quoted_word_unchanged() {
        for word in ["", "a b", "it's; rm", "--only", "p=1,4", "$HOME", "ä\n"] {
            let script = format!("printf %s {}", shell_word(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.unwrap().stdout, word.as_bytes());
        }
        assert_eq!(shell_word("p=1,4"), "p=1,4");
    }

    #[test]
    fn terminal_controls_and_direction_marks_are_escaped() {
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
        assert!(
            !needs_escape('\u{200d}'),
            "the zero-width joiner joins emoji"
        );
    }

    #[test]
    fn json_strings_are_escaped_as_utf16_units() {
        assert_eq!(
            printable_json("\"a\u{2028}b\u{9b}\u{e0041}\""),
            "\"a\\u2028b\\u009b\\udb40\\udc41\""
        );
    }

    proptest! {
        #[test]
        fn escaped_text_needs_no_further_escape(bytes: Vec<u8>) {
            prop_assert!(!printable(&bytes).to_string().contains(needs_escape));
        }
    }
}
