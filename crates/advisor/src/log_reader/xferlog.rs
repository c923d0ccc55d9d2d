//! The xferlog of wu-ftpd, as vsftpd, proftpd and pure-ftpd write it (xferlog(5)). Blanks in file names are
//! underscores there; proftpd and pure-ftpd write the client's name where they can resolve it; times are those of the
//! server's zone, in whole seconds.

use super::client_names::LogSurroundings;
use super::entry::{LogDirection, LogEntry, LogProtocol, positive};
use super::log_time;

/// Fields behind the file name: transfer type, special action, direction, access mode, user, service, authentication
/// method, authenticated user, completion.
const FIELDS_BEHIND_NAME: usize = 9;

/// Parses one line. Deletions (direction `d`) and clients whose name cannot be resolved are `None`.
pub fn parse(line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, month, day, time, year, seconds, host, bytes, rest @ ..] = words.as_slice() else {
        return None;
    };
    let behind = rest.get(rest.len().checked_sub(FIELDS_BEHIND_NAME)?..)?;
    // The file name is at least one word.
    if rest.len() == FIELDS_BEHIND_NAME {
        return None;
    }
    let [kind, _, direction, _, _, _, _, _, completion] = behind else {
        return None;
    };
    let at = log_time::ctime(month, day, time, year, surroundings.zone)?;
    let (seconds, bytes) = (seconds.parse::<u32>().ok()?, bytes.parse().ok()?);
    let direction = match *direction {
        "o" => LogDirection::Sent,
        "i" => LogDirection::Received,
        _ => return None,
    };
    if !matches!(*kind, "a" | "b") || !matches!(*completion, "c" | "i") {
        return None;
    }
    let client = surroundings.client(host)?;
    let mut entry = LogEntry::new(client, at, direction, LogProtocol::Ftp);
    entry.bytes = Some(bytes);
    entry.seconds = positive(f64::from(seconds));
    entry.whole_seconds = true;
    entry.complete = *completion == "c";
    entry.streams = Some(1);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_reader::client_names::tests::with_names;

    fn read(line: &str) -> Option<LogEntry> {
        with_names(&[("client.example", "192.0.2.3")], |s| {
            parse(line.as_bytes(), s)
        })
    }

    #[test]
    fn the_lines_of_three_servers_are_read() {
        let vsftpd = "Mon Nov  2 02:29:43 2026 13 ::ffff:192.0.2.1 3000000 /pub/a_b.dat b _ o a <no_password> ftp 0 * c";
        let entry = read(vsftpd).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.1");
        assert_eq!(entry.at, "2026-11-02T02:29:43Z".parse().unwrap());
        assert_eq!((entry.bytes, entry.seconds), (Some(3_000_000), Some(13.0)));
        let proftpd = "Mon Nov 23 02:27:20 2026 0 client.example 500000 /a b _ i a x ftp 0 * c";
        let entry = read(proftpd).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.3");
        assert_eq!(
            (entry.direction, entry.seconds),
            (LogDirection::Received, None)
        );
        let pure = "Mon Nov 23 02:27:23 2026 1 2001:db8::1 131072 /a_b.dat b _ o r alice ftp 1 * i";
        assert!(!read(pure).unwrap().complete);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "Mon Nov 23 02:27:20 2026 0 unknown.example 500000 /a b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 0 /a b _ d a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 -1 /a b _ i a x ftp 0 * c",
            "Mon Nov 23 02:27:20 2026 0 192.0.2.1 500000 /a b _ i a x ftp 0",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
