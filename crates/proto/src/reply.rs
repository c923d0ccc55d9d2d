//! Replies: codes, one or many lines, building them and reading them (RFC 959 §4.2).
//!
//! A data-bearing multi-line reply (FEAT, MLST, STAT, HELP, SPAS, 112, 113) has inner lines that
//! start with one space, and a closing `ddd End.`; no inner line may look like `ddd SP`.

/// A reply as sent or received. Text is bytes: it may quote file names of any encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 100..=699.
    pub code: u16,
    /// Text of each line, without code, separator and line ending. For received multi-line replies
    /// inner lines keep their leading space. At least one.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A single-line reply. CR, LF and NUL in the text become `?`, so that no reply can be split.
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        let _ = (code, text.as_ref());
        todo!()
    }

    /// `ddd-first`, inner lines each with one leading space, `ddd last`.
    pub fn data(code: u16, first: &str, inner: Vec<Vec<u8>>, last: &str) -> Self {
        let _ = (code, first, inner, last);
        todo!()
    }

    /// Explanation of several lines (errors, login messages): every line `ddd-text`, closing
    /// `ddd End.`
    pub fn error_lines(code: u16, lines: Vec<Vec<u8>>) -> Self {
        let _ = (code, lines);
        todo!()
    }

    /// 1xx: another reply follows.
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// 2xx.
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// 3xx.
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// 4xx: the same command may work later.
    pub fn is_transient_error(&self) -> bool {
        self.code / 100 == 4
    }

    /// First line as text, invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        self.lines
            .first()
            .map(|l| String::from_utf8_lossy(l).into_owned())
            .unwrap_or_default()
    }

    /// All lines in one, separated by ` / `, for error messages; `GlobusError` headings and
    /// `End.` left out.
    pub fn summary(&self) -> String {
        todo!()
    }

    /// Appends the wire form, with CR LF.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }
}

/// Why a peer's reply could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line above the limit.
    #[error("reply line longer than {0} bytes")]
    LineTooLong(usize),
    /// More lines or bytes than any reply needs.
    #[error("reply larger than {0} bytes")]
    TooLarge(usize),
    /// Many lines in a row that are not replies.
    #[error("peer does not speak FTP: {0:?}")]
    NotFtp(String),
}

/// Reads replies from a byte stream split anywhere. Stray lines without a code are skipped
/// (real servers emit them), up to 32 in a row.
#[derive(Debug, Default)]
pub struct ReplyReader {
    // private fields
    buffer: Vec<u8>,
}

impl ReplyReader {
    /// Longest line, bytes.
    pub const MAX_LINE: usize = 65_536;
    /// Largest reply, bytes (MLSC and STAT listings come in replies).
    pub const MAX_REPLY: usize = 64 << 20;

    /// An empty reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the wire, appends completed replies to `out`. A multi-line reply ends at
    /// the line with its own code and a space.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Reply>) -> Result<(), ReplyError> {
        let _ = (bytes, out, &self.buffer);
        todo!()
    }
}
