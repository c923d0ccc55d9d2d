//! Control channel bytes to lines (server side) with Telnet sequences removed.
//!
//! Sources: RFC 959 §5.3 (lines), RFC 854 (IAC), RFC 1123 §4.1.3.1 (FTP servers skip Telnet).
//! LF alone ends a line too. A CR NUL pair stands for CR (RFC 854). IAC sequences are dropped;
//! IAC IAC stands for one byte 255; IAC IP and IAC DM are only dropped, the ABOR that follows is
//! what counts.

/// What the reader found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// One line without its ending. May be empty.
    Line(Vec<u8>),
    /// A line longer than the limit; it was discarded up to its end.
    TooLong,
}

/// Splits a byte stream into lines, holding at most the limit in memory.
#[derive(Debug)]
pub struct LineReader {
    // private fields
    limit: usize,
}

impl LineReader {
    /// A reader that accepts lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// Takes bytes as they come off the wire and appends the events they complete to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<LineEvent>) {
        let _ = (bytes, out, self.limit);
        todo!()
    }
}
