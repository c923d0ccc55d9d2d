//! The restart journal: which bytes of an unfinished copy are safe, kept beside the partial file.
//!
//! A text file of lines `CRC32C SP JSON LF`. The first line says what is copied, each further line
//! is the whole state at that moment; the last intact line counts. A range is called safe only after
//! its bytes were handed to the file system, so a killed process never leaves a journal that claims
//! too much; it is called synced only after they were forced to disk, so a power cut does not,
//! either. The first line names the boot of this machine that safe bytes depend on.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data::checksum::ChecksumHasher;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::partial::{NEXT, directory_of};

/// A journal is written at most this often...
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// ...unless this many bytes became safe since.
const STEP: u64 = 64 << 20;
/// An append-only journal longer than this is written anew, bytes.
const COMPACT_AT: u64 = 1 << 20;
/// No journal longer than this is read, bytes.
const MAX_LENGTH: u64 = 16 << 20;
/// Format of the file.
const VERSION: u32 = 2;
/// Changes with every boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identity of a copy. A journal is of use only to the same copy of the same source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyIdentity {
    /// Source URL without password.
    pub(crate) source: String,
    /// Destination URL without password.
    pub(crate) destination: String,
    /// Source's size, bytes.
    pub(crate) size: Option<u64>,
    /// Source's modification time, seconds since 1970.
    pub(crate) modified: Option<i64>,
    /// Offset and length of the part that is copied, bytes.
    pub(crate) part: Option<(u64, u64)>,
    /// The bytes are stored strictly in order (MODE S), so that the size of the partial file tells
    /// what is there.
    pub(crate) in_order: bool,
}

impl CopyIdentity {
    /// Bytes that are copied, if that is known.
    pub(crate) fn copy_length(&self) -> Option<u64> {
        self.part.map(|(_, length)| length).or(self.size)
    }

    /// Whether both are the same copy of the same source, however it is moved.
    pub(crate) fn same_copy(&self, other: &Self) -> bool {
        let any_order = |copy: &Self| Self {
            in_order: false,
            ..copy.clone()
        };
        any_order(self) == any_order(other)
    }
}

/// Where the bytes are that a journal tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalLocation {
    /// On this machine: what its kernel was handed is there until the next boot.
    Here,
    /// On a server, whose word counts.
    Server,
}

/// The bytes of a copy that are at its destination.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StoredRanges {
    /// Handed to the file system here, or acknowledged by the server.
    pub(crate) safe: RangeSet,
    /// Of that, forced to the disk of this machine.
    pub(crate) synced: RangeSet,
}

impl StoredRanges {
    /// Of a server: the ranges that it acknowledged.
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
    /// Of [`JournalLocation::Here`]: the boot; empty when it is unknown.
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
    /// The copy that it is of.
    pub(crate) copy: CopyIdentity,
    /// How far.
    pub(crate) state: StoredRanges,
    /// Where the bytes are.
    pub(crate) place: JournalLocation,
    /// This machine may have lost since what it had not forced to disk: it was booted.
    pub(crate) rebooted: bool,
    /// The server was lost while it stored: it may have lost power.
    pub(crate) lost: bool,
    /// The server refused something that it had stored: see [`Journal::mark_server_refused`].
    pub(crate) refused: bool,
}

/// This boot of this machine.
fn boot() -> Option<String> {
    let id = fs::read_to_string(BOOT_ID).ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// Reads the journal at `path`. `None` when there is no journal or no intact line in it.
pub(crate) fn load(path: &Path) -> Option<LoadedJournal> {
    let mut text = Vec::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .ok()?;
    file.metadata().ok().filter(fs::Metadata::is_file)?;
    file.take(MAX_LENGTH).read_to_end(&mut text).ok()?;
    read(&text, boot().as_deref())
}

fn read(text: &[u8], boot: Option<&str>) -> Option<LoadedJournal> {
    // What follows the last line feed is a line that was being written.
    let whole = &text[..text.iter().rposition(|b| *b == b'\n')?];
    let mut lines = whole.split(|b| *b == b'\n');
    let header: JournalHeader = open(lines.next()?)?;
    if header.version != VERSION {
        return None;
    }
    let (mut state, mut lost, mut refused) = (StoredRanges::default(), false, false);
    for line in lines {
        let Some(record) = open::<JournalRecord>(line) else {
            break;
        };
        let (safe, synced) = (parse_ranges(&record.safe), parse_ranges(&record.synced));
        let (Some(safe), Some(synced)) = (safe, synced) else {
            break;
        };
        state = StoredRanges { safe, synced };
        (lost, refused) = (record.lost, record.refused);
    }
    Some(LoadedJournal {
        copy: header.copy,
        state,
        place: header
            .boot
            .as_ref()
            .map_or(JournalLocation::Server, |_| JournalLocation::Here),
        rebooted: header.boot.is_some_and(|then| boot != Some(&then)),
        lost,
        refused,
    })
}

fn parse_ranges(text: &str) -> Option<RangeSet> {
    if text.is_empty() {
        return Some(RangeSet::new());
    }
    RangeSet::parse(text).ok()
}

/// The value of a line whose sum is right.
fn open<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let (sum, payload) = line.split_at_checked(8)?;
    let payload = payload.strip_prefix(b" ")?;
    (crc(payload).as_bytes() == sum).then_some(())?;
    serde_json::from_slice(payload).ok()
}

fn seal(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let payload = serde_json::to_vec(value)?;
    let mut line = crc(&payload).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&payload);
    line.push(b'\n');
    Ok(line)
}

fn crc(bytes: &[u8]) -> String {
    let mut digest = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    digest.update(bytes);
    digest.finish()
}

/// Writes a journal while a copy runs. The file appears with the first state that is kept: a copy
/// that is over sooner never makes one.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    copy: CopyIdentity,
    place: JournalLocation,
    file: Option<File>,
    length: u64,
    /// `None`: nothing was written in this run.
    written: Option<StoredRanges>,
    last: Option<Instant>,
    /// The file names synced bytes and was not forced to disk since.
    unsynced: bool,
    /// See [`Journal::mark_server_lost`].
    lost: bool,
    /// See [`Journal::mark_server_refused`].
    refused: bool,
}

impl Journal {
    /// A journal for a copy that starts over: an older one is gone when this returns, so that it
    /// cannot be taken for this copy's, not even after a power cut. Comes before the partial file is
    /// truncated.
    pub(crate) fn fresh(
        path: PathBuf,
        copy: CopyIdentity,
        place: JournalLocation,
    ) -> io::Result<Self> {
        remove_durably(&path)?;
        Ok(Self::resumed(path, copy, place))
    }

    /// An older one, if there is one, stays until the first safe bytes are written over it.
    fn resumed(path: PathBuf, copy: CopyIdentity, place: JournalLocation) -> Self {
        Self {
            path,
            copy,
            place,
            file: None,
            length: 0,
            written: None,
            last: None,
            unsynced: false,
            lost: false,
            refused: false,
        }
    }

    /// A journal that goes on from an older one, which is replaced at once: it may say of the order
    /// of the bytes what this run will make untrue.
    pub(crate) fn continue_from(
        path: PathBuf,
        copy: CopyIdentity,
        place: JournalLocation,
        state: &StoredRanges,
    ) -> io::Result<Self> {
        let mut journal = Self::resumed(path, copy, place);
        journal.write(state)?;
        Ok(journal)
    }

    /// Writes `state` if enough time has passed or enough became safe since the last time. Errors
    /// leave an older state behind, which is still true.
    pub(crate) fn write_if_due(&mut self, state: &StoredRanges, now: Instant) -> io::Result<()> {
        let recent = self.last.is_some_and(|last| now - last < INTERVAL);
        let written = self.written.as_ref().map_or(0, |s| s.safe.byte_count());
        if recent && state.safe.byte_count().saturating_sub(written) < STEP {
            return Ok(());
        }
        self.last = Some(now);
        self.write(state)
    }

    /// Writes `state` now, if it is news.
    pub(crate) fn write(&mut self, state: &StoredRanges) -> io::Result<()> {
        if self.written.as_ref() == Some(state) {
            return Ok(());
        }
        let result = self.try_write(state);
        match &result {
            Ok(()) => {
                let before = self.written.as_ref().map_or(0, |s| s.synced.byte_count());
                self.unsynced |= state.synced.byte_count() > before;
                self.written = Some(state.clone());
            }
            // The tail may be torn: the next write makes the file anew.
            Err(_) => {
                self.file = None;
                let _ = fs::remove_file(next_path(&self.path));
            }
        }
        result
    }

    fn try_write(&mut self, state: &StoredRanges) -> io::Result<()> {
        let record = seal(&JournalRecord {
            safe: state.safe.to_string(),
            synced: state.synced.to_string(),
            lost: self.lost,
            refused: self.refused,
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

    /// Header and one record, put in place by a rename: a reader sees the old or the new file.
    fn replace(&mut self, record: &[u8]) -> io::Result<()> {
        let mut text = seal(&JournalHeader {
            version: VERSION,
            copy: self.copy.clone(),
            boot: (self.place == JournalLocation::Here).then(|| boot().unwrap_or_default()),
        })?;
        text.extend_from_slice(record);
        let next = next_path(&self.path);
        // What is left of an earlier one goes, so that nothing is written through a link.
        match fs::remove_file(&next) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next)?;
        file.write_all(&text)?;
        if self.path.exists() {
            // A power cut must not leave an empty journal in the place of a good one.
            file.sync_data()?;
        }
        fs::rename(&next, &self.path)?;
        self.file = Some(file);
        self.length = text.len() as u64;
        Ok(())
    }

    /// The server was lost while it stored: from now on the journal says so.
    pub(crate) fn mark_server_lost(&mut self) {
        self.lost = true;
        if let Some(state) = self.written.take()
            && let Err(error) = self.write(&state)
        {
            tracing::debug!(%error, "journal not written");
        }
    }

    /// The server refused to store what had come: from now on the journal says so, even if there is
    /// nothing else to say. Its disk may not hold what its memory still shows.
    pub(crate) fn mark_server_refused(&mut self) {
        self.refused = true;
        let state = self.written.take().unwrap_or_default();
        if let Err(error) = self.write(&state) {
            tracing::debug!(%error, "journal not written");
        }
    }

    /// Takes back what was claimed: only `left` counts from now on, and the length of the partial
    /// file says nothing. A journal that cannot be written anew (the disk is full) is removed, as it
    /// would claim too much.
    pub(crate) fn retract_to(&mut self, left: &StoredRanges) -> io::Result<()> {
        self.copy.in_order = false;
        self.file = None;
        self.written = None;
        if left.safe.is_empty() && !self.refused {
            remove_file_and_temporary(&self.path);
            return Ok(());
        }
        self.write(left)
            .inspect_err(|_| remove_file_and_temporary(&self.path))
    }

    /// The journal, to be forced to disk so that a power cut leaves the newest synced ranges known;
    /// `None` when nothing changed since the last time.
    pub(crate) fn take_unsynced(&mut self) -> Option<UnsyncedJournal> {
        let file = self.file.as_ref().filter(|_| self.unsynced)?;
        let file = file.try_clone().ok()?;
        self.unsynced = false;
        Some(UnsyncedJournal {
            file,
            directory: directory_of(&self.path).to_owned(),
        })
    }

    /// Whether this run has written anything.
    pub(crate) fn has_written(&self) -> bool {
        self.written.is_some()
    }

    /// The copy is whole, or proved wrong: nothing is left to resume.
    pub(crate) fn remove(self) {
        remove_file_and_temporary(&self.path);
    }
}

/// A journal that is not on disk yet.
#[derive(Debug)]
pub(crate) struct UnsyncedJournal {
    file: File,
    directory: PathBuf,
}

impl UnsyncedJournal {
    /// Blocks until it is. Failing, it leaves an older state on disk, which is still true.
    pub(crate) fn sync(self) {
        let synced = self.file.sync_data();
        let synced = synced.and_then(|()| SyncPolicy::File.sync_directory(&self.directory));
        if let Err(error) = synced {
            tracing::debug!(%error, "journal not synced");
        }
    }
}

/// Removes the journal at `path` for good: not even a power cut brings it back. That there is none is
/// fine. Blocks while the disk works.
pub(crate) fn remove_durably(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => SyncPolicy::File.sync_directory(directory_of(path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes the journal at `path`, also one of an earlier run; that there is none is fine.
pub(crate) fn remove_file_and_temporary(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(next_path(path));
}

/// Where a new file is written before it takes the journal's name.
fn next_path(path: &Path) -> PathBuf {
    let mut next = path.as_os_str().to_owned();
    next.push(OsStr::from_bytes(NEXT));
    next.into()
}

/// Makes the journal at `path` one that was written before this machine was booted.
#[cfg(test)]
pub(crate) fn of_another_boot(path: &Path) {
    let text = fs::read(path).unwrap();
    let end = text.iter().position(|b| *b == b'\n').unwrap();
    let mut header: JournalHeader = open(&text[..end]).unwrap();
    header.boot = Some("another".to_owned());
    let mut old = seal(&header).unwrap();
    old.extend_from_slice(&text[end + 1..]);
    fs::write(path, old).unwrap();
}

#[cfg(test)]
mod tests;
