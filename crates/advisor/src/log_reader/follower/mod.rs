//! Follows a file that grows and is rotated. The caller's timer says when to look.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::hash::Hasher as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};
use smallfile::regular_file;

/// Where a follower without a position begins, in a file that exists at its first turn. Files that appear later
/// are read from their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowFrom {
    /// With the first line.
    Beginning,
    /// With the next line that is written.
    End,
}

/// Bounds of a follower.
#[derive(Debug, Clone, Copy)]
pub struct FollowLimits {
    /// The longest line, bytes. Longer ones are left out and counted.
    pub line_bytes: usize,
    /// Most bytes in one turn. At least one line of the longest kind is read.
    pub turn_bytes: u64,
}

impl Default for FollowLimits {
    /// 64 KiB a line, 8 MiB a turn.
    fn default() -> Self {
        Self {
            line_bytes: 64 << 10,
            turn_bytes: 8 << 20,
        }
    }
}

/// Result of one turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowTurn {
    /// Lines handed out.
    pub lines: u64,
    /// The file does not exist now.
    pub missing: bool,
    /// The bound of the turn ended it: more can be read at once.
    pub more: bool,
}

/// Events of a follower so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowCounts {
    /// Lines that were too long.
    pub long_lines: u64,
    /// Last lines without an end, in files that were rotated away or truncated.
    pub cut_lines: u64,
    /// Changes to another file at the log's path.
    pub rotations: u64,
    /// Truncations of the file.
    pub truncations: u64,
    /// Times that lines may be lost: the file of the position was gone.
    pub gaps: u64,
}

/// Turns without a new byte after which a rotated file is left. Servers write to it until they are told to open
/// the log again.
const QUIET_TURNS: u32 = 2;

/// Follows one log.
#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    limits: FollowLimits,
    place: Place,
    counts: FollowCounts,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    /// Before the first turn.
    Start(FollowFrom),
    /// Before the first turn after a restart.
    Resume(LogPosition),
    /// The log did not exist yet, or vanished after all of it was read.
    Missing,
    Open(OpenLog),
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    offset: u64,
    skipping: bool,
    tail: u64,
    /// Turns without a new byte since another file stands at the path.
    quiet_turns: u32,
}

impl OpenLog {
    fn at_beginning(file: File) -> io::Result<Self> {
        Self::at(file, 0, false)
    }

    fn at(file: File, offset: u64, skipping: bool) -> io::Result<Self> {
        let tail = tail_fingerprint(&file, offset)?.unwrap_or_default();
        Ok(Self {
            file,
            offset,
            skipping,
            tail,
            quiet_turns: 0,
        })
    }
}

impl LogFollower {
    /// Follows the file at this path, which need not exist.
    pub fn new(path: &Path, from: FollowFrom, limits: FollowLimits) -> Self {
        Self::at(path, Place::Start(from), limits)
    }

    /// Goes on where an earlier follower of this path stopped.
    pub fn resume(path: &Path, position: LogPosition, limits: FollowLimits) -> Self {
        Self::at(path, Place::Resume(position), limits)
    }

    fn at(path: &Path, place: Place, limits: FollowLimits) -> Self {
        Self {
            path: path.to_owned(),
            limits,
            place,
            counts: FollowCounts::default(),
            buffer: Vec::new(),
        }
    }

    /// The path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events so far.
    pub fn counts(&self) -> FollowCounts {
        self.counts
    }

    /// The end of the last line handed out. `None` after a turn: there is no file yet, and a later follower that
    /// starts with [`FollowFrom::Beginning`] loses nothing.
    pub fn position(&self) -> Option<LogPosition> {
        match &self.place {
            Place::Start(_) | Place::Missing => None,
            Place::Resume(position) => Some(position.clone()),
            Place::Open(open) => {
                let meta = open.file.metadata().ok()?;
                Some(LogPosition {
                    device: meta.dev(),
                    inode: meta.ino(),
                    offset: open.offset,
                    skipping: open.skipping,
                    tail: open.tail,
                })
            }
        }
    }

    /// Hands out the lines that are new, without their ends, up to the bounds. A line without its end waits for it.
    ///
    /// # Errors
    /// The file cannot be read, or something else than a regular file stands at the path. The next turn tries again.
    pub fn turn(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<FollowTurn> {
        let mut turn = FollowTurn::default();
        let mut budget = self
            .limits
            .turn_bytes
            .max(u64::try_from(self.limits.line_bytes).unwrap_or(u64::MAX));
        loop {
            if !self.open()? {
                turn.missing = true;
                return Ok(turn);
            }
            let grew = self.read(&mut budget, &mut turn, each)?;
            if turn.more || !self.leave_rotated_file(grew)? {
                return Ok(turn);
            }
        }
    }

    /// Makes sure that a file is open and still has the lines before the offset; false if there is none.
    fn open(&mut self) -> io::Result<bool> {
        match &self.place {
            Place::Open(open) => {
                if tail_fingerprint(&open.file, open.offset)? == Some(open.tail) {
                    return Ok(true);
                }
                // Truncated (copytruncate of logrotate(8)): the rest of what was there may be in the copy.
                let position = self.position();
                self.counts.truncations += 1;
                let copy = position.and_then(|position| {
                    let file = file_of_position(&self.path, &position)?;
                    OpenLog::at(file, position.offset, position.skipping).ok()
                });
                if copy.is_none() {
                    self.counts.gaps += 1;
                }
                self.place = copy.map_or(Place::Missing, Place::Open);
            }
            Place::Resume(position) => {
                let position = position.clone();
                self.place = match self.resumed(&position)? {
                    Some(open) => Place::Open(open),
                    None => {
                        self.counts.gaps += 1;
                        Place::Missing
                    }
                };
            }
            Place::Start(from) => {
                let from = *from;
                self.place = match open_regular(&self.path)? {
                    Some(file) if from == FollowFrom::End => Place::Open(at_end(file)?),
                    Some(file) => Place::Open(OpenLog::at_beginning(file)?),
                    None => Place::Missing,
                };
            }
            Place::Missing => {}
        }
        if matches!(self.place, Place::Missing)
            && let Some(file) = open_regular(&self.path)?
        {
            self.place = Place::Open(OpenLog::at_beginning(file)?);
        }
        Ok(matches!(self.place, Place::Open(_)))
    }

    /// The file of a position: the log itself, or what it was renamed or copied to.
    fn resumed(&self, position: &LogPosition) -> io::Result<Option<OpenLog>> {
        if let Some(file) = open_regular(&self.path)? {
            let meta = file.metadata()?;
            let same = (meta.dev(), meta.ino()) == (position.device, position.inode);
            if same && tail_fingerprint(&file, position.offset)? == Some(position.tail) {
                return OpenLog::at(file, position.offset, position.skipping).map(Some);
            }
        }
        file_of_position(&self.path, position)
            .map(|file| OpenLog::at(file, position.offset, position.skipping))
            .transpose()
    }

    /// Reads from the offset on; says whether there was a new whole line or part of a long one.
    fn read(
        &mut self,
        budget: &mut u64,
        turn: &mut FollowTurn,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        let Place::Open(open) = &mut self.place else {
            return Ok(false);
        };
        let begin = open.offset;
        // One byte more than the longest line, for its end.
        let chunk = self.limits.line_bytes.saturating_add(1).max(64 << 10);
        self.buffer.resize(chunk, 0);
        loop {
            let length = open.file.read_at(&mut self.buffer, open.offset)?;
            let bytes = self.buffer.get(..length).unwrap_or_default();
            let used = take_lines(
                bytes,
                self.limits.line_bytes,
                &mut open.skipping,
                &mut self.counts.long_lines,
                &mut |line| {
                    turn.lines += 1;
                    each(line);
                },
            );
            let used = u64::try_from(used).unwrap_or_default();
            open.offset = open.offset.saturating_add(used);
            *budget = budget.saturating_sub(used);
            if used == 0 {
                break;
            }
            if *budget == 0 {
                turn.more = true;
                break;
            }
        }
        if open.offset != begin {
            // A file that was truncated in this moment has no such bytes; the next turn finds that.
            open.tail = tail_fingerprint(&open.file, open.offset)?.unwrap_or_default();
        }
        Ok(open.offset != begin)
    }

    /// Goes to the next file if the open one is no longer at the path and has been quiet; says whether there is
    /// something to read there.
    fn leave_rotated_file(&mut self, grew: bool) -> io::Result<bool> {
        let Place::Open(open) = &mut self.place else {
            return Ok(false);
        };
        let meta = open.file.metadata()?;
        let at_path = match self.path.metadata() {
            Ok(at_path) => at_path,
            // Renamed, and not yet created again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if (meta.dev(), meta.ino()) == (at_path.dev(), at_path.ino()) {
            return Ok(false);
        }
        open.quiet_turns = if grew { 0 } else { open.quiet_turns + 1 };
        if open.quiet_turns < QUIET_TURNS {
            return Ok(false);
        }
        self.counts.cut_lines += u64::from(meta.len() > open.offset || open.skipping);
        self.counts.rotations += 1;
        let next = self.after(&meta)?;
        let opened = next.is_some();
        self.place = next.map_or(Place::Missing, Place::Open);
        Ok(opened)
    }

    fn after(&self, left: &Metadata) -> io::Result<Option<OpenLog>> {
        let file = match next_rotated(&self.path, left) {
            Some(file) => Some(file),
            None => open_regular(&self.path)?,
        };
        file.map(OpenLog::at_beginning).transpose()
    }
}

/// The end of the file: behind its last whole line, so that a half line is handed out once it is whole.
fn at_end(file: File) -> io::Result<OpenLog> {
    let length = file.metadata()?.len();
    let mut last = vec![0; usize::try_from(length.min(64 << 10)).unwrap_or_default()];
    let from = length.saturating_sub(u64::try_from(last.len()).unwrap_or_default());
    let read = file.read_at(&mut last, from)?;
    let whole = last.iter().take(read).rposition(|&byte| byte == b'\n');
    let offset = match whole {
        Some(index) => from.saturating_add(u64::try_from(index + 1).unwrap_or_default()),
        None => from,
    };
    // Without a line end in sight the offset is inside of a line.
    let inside = whole.is_none() && from > 0;
    OpenLog::at(file, offset, inside)
}

/// Hands out the whole lines and returns how many bytes are done with. A line of more than `most` bytes is left out,
/// and `skipping` says that its end has not come yet.
fn take_lines(
    bytes: &[u8],
    most: usize,
    skipping: &mut bool,
    long_lines: &mut u64,
    each: &mut dyn FnMut(&[u8]),
) -> usize {
    let mut used = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else {
            if *skipping {
                used += line.len();
            } else if line.len() > most {
                (*skipping, used) = (true, used + line.len());
                *long_lines += 1;
            }
            break;
        };
        used += line.len();
        if *skipping {
            *skipping = false;
        } else if text.len() > most {
            *long_lines += 1;
        } else {
            each(text.strip_suffix(b"\r").unwrap_or(text));
        }
    }
    used
}

/// Bytes before the offset that identify the content. A log line with its time is about as long.
const TAIL_BYTES: u64 = 128;

/// The end of the last line that was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Bytes before the next line.
    pub offset: u64,
    /// The next bytes belong to a line that is too long and is left out.
    pub skipping: bool,
    /// Fingerprint of the bytes before `offset`: an inode number may be used again, and a truncated file may grow
    /// beyond the offset.
    pub tail: u64,
}

/// Fingerprint of the last bytes before the offset; `None` if the file has not so many.
fn tail_fingerprint(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let length = offset.min(TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    match file.read_exact_at(&mut bytes, offset - length) {
        Ok(()) => {
            // Positions are kept on disk: the hash is the same in every version. Nobody gains by a collision.
            let mut hasher = FnvHasher::default();
            hasher.write(&bytes);
            Ok(Some(hasher.finish()))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The largest file of positions that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file with the positions of all followed logs, by path.
#[derive(Debug, Clone)]
pub struct PositionFile {
    path: PathBuf,
}

impl PositionFile {
    /// The file of this name. It need not exist.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The positions; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not what [`Self::save`] wrote.
    pub fn load(&self) -> io::Result<BTreeMap<PathBuf, LogPosition>> {
        let text = match regular_file::read_to_string(&self.path, MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        serde_json::from_str(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Replaces the file, so that a crash leaves the old or the new one. Save after the lines are recorded: lines
    /// since the last save are read again after a crash.
    ///
    /// # Errors
    /// The disk's.
    pub fn save(&self, positions: &BTreeMap<PathBuf, LogPosition>) -> io::Result<()> {
        let text = serde_json::to_vec(positions).map_err(io::Error::other)?;
        smallfile::replace(&self.path, &text)
    }
}

/// Entries of the log's directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Opens a log: only a regular file, so that a FIFO or a device cannot block or feed the reader. `None`: there is no
/// file.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let refused = || {
        let message = format!("{} is not a regular file", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    };
    match path.metadata() {
        Ok(meta) if !meta.is_file() => return refused(),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut options = File::options();
    options.read(true);
    // Without O_NONBLOCK, a FIFO that took the file's place after the check would block.
    options.custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return refused();
    }
    Ok(Some(file))
}

/// The file that the position is in, under the names that logrotate(8) gives (`LOG.1`, `LOG-20261123`): the same
/// inode, or a copy with the same bytes before the offset.
fn file_of_position(log: &Path, position: &LogPosition) -> Option<File> {
    let same_inode =
        |meta: &Metadata| (meta.dev(), meta.ino()) == (position.device, position.inode);
    let mut siblings = siblings(log);
    siblings.sort_by_key(|(_, meta)| !same_inode(meta));
    siblings.into_iter().find_map(|(path, meta)| {
        // A copy of a log of which nothing was read cannot be told from other files.
        if meta.len() < position.offset || (position.offset == 0 && !same_inode(&meta)) {
            return None;
        }
        let file = open_regular(&path).ok()??;
        let tail = tail_fingerprint(&file, position.offset).ok()??;
        (tail == position.tail).then_some(file)
    })
}

/// The oldest rotated file that was last written after this one: more than one rotation may come between two turns.
fn next_rotated(log: &Path, after: &Metadata) -> Option<File> {
    let written = |meta: &Metadata| (meta.mtime(), meta.mtime_nsec());
    let current = log.metadata().ok()?;
    let mut newer: Vec<(PathBuf, Metadata)> = siblings(log)
        .into_iter()
        .filter(|(_, meta)| {
            written(meta) > written(after)
                && written(meta) <= written(&current)
                && (meta.dev(), meta.ino()) != (current.dev(), current.ino())
                && (meta.dev(), meta.ino()) != (after.dev(), after.ino())
        })
        .collect();
    newer.sort_by_key(|(_, meta)| written(meta));
    newer
        .into_iter()
        .find_map(|(path, _)| open_regular(&path).ok()?)
}

/// Uncompressed regular files beside the log whose names begin with its own.
fn siblings(log: &Path) -> Vec<(PathBuf, Metadata)> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name()) else {
        return Vec::new();
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    let rotated = |entry: &std::fs::DirEntry| {
        let other = entry.file_name();
        let suffix = other.as_bytes().strip_prefix(name.as_bytes());
        // LOG.1 and LOG-20261123, but not LOG_of_another.
        suffix.is_some_and(|suffix| {
            matches!(suffix, [b'.' | b'-', rest @ ..] if rest.iter().all(|b| b.is_ascii_digit() || b"-._".contains(b)))
        })
    };
    entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter(rotated)
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            meta.is_file().then(|| (entry.path(), meta))
        })
        .collect()
}

#[cfg(test)]
mod tests;
