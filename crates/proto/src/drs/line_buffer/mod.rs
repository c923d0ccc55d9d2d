//! Splits the bytes of a DRS channel into lines of bounded length.

/// Longest line, bytes, with its ending.
pub const MAX_LINE: usize = 64;

/// A line is longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DrsLineTooLong;

/// Splits a byte stream after each LF. Unlike [`crate::line::LineReader`] it keeps the line ending, since
/// an echo repeats the line exactly, and it does not interpret Telnet.
#[derive(Debug, Default)]
pub(super) struct DrsLineBuffer {
    /// Line without its end yet, shorter than [`MAX_LINE`].
    partial_line: Vec<u8>,
}

impl DrsLineBuffer {
    /// Takes bytes up to and including the end of a line, and leaves the rest in `bytes`. Returns `None`
    /// if all bytes were taken and the line is incomplete.
    pub(super) fn next_line(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<Vec<u8>>, DrsLineTooLong> {
        let end = bytes.iter().position(|b| *b == b'\n').map(|at| at + 1);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let length = self.partial_line.len() + piece.len();
        // A partial line of the full length cannot become valid, since its LF would exceed the limit.
        if length > MAX_LINE || (end.is_none() && length == MAX_LINE) {
            return Err(DrsLineTooLong);
        }
        self.partial_line.extend_from_slice(piece);
        *bytes = rest;
        Ok(end.map(|_| std::mem::take(&mut self.partial_line)))
    }
}

/// The text of a line without its ending; `None` if it is not ASCII.
pub(super) fn ascii_text(line: &[u8]) -> Option<&str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).ok()?;
    text.is_ascii().then_some(text)
}

#[cfg(test)]
mod tests;
