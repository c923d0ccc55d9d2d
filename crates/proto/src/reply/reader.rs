//! Reads replies from the bytes of the control channel (client side).

use super::Reply;
use crate::printable::printable;
use crate::security::MAX_TOKEN_LINE;

/// Error in the replies of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line is longer than the limit.
    #[error("reply line longer than {0} bytes")]
    LineTooLong(usize),
    /// A reply is larger than the limit.
    #[error("reply larger than {0} bytes")]
    TooLarge(usize),
    /// The greeting is no reply, or too many consecutive lines are none. Holds the line, with control
    /// characters escaped.
    #[error("it said `{0}`")]
    NotFtp(String),
}

/// Reads replies from a byte stream that may be split anywhere. Up to 32 consecutive lines without a code
/// are skipped, since some servers send such lines.
///
/// After an error the connection must be closed.
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// Line without its end yet.
    buffer: Vec<u8>,
    partial: Option<PartialReply>,
    stray_lines: usize,
    /// No reply has arrived yet, and the first line must be one.
    awaits_greeting: bool,
}

/// A multi-line reply without its last line yet.
#[derive(Debug)]
struct PartialReply {
    reply: Reply,
    /// Memory used by its lines, bytes.
    size: usize,
}

/// Memory of a line besides its text, bytes. Without it a peer could send empty lines without end.
const LINE_OVERHEAD: usize = 32;
/// Most consecutive stray lines.
const MAX_STRAYS: usize = 32;
/// Most bytes of a stray line that an error message quotes.
const MAX_QUOTED: usize = 80;

impl ReplyReader {
    /// Longest line, bytes. A token of a security exchange is the longest text.
    pub const MAX_LINE: usize = MAX_TOKEN_LINE;
    /// Largest reply, bytes (MLSC and STAT listings come in replies).
    pub const MAX_REPLY: usize = 64 << 20;

    /// A reader that skips stray lines.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader for the start of a session. A first line that is no reply is an error, reported as soon
    /// as its first bytes show it.
    pub fn expecting_greeting() -> Self {
        Self {
            awaits_greeting: true,
            ..Self::default()
        }
    }

    /// Takes bytes from the wire and appends complete replies to `out`. A multi-line reply ends at the
    /// line with its own code and a space.
    ///
    /// Lines may end with a bare LF, or with several CRs before it. Text after `ddd-` and `ddd SP` is
    /// kept unchanged.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Reply>) -> Result<(), ReplyError> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            // The check comes before the copy, so that memory stays bounded.
            if self.buffer.len() + piece.len() > Self::MAX_LINE {
                return Err(ReplyError::LineTooLong(Self::MAX_LINE));
            }
            self.buffer.extend_from_slice(piece);
            // A peer of another protocol may wait for the client to speak first, and never end its line.
            if self.awaits_greeting && !may_begin_reply(&self.buffer) {
                return Err(not_ftp(without_ending(&self.buffer)));
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.buffer);
                out.extend(self.take_line(without_ending(&line))?);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<Option<Reply>, ReplyError> {
        match self.partial.take() {
            Some(open) => self.continue_reply(open, line),
            None => self.start_reply(line),
        }
    }

    fn start_reply(&mut self, line: &[u8]) -> Result<Option<Reply>, ReplyError> {
        let Some((code, more, text)) = split_code(line) else {
            self.stray_lines += 1;
            // An HTTP server or a shell could send such lines without end.
            if self.stray_lines > MAX_STRAYS {
                return Err(not_ftp(line));
            }
            return Ok(None);
        };
        self.stray_lines = 0;
        self.awaits_greeting = false;
        let reply = Reply {
            code,
            lines: vec![text.to_vec()],
        };
        if !more {
            return Ok(Some(reply));
        }
        let size = text.len() + LINE_OVERHEAD;
        self.partial = Some(PartialReply { reply, size });
        Ok(None)
    }

    fn continue_reply(
        &mut self,
        mut open: PartialReply,
        line: &[u8],
    ) -> Result<Option<Reply>, ReplyError> {
        let (ends, text) = match split_code(line) {
            // RFC 959 §4.2: only the same code followed by a space ends the reply. Other codes belong to
            // the text.
            Some((code, more, text)) if code == open.reply.code => (!more, text),
            _ => (false, line),
        };
        open.size += text.len() + LINE_OVERHEAD;
        if open.size > Self::MAX_REPLY {
            return Err(ReplyError::TooLarge(Self::MAX_REPLY));
        }
        open.reply.lines.push(text.to_vec());
        if ends {
            return Ok(Some(open.reply));
        }
        self.partial = Some(open);
        Ok(None)
    }
}

/// Error that quotes the start of a line.
fn not_ftp(line: &[u8]) -> ReplyError {
    let quoted = &line[..line.len().min(MAX_QUOTED)];
    ReplyError::NotFtp(printable(quoted).to_string())
}

/// Whether the start of a line may belong to a reply. Empty lines are skipped.
fn may_begin_reply(line: &[u8]) -> bool {
    let bare = without_ending(line);
    if bare.len() < 3 {
        let whole = line.ends_with(b"\n");
        let digits = bare.iter().all(u8::is_ascii_digit);
        return bare.is_empty() || (!whole && digits && !bare.starts_with(b"0"));
    }
    split_code(bare).is_some()
}

fn without_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let end = line.iter().rposition(|b| *b != b'\r').map_or(0, |i| i + 1);
    &line[..end]
}

/// Parses `ddd text`, `ddd-text` or a bare `ddd`: the code, whether more lines follow, and the text.
fn split_code(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |n, d| n * 10 + u16::from(*d - b'0'));
    // 6xx are the protected replies of RFC 2228 §5.
    if !(100..700).contains(&code) {
        return None;
    }
    match rest.split_first() {
        None => Some((code, false, rest)),
        Some((b' ', text)) => Some((code, false, text)),
        Some((b'-', text)) => Some((code, true, text)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Reply>, ReplyError> {
        let mut out = Vec::new();
        ReplyReader::new().feed(bytes, &mut out)?;
        Ok(out)
    }

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply {
            code,
            lines: lines.iter().map(|l| l.as_bytes().to_vec()).collect(),
        }
    }

    #[test]
    fn single_line_replies_with_any_line_ending_are_read() {
        assert_eq!(
            read(b"220 hello\r\n331 x\n230\r\n226 done\r\r\n22"),
            Ok(vec![
                reply(220, &["hello"]),
                reply(331, &["x"]),
                reply(230, &[""]),
                reply(226, &["done"]),
            ])
        );
    }

    #[test]
    fn a_multi_line_reply_ends_at_its_own_code() {
        assert_eq!(
            read(b"211-Features\r\n SIZE\r\n226 not yet\r\n211-more\r\nplain\r\n211 End\r\n"),
            Ok(vec![reply(
                211,
                &["Features", " SIZE", "226 not yet", "more", "plain", "End"]
            )])
        );
    }

    #[test]
    fn empty_error_lines_are_kept() {
        assert_eq!(
            read(b"500-a\r\n500-\r\n500 End.\r\n"),
            Ok(vec![reply(500, &["a", "", "End."])])
        );
    }

    #[test]
    fn stray_lines_are_skipped_up_to_a_bound() {
        assert_eq!(
            read(b"501 'TYPE E\r\n' unrecognized type.\r\n200 ok\r\n"),
            Ok(vec![reply(501, &["'TYPE E"]), reply(200, &["ok"])])
        );
        assert_eq!(read(b"099 x\r\n700 x\r\n2000 x\r\n200x\r\n"), Ok(vec![]));
        assert!(read(&b"x\r\n".repeat(32)).is_ok());
        assert_eq!(
            read(&b"HTTP/1.1 400 Bad Request\r\n".repeat(33)),
            Err(ReplyError::NotFtp("HTTP/1.1 400 Bad Request".to_owned()))
        );
    }

    #[test]
    fn a_greeting_that_is_no_reply_fails_at_once() {
        let said = |bytes: &[u8]| {
            let mut reader = ReplyReader::expecting_greeting();
            // The whole line at once, then byte by byte.
            let whole = reader.feed(bytes, &mut Vec::new()).unwrap_err();
            let mut reader = ReplyReader::expecting_greeting();
            let mut bytes = bytes.iter();
            assert!(bytes.any(|b| reader.feed(&[*b], &mut Vec::new()).is_err()));
            whole.to_string()
        };
        assert_eq!(
            said(b"SSH-2.0-OpenSSH_9.6\r\n"),
            "it said `SSH-2.0-OpenSSH_9.6`"
        );
        assert_eq!(said(b"999 hi\r\n"), "it said `999 hi`");
        assert_eq!(said(b"HTTP/1.1 400 Bad"), "it said `HTTP/1.1 400 Bad`");
        assert_eq!(said(b"\x15\x03\x01"), "it said `\\x15\\x03\\x01`");
        assert_eq!(said(b"\r\n22\r\n"), "it said `22`");
    }

    #[test]
    fn greetings_that_are_replies_are_read() {
        for wire in [
            &b"220 hi\r\nstray\r\n"[..],
            b"\r\n220-hello\r\nSSH\r\n220 hi\r\n",
            b"120 soon\r\n220\r\n",
            b"421 full\n",
        ] {
            for cut in 0..wire.len() {
                let mut reader = ReplyReader::expecting_greeting();
                let mut out = Vec::new();
                reader.feed(&wire[..cut], &mut out).unwrap();
                reader.feed(&wire[cut..], &mut out).unwrap();
                assert!(!out.is_empty());
            }
        }
    }

    #[test]
    fn a_reply_between_strays_resets_their_count() {
        let mut wire = b"x\r\n".repeat(32);
        wire.extend_from_slice(b"200 ok\r\n");
        assert_eq!(read(&wire.repeat(4)).map(|r| r.len()), Ok(4));
    }

    #[test]
    fn long_lines_and_large_replies_are_refused() {
        let long = vec![b'x'; ReplyReader::MAX_LINE + 1];
        assert_eq!(
            read(&long),
            Err(ReplyError::LineTooLong(ReplyReader::MAX_LINE))
        );
        let mut wire = b"211-\r\n".to_vec();
        wire.extend(b"\n".repeat(ReplyReader::MAX_REPLY / LINE_OVERHEAD + 1));
        assert_eq!(
            read(&wire),
            Err(ReplyError::TooLarge(ReplyReader::MAX_REPLY))
        );
    }
}
