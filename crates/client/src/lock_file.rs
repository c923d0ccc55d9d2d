//! Who writes a file of this machine: one copy at a time, under a lock on the open file.
//!
//! A file is locked after it was opened, so it may have been renamed or removed in between by the
//! owner before: what was locked counts only if its path still names it. The kernel drops the lock
//! with the last descriptor, also after a crash.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use rustix::fs::OFlags;

/// Permissions of files that are not finished: nobody else's business.
const PRIVATE: u32 = 0o600;
/// How often a file may be gone when it is locked. Each time another copy has ended.
const TRIES: usize = 100;

/// The answer to [`open`].
#[derive(Debug)]
pub(crate) enum LockedOpen {
    /// Nobody else writes it until the file is closed.
    Own(File),
    /// Nobody can tell: this file system has no locks.
    Unlocked(File),
    /// Another copy writes it.
    Busy,
}

/// Opens the regular file `path` to read and write, as its only writer. It is made if there is none
/// and keeps what it holds. A symbolic link as last component is an error.
pub(crate) fn open(path: &Path) -> io::Result<LockedOpen> {
    for _ in 0..TRIES {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            // A pipe in its place must not make this wait.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        let claimed = take_write_lock(&file, WriteLockKind::Exclusive)?;
        if claimed == WriteLockStatus::Busy {
            return Ok(LockedOpen::Busy);
        }
        if names(path, &file)? {
            return Ok(match claimed {
                WriteLockStatus::Unsupported => LockedOpen::Unlocked(file),
                _ => LockedOpen::Own(file),
            });
        }
    }
    Err(io::Error::other("is replaced again and again"))
}

/// Whether `path` names this very file (device and inode), not by way of a link.
pub(crate) fn names(path: &Path, file: &File) -> io::Result<bool> {
    let mine = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (mine.dev(), mine.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes `path` if it still names this file, whose lock is held. What cannot be removed stays: its
/// name tells what it is.
pub(crate) fn remove(path: &Path, file: &File) {
    if matches!(names(path, file), Ok(true)) {
        let _ = fs::remove_file(path);
    }
}

/// A file that stands for something that cannot be locked itself. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// The file at `path`, which [`open`] gave.
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        remove(&self.path, &self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn own(path: &Path) -> File {
        match open(path).unwrap() {
            LockedOpen::Own(file) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_writer_at_a_time_owns_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "kept").unwrap();
        let first = own(&path);
        assert!(matches!(open(&path), Ok(LockedOpen::Busy)));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        drop(first);
        own(&path);
    }

    #[test]
    fn a_file_that_was_renamed_meanwhile_is_not_taken_for_the_one_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = own(&path);
        fs::rename(&path, dir.path().join("g")).unwrap();
        // The name is free, whoever holds what had it.
        let second = own(&path);
        assert!(!names(&path, &first).unwrap());
        assert!(names(&path, &second).unwrap());
        remove(&path, &first);
        assert!(path.exists());
        remove(&path, &second);
        assert!(!path.exists());
    }

    #[test]
    fn links_are_not_followed_and_others_see_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&path, "kept").unwrap();
        symlink(&path, &link).unwrap();
        assert!(open(&link).is_err());
        assert!(open(dir.path()).is_err());
        let fresh = own(&dir.path().join("new"));
        assert_eq!(
            fresh.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn what_stands_for_something_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let stand = LockFile::new(path.clone(), own(&path));
        assert!(matches!(open(&path), Ok(LockedOpen::Busy)));
        drop(stand);
        assert!(!path.exists());
    }
}
