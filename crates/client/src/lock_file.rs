//! Exclusive ownership of a local file: one copy at a time writes it, under a lock on the open
//! file.
//!
//! The lock is taken after the file is opened. The previous owner may have renamed or removed the
//! file in between, so the lock counts only if the path still names the locked file. The kernel
//! releases the lock with the last descriptor, also after a crash (flock(2)).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use rustix::fs::OFlags;

/// Mode of unfinished files, which only their owner may read.
const PRIVATE_MODE: u32 = 0o600;
/// Most attempts to lock a file that disappears. Each time another copy has ended.
const MAX_OPEN_ATTEMPTS: usize = 100;

/// Result of [`open_locked`].
#[derive(Debug)]
pub(crate) enum LockedOpen {
    /// Locked: nobody else writes the file until it is closed.
    Locked(File),
    /// The file system has no locks.
    Unlocked(File),
    /// Another copy holds the lock.
    Busy,
}

/// Opens the regular file `path` for reading and writing and takes its lock. The file is created if
/// missing; existing content is kept. A symbolic link as last component is an error.
pub(crate) fn open_locked(path: &Path) -> io::Result<LockedOpen> {
    for _ in 0..MAX_OPEN_ATTEMPTS {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_MODE)
            // O_NONBLOCK: opening a FIFO in its place must not block.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        // Does not wait: a busy file is reported, and --wait polls with its own intervals.
        let lock = take_write_lock(&file, WriteLockKind::Exclusive)?;
        if lock == WriteLockStatus::Busy {
            return Ok(LockedOpen::Busy);
        }
        if path_names_file(path, &file)? {
            return Ok(match lock {
                WriteLockStatus::Unsupported => LockedOpen::Unlocked(file),
                _ => LockedOpen::Locked(file),
            });
        }
    }
    Err(io::Error::other("keeps being replaced"))
}

/// Opens and locks the regular file `path`, if it exists and nobody else holds its lock. Nothing is created. `None` also where
/// the file system has no locks.
pub(crate) fn lock_existing(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let lock = take_write_lock(&file, WriteLockKind::Exclusive)?;
    let is_own = lock == WriteLockStatus::Held && path_names_file(path, &file)?;
    Ok(is_own.then_some(file))
}

/// Whether `path` names this very file (device and inode), without following a link.
pub(crate) fn path_names_file(path: &Path, file: &File) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes `path` if it still names this file, whose lock is held. Errors are ignored: the name of
/// a leftover shows what it is.
pub(crate) fn remove_if_same(path: &Path, file: &File) {
    if matches!(path_names_file(path, file), Ok(true)) {
        let _ = fs::remove_file(path);
    }
}

/// A locked file that represents something that cannot be locked itself. It is removed on drop.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// The lock file at `path`, opened by [`open_locked`].
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        remove_if_same(&self.path, &self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn own(path: &Path) -> File {
        match open_locked(path).unwrap() {
            LockedOpen::Locked(file) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_writer_at_a_time_owns_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "kept").unwrap();
        let first = own(&path);
        assert!(matches!(open_locked(&path), Ok(LockedOpen::Busy)));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        drop(first);
        own(&path);
    }

    #[test]
    fn a_renamed_file_is_not_mistaken_for_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = own(&path);
        fs::rename(&path, dir.path().join("g")).unwrap();
        // The name is free, whoever holds the renamed file.
        let second = own(&path);
        assert!(!path_names_file(&path, &first).unwrap());
        assert!(path_names_file(&path, &second).unwrap());
        remove_if_same(&path, &first);
        assert!(path.exists());
        remove_if_same(&path, &second);
        assert!(!path.exists());
    }

    #[test]
    fn links_are_not_followed_and_new_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&path, "kept").unwrap();
        symlink(&path, &link).unwrap();
        assert!(open_locked(&link).is_err());
        assert!(open_locked(dir.path()).is_err());
        let fresh = own(&dir.path().join("new"));
        assert_eq!(
            fresh.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_lock_file_is_removed_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let lock_file = LockFile::new(path.clone(), own(&path));
        assert!(matches!(open_locked(&path), Ok(LockedOpen::Busy)));
        drop(lock_file);
        assert!(!path.exists());
    }
}
