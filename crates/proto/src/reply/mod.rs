//! FTP replies: construction, encoding and parsing (RFC 959 §4.2).
//!
//! A multi-line reply with data (FEAT, MLST, STAT, HELP, SPAS, 112, 113) has inner lines that start with one
//! space, and ends with `ddd End.`; no inner line may start with `ddd SP`.

mod protected;
mod reader;
mod token;

use crate::drs::{DrsAddress, Nonce};
use crate::printable::printable;

pub use protected::{ProtectedReplyError, ProtectedReplyReader};
pub use reader::{ReplyError, ReplyReader};
use token::without_token;

/// A reply. Its text is bytes, since it may quote file names of any encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Reply code, 100..=699.
    pub code: u16,
    /// Text of each line, without code, separator and line ending; at least one line. Inner lines of
    /// received multi-line replies keep their leading space.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A single-line reply. CR, LF and NUL in the text become `?`, so that a quoted name cannot split it.
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        Self {
            code,
            lines: vec![one_line(text.as_ref().to_vec())],
        }
    }

    /// A multi-line reply with data: `ddd-first`, the inner lines with one leading space each, `ddd last`.
    /// CR, LF and NUL become `?`.
    pub fn with_inner_lines(code: u16, first: &str, inner: Vec<Vec<u8>>, last: &str) -> Self {
        let mut lines = Vec::with_capacity(inner.len() + 2);
        lines.push(one_line(first.into()));
        lines.extend(inner.into_iter().map(|mut text| {
            text.insert(0, b' ');
            one_line(text)
        }));
        lines.push(one_line(last.into()));
        Self { code, lines }
    }

    /// A multi-line reply with text (errors, login messages): every line is `ddd-text`, and the last is
    /// `ddd End.` CR, LF and NUL become `?`.
    pub fn multi_line(code: u16, lines: Vec<Vec<u8>>) -> Self {
        let mut lines: Vec<_> = lines.into_iter().map(one_line).collect();
        lines.push(b"End.".to_vec());
        Self { code, lines }
    }

    /// A reply with text before its last line (greetings, messages of directories): `ddd-text` for each line, then
    /// `ddd last`. CR, LF and NUL become `?`.
    pub fn with_lines_before(code: u16, lines: Vec<Vec<u8>>, last: impl AsRef<[u8]>) -> Self {
        let mut lines: Vec<_> = lines.into_iter().map(one_line).collect();
        lines.push(one_line(last.as_ref().to_vec()));
        Self { code, lines }
    }

    /// Whether the code is 1xx: another reply follows.
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// Whether the code is 2xx.
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// Whether the code is 3xx.
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// Whether the code is 4xx: the same command may succeed later.
    pub fn is_transient_error(&self) -> bool {
        self.code / 100 == 4
    }

    /// The first line as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        self.lines
            .first()
            .map(|l| String::from_utf8_lossy(l).into_owned())
            .unwrap_or_default()
    }

    /// The number that is all the text of one line, as SIZE sends it (RFC 3659 §4).
    pub fn number(&self) -> Option<u64> {
        let mut lines = self.lines.iter();
        lines.find_map(|line| String::from_utf8_lossy(line).trim().parse().ok())
    }

    /// All informative lines joined by ` / `, escaped for a terminal, for error messages. `End.`,
    /// repetitions, and `GlobusError` headings that other lines explain are left out.
    pub fn summary(&self) -> String {
        printable(&self.summary_text()).to_string()
    }

    fn summary_text(&self) -> String {
        let lines = || self.lines.iter().map(|line| String::from_utf8_lossy(line));
        let mut parts: Vec<String> = Vec::new();
        // The first pass skips the lines with headings, which the other lines explain.
        for line in lines().filter(|line| !line.contains(GLOBUS_HEADING)) {
            let part = informative_part(&line);
            let reason = part
                .split_once(SYSTEM_CALL_PREFIX)
                .map_or(&*part, |(_, reason)| reason);
            if !part.is_empty() && !parts.iter().any(|earlier| earlier.contains(reason)) {
                parts.push(part);
            }
        }
        let informative = parts.clone();
        parts.retain(|part| !repeats_command(part, &informative));
        // Only headings were found: the text before them is all there is.
        if parts.is_empty() {
            parts.extend(lines().map(|line| informative_part(&line)));
            parts.retain(|part| !part.is_empty());
        }
        if parts.is_empty() {
            return self.text();
        }
        parts.join(" / ")
    }

    /// Text for logs: the summary of an error, or the first line of any other reply. Secrets are replaced
    /// by `...`: the nonce in the reply to DPSV, tokens of a security exchange, and the content of
    /// protected replies (RFC 2228 §5).
    pub fn for_log(&self) -> String {
        let text = if self.code >= 400 {
            self.summary_text()
        } else {
            self.text()
        };
        let text = printable(&text).to_string();
        // RFC 2228 §5: 63x replies are protected; their text is a token.
        if (600..700).contains(&self.code) {
            return "...".to_owned();
        }
        let text = without_token(&text);
        // Other servers may reply to DPSV with other codes or forms, so the text decides too.
        if self.code == 229 || DrsAddress::find_in_229(&text).is_ok() {
            without_nonces(&text)
        } else {
            text
        }
    }

    /// All lines for the log of a dialogue, without codes. Secrets are replaced as in [`Reply::for_log`].
    pub fn lines_for_log(&self) -> Vec<String> {
        if (600..700).contains(&self.code) {
            return vec!["...".to_owned()];
        }
        let may_have_nonces = self.code == 229
            || DrsAddress::find_in_229(&printable(&self.text()).to_string()).is_ok();
        let shown = |line: &Vec<u8>| {
            let text = printable(line.as_slice()).to_string();
            let text = without_token(&text);
            match may_have_nonces {
                true => without_nonces(&text),
                false => text,
            }
        };
        self.lines.iter().map(shown).collect()
    }

    /// Appends the encoded reply, with CR LF. Inner lines that start with a space are written unchanged,
    /// others after `ddd-`. CR, LF and NUL become `?`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // A reply without lines violates the invariant of the field; it is sent with empty text.
        let Some((last, inner)) = self.lines.split_last() else {
            return self.encode_line(b' ', &[], out);
        };
        for (i, line) in inner.iter().enumerate() {
            if i > 0 && line.starts_with(b" ") {
                push_text(line, out);
            } else {
                self.encode_line(b'-', line, out);
            }
        }
        self.encode_line(b' ', last, out);
    }

    fn encode_line(&self, separator: u8, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{:03}", self.code).as_bytes());
        out.push(separator);
        push_text(text, out);
    }
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend(text.iter().map(|b| without_controls(*b)));
    out.extend_from_slice(b"\r\n");
}

fn one_line(mut text: Vec<u8>) -> Vec<u8> {
    for byte in &mut text {
        *byte = without_controls(*byte);
    }
    text
}

fn without_controls(byte: u8) -> u8 {
    match byte {
        b'\r' | b'\n' | 0 => b'?',
        other => other,
    }
}

/// The text with `...` in place of every run of hexadecimal digits that is long enough to hold a nonce.
fn without_nonces(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = |is_end: fn(char) -> bool| rest.find(is_end).unwrap_or(rest.len());
        let digits = end(|c| !c.is_ascii_hexdigit());
        let at = match digits {
            0 => end(|c| c.is_ascii_hexdigit()),
            row => row,
        };
        let (piece, after) = rest.split_at(at);
        shown.push_str(if digits < Nonce::DIGITS { piece } else { "..." });
        rest = after;
    }
    shown
}

/// Whether a part only repeats the command (`STOR /x`) while another part mentions its argument.
fn repeats_command(part: &str, parts: &[String]) -> bool {
    let Some((verb, argument)) = part.split_once(' ') else {
        return false;
    };
    // FTP verbs have three or four letters (RFC 959 §5.3).
    let is_verb = (3..=4).contains(&verb.len()) && verb.bytes().all(|b| b.is_ascii_uppercase());
    let others = || parts.iter().filter(|other| *other != part);
    is_verb && others().any(|other| other.contains(argument))
}

/// Heading in the first line of structured errors of the globus server. Some put a message before it.
const GLOBUS_HEADING: &str = "GlobusError:";
/// Prefix of a system error text, which usually repeats the line above.
const SYSTEM_CALL_PREFIX: &str = "A system call failed: ";

/// The informative part of a line of an error reply: empty for `End.` and errno lines, and without the
/// headings of the globus server (`PATH: Could not change directory. : GlobusError: v=1 c=...`).
fn informative_part(line: &str) -> String {
    let line = line.split(GLOBUS_HEADING).next().unwrap_or(line);
    let line = line.trim().trim_end_matches(':').trim_end();
    if line.eq_ignore_ascii_case("end") || line.eq_ignore_ascii_case("end.") {
        return String::new();
    }
    if line.starts_with("GridFTP-Errno:") {
        return String::new();
    }
    ["GridFTP-Reason:", "GridFTP-Error-String:"]
        .iter()
        .find_map(|field| line.strip_prefix(field))
        .unwrap_or(line)
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_single_line_reply_is_encoded() {
        assert_eq!(
            wire(&Reply::new(226, "Transfer Complete.")),
            "226 Transfer Complete.\r\n"
        );
    }

    #[test]
    fn multi_line_replies_are_encoded() {
        let feat =
            Reply::with_inner_lines(211, "Extensions supported", vec![b"SIZE".to_vec()], "End.");
        assert_eq!(
            wire(&feat),
            "211-Extensions supported\r\n SIZE\r\n211 End.\r\n"
        );
        let error = Reply::multi_line(550, vec![b"a".to_vec(), vec![], b"226 b".to_vec()]);
        assert_eq!(wire(&error), "550-a\r\n550-\r\n550-226 b\r\n550 End.\r\n");
    }

    #[test]
    fn line_endings_in_a_name_cannot_split_a_reply() {
        let name = "a\r\n226 done\0";
        assert_eq!(wire(&Reply::new(550, name)), "550 a??226 done?\r\n");
        let data = Reply::with_inner_lines(250, name, vec![name.as_bytes().to_vec()], name);
        assert_eq!(wire(&data).matches('\n').count(), 3);
        let error = Reply::multi_line(550, vec![name.as_bytes().to_vec()]);
        assert_eq!(wire(&error).matches('\n').count(), 2);
        let by_hand = Reply {
            code: 250,
            lines: vec![name.as_bytes().to_vec()],
        };
        assert_eq!(wire(&by_hand).matches('\n').count(), 1);
    }

    #[test]
    fn log_text_hides_nonces_and_tokens() {
        let nonce = "000102030405060708090a0b0c0d0eff";
        let text = format!("Entering DRS Passive Mode (|1|192.0.2.7|41000|{nonce}|)");
        for code in [229, 250] {
            assert_eq!(
                Reply::new(code, &text).for_log(),
                "Entering DRS Passive Mode (|1|192.0.2.7|41000|...|)"
            );
        }
        for (text, shown) in [
            (format!("(!1!::1!41000!{nonce}!)"), "(!1!::1!41000!...!)"),
            (format!("{nonce}f at port 5"), "... at port 5"),
            (format!("é{nonce}"), "é..."),
        ] {
            assert_eq!(Reply::new(229, text).for_log(), shown);
        }
        for text in [
            "Entering Extended Passive Mode (|||6446|)",
            "(|2|::1|6446|)",
        ] {
            assert_eq!(Reply::new(229, text).for_log(), text);
        }
        for (code, text, shown) in [
            (335, "ADAT=dG9rZW4=", "ADAT=..."),
            (235, "Done. ADAT=dG9rZW4=", "Done. ADAT=..."),
            (631, "dG9rZW4=", "..."),
        ] {
            assert_eq!(Reply::new(code, text).for_log(), shown);
        }
        // A checksum in a 213 is no nonce.
        assert_eq!(Reply::new(213, nonce).for_log(), nonce);
    }

    #[test]
    fn the_summary_holds_the_reason_of_an_error_once() {
        let lines = [
            "/x: Could not change directory. : GlobusError: v=1 c=PATH_NOT_FOUND",
            "GridFTP-Errno: 2",
            "GridFTP-Reason: System error in stat",
            "GridFTP-Error-String: No such file or directory",
            "",
        ];
        let reply = Reply::multi_line(550, lines.map(|l| l.as_bytes().to_vec()).into());
        assert_eq!(
            reply.summary(),
            "System error in stat / No such file or directory"
        );
        let heading = Reply::multi_line(550, vec![lines[0].into(), Vec::new()]);
        assert_eq!(heading.summary(), "/x: Could not change directory.");
        let lines = [
            "Command failed. : callback failed.",
            "globus_xio: System error in write: No space left on device",
            "globus_xio: A system call failed: No space left on device",
        ];
        let reply = Reply::multi_line(500, lines.map(|l| l.as_bytes().to_vec()).into());
        assert_eq!(
            reply.summary(),
            "Command failed. : callback failed. / globus_xio: System error in write: No space left on device"
        );
        assert_eq!(Reply::new(500, "End.").summary(), "End.");
        let lines = [
            "GlobusError: v=1 c=PATH_NOT_FOUND",
            "GridFTP-Reason: MKD /a/b",
            "GridFTP-Error-String: cannot create /a/b: No such file or directory",
        ];
        let reply = Reply::multi_line(550, lines.map(|l| l.as_bytes().to_vec()).into());
        assert_eq!(
            reply.summary(),
            "cannot create /a/b: No such file or directory"
        );
    }
}
