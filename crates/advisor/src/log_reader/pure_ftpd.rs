//! The own formats of pure-ftpd: `-O stats:FILE` and `-O w3c:FILE`. Its `clf` is a common log.

use jiff::Timestamp;

use super::client_names::LogSurroundings;
use super::entry::{LogDirection, LogEntry, LogProtocol, positive};

/// Parses one line of either format.
pub fn parse(line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    stats(&words, surroundings).or_else(|| w3c(&words, surroundings))
}

/// `TIME SESSION USER CLIENT D|U BYTES SECONDS FILE`. An aborted transfer looks like another one.
fn stats(words: &[&str], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let [time, session, _, host, direction, bytes, seconds, _, ..] = words else {
        return None;
    };
    let at = Timestamp::from_second(time.parse().ok()?).ok()?;
    let (left, right) = session.split_once('.')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex(left) || !is_hex(right) {
        return None;
    }
    let direction = match *direction {
        "D" => LogDirection::Sent,
        "U" => LogDirection::Received,
        _ => return None,
    };
    let (bytes, seconds) = (bytes.parse().ok()?, seconds.parse::<u32>().ok()?);
    let mut entry = LogEntry::new(surroundings.client(host)?, at, direction, LogProtocol::Ftp);
    entry.bytes = Some(bytes);
    entry.seconds = positive(f64::from(seconds));
    entry.whole_seconds = true;
    entry.streams = Some(1);
    Some(entry)
}

/// `DATE TIME CLIENT []sent|[]created FILE 226 USER BYTES`, UTC; there is no duration.
fn w3c(words: &[&str], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let [date, time, host, method, _, .., bytes] = words else {
        return None;
    };
    let at = format!("{date}T{time}Z").parse().ok()?;
    let direction = match *method {
        "[]sent" => LogDirection::Sent,
        "[]created" => LogDirection::Received,
        _ => return None,
    };
    let bytes = bytes.parse().ok()?;
    let mut entry = LogEntry::new(surroundings.client(host)?, at, direction, LogProtocol::Ftp);
    entry.bytes = Some(bytes);
    entry.streams = Some(1);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_reader::client_names::tests::with_names;

    fn read(line: &str) -> Option<LogEntry> {
        with_names(&[("c.example", "192.0.2.3")], |s| parse(line.as_bytes(), s))
    }

    #[test]
    fn both_formats_are_read() {
        let entry =
            read("1795400841 6b03a489.14a6 alice c.example D 3000000 12 /pub/a b.dat").unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.3");
        assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(12.0)));
        assert_eq!(entry.at, "2026-11-23T02:27:21Z".parse().unwrap());
        let entry =
            read("2026-11-23 02:27:22 192.0.2.1 []created /pub/up.dat 226 alice 500000").unwrap();
        assert_eq!((entry.bytes, entry.seconds), (Some(500_000), None));
        assert_eq!(entry.direction, LogDirection::Received);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs-username sc-bytes",
            "1795400841 nohex alice 192.0.2.1 D 3000000 12 /a",
            "1795400841 6b03a489.14a6 alice 192.0.2.1 D 3000000",
            "99999999999999999 6b03a489.14a6 alice 192.0.2.1 D 3000000 12 /a",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
