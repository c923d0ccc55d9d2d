//! The restart journal: which bytes of an unfinished copy are safe, kept beside the partial file.
//!
//! A text file of lines `CRC32C SP JSON LF`. The first line says what is copied, each further line
//! is the whole set of safe ranges at that moment; the last intact line counts. A range is written
//! here only after its bytes were handed to the file system, so a killed process never leaves a
//! journal that claims too much. Nothing is forced to disk: after a power cut the file system may
//! have kept the journal and lost the data, which the checks of a resume find where the server
//! can checksum.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data::digest::Digest;
use proto::checksum::Algorithm;
use proto::ranges::RangeSet;
use serde::{Deserialize, Serialize};

/// A journal is written at most this often...
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// ...unless this many bytes became safe since.
const STEP: u64 = 64 << 20;
/// An append-only journal longer than this is written anew, bytes.
const COMPACT_AT: u64 = 1 << 20;
/// No journal longer than this is read, bytes.
const MAX_LENGTH: u64 = 16 << 20;
/// Format of the file.
const VERSION: u32 = 1;

/// What is being copied. A journal is of use only to the same copy of the same source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
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

impl Identity {
    /// Bytes that are copied, if that is known.
    pub(crate) fn copied(&self) -> Option<u64> {
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

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    copy: Identity,
}

#[derive(Serialize, Deserialize)]
struct Record {
    safe: String,
}

/// Reads the journal at `path`: what was copied and what is safe. `None` when there is no journal
/// or no intact line in it.
pub(crate) fn load(path: &Path) -> Option<(Identity, RangeSet)> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_LENGTH).read_to_end(&mut text).ok()?;
    read(&text)
}

fn read(text: &[u8]) -> Option<(Identity, RangeSet)> {
    // What follows the last line feed is a line that was being written.
    let whole = &text[..text.iter().rposition(|b| *b == b'\n')?];
    let mut lines = whole.split(|b| *b == b'\n');
    let header: Header = open(lines.next()?)?;
    if header.version != VERSION {
        return None;
    }
    let mut safe = RangeSet::new();
    for line in lines {
        let Some(record) = open::<Record>(line) else {
            break;
        };
        let Some(ranges) = parse_ranges(&record.safe) else {
            break;
        };
        safe = ranges;
    }
    Some((header.copy, safe))
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
    let mut digest = Digest::new(Algorithm::Crc32c);
    digest.update(bytes);
    digest.finish()
}

/// Writes a journal while a copy runs. The file appears with the first state that is kept: a copy
/// that is over sooner never makes one.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    copy: Identity,
    file: Option<File>,
    length: u64,
    /// `None`: nothing was written in this run.
    written: Option<RangeSet>,
    last: Option<Instant>,
}

impl Journal {
    /// A journal for a copy that starts over: an older one is gone when this returns, so that it
    /// cannot be taken for this copy's. Comes before the partial file is truncated.
    pub(crate) fn fresh(path: PathBuf, copy: Identity) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        Ok(Self::resumed(path, copy))
    }

    /// An older one, if there is one, stays until the first safe bytes are written over it.
    fn resumed(path: PathBuf, copy: Identity) -> Self {
        Self {
            path,
            copy,
            file: None,
            length: 0,
            written: None,
            last: None,
        }
    }

    /// A journal that goes on from an older one, which is replaced at once: it may say of the order
    /// of the bytes what this run will make untrue.
    pub(crate) fn taken_up(path: PathBuf, copy: Identity, safe: &RangeSet) -> io::Result<Self> {
        let mut journal = Self::resumed(path, copy);
        journal.write(safe)?;
        Ok(journal)
    }

    /// Writes `safe` if enough time has passed or enough became safe since the last time. Errors
    /// leave an older state behind, which is still true.
    pub(crate) fn keep(&mut self, safe: &RangeSet, now: Instant) -> io::Result<()> {
        let recent = self.last.is_some_and(|last| now - last < INTERVAL);
        let written = self.written.as_ref().map_or(0, RangeSet::bytes);
        if recent && safe.bytes().saturating_sub(written) < STEP {
            return Ok(());
        }
        self.last = Some(now);
        self.write(safe)
    }

    /// Writes `safe` now, if it is news.
    pub(crate) fn write(&mut self, safe: &RangeSet) -> io::Result<()> {
        if self.written.as_ref() == Some(safe) {
            return Ok(());
        }
        let result = self.try_write(safe);
        match &result {
            Ok(()) => self.written = Some(safe.clone()),
            // The tail may be torn: the next write makes the file anew.
            Err(_) => {
                self.file = None;
                let _ = fs::remove_file(next_path(&self.path));
            }
        }
        result
    }

    fn try_write(&mut self, safe: &RangeSet) -> io::Result<()> {
        let record = seal(&Record {
            safe: safe.to_string(),
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
        let mut text = seal(&Header {
            version: VERSION,
            copy: self.copy.clone(),
        })?;
        text.extend_from_slice(record);
        let next = next_path(&self.path);
        let mut file = File::create(&next)?;
        file.write_all(&text)?;
        fs::rename(&next, &self.path)?;
        self.file = Some(file);
        self.length = text.len() as u64;
        Ok(())
    }

    /// What an attempt brought counts no more: only `safe` does from now on, and the length of the
    /// partial file says nothing.
    pub(crate) fn take_back(&mut self, safe: &RangeSet) -> io::Result<()> {
        self.copy.in_order = false;
        self.file = None;
        self.written = None;
        if safe.is_empty() {
            forget(&self.path);
            return Ok(());
        }
        self.write(safe)
    }

    /// Whether this run has written anything.
    pub(crate) fn begun(&self) -> bool {
        self.written.is_some()
    }

    /// The copy is whole, or proved wrong: nothing is left to resume.
    pub(crate) fn remove(self) {
        forget(&self.path);
    }
}

/// Removes the journal at `path`, also one of an earlier run; that there is none is fine.
pub(crate) fn forget(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(next_path(path));
}

/// Where a new file is written before it takes the journal's name.
fn next_path(path: &Path) -> PathBuf {
    let mut next = path.as_os_str().to_owned();
    next.push("~");
    next.into()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
