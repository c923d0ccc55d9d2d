//! Reads lines from the bytes of the control channel (server side) and removes Telnet sequences.
//!
//! Sources: RFC 959 §5.3 (lines), RFC 854 (IAC), RFC 1123 §4.1.2.12 (Telnet options).
//! A bare LF ends a line too. CR NUL stands for CR (RFC 854). IAC IAC stands for one byte 255; all other
//! IAC sequences are dropped. This includes the IAC IP and IAC DM of an interrupt, since the ABOR that
//! follows has the same effect.

use crate::security::Secret;

/// Event of a [`LineReader`]. Its bytes are overwritten when it is dropped, since a line may hold a
/// password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineEvent {
    /// One line without its ending, possibly empty.
    Line(Vec<u8>),
    /// A line longer than the limit. It was discarded.
    TooLong,
    /// The command inside MIC, CONF or ENC, whose protection was valid, without its ending. A
    /// [`LineReader`] makes none: see [`crate::command::unwrap_line`].
    Protected(Vec<u8>),
    /// MIC, CONF or ENC whose protection was not valid.
    Forged,
}

impl Drop for LineEvent {
    fn drop(&mut self) {
        if let Self::Line(bytes) | Self::Protected(bytes) = self {
            drop(Secret(std::mem::take(bytes)));
        }
    }
}

/// Splits a byte stream into lines. It buffers no more bytes than the limit.
#[derive(Debug)]
pub struct LineReader {
    limit: usize,
    line: Secret,
    /// The current line exceeds the limit, and its bytes are discarded.
    too_long: bool,
    telnet: TelnetState,
}

/// State of the Telnet parser (RFC 854).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TelnetState {
    /// Ordinary data.
    Data,
    /// After so many CRs, which may belong to a line ending.
    Cr(usize),
    /// After IAC.
    Iac,
    /// After IAC and WILL, WON'T, DO or DON'T: an option number follows.
    Option,
    /// Inside IAC SB ... IAC SE.
    Subnegotiation,
    /// After IAC inside a subnegotiation.
    SubnegotiationIac,
}

/// First capacity of the buffer for a line, bytes: most commands fit.
const MIN_BUFFER: usize = 64;

const SE: u8 = 240;
const SB: u8 = 250;
const WILL: u8 = 251;
const DONT: u8 = 254;
const IAC: u8 = 255;

impl LineReader {
    /// A reader for lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Secret(Vec::new()),
            too_long: false,
            telnet: TelnetState::Data,
        }
    }

    /// Changes the limit, from the next byte on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes from the wire and appends the resulting events to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<LineEvent>) {
        for &byte in bytes {
            self.telnet = self.on_byte(byte, out);
        }
    }

    /// Whether bytes of an incomplete line are buffered.
    pub fn has_partial_line(&self) -> bool {
        !self.line.0.is_empty() || self.too_long || self.telnet != TelnetState::Data
    }

    fn on_byte(&mut self, byte: u8, out: &mut Vec<LineEvent>) -> TelnetState {
        match self.telnet {
            TelnetState::Data => self.on_data_byte(byte, out),
            TelnetState::Cr(n) => self.after_cr(n, byte, out),
            TelnetState::Iac => self.after_iac(byte, out),
            TelnetState::Option => TelnetState::Data,
            // The end of a line also ends a subnegotiation. FTP uses none, and a stray IAC SB must
            // not swallow the following commands.
            TelnetState::Subnegotiation if byte == b'\n' => self.on_data_byte(byte, out),
            TelnetState::Subnegotiation if byte == IAC => TelnetState::SubnegotiationIac,
            TelnetState::Subnegotiation => TelnetState::Subnegotiation,
            TelnetState::SubnegotiationIac if byte == SE => TelnetState::Data,
            TelnetState::SubnegotiationIac => TelnetState::Subnegotiation,
        }
    }

    fn on_data_byte(&mut self, byte: u8, out: &mut Vec<LineEvent>) -> TelnetState {
        match byte {
            b'\n' => self.end_line(out),
            b'\r' => return TelnetState::Cr(1),
            IAC => return TelnetState::Iac,
            // No verb starts with these bytes. They belong to a sequence whose IAC was received out of
            // band: in an interrupt (IAC IP IAC DM) a byte is sent as urgent data (RFC 959 §4.1.3).
            SE..IAC if self.line.0.is_empty() && !self.too_long => {}
            _ => self.push(byte),
        }
        TelnetState::Data
    }

    fn after_cr(&mut self, crs: usize, byte: u8, out: &mut Vec<LineEvent>) -> TelnetState {
        match byte {
            b'\n' => {
                self.end_line(out);
                TelnetState::Data
            }
            // A line with more CRs than the limit is too long in any case, so the count may stop there.
            b'\r' => TelnetState::Cr(crs.min(self.limit) + 1),
            _ => {
                for _ in 0..crs {
                    self.push(b'\r');
                }
                if byte == 0 {
                    TelnetState::Data
                } else {
                    self.on_data_byte(byte, out)
                }
            }
        }
    }

    fn after_iac(&mut self, byte: u8, out: &mut Vec<LineEvent>) -> TelnetState {
        match byte {
            IAC => {
                self.push(IAC);
                TelnetState::Data
            }
            SB => TelnetState::Subnegotiation,
            WILL..=DONT => TelnetState::Option,
            SE..SB => TelnetState::Data,
            // The byte is no Telnet command. At the start of a line, the command of this IAC was received
            // out of band. Inside a line, it is a byte 255 that the client did not double.
            _ => {
                if !self.line.0.is_empty() {
                    self.push(IAC);
                }
                self.on_data_byte(byte, out)
            }
        }
    }

    fn push(&mut self, byte: u8) {
        if self.too_long {
            return;
        }
        let length = self.line.0.len();
        if length >= self.limit {
            self.too_long = true;
            self.line = Secret(Vec::new());
            return;
        }
        if length == self.line.0.capacity() {
            // A vector that grows by itself leaves its bytes in the memory that it frees.
            let capacity = (2 * length).clamp(MIN_BUFFER, self.limit.max(MIN_BUFFER));
            let mut larger = Vec::with_capacity(capacity);
            larger.extend_from_slice(&self.line.0);
            self.line = Secret(larger);
        }
        self.line.0.push(byte);
    }

    fn end_line(&mut self, out: &mut Vec<LineEvent>) {
        let line = std::mem::take(&mut self.line.0);
        out.push(if std::mem::take(&mut self.too_long) {
            LineEvent::TooLong
        } else {
            LineEvent::Line(line)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<LineEvent> {
        let mut out = Vec::new();
        LineReader::new(16).feed(bytes, &mut out);
        out
    }

    fn line(bytes: &[u8]) -> LineEvent {
        LineEvent::Line(bytes.to_vec())
    }

    #[test]
    fn lines_end_with_crlf_or_lf() {
        assert_eq!(
            read(b"NOOP\r\nPWD\nUSER x\r\r\n\r\nQUI"),
            [line(b"NOOP"), line(b"PWD"), line(b"USER x"), line(b"")]
        );
    }

    #[test]
    fn cr_nul_is_a_cr_in_the_line() {
        assert_eq!(read(b"DELE a\r\0b\r\n"), [line(b"DELE a\rb")]);
        assert_eq!(read(b"DELE a\r\0\r\n"), [line(b"DELE a\r")]);
        assert_eq!(read(b"DELE a\rb\r\n"), [line(b"DELE a\rb")]);
        assert_eq!(read(b"a\r\rb\n"), [line(b"a\r\rb")]);
        assert_eq!(read(b"a\0b\n"), [line(b"a\0b")]);
    }

    #[test]
    fn telnet_sequences_are_removed() {
        assert_eq!(read(b"\xff\xf4\xff\xf2ABOR\r\n"), [line(b"ABOR")]);
        assert_eq!(read(b"\xff\xfd\x06NOOP\r\n"), [line(b"NOOP")]);
        assert_eq!(read(b"\xff\xfa\x01\x02\xff\xf0NOOP\r\n"), [line(b"NOOP")]);
        assert_eq!(read(b"RETR \xff\xff\r\n"), [line(b"RETR \xff")]);
    }

    #[test]
    fn an_interrupt_without_its_urgent_byte_is_removed() {
        assert_eq!(read(b"\xff\xf4\xf2ABOR\r\n"), [line(b"ABOR")]);
        assert_eq!(read(b"\xff\xf4\xffABOR\r\n"), [line(b"ABOR")]);
    }

    #[test]
    fn a_single_byte_255_in_a_name_is_kept() {
        assert_eq!(read(b"RETR \xffx\r\n"), [line(b"RETR \xffx")]);
    }

    #[test]
    fn an_unterminated_subnegotiation_ends_with_its_line() {
        assert_eq!(
            read(b"\xff\xfajunk\r\nNOOP\r\n"),
            [line(b""), line(b"NOOP")]
        );
    }

    #[test]
    fn the_line_after_a_too_long_line_is_read() {
        assert_eq!(read(b"0123456789abcdef\r\n"), [line(b"0123456789abcdef")]);
        assert_eq!(
            read(b"0123456789abcdefg\r\nNOOP\r\n"),
            [LineEvent::TooLong, line(b"NOOP")]
        );
        let mut crs = vec![b'\r'; 100];
        crs.extend_from_slice(b"x\nNOOP\n");
        assert_eq!(read(&crs), [LineEvent::TooLong, line(b"NOOP")]);
    }

    #[test]
    fn a_partial_line_is_detected() {
        let has_partial_line = |bytes: &[u8]| {
            let mut reader = LineReader::new(16);
            reader.feed(bytes, &mut Vec::new());
            reader.has_partial_line()
        };
        for bytes in [
            &b"NOOP\r\nU"[..],
            b"NOOP\r\n\r",
            b"NOOP\r\n\xff",
            b"0123456789abcdefg",
        ] {
            assert!(has_partial_line(bytes), "{bytes:?}");
        }
        assert!(!has_partial_line(b"NOOP\r\n") && !has_partial_line(b""));
    }

    #[test]
    fn a_too_long_line_frees_its_buffer() {
        let mut reader = LineReader::new(16);
        reader.feed(&[b'x'; 1000], &mut Vec::new());
        assert_eq!(reader.line.0.capacity(), 0);
    }
}
