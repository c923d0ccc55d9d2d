//! Opening regular files for reading and writing, also those of a directory that is open, for callers with many
//! files of one directory.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use proto::path::{MAX_NAME, VPath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Root, StoreError};
use crate::os::stat;
use crate::store::naming::mode_over;

/// Attempts to open a file that others create and remove meanwhile.
const OPEN_ATTEMPTS: u32 = 64;

/// Names tried for STOU before EEXIST.
const UNIQUE_ATTEMPTS: u32 = 10_000;

/// NONBLOCK, because opening a pipe would wait for its other end; NOCTTY, because a terminal could
/// become the controlling terminal of this process (open(2)).
pub(super) const SAFE_FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// A regular file that is open for writing.
#[derive(Debug)]
pub struct WritableFile {
    /// Its content is unchanged: opening does not truncate.
    pub file: File,
    /// This call created the file. `false` for a file created through a dangling link.
    pub created: bool,
}

impl Root {
    /// Opens a regular file for reading. A directory is EISDIR; pipes, sockets and devices are
    /// EINVAL and are not opened at all.
    pub fn open_read(&self, path: &VPath) -> Result<File, StoreError> {
        self.locate(path)
            // Checked before opening: opening a FIFO or a device has side effects.
            .and_then(|target| require_regular(&target))
            .and_then(|()| self.resolve(path, OFlags::RDONLY | SAFE_FLAGS, Mode::empty()))
            .and_then(into_regular_file)
            .map_err(|errno| StoreError::new("open", path, errno))
    }

    /// Opens a regular file for writing at offsets, or creates it (mode 0666 less the umask, or as the
    /// [`super::CreationRules`] say). A symbolic link is followed inside the root, also one to a file that does
    /// not exist yet.
    pub fn open_write(&self, path: &VPath) -> Result<WritableFile, StoreError> {
        let opened = self
            .open_or_create(path)
            .map_err(|errno| StoreError::new("open", path, errno))?;
        if opened.created {
            self.follow_rules(path, &opened.file)?;
        }
        Ok(opened)
    }

    /// Gives a new file its mode and owner. A file that cannot get them is removed: it would stay with the
    /// rights of another account.
    fn follow_rules(&self, path: &VPath, file: impl AsFd) -> Result<(), StoreError> {
        self.creation.apply_to_file(file).map_err(|errno| {
            let _ = self.delete(path);
            StoreError::new("set owner and mode of", path, errno)
        })
    }

    /// Opens an existing regular file for writing at offsets.
    pub fn open_existing(&self, path: &VPath) -> Result<File, StoreError> {
        self.locate(path)
            .and_then(|target| require_regular(&target))
            .and_then(|()| self.resolve(path, OFlags::WRONLY | SAFE_FLAGS, Mode::empty()))
            .and_then(into_regular_file)
            .map_err(|errno| StoreError::new("open", path, errno))
    }

    /// Opens for reading, too, if the mode permits it: bytes that arrive twice are compared.
    fn open_or_create(&self, path: &VPath) -> Result<WritableFile, Errno> {
        const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(SAFE_FLAGS);
        let mode = self.creation.initial_file_mode();
        for _ in 0..OPEN_ATTEMPTS {
            let (opened, created) = match self.locate(path) {
                Ok(target) => {
                    require_regular(&target)?;
                    let open =
                        |access: OFlags| self.resolve(path, access | SAFE_FLAGS, Mode::empty());
                    // A write-only file can still be received, but repeated bytes cannot be
                    // compared.
                    let opened = match open(OFlags::RDWR) {
                        Err(Errno::ACCESS) => open(OFlags::WRONLY),
                        opened => opened,
                    };
                    if matches!(opened, Err(Errno::NOENT)) {
                        continue; // removed meanwhile
                    }
                    (opened, false)
                }
                Err(Errno::NOENT) => match self.resolve(path, CREATE | OFlags::EXCL, mode) {
                    // A link without a target, or another process was faster.
                    Err(Errno::EXIST) => (self.resolve(path, CREATE, mode), false),
                    opened => (opened, true),
                },
                Err(errno) => return Err(errno),
            };
            let file = opened.and_then(into_regular_file)?;
            return Ok(WritableFile { file, created });
        }
        Err(Errno::AGAIN)
    }

    /// Creates a file that did not exist; otherwise EEXIST. A symbolic link counts as existing.
    pub fn open_new(&self, path: &VPath) -> Result<File, StoreError> {
        // O_EXCL does not follow a symbolic link in the last component (open(2)).
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = self.creation.initial_file_mode();
        let file = self
            .parent_of(path)
            .and_then(|parent| rustix::fs::openat(&parent, path.name(), flags, mode))
            .map(File::from)
            .map_err(|errno| StoreError::new("create", path, errno))?;
        self.follow_rules(path, &file)?;
        Ok(file)
    }

    /// Creates a file that did not exist: `path`, or `path` with `.1`, `.2`, ... added (STOU).
    pub fn open_unique(&self, path: &VPath) -> Result<(File, VPath), StoreError> {
        let failed = |errno| StoreError::new("create", path, errno);
        let parent = self.parent_of(path).map_err(failed)?;
        // O_EXCL does not follow a symbolic link in the last component (open(2)).
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = self.creation.initial_file_mode();
        for attempt in 0..UNIQUE_ATTEMPTS {
            let name = numbered(path.name(), attempt);
            match rustix::fs::openat(&parent, name.as_slice(), flags, mode) {
                Ok(fd) => {
                    let unique = path
                        .parent()
                        .join(&name)
                        .map_err(|_| failed(Errno::NAMETOOLONG))?;
                    self.follow_rules(&unique, &fd)?;
                    return Ok((fd.into(), unique));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Bytes that this process may still write to the file system on which `path` is or would be.
    pub fn free_space(&self, path: &VPath) -> Result<u64, StoreError> {
        self.locate(path)
            .or_else(|_| self.locate(&path.parent()))
            .and_then(rustix::fs::fstatvfs)
            .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
            .map_err(|errno| StoreError::new("look at", path, errno))
    }

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
                    let mode = mode_over(own.st_uid, stat::mode(&own), &there);
                    rustix::fs::fchmod(&file, stat::permissions(mode))
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

/// `name`, `name.1`, `name.2`, ...; a long name is shortened for its number.
fn numbered(name: &[u8], attempt: u32) -> Vec<u8> {
    let suffix = match attempt {
        0 => String::new(),
        n => format!(".{n}"),
    };
    // NAME_MAX bounds a component; the number must fit.
    let kept = name.len().min(MAX_NAME - suffix.len());
    [&name[..kept], suffix.as_bytes()].concat()
}

fn require_regular(fd: &OwnedFd) -> Result<(), Errno> {
    match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Checks the file that was really opened, and makes it blocking: on a non-blocking descriptor
/// sendfile(2) would return EAGAIN instead of waiting.
fn into_regular_file(fd: OwnedFd) -> Result<File, Errno> {
    require_regular(&fd)?;
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags.difference(OFlags::NONBLOCK))?;
    Ok(fd.into())
}
