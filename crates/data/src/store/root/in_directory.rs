//! Files of a directory that is open: for callers with many files of one directory.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use proto::path::VPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::open::SAFE_FLAGS;
use super::{Root, StoreError};
use crate::store::naming::mode_over;

impl Root {
    /// The directory that holds the last component of `path`, to be given to the functions `..._in`. What is done in it
    /// is done there also after it was renamed: keep it for a short time.
    ///
    /// # Errors
    /// It does not exist, or may not be entered. The root itself has none: EBUSY.
    pub fn open_parent(&self, path: &VPath) -> Result<OwnedFd, StoreError> {
        self.parent_of(path)
            .map_err(|errno| StoreError::new("open the directory of", path, errno))
    }

    /// As [`Root::open_read`], for a file of `directory`, which is that of `path`. The caller checks that the open file is
    /// a regular one: another file may have taken the name meanwhile. The descriptor is not blocking, which means nothing
    /// to a positioned read.
    ///
    /// # Errors
    /// As [`Root::open_read`].
    pub fn open_read_in(&self, directory: impl AsFd, path: &VPath) -> Result<File, StoreError> {
        let directory = directory.as_fd();
        let failed = |errno| StoreError::new("open", path, errno);
        let there = rustix::fs::statat(directory, path.name(), AtFlags::SYMLINK_NOFOLLOW);
        // Checked before opening: opening a FIFO or a device has side effects.
        match FileType::from_raw_mode(there.map_err(failed)?.st_mode) {
            FileType::RegularFile => {}
            // A link is followed inside the root, from which the path leads.
            FileType::Symlink => return self.open_read(path),
            FileType::Directory => return Err(failed(Errno::ISDIR)),
            _ => return Err(failed(Errno::INVAL)),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | SAFE_FLAGS;
        rustix::fs::openat(directory, path.name(), flags, Mode::empty())
            .map(File::from)
            .map_err(failed)
    }

    /// Creates the file `name` in `directory`, which is that of `path`; see [`Root::open_new`]. It is to get the name of
    /// `path`, and has the permission bits over a file that has this name now ([`mode_over`]): before its first byte, so
    /// that nobody reads what the old file did not show.
    ///
    /// # Errors
    /// As [`Root::open_new`].
    pub fn open_new_in(
        &self,
        directory: impl AsFd,
        path: &VPath,
        name: &[u8],
    ) -> Result<File, StoreError> {
        // O_EXCL does not follow a symbolic link in the last component (open(2)).
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let directory = directory.as_fd();
        let failed = |errno| StoreError::new("create", path, errno);
        let mode = self.creation.initial_file_mode();
        let file = rustix::fs::openat(directory, name, flags, mode).map_err(failed)?;
        let there = rustix::fs::statat(directory, path.name(), AtFlags::SYMLINK_NOFOLLOW);
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let replaced = there.ok().filter(is_file);
        let prepared = self
            .creation
            .apply_to_file(&file)
            .and_then(|()| match replaced {
                Some(there) => {
                    let own = rustix::fs::fstat(&file)?;
                    let mode = mode_over(own.st_uid, own.st_mode, &there);
                    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
                }
                None => Ok(()),
            });
        if let Err(errno) = prepared {
            // It would stay with the rights of another account.
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
            return Err(failed(errno));
        }
        Ok(file.into())
    }
}
