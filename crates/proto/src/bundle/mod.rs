//! Bundles (longhaul): many small files that travel as the bytes of one transfer.
//!
//! A bundle is the content of its files, one directly after the other, in the order in which they were announced.
//! Both ends know the sizes beforehand, so every mode, number of streams and checksum works as for one file.
//!
//! ```text
//! SITE BUNDLE ADD 1024,20260102030405,/data/a 7,,/data/b%20c     250
//! ERET BUNDLE 2 /data     or     ESTO BUNDLE 2 /data             150 ... 226
//! SITE BUNDLE END         or     SITE BUNDLE END CRC32C 1a2b3c4d 250-
//! ```
//!
//! `SITE BUNDLE PACK` is `SITE BUNDLE ADD` with its argument compressed (RFC 1950) and in base64 (FEAT `DEFLATE BUNDLE;`): on a
//! long path, the announcements of some thousand files would otherwise take longer than the files.
//!
//! `SITE BUNDLE END` is answered as long as no other transfer begins. With a checksum that is not that of the bundle,
//! the reply has the checksum of each file at the server, `-` where it has none, and no file gets its name. The end that
//! received compares them; it leaves out what differs and ends the bundle again, with the server's checksum. A second wrong
//! one drops the bundle.
//!
//! ```text
//! SITE BUNDLE END CRC32C 00000000                                450-Bundle CRC32C 1a2b3c4d
//!                                                                 SUMS 0a1b2c3d -
//!                                                                450 The checksum differs.
//! ```
//!
//! A client that could not read some files that it announced appends their positions, from 0, to the last line:
//! `SITE BUNDLE END CRC32C 1a2b3c4d 0,7`.
//!
//! The number of ERET and ESTO must be that of the announced files; so nothing is sent if an announcement was refused. A
//! file that cannot be sent as announced (it is missing, or has changed) travels as zeros, and one that cannot be stored
//! is dropped: neither holds up the others. After ESTO the files have their names only once `SITE BUNDLE END` brings the
//! checksum of the bytes that were sent, and it is that of the bytes that arrived. The reply lists the files that failed:
//!
//! ```text
//! 250-Bundle CRC32C 1a2b3c4d
//!  FAILED 1 Permission denied
//! 250 End.
//! ```

mod packed;

pub(crate) use packed::{pack, packed_lines, unpack};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::checksum::ChecksumAlgorithm;
use crate::path::{MAX_PATH, PARTIAL_SUFFIX, VPath};
use crate::printable::printable;
use crate::ranges::MAX_FILE_OFFSET;
use crate::reply::Reply;
use crate::timestamp::Timestamp;

/// Algorithm of the checksum of a bundle: one whose parts can be combined, for blocks arrive in any order.
pub const CHECKSUM: ChecksumAlgorithm = ChecksumAlgorithm::Crc32c;
/// Most files of a bundle.
pub const MAX_FILES: usize = 16_384;
/// Most bytes of the paths of a bundle, before encoding. A session keeps them in memory until it sends ERET or ESTO.
pub const MAX_PATH_BYTES: usize = 1 << 20;
/// Most bytes of announcements in one line, unless it has a single one. Servers take 24 KiB in protected sessions.
const MAX_LINE_BYTES: usize = 12_000;
/// Checksums of files in a line of a reply.
const SUMS_IN_LINE: usize = 100;
/// Stands for the checksum of a file that is not there.
const NO_SUM: &str = "-";
/// Longest reason of a failure, characters.
const MAX_REASON_CHARS: usize = 200;

/// Bytes that end a path or could be taken for something else in a line.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b',');

/// Name of file `index` of a bundle until it is complete, in the directory of its final name. `token` differs between
/// bundles.
pub fn partial_name(token: u64, index: usize) -> Vec<u8> {
    let mut name = format!("bundle-{token:016x}-{index}").into_bytes();
    name.extend_from_slice(PARTIAL_SUFFIX);
    name
}

/// Announcement of a file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleEntry {
    /// Path as the client names it.
    pub path: Vec<u8>,
    /// Size, bytes.
    pub size: u64,
    /// Modification time: a file that is sent must have it, a stored file gets it.
    pub modified: Option<Timestamp>,
}

impl BundleEntry {
    /// The `size,time,path` of an announcement.
    fn encode(&self) -> String {
        let time = self.modified.map_or_else(String::new, Timestamp::format);
        let path = percent_encode(&self.path, ESCAPED);
        format!("{},{time},{path}", self.size)
    }

    /// Parses one announcement. `None`: it is none, or a number or path is out of range.
    pub fn parse(word: &[u8]) -> Option<Self> {
        let mut parts = word.splitn(3, |byte| *byte == b',');
        let size = str::from_utf8(parts.next()?).ok()?;
        let time = str::from_utf8(parts.next()?).ok()?;
        let path: Vec<u8> = percent_decode(parts.next()?).collect();
        let digits = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
        let size: u64 = size.parse().ok().filter(|_| digits)?;
        let modified = match time {
            "" => None,
            time => Some(Timestamp::parse(time)?),
        };
        let is_valid = size <= MAX_FILE_OFFSET && !path.is_empty() && path.len() <= MAX_PATH;
        is_valid.then_some(Self {
            path,
            size,
            modified,
        })
    }
}

/// Parses announcements that are separated by blanks. `None`: one is out of range.
pub(crate) fn parse_entries(text: &[u8]) -> Option<Vec<BundleEntry>> {
    let words = text
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    words.map(BundleEntry::parse).collect()
}

/// The arguments of `SITE BUNDLE ADD` that announce these files, as few lines as possible.
pub fn announcement_lines(entries: &[BundleEntry]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for entry in entries {
        let word = entry.encode();
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < MAX_LINE_BYTES => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A file of a bundle, with its path inside the session's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFile {
    /// Path.
    pub path: VPath,
    /// Announced size, bytes.
    pub size: u64,
    /// Announced modification time.
    pub modified: Option<Timestamp>,
}

/// End of a bundle that a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleProof {
    /// Algorithm of the checksum.
    pub algorithm: ChecksumAlgorithm,
    /// Checksum of all bytes that were sent, lower-case hex.
    pub checksum: String,
    /// Files whose bytes are not theirs, because they could not be read; they get no name.
    pub without: Vec<usize>,
}

impl BundleProof {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{} {}", self.algorithm.name(), self.checksum);
        for (position, index) in self.without.iter().enumerate() {
            text.push(if position == 0 { ' ' } else { ',' });
            text.push_str(&index.to_string());
        }
        text
    }

    /// Parses the files of a proof, numbers separated by commas.
    pub(crate) fn parse_without(word: &[u8]) -> Option<Vec<usize>> {
        let text = str::from_utf8(word).ok()?;
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .parse()
                .ok()
                .filter(|index| is_number && *index < MAX_FILES)
        };
        text.split(',').map(number).collect()
    }
}

/// A file of a bundle that was not moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFailure {
    /// Position among the announced files, from 0.
    pub index: usize,
    /// Reason, for people.
    pub reason: String,
}

/// Result of a bundle: the reply to `SITE BUNDLE END`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleOutcome {
    /// Checksum of all bytes of the bundle in order, lower-case hex.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
    /// The files that were not moved. All others are, unless there are `sums`.
    pub failures: Vec<BundleFailure>,
    /// The checksum of each file, lower-case hex, if the client's checksum is not that of the bundle. Empty otherwise.
    pub sums: Vec<Option<String>>,
}

impl BundleOutcome {
    /// The reply of a server.
    pub fn reply(&self) -> Reply {
        let first = match &self.checksum {
            Some((algorithm, hex)) => format!("Bundle {} {hex}", algorithm.name()),
            None => "Bundle".to_owned(),
        };
        let line = |failure: &BundleFailure| {
            let reason = printable(&failure.reason).to_string();
            let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
            format!("FAILED {} {reason}", failure.index).into_bytes()
        };
        let mut lines: Vec<Vec<u8>> = self.failures.iter().map(line).collect();
        lines.extend(self.sums.chunks(SUMS_IN_LINE).map(sums_line));
        match self.sums.is_empty() {
            true => Reply::with_inner_lines(250, &first, lines, "End."),
            false => Reply::with_inner_lines(450, &first, lines, "The checksum differs."),
        }
    }

    /// Reads the reply of a server to a bundle of `count` files. `None`: it is not that reply.
    pub fn from_reply(reply: &Reply, count: usize) -> Option<Self> {
        let mut lines = reply
            .lines
            .iter()
            .map(|line| String::from_utf8_lossy(line).trim().to_owned());
        let first = lines.next()?;
        let mut words = first.split(' ');
        if ![250, 450].contains(&reply.code) || words.next() != Some("Bundle") {
            return None;
        }
        let checksum = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(name), hex) => {
                let algorithm = ChecksumAlgorithm::parse(name)?;
                Some((algorithm, algorithm.parse_hex(hex?)?))
            }
        };
        let (mut failures, mut sums) = (Vec::new(), Vec::new());
        for line in lines {
            if let Some(words) = line.strip_prefix("SUMS ") {
                for word in words.split(' ') {
                    sums.push(parse_sum(word)?);
                }
                continue;
            }
            let Some(failed) = line.strip_prefix("FAILED ") else {
                continue;
            };
            let (index, reason) = failed.split_once(' ').unwrap_or((failed, ""));
            let index = index.parse().ok().filter(|index| *index < count)?;
            failures.push(BundleFailure {
                index,
                reason: reason.to_owned(),
            });
        }
        let summed = reply.code == 450;
        (sums.len() == if summed { count } else { 0 }).then_some(Self {
            checksum,
            failures,
            sums,
        })
    }
}

fn sums_line(sums: &[Option<String>]) -> Vec<u8> {
    let words: Vec<&str> = sums
        .iter()
        .map(|sum| sum.as_deref().unwrap_or(NO_SUM))
        .collect();
    format!("SUMS {}", words.join(" ")).into_bytes()
}

/// The checksum of a file. The outer `None`: it is neither one nor [`NO_SUM`].
fn parse_sum(word: &str) -> Option<Option<String>> {
    match word {
        NO_SUM => Some(None),
        hex => CHECKSUM.parse_hex(hex).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(path: &[u8], size: u64, modified: Option<i64>) -> BundleEntry {
        BundleEntry {
            path: path.to_vec(),
            size,
            modified: modified.map(Timestamp),
        }
    }

    fn read_back(lines: &[String]) -> Vec<BundleEntry> {
        let words = lines.iter().flat_map(|line| line.split(' '));
        words
            .map(|word| BundleEntry::parse(word.as_bytes()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn announcements_are_read_back(
            files in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 1..300), 0..=MAX_FILE_OFFSET, proptest::option::of(0i64..4_000_000_000)),
                0..60,
            )
        ) {
            let entries: Vec<_> = files.iter().map(|(path, size, time)| entry(path, *size, *time)).collect();
            let lines = announcement_lines(&entries);
            prop_assert_eq!(read_back(&lines), entries);
            for line in &lines {
                prop_assert!(line.is_ascii() && line.len() <= MAX_LINE_BYTES);
                prop_assert!(!line.bytes().any(|byte| byte.is_ascii_control()));
            }
        }

        #[test]
        fn any_words_are_read_without_harm(word in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = BundleEntry::parse(&word);
        }
    }

    proptest! {
        #[test]
        fn sums_are_read_back_from_their_reply(
            sums in proptest::collection::vec(proptest::option::of(any::<u32>()), 1..300)
        ) {
            let outcome = BundleOutcome {
                checksum: Some((CHECKSUM, "0a1b2c3d".to_owned())),
                failures: Vec::new(),
                sums: sums.iter().map(|sum| sum.map(|sum| format!("{sum:08x}"))).collect(),
            };
            let reply = outcome.reply();
            prop_assert!(!reply.is_success());
            prop_assert_eq!(BundleOutcome::from_reply(&reply, sums.len()), Some(outcome));
            prop_assert_eq!(BundleOutcome::from_reply(&reply, sums.len() + 1), None);
        }
    }

    #[test]
    fn short_announcements_share_a_line() {
        let entries: Vec<_> = (0..100).map(|n| entry(b"/d/f", n, None)).collect();
        assert_eq!(announcement_lines(&entries).len(), 1);
        assert!(announcement_lines(&[]).is_empty());
    }

    #[test]
    fn announcements_out_of_range_are_refused() {
        for word in [
            "",
            "1",
            "1,",
            "1,,",
            ",,/a",
            "+1,,/a",
            "-1,,/a",
            "1,yesterday,/a",
            "99999999999999999999,,/a",
            "9223372036854775808,,/a",
        ] {
            assert_eq!(BundleEntry::parse(word.as_bytes()), None, "{word}");
        }
        let long = format!("1,,{}", "a".repeat(MAX_PATH + 1));
        assert_eq!(BundleEntry::parse(long.as_bytes()), None);
    }

    #[test]
    fn an_outcome_is_read_back_from_its_reply() {
        let outcome = BundleOutcome {
            checksum: Some((ChecksumAlgorithm::Crc32c, "0a1b2c3d".to_owned())),
            failures: vec![BundleFailure {
                index: 3,
                reason: "Permission denied".to_owned(),
            }],
            sums: Vec::new(),
        };
        let reply = outcome.reply();
        assert_eq!(BundleOutcome::from_reply(&reply, 4), Some(outcome));
        assert_eq!(BundleOutcome::from_reply(&reply, 3), None, "no such file");
        let empty = BundleOutcome::default();
        assert_eq!(BundleOutcome::from_reply(&empty.reply(), 0), Some(empty));
        for other in [Reply::new(250, "OK."), Reply::new(550, "Bundle")] {
            assert_eq!(BundleOutcome::from_reply(&other, 9), None);
        }
    }

    #[test]
    fn a_reason_stays_on_its_line() {
        let outcome = BundleOutcome {
            checksum: None,
            failures: vec![BundleFailure {
                index: 0,
                reason: "a\r\n250 End.\u{1b}".to_owned(),
            }],
            sums: Vec::new(),
        };
        let mut bytes = Vec::new();
        outcome.reply().encode(&mut bytes);
        let lines = bytes.split(|byte| *byte == b'\n').count();
        assert_eq!(lines, 4, "{}", String::from_utf8_lossy(&bytes));
    }
}
