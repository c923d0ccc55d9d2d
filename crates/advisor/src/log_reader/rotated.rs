//! Files that a log was renamed or copied to.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::position::{LogPosition, tail_fingerprint};

/// Entries of the log's directory that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Opens a log: only a regular file, so that a FIFO or a device cannot block or feed the reader. `None`: there is no
/// file.
pub(super) fn open_regular(path: &Path) -> io::Result<Option<File>> {
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
pub(super) fn file_of_position(log: &Path, position: &LogPosition) -> Option<File> {
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
pub(super) fn next_rotated(log: &Path, after: &Metadata) -> Option<File> {
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
        use std::os::unix::ffi::OsStrExt;
        let other = entry.file_name();
        let suffix = other.as_bytes().strip_prefix(name.as_bytes());
        // LOG.1 and LOG-20261123, but not LOG_of_another.
        suffix.is_some_and(|suffix| {
            matches!(suffix, [b'.' | b'-', rest @ ..] if rest.iter().all(|b| b.is_ascii_digit() || b"-._".contains(b)))
        })
    };
    entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter(rotated)
        .filter_map(|entry| {
            let meta = entry.metadata().ok()?;
            meta.is_file().then(|| (entry.path(), meta))
        })
        .collect()
}
