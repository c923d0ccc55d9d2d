//! vsftpd's own log, which it writes unless `xferlog_std_format` or `dual_log_enable` asks for an xferlog.

use super::client_names::LogSurroundings;
use super::entry::{LogDirection, LogEntry, LogProtocol, positive};
use super::log_time;

/// Parses one line: `Mon Nov 23 02:29:43 2026 [pid 7] [user] OK DOWNLOAD: Client "ADDRESS", "FILE", N bytes,
/// RKbyte/sec`. Logins and refused commands are `None`.
pub fn parse(line: &[u8], surroundings: &mut LogSurroundings<'_>) -> Option<LogEntry> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_ascii_whitespace().skip(1);
    let (month, day, time, year) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let at = log_time::ctime(month, day, time, year, surroundings.zone)?;
    // A user's name stands before, a file's name behind.
    let (front, rest) = text.split_once(": Client \"")?;
    let (complete, direction) = if let Some(front) = front.strip_suffix(" DOWNLOAD") {
        (front.ends_with(" OK"), LogDirection::Sent)
    } else {
        let front = front.strip_suffix(" UPLOAD")?;
        (front.ends_with(" OK"), LogDirection::Received)
    };
    let (host, rest) = rest.split_once('"')?;
    let (rest, rate) = rest.rsplit_once(", ")?;
    let (_, bytes) = rest.rsplit_once("\", ")?;
    let bytes = bytes.strip_suffix(" bytes")?;
    let rate: f64 = rate.trim_end().strip_suffix("Kbyte/sec")?.parse().ok()?;
    let mut entry = LogEntry::new(surroundings.client(host)?, at, direction, LogProtocol::Ftp);
    entry.bytes = Some(bytes.parse().ok()?);
    entry.seconds = positive(bytes.parse::<f64>().ok()? / (rate * 1024.0));
    entry.complete = complete;
    entry.streams = Some(1);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_reader::client_names::tests::with_names;

    fn read(line: &str) -> Option<LogEntry> {
        with_names(&[], |s| parse(line.as_bytes(), s))
    }

    #[test]
    fn transfers_are_read_and_other_lines_are_none() {
        let line = "Mon Nov 23 02:29:43 2026 [pid 9546] [daemon] OK DOWNLOAD: Client \"::ffff:192.0.2.1\", \
                    \"/pub/a \", 5 bytes, b.dat\", 3000000 bytes, 960.97Kbyte/sec";
        let entry = read(line).unwrap();
        assert_eq!(entry.client.to_string(), "192.0.2.1");
        assert_eq!(entry.bytes, Some(3_000_000));
        assert!((entry.seconds.unwrap() - 3.0487).abs() < 1e-3);
        assert!(entry.complete);
        let failed = line.replace("OK DOWNLOAD", "FAIL UPLOAD");
        let entry = read(&failed).unwrap();
        assert_eq!(
            (entry.complete, entry.direction),
            (false, LogDirection::Received)
        );
        let login = "Mon Nov 23 02:29:40 2026 [pid 9539] [daemon] OK LOGIN: Client \"192.0.2.1\", anon password \"x\"";
        assert_eq!(read(login), None);
        assert_eq!(read(&line.replace("960.97", "0.00")).unwrap().seconds, None);
    }
}
