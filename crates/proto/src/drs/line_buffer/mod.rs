//! Bytes of a DRS channel to lines, with a bound.

/// Longest line, bytes, with its ending.
pub const MAX_LINE: usize = 64;

/// A line grew longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DrsLineTooLong;

/// Cuts a byte stream after each LF. Unlike [`crate::line::LineReader`] it keeps the ending, since
/// an echo repeats what came, and it has no Telnet.
#[derive(Debug, Default)]
pub(super) struct DrsLineBuffer {
    /// A line whose end has not come yet, shorter than [`MAX_LINE`].
    partial_line: Vec<u8>,
}

impl DrsLineBuffer {
    /// Takes bytes up to and with the end of a line, and leaves the rest in `bytes`. `None`: they
    /// were all taken, and the line goes on.
    pub(super) fn next_line(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<Vec<u8>>, DrsLineTooLong> {
        let end = bytes.iter().position(|b| *b == b'\n').map(|at| at + 1);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let length = self.partial_line.len() + piece.len();
        if length > MAX_LINE || (end.is_none() && length == MAX_LINE) {
            return Err(DrsLineTooLong);
        }
        self.partial_line.extend_from_slice(piece);
        *bytes = rest;
        Ok(end.map(|_| std::mem::take(&mut self.partial_line)))
    }
}

/// The text of a line without its ending; `None` when it is not ASCII.
pub(super) fn ascii_text(line: &[u8]) -> Option<&str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).ok()?;
    text.is_ascii().then_some(text)
}

#[cfg(test)]
mod tests;
