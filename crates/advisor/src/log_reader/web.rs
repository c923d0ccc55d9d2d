//! The common and the combined log of Apache and nginx, and pure-ftpd's `-O clf:FILE`. They have no duration: an
//! entry says who the clients are, when, and how much they got.

use super::client_names::LogSurroundings;
use super::entry::{LogDirection, LogEntry, LogProtocol};
use super::log_time;

/// Parses one line: `CLIENT - USER [TIME] "REQUEST" STATUS BYTES`, and anything behind.
pub fn parse(line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let text = String::from_utf8_lossy(line);
    // A user's name may hold blanks and brackets, so the time is found by the quote that follows it.
    let (front, rest) = text.split_once("] \"")?;
    let (who, time) = front.rsplit_once(" [")?;
    let at = log_time::common_log(time)?;
    let host = who.split(' ').next()?;
    let end = closing_quote(rest)?;
    let (request, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
    let mut words = rest.split_ascii_whitespace();
    let status: u16 = words.next()?.parse().ok()?;
    // Apache writes `-` for no body.
    let bytes = match words.next()? {
        "-" => 0,
        bytes => bytes.parse::<u64>().ok()?,
    };
    let (method, target) = request.split_once(' ').unwrap_or((request, ""));
    let is_http = target.rsplit_once(" HTTP/").is_some();
    let is_upload = matches!(method, "PUT" | "POST");
    // pure-ftpd writes requests without a protocol, and the size of the file whatever moved.
    let (protocol, bytes) = match (is_http, is_upload) {
        (false, _) => (LogProtocol::Ftp, Some(bytes)),
        (true, false) => (LogProtocol::Http, Some(bytes)),
        // The answer's bytes, which are not those that came in.
        (true, true) => (LogProtocol::Http, None),
    };
    let direction = if is_upload {
        LogDirection::Received
    } else {
        LogDirection::Sent
    };
    let mut entry = LogEntry::new(surroundings.client(host)?, at, direction, protocol);
    entry.bytes = bytes;
    entry.complete = (200..300).contains(&status);
    Some(entry)
}

/// Position of the first quote that no backslash escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_reader::client_names::tests::with_names;

    fn read(line: &str) -> Option<LogEntry> {
        with_names(&[("c.example", "192.0.2.3")], |s| parse(line.as_bytes(), s))
    }

    #[test]
    fn lines_of_web_servers_and_pure_ftpd_are_read() {
        let nginx = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "GET /a%20b HTTP/1.1" 200 3000000 "-" "curl/7.88.1""#;
        let entry = read(nginx).unwrap();
        assert_eq!(
            (entry.bytes, entry.protocol),
            (Some(3_000_000), LogProtocol::Http)
        );
        assert_eq!(entry.seconds, None);
        let apache =
            r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\\" y HTTP/1.1" 201 -"#;
        assert_eq!(read(apache), None, "the request ends at its quote");
        let apache =
            r#"c.example - ann lee [23/Nov/2026:02:27:23 +0100] "PUT /\"x\" y HTTP/1.1" 201 -"#;
        let entry = read(apache).unwrap();
        assert_eq!(
            (entry.bytes, entry.direction),
            (None, LogDirection::Received)
        );
        let pure = r#"2001:db8::1 - alice [23/Nov/2026:02:27:21 -0000] "PUT /up.dat" 200 500000"#;
        let entry = read(pure).unwrap();
        assert_eq!(
            (entry.bytes, entry.protocol),
            (Some(500_000), LogProtocol::Ftp)
        );
        let binary = r#"192.0.2.1 - - [23/Nov/2026:02:27:23 +0000] "\x16\x03\x01" 400 166 "-" "-""#;
        assert!(!read(binary).unwrap().complete);
    }
}
