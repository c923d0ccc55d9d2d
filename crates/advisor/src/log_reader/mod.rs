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
