//! Control channel bytes to lines (server side) with Telnet sequences removed.
//!
//! Sources: RFC 959 §5.3 (lines), RFC 854 (IAC), RFC 1123 §4.1.3.1 (FTP servers skip Telnet).
//! LF alone ends a line too. A CR NUL pair stands for CR (RFC 854). IAC sequences are dropped;
//! IAC IAC stands for one byte 255; IAC IP and IAC DM are only dropped, the ABOR that follows is
//! what counts.

/// A finding of the reader.
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
    limit: usize,
    line: Vec<u8>,
    /// The line passed the limit; nothing of it is kept.
    too_long: bool,
    telnet: TelnetState,
}

/// Meaning of the bytes just seen for the next one (RFC 854).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TelnetState {
    /// Ordinary data.
    Data,
    /// So many CRs that may belong to a line ending.
    Cr(usize),
    /// IAC.
    Iac,
    /// IAC and one of WILL, WON'T, DO, DON'T: an option number follows.
    Option,
    /// Inside IAC SB ... IAC SE.
    Subnegotiation,
    /// IAC inside a subnegotiation.
    SubnegotiationIac,
}

const SE: u8 = 240;
const SB: u8 = 250;
const WILL: u8 = 251;
const DONT: u8 = 254;
const IAC: u8 = 255;

impl LineReader {
    /// A reader that accepts lines of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            too_long: false,
            telnet: TelnetState::Data,
        }
    }

    /// Accepts lines of up to `limit` bytes from the next byte on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes as they come off the wire and appends the events they complete to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<LineEvent>) {
        for &byte in bytes {
            self.telnet = self.on_byte(byte, out);
        }
    }

    /// Whether bytes were taken behind the end of the last line.
    pub fn has_partial_line(&self) -> bool {
        !self.line.is_empty() || self.too_long || self.telnet != TelnetState::Data
    }

    fn on_byte(&mut self, byte: u8, out: &mut Vec<LineEvent>) -> TelnetState {
        match self.telnet {
            TelnetState::Data => self.on_data_byte(byte, out),
            TelnetState::Cr(n) => self.after_cr(n, byte, out),
            TelnetState::Iac => self.after_iac(byte, out),
            TelnetState::Option => TelnetState::Data,
            // An end of line also ends a subnegotiation: FTP has none, and a stray IAC SB must
            // not swallow the commands after it.
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
            // No verb starts like this: the rest of a sequence whose IAC came out of band, such
            // as the data mark of an interrupt (IAC IP IAC DM with urgent data).
            SE..IAC if self.line.is_empty() && !self.too_long => {}
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
            // More than the limit of them is too long anyway, so counting may stop there.
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
            // Not a Telnet command. Before a verb it is an IAC whose command came out of band;
            // inside a line it is a byte 255 that the client did not double.
            _ => {
                if !self.line.is_empty() {
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
        if self.line.len() >= self.limit {
            self.too_long = true;
            self.line = Vec::new();
            return;
        }
        self.line.push(byte);
    }

    fn end_line(&mut self, out: &mut Vec<LineEvent>) {
        let line = std::mem::take(&mut self.line);
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
    fn either_line_ending_will_do() {
        assert_eq!(
            read(b"NOOP\r\nPWD\nUSER x\r\r\n\r\nQUI"),
            [line(b"NOOP"), line(b"PWD"), line(b"USER x"), line(b"")]
        );
    }

    #[test]
    fn cr_nul_is_a_cr_inside_the_line() {
        assert_eq!(read(b"DELE a\r\0b\r\n"), [line(b"DELE a\rb")]);
        assert_eq!(read(b"DELE a\r\0\r\n"), [line(b"DELE a\r")]);
        assert_eq!(read(b"DELE a\rb\r\n"), [line(b"DELE a\rb")]);
        assert_eq!(read(b"a\r\rb\n"), [line(b"a\r\rb")]);
        assert_eq!(read(b"a\0b\n"), [line(b"a\0b")]);
    }

    #[test]
    fn telnet_is_skipped() {
        assert_eq!(read(b"\xff\xf4\xff\xf2ABOR\r\n"), [line(b"ABOR")]);
        assert_eq!(read(b"\xff\xfd\x06NOOP\r\n"), [line(b"NOOP")]);
        assert_eq!(read(b"\xff\xfa\x01\x02\xff\xf0NOOP\r\n"), [line(b"NOOP")]);
        assert_eq!(read(b"RETR \xff\xff\r\n"), [line(b"RETR \xff")]);
    }

    #[test]
    fn an_interrupt_that_lost_its_urgent_byte_is_skipped() {
        assert_eq!(read(b"\xff\xf4\xf2ABOR\r\n"), [line(b"ABOR")]);
        assert_eq!(read(b"\xff\xf4\xffABOR\r\n"), [line(b"ABOR")]);
    }

    #[test]
    fn an_undoubled_255_in_a_name_is_kept() {
        assert_eq!(read(b"RETR \xffx\r\n"), [line(b"RETR \xffx")]);
    }

    #[test]
    fn an_open_subnegotiation_ends_with_its_line() {
        assert_eq!(
            read(b"\xff\xfajunk\r\nNOOP\r\n"),
            [line(b""), line(b"NOOP")]
        );
    }

    #[test]
    fn the_limit_holds_and_the_next_line_is_read() {
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
    fn a_part_of_a_line_is_noticed() {
        let amidst = |bytes: &[u8]| {
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
            assert!(amidst(bytes), "{bytes:?}");
        }
        assert!(!amidst(b"NOOP\r\n") && !amidst(b""));
    }

    #[test]
    fn memory_is_given_back_when_a_line_is_too_long() {
        let mut reader = LineReader::new(16);
        reader.feed(&[b'x'; 1000], &mut Vec::new());
        assert_eq!(reader.line.capacity(), 0);
    }
}
