//! What a server adds to its 226 for people: which limit of its host held a transfer back.
//!
//! ```text
//! 226 Transfer Complete. The send buffer is capped at 4 MiB by net.ipv4.tcp_wmem.
//! ```

use crate::reply::Reply;

/// What a 226 says before the remark.
const HEAD: &str = "Transfer Complete.";
/// What follows it when the reply tells the name of a unique store (RFC 1123 §4.1.2.9) instead.
const NAME: &str = "FILE:";
/// What clients that read remarks call themselves in SITE CLIENTINFO.
const READER: &str = "appname=\"longhaul\"";
/// Longest remark, characters.
const LONGEST: usize = 400;

/// The remark as it may stand in a reply or on a terminal: one line of printable characters, at
/// most 400 of them; `None` when nothing is left.
pub fn printable(text: &str) -> Option<String> {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(LONGEST).collect();
    let line = line.trim_end().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Whether SITE CLIENTINFO (`scheme=ftp;appname="longhaul";appver="0.1.0";`) names a client that reads
/// remarks.
pub(crate) fn is_read_by(client_info: &str) -> bool {
    client_info
        .split(';')
        .any(|field| field.trim().eq_ignore_ascii_case(READER))
}

/// The text of a 226 with a remark, if there is one.
pub(crate) fn complete_text(remark: Option<&str>) -> String {
    match remark.and_then(printable) {
        Some(remark) => format!("{HEAD} {remark}"),
        None => HEAD.to_owned(),
    }
}

/// The remark of a longhaul server's 226 (one that announces `DRS`); `None` if it made none. Other
/// servers' words after the 226 may look alike and mean anything.
pub fn of_reply(reply: &Reply) -> Option<String> {
    if reply.code != 226 {
        return None;
    }
    let text = reply.text();
    let rest = text.strip_prefix(HEAD)?.trim_start();
    if rest.starts_with(NAME) {
        return None;
    }
    printable(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(remark: &str) -> Option<String> {
        of_reply(&Reply::new(226, complete_text(Some(remark))))
    }

    #[test]
    fn a_remark_is_read_back() {
        let remark = "The send buffer is capped at 4 MiB by net.ipv4.tcp_wmem.";
        assert_eq!(told(remark).as_deref(), Some(remark));
        assert_eq!(
            told("4194304 bytes: 50 %, ü").as_deref(),
            Some("4194304 bytes: 50 %, ü")
        );
        assert_eq!(complete_text(None), "Transfer Complete.");
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
        assert!(is_read_by(
            "scheme=ftp;appname=\"longhaul\";appver=\"0.1.0\";"
        ));
        for other in [
            "",
            "longhaul",
            "scheme=ftp;appname=\"globus-url-copy\";appver=\"longhaul\";",
            "appname=\"longhauler\";",
        ] {
            assert!(!is_read_by(other), "{other}");
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
            assert_eq!(of_reply(&Reply::new(code, text)), None, "{text}");
        }
    }
}
