//! Words by which servers say that a listing lacks entries, although its reply is one of success.

use proto::reply::Reply;

/// Some of the words of known servers: `226-Output truncated to 50 matches` (Pure-FTPd), `226 Transfer done (but failed to open
/// directory).` (vsftpd). Others are those in which one would say it. `226 2000 matches total` has none of them, nor has a
/// reply about quota (`disk quota limited to`), of which some servers remind after each transfer.
const WORDS: [&str; 22] = [
    "truncated",
    "incomplete",
    "not complete",
    "partial",
    "failed to",
    "could not",
    "cannot",
    "unable to",
    "limit reached",
    "limit exceeded",
    "too many",
    "denied",
    "only the first",
    "listing limited",
    "entries shown",
    "omitted",
    "max entries",
    "aborted",
    "stopped",
    "skipped",
    "shortened",
    "not all",
];

/// The line of a reply to the listing of `path` that says so, with its code.
pub(super) fn limit_remark(reply: &Reply, path: &[u8]) -> Option<Vec<u8>> {
    let says_so = |line: &&Vec<u8>| {
        let mut text = String::from_utf8_lossy(line).to_lowercase();
        // A reply may repeat the path, which may hold any word.
        let path = String::from_utf8_lossy(path).to_lowercase();
        for part in [path.as_str(), path.rsplit('/').next().unwrap_or_default()] {
            text = without(&text, part);
        }
        WORDS.iter().any(|word| text.contains(word))
    };
    let line = reply.lines.iter().find(says_so)?;
    Some([format!("{} ", reply.code).as_bytes(), line.trim_ascii()].concat())
}

/// A text without a part that stands by itself in it.
fn without(text: &str, part: &str) -> String {
    let is_in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut kept = String::new();
    let mut from = 0;
    for (at, _) in text.match_indices(part).filter(|_| !part.is_empty()) {
        let end = at + part.len();
        if is_in_word(text[..at].chars().next_back()) || is_in_word(text[end..].chars().next()) {
            continue;
        }
        kept.push_str(&text[from..at]);
        from = end;
    }
    kept.push_str(&text[from..]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_limit_a_listing_are_told_from_those_that_do_not() {
        let remark = |lines: &[&str], path: &str| {
            let lines = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
            let found = limit_remark(&Reply::multi_line(226, lines), path.as_bytes());
            found.map(|text| String::from_utf8(text).unwrap())
        };
        for (lines, shown) in [
            // Pure-FTPd with -L, vsftpd.
            (
                &["Options: -a -l ", "Output truncated to 50 matches"][..],
                "226 Output truncated to 50 matches",
            ),
            (
                &["Transfer done (but failed to open directory)."],
                "226 Transfer done (but failed to open directory).",
            ),
            (&["Listing limit reached"], "226 Listing limit reached"),
        ] {
            assert_eq!(remark(lines, "/d").as_deref(), Some(shown));
        }
        for lines in [
            &["Options: -a -l ", "2000 matches total"][..],
            &["Directory send OK."],
            &["Transfer complete. 1,234 bytes transferred. 5.31 KB/sec."],
            &[
                "Maximum disk quota limited to 1000 KBytes",
                "Transfer complete",
            ],
            &["Listing of /Partial/Truncated is complete: Truncated"],
        ] {
            assert_eq!(remark(lines, "/Partial/Truncated"), None, "{lines:?}");
        }
    }
}
