//! Where a follower is in its log, kept so that a restart neither repeats nor loses lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use smallfile::regular_file;

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
pub(super) fn tail_fingerprint(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let length = offset.min(TAIL_BYTES);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    match file.read_exact_at(&mut bytes, offset - length) {
        Ok(()) => Ok(Some(fingerprint(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// FNV-1a (draft-eastlake-fnv), 64 bits. Nobody gains by a collision.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The largest file of positions that is read.
const MOST_FILE_BYTES: u64 = 1 << 20;

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
        let text = match regular_file::read_to_string(&self.path, MOST_FILE_BYTES) {
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
