//! Remarks that a server appends to its 226 for clients that read them: the length of a listing, the limiter of the
//! streams it sent on, and a limit of its host that slowed the transfer down.
//!
//! ```text
//! 226 Transfer Complete. Limited by send buffer, 4 streams, cubic. The send buffer is capped at 4 MiB
//!     by net.ipv4.tcp_wmem.
//! 226 Transfer Complete. Listing of 5120 bytes.
//! ```
//!
//! Each part may be missing. The last part is for people, the others for programs.

use std::fmt;

use units::names;

use crate::printable::needs_escape;
use crate::reply::Reply;

/// Start of the text of a 226.
const COMPLETION_TEXT: &str = "Transfer Complete.";
/// Word after it when the 226 holds the file name of STOU (RFC 1123 §4.1.2.9) instead of remarks.
const FILE_NAME_LABEL: &str = "FILE:";
/// Start of the length of a listing.
const LISTING_PREFIX: &str = "Listing of ";
/// End of the length of a listing.
const LISTING_SUFFIX: &str = " bytes.";
/// Start of a limiter report.
const LIMITER_PREFIX: &str = "Limited by ";
/// Field of SITE CLIENTINFO that identifies clients that read remarks.
const READER_FIELD: &str = "appname=\"longhaul\"";
/// Longest remark, characters.
const MAX_REMARK_CHARS: usize = 400;
/// Longest name of a limiter, bytes.
const MAX_LIMITER_NAME: usize = 40;

/// Limiter of a transfer, as reported by the sending server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimiterReport {
    limiter: String,
    streams: u32,
    congestion_control: String,
}

impl LimiterReport {
    /// A report with `streams` data connections at the end of the transfer, at least 1. `congestion` is
    /// empty if the congestion control is unknown. Returns `None` for names that cannot be sent: a
    /// limiter has 1 to 40 letters, digits, parentheses, `-`, `/` and single inner spaces, a congestion
    /// control up to 15 letters, digits, `_` and `-`.
    pub fn new(limiter: &str, streams: u32, congestion: &str) -> Option<Self> {
        let is_valid = is_limiter_name(limiter)
            && streams > 0
            && (congestion.is_empty() || names::is_congestion_control(congestion));
        is_valid.then(|| Self {
            limiter: limiter.to_owned(),
            streams,
            congestion_control: congestion.to_owned(),
        })
    }

    /// Name of the limiter.
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Number of data connections at the end of the transfer, at least 1.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// Congestion control at the end of the transfer; empty if unknown.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Parses a report at the start of a text; returns it and the text after it.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let (report_text, rest) = text.strip_prefix(LIMITER_PREFIX)?.split_once('.')?;
        // A space or the end of the text follows a report; anything else shows that this is free text.
        if !rest.is_empty() && !rest.starts_with(' ') {
            return None;
        }
        let mut parts = report_text.splitn(3, ", ");
        let limiter = parts.next()?;
        let (digits, unit) = parts.next()?.split_once(' ')?;
        let unit_is_right = unit == streams_unit(digits);
        // Only the exact form that `Display` writes is accepted, so that other text stays a remark.
        if !unit_is_right || digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let congestion = parts.next();
        if congestion == Some("") {
            return None;
        }
        let report = Self::new(limiter, digits.parse().ok()?, congestion.unwrap_or(""))?;
        Some((report, rest))
    }
}

impl fmt::Display for LimiterReport {
    /// `Limited by send buffer, 4 streams, cubic.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.streams.to_string();
        let unit = streams_unit(&count);
        write!(f, "{LIMITER_PREFIX}{}, {count} {unit}", self.limiter)?;
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
    let has_extra_space = name.starts_with(' ') || name.ends_with(' ') || name.contains("  ");
    !name.is_empty()
        && name.len() <= MAX_LIMITER_NAME
        && name.chars().all(letter)
        && !has_extra_space
}

/// Remarks on a transfer in the 226 of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionRemarks {
    /// Length of the listing that the server sent, bytes on the data connection. The end of a data connection alone
    /// does not show that nothing is missing. Servers that send it announce `SIZE.LIST`.
    pub listing_bytes: Option<u64>,
    /// Limiter of the transfer.
    pub limiter: Option<LimiterReport>,
    /// Remark for people: a limit of the server's host, or a way to make the transfer faster.
    pub remark: Option<String>,
}

impl CompletionRemarks {
    /// Parses the 226 of a longhaul server, which announces `DRS`. The text of other servers may look
    /// similar and have any meaning.
    pub fn from_reply(reply: &Reply) -> Self {
        let text = reply.text();
        let rest = match text.strip_prefix(COMPLETION_TEXT) {
            // Only a 226 ends a transfer. Other replies may quote the same words.
            Some(rest) if reply.code == 226 => rest.trim_start(),
            _ => return Self::default(),
        };
        if rest.starts_with(FILE_NAME_LABEL) {
            return Self::default();
        }
        let (listing_bytes, rest) = match parse_listing_length(rest) {
            Some((bytes, rest)) => (Some(bytes), rest),
            None => (None, rest),
        };
        let (limiter, rest) = match LimiterReport::parse(rest) {
            Some((report, rest)) => (Some(report), rest),
            None => (None, rest),
        };
        Self {
            listing_bytes,
            limiter,
            remark: printable_remark(rest),
        }
    }

    /// The text of a 226 with these remarks.
    pub(crate) fn completion_text(&self) -> String {
        let mut text = COMPLETION_TEXT.to_owned();
        if let Some(bytes) = self.listing_bytes {
            text.push_str(&format!(" {LISTING_PREFIX}{bytes}{LISTING_SUFFIX}"));
        }
        if let Some(report) = &self.limiter {
            text.push_str(&format!(" {report}"));
        }
        if let Some(remark) = self.remark.as_deref().and_then(printable_remark) {
            text.push_str(&format!(" {remark}"));
        }
        text
    }
}

/// Parses the length of a listing at the start of a text; returns it and the text after it.
fn parse_listing_length(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text
        .strip_prefix(LISTING_PREFIX)?
        .split_once(LISTING_SUFFIX)?;
    Some((digits.parse().ok()?, rest.trim_start()))
}

/// The remark in a form for replies and terminals: one line of at most 400 printable characters; `None` if
/// nothing is left.
pub fn printable_remark(text: &str) -> Option<String> {
    let without_controls: String = text
        .chars()
        .map(|c| if needs_escape(c) { ' ' } else { c })
        .collect();
    let words: Vec<&str> = without_controls.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(MAX_REMARK_CHARS).collect();
    let line = line.trim_end().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Whether a SITE CLIENTINFO (`scheme=ftp;appname="longhaul";appver="0.1.0";`) is that of a client that
/// reads remarks.
pub(crate) fn client_reads_remarks(client_info: &str) -> bool {
    client_info
        .split(';')
        .any(|field| field.trim().eq_ignore_ascii_case(READER_FIELD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(report: Option<LimiterReport>, remark: Option<&str>) -> CompletionRemarks {
        CompletionRemarks {
            listing_bytes: None,
            limiter: report,
            remark: remark.map(str::to_owned),
        }
    }

    fn parsed_back(remarks: &CompletionRemarks) -> CompletionRemarks {
        CompletionRemarks::from_reply(&Reply::new(226, remarks.completion_text()))
    }

    fn report_text(remark: &str) -> Option<String> {
        parsed_back(&remarks(None, Some(remark))).remark
    }

    #[test]
    fn a_limiter_report_is_parsed_back_with_and_without_a_remark() {
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
            let report = LimiterReport::new(limiter, streams, congestion).unwrap();
            assert_eq!(report.to_string(), format!("Limited by {text}."));
            for remark in [None, Some(remark)] {
                let remarks_sent = remarks(Some(report.clone()), remark);
                assert_eq!(parsed_back(&remarks_sent), remarks_sent);
            }
            let remarks_sent = remarks(Some(report), Some("FILE: no name"));
            assert_eq!(parsed_back(&remarks_sent), remarks_sent);
        }
    }

    #[test]
    fn text_that_is_no_limiter_report_is_a_remark() {
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
            assert_eq!(
                parsed_back(&remarks(None, Some(text))),
                remarks(None, Some(text))
            );
        }
    }

    #[test]
    fn reports_with_invalid_names_are_refused() {
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
    fn a_remark_is_parsed_back() {
        let remark = "The send buffer is capped at 4 MiB by net.ipv4.tcp_wmem.";
        assert_eq!(report_text(remark).as_deref(), Some(remark));
        assert_eq!(
            report_text("4194304 bytes: 50 %, ü").as_deref(),
            Some("4194304 bytes: 50 %, ü")
        );
        assert_eq!(
            CompletionRemarks::default().completion_text(),
            "Transfer Complete."
        );
    }

    #[test]
    fn the_length_of_a_listing_is_parsed_back_with_and_without_more() {
        let report = LimiterReport::new("store read", 1, "").unwrap();
        for (report, remark) in [
            (None, None),
            (Some(report.clone()), None),
            (None, Some("x")),
            (Some(report), Some("x")),
        ] {
            let sent = CompletionRemarks {
                listing_bytes: Some(5120),
                ..remarks(report, remark)
            };
            assert_eq!(parsed_back(&sent), sent);
        }
        for text in ["Listing of -1 bytes.", "Listing of 1", "Listing of bytes."] {
            let sent = remarks(None, Some(text));
            assert_eq!(parsed_back(&sent), sent);
        }
    }

    #[test]
    fn a_remark_is_one_bounded_printable_line() {
        assert_eq!(
            report_text("a\r\n226 b\t\x1b[31mc\u{9b}\0  d ").as_deref(),
            Some("a 226 b [31mc d")
        );
        assert_eq!(report_text(" \r\n\x07").as_deref(), None);
        assert_eq!(
            report_text(&"é".repeat(5_000)).map(|r| r.chars().count()),
            Some(MAX_REMARK_CHARS)
        );
    }

    #[test]
    fn longhaul_clients_read_remarks() {
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
            let remarks = CompletionRemarks::from_reply(&Reply::new(code, text));
            assert_eq!(remarks, CompletionRemarks::default(), "{text}");
        }
    }
}
