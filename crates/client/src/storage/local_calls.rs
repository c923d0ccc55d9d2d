//! Blocking calls on local files.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::store::durability::SyncPolicy;
use data::store::file::FileSource;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;

use super::contract::OpenSource;
use crate::answers::{KeptMetadata, SourceFacts, modification_time};
use crate::partial::{directory_of, local_failure, store_failure};
use crate::{CopyFailure, Exit};

/// Entries that are handed over together while a directory is read.
const ENTRIES_AT_A_TIME: usize = 512;

/// A failure concerning a path: [`Exit::NotFound`] if nothing exists there.
pub(super) fn path_failure(path: &Path, error: &io::Error) -> CopyFailure {
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("{}: {error}; check the path", path.display());
            CopyFailure::new(Exit::NotFound, message)
        }
        _ => store_failure(path, error),
    }
}

/// The entry for a file with this metadata.
pub(super) fn listed_entry(name: &[u8], meta: &fs::Metadata) -> ListedEntry {
    let kind = if meta.is_symlink() {
        EntryKind::SymLink
    } else if meta.is_dir() {
        EntryKind::Dir
    } else if meta.is_file() {
        EntryKind::File
    } else {
        EntryKind::Other
    };
    ListedEntry {
        size: meta.is_file().then_some(meta.len()),
        modified: modification_time(meta),
        mode: Some(meta.mode() & 0o7777),
        link_count: Some(meta.nlink()),
        unique: Some(format!("{}-{}", meta.dev(), meta.ino())),
        ..ListedEntry::new(name, kind)
    }
}

/// Facts of a path, with links followed. A dangling link is reported as a link.
pub(super) fn stat_path(path: &Path) -> Result<ListedEntry, CopyFailure> {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    match fs::metadata(path) {
        Ok(meta) => Ok(listed_entry(name, &meta)),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(link) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
                Ok(listed_entry(name, &link))
            }
            _ => Err(path_failure(path, &error)),
        },
    }
}

/// Reads a directory; `visit` receives the entries as they are read, some at a time. Links are not followed.
///
/// # Errors
/// It, or the facts of some entries, cannot be read; `visit` has received all others.
pub(super) fn read_directory(
    path: &Path,
    mut visit: impl FnMut(Vec<ListedEntry>) -> ControlFlow<()>,
) -> Result<(), CopyFailure> {
    let mut entries = Vec::new();
    let mut read = Ok(());
    for dir_entry in fs::read_dir(path).map_err(|e| path_failure(path, &e))? {
        match dir_entry
            .map_err(|e| path_failure(path, &e))
            .and_then(|e| entry_of(&e))
        {
            Ok(entry) => entries.extend(entry),
            Err(failure) => read = read.and(Err(failure)),
        }
        if entries.len() >= ENTRIES_AT_A_TIME && visit(std::mem::take(&mut entries)).is_break() {
            return Ok(());
        }
    }
    let _ = visit(entries);
    read
}

/// An entry of a directory; `None` if it was removed since the directory was read.
fn entry_of(dir_entry: &fs::DirEntry) -> Result<Option<ListedEntry>, CopyFailure> {
    // Does not follow links.
    let meta = match dir_entry.metadata() {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(path_failure(&dir_entry.path(), &e)),
    };
    let mut entry = listed_entry(dir_entry.file_name().as_bytes(), &meta);
    if meta.is_symlink() {
        let target = fs::read_link(dir_entry.path());
        let target = target.map(|target| target.as_os_str().as_bytes().to_vec());
        entry.link_target = Some(target.unwrap_or_default());
    }
    Ok(Some(entry))
}

/// Opens a file for reading. Facts are set only for regular files, which can be read again. A file
/// that reports length 0 but has content, as in proc(5), is read to its end like a pipe.
pub(super) fn open_source(path: &Path) -> Result<OpenSource, CopyFailure> {
    let failure = |e| local_failure(path, e);
    let file = File::open(path).map_err(failure)?;
    let meta = file.metadata().map_err(failure)?;
    let has_length = meta.is_file() && (meta.len() > 0 || is_empty(&file).map_err(failure)?);
    let name = path.to_string_lossy();
    let source = match has_length {
        true => FileSource::new(file, name).map_err(failure)?,
        false => FileSource::sequential(file, name),
    };
    Ok(OpenSource {
        source: Arc::new(source),
        facts: has_length.then(|| SourceFacts::from_local_metadata(&meta)),
    })
}

/// Whether a file has no first byte.
fn is_empty(file: &File) -> io::Result<bool> {
    file.read_at(&mut [0], 0).map(|n| n == 0)
}

/// Creates a directory and syncs its name, because a power cut could otherwise remove it with the
/// files in it. `false` if it exists already.
pub(super) fn make_directory(path: &Path, policy: SyncPolicy) -> Result<bool, CopyFailure> {
    // The directory entry is durable only after the parent directory is synced (fsync(2)).
    match fs::create_dir(path) {
        Ok(()) => {
            let parent = directory_of(path);
            policy
                .sync_directory(parent)
                .map_err(|e| local_failure(path, e))?;
            Ok(true)
        }
        // is_dir follows links: a link to a directory serves as one.
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(e) => Err(path_failure(path, &e)),
    }
}

/// Creates directories, parents first, and forces their names to disk with `sync`: each directory that holds some of them
/// once. Returns for each whether it was created. If `sync` fails, those whose names are not on disk are removed again, so
/// that whoever makes them one by one learns why.
pub(super) fn make_directories(
    paths: &[PathBuf],
    mut sync: impl FnMut(&Path) -> io::Result<()>,
) -> Vec<bool> {
    let create = |path: &PathBuf| fs::create_dir(path).is_ok();
    let mut made: Vec<bool> = paths.iter().map(create).collect();
    let mut synced = HashSet::new();
    let mut failed = false;
    for (path, _) in paths.iter().zip(&made).filter(|(_, made)| **made) {
        let parent = directory_of(path);
        if !failed && !synced.contains(parent) {
            failed = sync(parent).is_err();
            if !failed {
                synced.insert(parent);
            }
        }
    }
    // Children first. After a failure nothing was synced, so no child of a directory without a safe name is left.
    for (path, made) in paths.iter().zip(&mut made).rev() {
        if *made && !synced.contains(directory_of(path)) {
            *made = fs::remove_dir(path).is_err();
        }
    }
    made
}

pub(super) fn make_symlink(target: &Path, path: &Path) -> Result<(), CopyFailure> {
    let result = match symlink(target, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
            if !is_link {
                let message = format!("{}: exists and is not a link", path.display());
                return Err(CopyFailure::new(Exit::Local, message));
            }
            // symlink(2) does not replace, so the old link is removed first.
            fs::remove_file(path).and_then(|()| symlink(target, path))
        }
        result => result,
    };
    result.map_err(|e| local_failure(path, e))
}

pub(super) fn set_file_time(path: &Path, time: Timestamp) -> Result<bool, CopyFailure> {
    let since_epoch = u64::try_from(time.0).ok().map(Duration::from_secs);
    // std panics on times that it cannot represent.
    let Some(time) =
        since_epoch.and_then(|since_epoch| SystemTime::UNIX_EPOCH.checked_add(since_epoch))
    else {
        return Ok(false);
    };
    let result = File::open(path).and_then(|file| file.set_modified(time));
    result.map(|()| true).map_err(|e| path_failure(path, &e))
}

/// Sets time and permissions. Returns whether all of it was set.
pub(super) fn set_kept(path: &Path, kept: KeptMetadata) -> bool {
    let has_time = kept
        .modified
        .is_none_or(|time| set_file_time(path, time).unwrap_or(false));
    let has_mode = kept
        .mode
        .is_none_or(|mode| fs::set_permissions(path, Permissions::from_mode(mode)).is_ok());
    has_time && has_mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_that_holds_new_ones_is_synced_once() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "a/c", "a/d", "a"].map(|name| top.path().join(name));
        let mut synced = Vec::new();
        let made = make_directories(&paths, |directory| {
            synced.push(directory.to_owned());
            Ok(())
        });
        assert_eq!(made, [true, true, true, true, false]);
        assert_eq!(synced, [top.path().to_owned(), top.path().join("a")]);
    }

    #[test]
    fn directories_whose_names_are_not_on_disk_are_removed_and_not_reported_as_made() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "a/c", "b/d", "b/d/e"].map(|name| top.path().join(name));
        let made = make_directories(&paths, |directory| match directory.ends_with("b") {
            true => Err(ErrorKind::StorageFull.into()),
            false => Ok(()),
        });
        assert_eq!(made, [true, true, true, false, false]);
        assert_eq!(paths.map(|path| path.exists()).to_vec(), made);
    }
}
