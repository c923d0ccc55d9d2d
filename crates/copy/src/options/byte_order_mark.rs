//! The mark with which editors of other systems begin a text.

/// U+FEFF in UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// A text without the mark of its encoding at its beginning.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK).unwrap_or(text)
}
