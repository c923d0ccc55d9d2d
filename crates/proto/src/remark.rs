//! Remarks that a server adds to its 226 for clients that read them: what limited the streams that it sent
//! over, and which limit of its host held the transfer back.
//!
//! ```text
//! 226 Transfer Complete. Limited by send buffer, 4 streams, cubic. The send buffer is capped at 4 MiB
//!     by net.ipv4.tcp_wmem.
//! ```
//!
//! Each part may be missing. The first is for programs, the rest for people.

use std::fmt;

use crate::printable::needs_escape;
use crate::reply::Reply;

/// First words of a 226.
const HEAD: &str = "Transfer Complete.";
/// Word after them when the reply tells the name of a unique store (RFC 1123 §4.1.2.9) instead.
const NAME: &str = "FILE:";
/// First words of a verdict.
const LIMITED: &str = "Limited by ";
/// Name by which clients that read remarks call themselves in SITE CLIENTINFO.
const READER: &str = "appname=\"longhaul\"";
/// Longest remark, characters.
const LONGEST: usize = 400;
/// Longest name of a limiter, bytes.
const LONGEST_LIMITER: usize = 40;
/// Longest name of a congestion control, bytes: TCP_CA_NAME_MAX without the closing NUL.
const LONGEST_CONGESTION: usize = 15;

/// Limiter of a transfer, by the word of the end that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimiterReport {
    limiter: String,
    streams: u32,
    congestion_control: String,
}

impl LimiterReport {
    /// `streams` connections at the end, at least 1; `congestion` may be empty: not known. `None` for
    /// names that cannot be told: a limiter is 1 to 40 letters, digits, parentheses, `-`, `/` and
    /// single spaces within, a congestion control up to 15 letters, digits, `_` and `-`.
    pub fn new(limiter: &str, streams: u32, congestion: &str) -> Option<Self> {
        let good = is_limiter_name(limiter)
            && streams > 0
            && (congestion.is_empty() || is_congestion_control_name(congestion));
        good.then(|| Self {
            limiter: limiter.to_owned(),
            streams,
            congestion_control: congestion.to_owned(),
        })
    }

    /// The limiter's name.
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Data connections at the end, at least 1.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// The congestion control at the end; empty: not known.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Reads one from the beginning of a text, and gives what follows it.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let (told, rest) = text.strip_prefix(LIMITED)?.split_once('.')?;
        if !rest.is_empty() && !rest.starts_with(' ') {
            return None;
        }
        let mut parts = told.splitn(3, ", ");
        let limiter = parts.next()?;
        let (digits, unit) = parts.next()?.split_once(' ')?;
        let unit_is_right = unit == streams_unit(digits);
        if !unit_is_right || digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let congestion = parts.next();
        if congestion == Some("") {
            return None;
        }
        let verdict = Self::new(limiter, digits.parse().ok()?, congestion.unwrap_or(""))?;
        Some((verdict, rest))
    }
}

impl fmt::Display for LimiterReport {
    /// `Limited by send buffer, 4 streams, cubic.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.streams.to_string();
        let unit = streams_unit(&count);
        write!(f, "{LIMITED}{}, {count} {unit}", self.limiter)?;
        if !self.congestion_control.is_empty() {
            write!(f, ", {}", self.congestion_control)?;
        }
        f.write_str(".")
    }
}

fn streams_unit(digits: &str) -> &'static str {
    if digits == "1" { "stream" } else { "streams" }
}

fn is_limiter_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || " ()-/".contains(c);
    let spaced = name.starts_with(' ') || name.ends_with(' ') || name.contains("  ");
    !name.is_empty() && name.len() <= LONGEST_LIMITER && name.chars().all(letter) && !spaced
}

/// Whether the kernel could have a congestion control of that name.
pub(crate) fn is_congestion_control_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= LONGEST_CONGESTION && name.chars().all(letter)
}

/// Words of the server of a 226 on the transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionRemarks {
    /// Its verdict on the limiter.
    pub limiter: Option<LimiterReport>,
    /// For people: a limit of the server's host, or what would make the transfer faster.
    pub remark: Option<String>,
}

impl CompletionRemarks {
    /// Reads the 226 of a longhaul server (one that announces `DRS`). Other servers' words after the
    /// 226 may look alike and mean anything.
    pub fn from_reply(reply: &Reply) -> Self {
        let text = reply.text();
        let rest = match text.strip_prefix(HEAD) {
            Some(rest) if reply.code == 226 => rest.trim_start(),
            _ => return Self::default(),
        };
        if rest.starts_with(NAME) {
            return Self::default();
        }
        match LimiterReport::parse(rest) {
            Some((verdict, remark)) => Self {
                limiter: Some(verdict),
                remark: printable_remark(remark),
            },
            None => Self {
                limiter: None,
                remark: printable_remark(rest),
            },
        }
    }

    /// The text of a 226 that says it.
    pub(crate) fn completion_text(&self) -> String {
        let mut text = HEAD.to_owned();
        if let Some(verdict) = &self.limiter {
            text.push_str(&format!(" {verdict}"));
        }
        if let Some(remark) = self.remark.as_deref().and_then(printable_remark) {
            text.push_str(&format!(" {remark}"));
        }
        text
    }
}

/// The remark as it may stand in a reply or on a terminal: one line of printable characters, at
/// most 400 of them; `None` when nothing is left.
pub fn printable_remark(text: &str) -> Option<String> {
    let spaced: String = text
        .chars()
        .map(|c| if needs_escape(c) { ' ' } else { c })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(LONGEST).collect();
    let line = line.trim_end().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Whether SITE CLIENTINFO (`scheme=ftp;appname="longhaul";appver="0.1.0";`) names a client that reads
/// remarks.
pub(crate) fn client_reads_remarks(client_info: &str) -> bool {
    client_info
        .split(';')
        .any(|field| field.trim().eq_ignore_ascii_case(READER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(verdict: Option<LimiterReport>, remark: Option<&str>) -> CompletionRemarks {
        CompletionRemarks {
            limiter: verdict,
            remark: remark.map(str::to_owned),
        }
    }

    fn back(said: &CompletionRemarks) -> CompletionRemarks {
        CompletionRemarks::from_reply(&Reply::new(226, said.completion_text()))
    }

    fn told(remark: &str) -> Option<String> {
        back(&said(None, Some(remark))).remark
    }

    #[test]
    fn a_verdict_is_read_back_with_and_without_a_remark() {
        let remark = "The send buffer is capped at 4 MiB by net.ipv4.tcp_wmem.";
        for (limiter, streams, congestion, text) in [
            (
                "receive window",
                4,
                "cubic",
                "receive window, 4 streams, cubic",
            ),
            (
                "congestion window (loss)",
                1,
                "bbr",
                "congestion window (loss), 1 stream, bbr",
            ),
            ("store read", 16, "", "store read, 16 streams"),
        ] {
            let verdict = LimiterReport::new(limiter, streams, congestion).unwrap();
            assert_eq!(verdict.to_string(), format!("Limited by {text}."));
            for remark in [None, Some(remark)] {
                let all = said(Some(verdict.clone()), remark);
                assert_eq!(back(&all), all);
            }
            let all = said(Some(verdict), Some("FILE: no name"));
            assert_eq!(back(&all), all);
        }
    }

    #[test]
    fn what_is_no_verdict_is_a_remark() {
        for text in [
            "Limited by",
            "Limited by x.",
            "Limited by x, 4 streams",
            "Limited by x, 4 streams, cubic.y",
            "Limited by x, 4 stream, cubic.",
            "Limited by x, 0 streams, cubic.",
            "Limited by x, 04 streams.",
            "Limited by x, +4 streams.",
            "Limited by x, 99999999999 streams.",
            "Limited by x, 4 streams, .",
            "Limited by x, 4 streams, a b.",
            "Limited by x, 4 streams, cubic, more.",
            "Limited by , 4 streams.",
            "Limited by é, 4 streams.",
            "limited by x, 4 streams.",
        ] {
            assert_eq!(back(&said(None, Some(text))), said(None, Some(text)));
        }
    }

    #[test]
    fn names_that_cannot_be_told_are_no_verdict() {
        for limiter in [
            "",
            " x",
            "x ",
            "x  y",
            "a,b",
            "a.b",
            "a\nb",
            &"x".repeat(41),
        ] {
            assert_eq!(LimiterReport::new(limiter, 1, "cubic"), None, "{limiter:?}");
        }
        for congestion in ["a b", "a.b", "abcdefghijklmnop"] {
            assert_eq!(LimiterReport::new("x", 1, congestion), None, "{congestion}");
        }
        assert_eq!(LimiterReport::new("x", 0, ""), None);
    }

    #[test]
    fn a_remark_is_read_back() {
        let remark = "The send buffer is capped at 4 MiB by net.ipv4.tcp_wmem.";
        assert_eq!(told(remark).as_deref(), Some(remark));
        assert_eq!(
            told("4194304 bytes: 50 %, ü").as_deref(),
            Some("4194304 bytes: 50 %, ü")
        );
        assert_eq!(
            CompletionRemarks::default().completion_text(),
            "Transfer Complete."
        );
    }

    #[test]
    fn a_remark_is_one_bounded_printable_line() {
        assert_eq!(
            told("a\r\n226 b\t\x1b[31mc\u{9b}\0  d ").as_deref(),
            Some("a 226 b [31mc d")
        );
        assert_eq!(told(" \r\n\x07").as_deref(), None);
        assert_eq!(
            told(&"é".repeat(5_000)).map(|r| r.chars().count()),
            Some(LONGEST)
        );
    }

    #[test]
    fn who_reads_remarks() {
        assert!(client_reads_remarks(
            "scheme=ftp;appname=\"longhaul\";appver=\"0.1.0\";"
        ));
        for other in [
            "",
            "longhaul",
            "scheme=ftp;appname=\"globus-url-copy\";appver=\"longhaul\";",
            "appname=\"longhauler\";",
        ] {
            assert!(!client_reads_remarks(other), "{other}");
        }
    }

    #[test]
    fn other_replies_have_no_remark() {
        for (code, text) in [
            (226, "Transfer Complete."),
            (226, "Transfer Complete. FILE: /stou.1"),
            (226, "Transfer done. Be well."),
            (250, "Transfer Complete. Why"),
        ] {
            let said = CompletionRemarks::from_reply(&Reply::new(code, text));
            assert_eq!(said, CompletionRemarks::default(), "{text}");
        }
    }
}
