//! Logs of data servers, read as they grow: who the clients are, and what their transfers say of the paths.
//!
//! [`follower`] reads lines from a file that grows and is rotated. [`mod@format`] knows what a line tells: one transfer, or
//! none. [`entry`] is that transfer, and tells what it says of its path.

use std::io;

use jiff::tz::TimeZone;

use self::client_names::{ClientNames, LogSurroundings};
use self::entry::LogEntry;
use self::follower::{FollowTurn, LogFollower};
use self::format::TransferLogFormat;

pub mod client_names;
pub mod entry;
pub mod follower;
pub mod format;

/// Lines of one log so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Transfers.
    pub entries: u64,
    /// Other lines: junk, logins, listings, clients without a known address.
    pub other_lines: u64,
}

/// Follows one log and parses its lines.
#[derive(Debug)]
pub struct LogReader {
    follower: LogFollower,
    /// The format of every line, where the caller knows it.
    format: Option<TransferLogFormat>,
    /// The format of the last line that was a transfer.
    last: Option<TransferLogFormat>,
    zone: TimeZone,
    names: ClientNames,
    counts: LogCounts,
}

impl LogReader {
    /// Reads what the follower hands out. Without a format, every line is read in the format that it has, the
    /// last one first. The zone is that of times without one ([`format::host_zone`]).
    pub fn new(follower: LogFollower, format: Option<TransferLogFormat>, zone: TimeZone) -> Self {
        Self {
            follower,
            format,
            last: format,
            zone,
            names: ClientNames::default(),
            counts: LogCounts::default(),
        }
    }

    /// Reads what came since the last turn, up to the follower's bound, and adds the transfers. Blocks on the disk
    /// and on names.
    ///
    /// # Errors
    /// The file cannot be read. The next turn tries again.
    pub fn turn(&mut self, entries: &mut Vec<LogEntry>) -> io::Result<FollowTurn> {
        let Self {
            follower,
            format,
            last,
            zone,
            names,
            counts,
        } = self;
        let mut resolve = |name: &str| names.resolve(name);
        let mut surroundings = LogSurroundings {
            zone,
            resolve: &mut resolve,
        };
        follower.turn(&mut |line| {
            let mut entry = last.and_then(|format| format.parse(line, &mut surroundings));
            if entry.is_none() && format.is_none() {
                *last = TransferLogFormat::of_line(line).or(*last);
                entry = last.and_then(|format| format.parse(line, &mut surroundings));
            }
            match entry {
                Some(entry) => {
                    counts.entries += 1;
                    entries.push(entry);
                }
                None => counts.other_lines += 1,
            }
        })
    }

    /// Lines so far.
    pub fn counts(&self) -> LogCounts {
        self.counts
    }

    /// The follower, for its position and counters.
    pub fn follower(&self) -> &LogFollower {
        &self.follower
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::Timestamp;

    use super::entry::LogDirection;
    use super::follower::{FollowFrom, FollowLimits};
    use super::*;

    /// Reads a log that a real server wrote: one download of 3 000 000 bytes, one upload of 500 000 and one aborted download, from
    /// 127.0.0.1.
    fn read(name: &str) -> (Vec<LogEntry>, LogCounts) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data/logs")
            .join(name);
        let follower = LogFollower::new(&path, FollowFrom::Beginning, FollowLimits::default());
        let mut reader = LogReader::new(follower, None, TimeZone::UTC);
        let mut entries = Vec::new();
        reader.turn(&mut entries).unwrap();
        (entries, reader.counts())
    }

    #[test]
    fn the_logs_of_every_server_are_recognised_and_read() {
        for (name, other_lines) in [
            ("vsftpd.xferlog", 0),
            ("vsftpd.log", 4),
            ("proftpd.xferlog", 0),
            ("pure-ftpd.clf", 0),
            ("pure-ftpd.stats", 0),
            ("pure-ftpd.w3c", 4),
            ("pure-ftpd.xferlog", 0),
            ("globus.ftp-info", 0),
        ] {
            let (entries, counts) = read(name);
            assert_eq!(entries.len(), 3, "{name}");
            assert_eq!(counts.other_lines, other_lines, "{name}");
            let sizes: Vec<_> = entries.iter().map(|entry| entry.bytes).collect();
            assert_eq!(sizes[..2], [Some(3_000_000), Some(500_000)], "{name}");
            assert_eq!(entries[0].direction, LogDirection::Sent, "{name}");
            assert_eq!(entries[1].direction, LogDirection::Received, "{name}");
            for entry in entries {
                assert!(entry.client.is_loopback(), "{name}");
                let near = "2026-11-23T02:29:00Z".parse::<Timestamp>().unwrap();
                assert!(
                    entry.at.duration_since(near).as_secs().abs() < 120,
                    "{name}"
                );
            }
        }
        let (entries, _) = read("nginx.combined");
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].bytes, Some(3_000_000));
    }

    #[test]
    fn servers_that_tell_of_an_aborted_transfer_are_believed() {
        for name in [
            "vsftpd.xferlog",
            "vsftpd.log",
            "proftpd.xferlog",
            "pure-ftpd.xferlog",
        ] {
            let complete: Vec<bool> = read(name).0.iter().map(|entry| entry.complete).collect();
            // pure-ftpd always writes `c`.
            let last = name.starts_with("pure");
            assert_eq!(complete, [true, true, last], "{name}");
        }
    }

    #[test]
    fn junk_between_lines_is_counted_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mixed.log");
        let xferlog =
            "Mon Nov 23 02:27:23 2026 0 192.0.2.1 500000 /up.dat b _ i r alice ftp 1 * c\n";
        let web =
            "192.0.2.2 - - [23/Nov/2026:02:27:23 +0000] \"GET / HTTP/1.1\" 200 30 \"-\" \"x\"\n";
        let mut bytes = xferlog.as_bytes().to_vec();
        bytes.extend_from_slice(b"\xff\xfe\0 junk\n\n{\"end\":\n");
        bytes.extend_from_slice(web.as_bytes());
        bytes.extend_from_slice(xferlog.as_bytes());
        std::fs::write(&path, bytes).unwrap();
        let follower = LogFollower::new(&path, FollowFrom::Beginning, FollowLimits::default());
        let mut reader = LogReader::new(follower, None, TimeZone::UTC);
        let mut entries = Vec::new();
        reader.turn(&mut entries).unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(reader.counts().other_lines, 3);
        assert_eq!(entries[1].client.to_string(), "192.0.2.2");
    }
}
