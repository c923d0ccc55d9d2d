//! The restart journal: which bytes of an unfinished copy are safe. It is kept beside a local partial
//! file, and in the user's state directory for a copy to a server.
//!
//! A text file of lines `CRC32C SP JSON LF`. The first line identifies the copy. Each further line
//! holds the complete state at one moment; the last intact line counts. A range is called safe only
//! after its bytes were handed to the file system, so the journal of a killed process never claims
//! too much. A range is called synced only after its bytes were forced to disk, so the same holds
//! after a power cut. The first line names the boot of this machine that the safe ranges depend on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use data::checksum::ChecksumHasher;
use data::os::machine::boot_id;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::local::local_name::{LocalName, is_file};
use crate::local::partial::JOURNAL_TEMP_SUFFIX;

/// Shortest interval between two writes of a journal, see [`MAX_UNRECORDED_BYTES`].
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// A journal is written sooner if this many bytes became safe since the last write.
const MAX_UNRECORDED_BYTES: u64 = 64 << 20;
/// Length from which an append-only journal is rewritten, bytes.
const COMPACT_AT: u64 = 1 << 20;
/// Longest journal that is read, bytes.
const MAX_LENGTH: u64 = 16 << 20;
/// Version of the file format.
const VERSION: u32 = 2;

/// Identity of a copy. A journal is valid only for the same copy of the same source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyIdentity {
    /// Source URL without the password.
    pub(crate) source: String,
    /// Destination URL without the password.
    pub(crate) destination: String,
    /// Size of the source, bytes.
    pub(crate) size: Option<u64>,
    /// Modification time of the source, seconds since 1970. `None` if it is unknown, or shows no version.
    pub(crate) modified: Option<i64>,
    /// A text that only this version of the source has ([`ftp::answers::SourceFacts::version`]). It may also change without
    /// the content. `None`: its storage tells nothing of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Offset and length of the copied part, bytes.
    pub(crate) part: Option<(u64, u64)>,
    /// The bytes are stored strictly in order (MODE S), so the size of the partial file shows which
    /// bytes are there.
    pub(crate) in_order: bool,
}

impl CopyIdentity {
    /// Number of bytes to copy, if known.
    pub(crate) fn copy_length(&self) -> Option<u64> {
        self.part.map(|(_, length)| length).or(self.size)
    }

    /// Whether both are the same copy of the same source by name, size and time, whatever the order of the bytes.
    pub(crate) fn is_same_copy(&self, other: &Self) -> bool {
        let without = |copy: &Self| Self {
            in_order: false,
            version: None,
            ..copy.clone()
        };
        without(self) == without(other)
    }

    /// Whether the source is the same version. `None`: nothing shows that.
    pub(crate) fn is_same_version(&self, other: &Self) -> Option<bool> {
        let both = self.version.as_ref().zip(other.version.as_ref());
        both.map(|(own, other)| own == other)
    }
}

/// Where the bytes are stored that a journal describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalLocation {
    /// On this machine. Bytes handed to the kernel exist until the next boot.
    ThisMachine,
    /// On a server, which reports what it has stored.
    Server,
}

/// The ranges of a copy that are stored at its destination.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoredRanges {
    /// Handed to the file system here, or acknowledged by the server.
    pub(crate) safe: RangeSet,
    /// The part of the safe ranges that is forced to the disk of this machine.
    pub(crate) synced: RangeSet,
}

impl StoredRanges {
    /// Safe ranges of which none are known to be synced.
    pub(crate) fn safe_only(safe: RangeSet) -> Self {
        Self {
            safe,
            synced: RangeSet::new(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct JournalHeader {
    version: u32,
    copy: CopyIdentity,
    /// For local destinations the boot ID, empty if unknown. Absent for servers.
    boot: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct JournalRecord {
    safe: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    synced: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    refused: bool,
}

/// The content of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadedJournal {
    /// The copy that the journal belongs to.
    pub(crate) identity: CopyIdentity,
    /// The last recorded ranges.
    pub(crate) ranges: StoredRanges,
    /// Where the bytes are stored.
    pub(crate) location: JournalLocation,
    /// This machine was booted since, so bytes that were not synced may be lost.
    pub(crate) rebooted: bool,
    /// The connection to the server was lost while it stored. The server may have lost power.
    pub(crate) server_lost: bool,
    /// The server refused to store bytes: see [`Journal::mark_server_refused`].
    pub(crate) server_refused: bool,
}

/// Reads a journal. `None` if there is none, it has no intact line, or another user than `owner` has made it, who may
/// say what he likes.
pub(crate) fn load(name: &LocalName, owner: u32) -> Option<LoadedJournal> {
    let mut text = Vec::new();
    // Whoever can write to the directory could place a link or a FIFO here, which is neither followed nor waited for.
    let file = name.open_to_read().ok()?;
    let found = rustix::fs::fstat(&file).ok()?;
    if !is_file(&found) || found.st_uid != owner || found.st_nlink > 1 {
        return None;
    }
    // Bounded: the file may have been replaced by anything.
    file.take(MAX_LENGTH).read_to_end(&mut text).ok()?;
    parse_journal(&text, boot_id().as_deref())
}

fn parse_journal(text: &[u8], boot: Option<&str>) -> Option<LoadedJournal> {
    // Bytes after the last line feed are an incomplete line.
    let complete_lines = &text[..text.iter().rposition(|b| *b == b'\n')?];
    let mut lines = complete_lines.split(|b| *b == b'\n');
    let header: JournalHeader = parse_line(lines.next()?)?;
    // An unknown format is treated like a missing journal.
    if header.version != VERSION {
        return None;
    }
    let (mut state, mut server_lost, mut server_refused) = (StoredRanges::default(), false, false);
    for line in lines {
        // Lines after a damaged one are not trusted, although they may be intact.
        let Some(record) = parse_line::<JournalRecord>(line) else {
            break;
        };
        let (safe, synced) = (parse_ranges(&record.safe), parse_ranges(&record.synced));
        let (Some(safe), Some(synced)) = (safe, synced) else {
            break;
        };
        state = StoredRanges { safe, synced };
        (server_lost, server_refused) = (record.lost, record.refused);
    }
    Some(LoadedJournal {
        identity: header.copy,
        ranges: state,
        location: header
            .boot
            .as_ref()
            .map_or(JournalLocation::Server, |_| JournalLocation::ThisMachine),
        rebooted: header
            .boot
            .is_some_and(|journal_boot| boot != Some(&journal_boot)),
        server_lost,
        server_refused,
    })
}

fn parse_ranges(text: &str) -> Option<RangeSet> {
    if text.is_empty() {
        return Some(RangeSet::new());
    }
    RangeSet::parse(text).ok()
}

/// The value of a line whose checksum is right.
fn parse_line<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let (checksum, payload) = line.split_at_checked(8)?;
    let payload = payload.strip_prefix(b" ")?;
    (crc32c_hex(payload).as_bytes() == checksum).then_some(())?;
    serde_json::from_slice(payload).ok()
}

fn format_line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let payload = serde_json::to_vec(value)?;
    let mut line = crc32c_hex(&payload).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&payload);
    line.push(b'\n');
    Ok(line)
}

fn crc32c_hex(bytes: &[u8]) -> String {
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    hasher.update(bytes);
    hasher.finish()
}

/// Writes a journal while a copy runs. The file is created with the first recorded ranges, so a
/// copy that ends sooner never creates one.
#[derive(Debug)]
pub(crate) struct Journal {
    name: LocalName,
    identity: CopyIdentity,
    location: JournalLocation,
    file: Option<File>,
    length: u64,
    /// `None` if nothing was written in this run.
    written: Option<StoredRanges>,
    last_write: Option<Instant>,
    /// The file names synced ranges that were not forced to disk themselves yet.
    unsynced: bool,
    /// See [`Journal::mark_server_lost`].
    server_lost: bool,
    /// See [`Journal::mark_server_refused`].
    server_refused: bool,
}

impl Journal {
    /// A journal for a copy that starts over. An older journal is gone when this returns, even
    /// after a power cut, so it cannot be mistaken for this copy's. Call this before truncating the
    /// partial file.
    pub(crate) fn start_new(
        name: LocalName,
        copy: CopyIdentity,
        location: JournalLocation,
    ) -> io::Result<Self> {
        remove_durably(&name)?;
        Ok(Self::unwritten(name, copy, location))
    }

    /// A journal that is not written yet. An older file stays until the first safe bytes are
    /// written over it.
    fn unwritten(name: LocalName, copy: CopyIdentity, location: JournalLocation) -> Self {
        Self {
            name,
            identity: copy,
            location,
            file: None,
            length: 0,
            written: None,
            last_write: None,
            unsynced: false,
            server_lost: false,
            server_refused: false,
        }
    }

    /// A journal that continues an older one. The file is replaced at once, because the older one
    /// may record an order of bytes that this run does not keep.
    pub(crate) fn continue_from(
        name: LocalName,
        copy: CopyIdentity,
        location: JournalLocation,
        state: &StoredRanges,
    ) -> io::Result<Self> {
        let mut journal = Self::unwritten(name, copy, location);
        journal.write(state)?;
        Ok(journal)
    }

    /// Writes `state` if enough time has passed or enough bytes became safe since the last write.
    /// After an error the older state remains, which is still true.
    pub(crate) fn write_if_due(&mut self, state: &StoredRanges, now: Instant) -> io::Result<()> {
        let recent = self.last_write.is_some_and(|last| now - last < INTERVAL);
        let written = self.written.as_ref().map_or(0, |s| s.safe.byte_count());
        if recent && state.safe.byte_count().saturating_sub(written) < MAX_UNRECORDED_BYTES {
            return Ok(());
        }
        self.last_write = Some(now);
        self.write(state)
    }

    /// Writes `state` now, unless it is recorded already.
    pub(crate) fn write(&mut self, state: &StoredRanges) -> io::Result<()> {
        if self.written.as_ref() == Some(state) {
            return Ok(());
        }
        let result = self.try_write(state);
        match &result {
            Ok(()) => {
                let before = self.written.as_ref().map_or(0, |s| s.synced.byte_count());
                // Only synced ranges justify a sync of the journal: safe ranges do not survive a
                // power cut.
                self.unsynced |= state.synced.byte_count() > before;
                self.written = Some(state.clone());
            }
            // The tail may be torn, so the next write replaces the whole file.
            Err(_) => {
                self.file = None;
                let _ = temporary(&self.name).remove();
            }
        }
        result
    }

    fn try_write(&mut self, state: &StoredRanges) -> io::Result<()> {
        let record = format_line(&JournalRecord {
            safe: state.safe.to_string(),
            synced: state.synced.to_string(),
            lost: self.server_lost,
            refused: self.server_refused,
        })?;
        match &mut self.file {
            Some(file) if self.length < COMPACT_AT => {
                file.write_all(&record)?;
                self.length += record.len() as u64;
            }
            _ => self.replace(&record)?,
        }
        Ok(())
    }

    /// Writes header and one record to a temporary file and renames it: a reader sees the old or
    /// the new file.
    fn replace(&mut self, record: &[u8]) -> io::Result<()> {
        let mut text = format_line(&JournalHeader {
            version: VERSION,
            copy: self.identity.clone(),
            boot: (self.location == JournalLocation::ThisMachine)
                .then(|| boot_id().unwrap_or_default()),
        })?;
        text.extend_from_slice(record);
        let temporary = temporary(&self.name);
        // A leftover is removed first, so that nothing is written through a symbolic link.
        match temporary.remove() {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Source and destination names are nobody else's business.
        let mut file = temporary.create_new(0o600)?;
        file.write_all(&text)?;
        if self.name.is_taken() {
            // Without the sync, a power cut could leave an empty journal in place of a good one.
            file.sync_data()?;
        }
        temporary.rename_open(&file, &self.name)?;
        self.file = Some(file);
        self.length = text.len() as u64;
        Ok(())
    }

    /// Records from now on that the connection to the server was lost while it stored.
    pub(crate) fn mark_server_lost(&mut self) {
        self.server_lost = true;
        if let Some(state) = self.written.take()
            && let Err(error) = self.write(&state)
        {
            tracing::debug!(%error, "journal not written");
        }
    }

    /// Records from now on, even without any safe ranges, that the server refused to store bytes.
    /// Its disk may not hold what its page cache still shows.
    pub(crate) fn mark_server_refused(&mut self) {
        self.server_refused = true;
        let state = self.written.take().unwrap_or_default();
        if let Err(error) = self.write(&state) {
            tracing::debug!(%error, "journal not written");
        }
    }

    /// Withdraws earlier claims: only `remaining` counts from now on, and the length of the partial file
    /// shows nothing. If the journal cannot be rewritten (for example on a full disk), it is
    /// removed, because it would claim too much.
    pub(crate) fn retract_to(&mut self, remaining: &StoredRanges) -> io::Result<()> {
        self.identity.in_order = false;
        self.file = None;
        self.written = None;
        if remaining.safe.is_empty() && !self.server_refused {
            remove_file_and_temporary(&self.name);
            return Ok(());
        }
        self.write(remaining)
            .inspect_err(|_| remove_file_and_temporary(&self.name))
    }

    /// The journal file, to be synced so that the newest synced ranges are known after a power cut.
    /// `None` if nothing changed since the last call.
    pub(crate) fn take_unsynced(&mut self) -> Option<UnsyncedJournal> {
        let file = self.file.as_ref().filter(|_| self.unsynced)?;
        // A duplicate descriptor, so that the sync runs on another thread while writes continue.
        let file = file.try_clone().ok()?;
        self.unsynced = false;
        Some(UnsyncedJournal {
            file,
            name: self.name.clone(),
        })
    }

    /// Whether this run has written the journal.
    pub(crate) fn has_written(&self) -> bool {
        self.written.is_some()
    }

    /// Removes the journal: the copy is complete or proved wrong.
    pub(crate) fn remove(self) {
        remove_file_and_temporary(&self.name);
    }
}

/// A journal that is not on disk yet.
#[derive(Debug)]
pub(crate) struct UnsyncedJournal {
    file: File,
    name: LocalName,
}

impl UnsyncedJournal {
    /// Syncs the file; blocks. After an error an older state remains on disk, which is still true.
    pub(crate) fn sync(self) {
        let synced = self.file.sync_data();
        // The directory too: the journal may have been renamed into it since.
        let synced = synced.and_then(|()| self.name.sync_directory(SyncPolicy::File));
        if let Err(error) = synced {
            tracing::debug!(%error, "journal not synced");
        }
    }
}

/// Removes a journal durably: it does not reappear after a power cut. A missing journal is accepted. Blocks while the disk
/// works.
pub(crate) fn remove_durably(name: &LocalName) -> io::Result<()> {
    match name.remove() {
        Ok(()) => name.sync_directory(SyncPolicy::File),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes a journal and its temporary file, also those of an earlier run. Missing files are accepted.
pub(crate) fn remove_file_and_temporary(name: &LocalName) {
    let _ = name.remove();
    let _ = temporary(name).remove();
}

/// The temporary file that is renamed to the journal.
fn temporary(name: &LocalName) -> LocalName {
    name.beside(&[name.name().as_bytes(), JOURNAL_TEMP_SUFFIX].concat())
}

/// Rewrites the journal at `path` as if written before the last boot.
#[cfg(test)]
pub(crate) fn set_other_boot(path: &std::path::Path) {
    let text = std::fs::read(path).unwrap();
    let end = text.iter().position(|b| *b == b'\n').unwrap();
    let mut header: JournalHeader = parse_line(&text[..end]).unwrap();
    header.boot = Some("another".to_owned());
    let mut old = format_line(&header).unwrap();
    old.extend_from_slice(&text[end + 1..]);
    std::fs::write(path, old).unwrap();
}

#[cfg(test)]
mod tests;
