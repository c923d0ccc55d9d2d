//! Detects whether a file has changed.

use std::fs::File;

use proto::path::VPath;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::{Root, StoreError};

/// One state of one file. Every change of content changes it, once
/// [`FileIdentity::detects_changes_since`] returns true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Size, bytes.
    pub size: u64,
    /// Modification time: seconds since 1970, nanoseconds.
    pub modified: (i64, u64),
    /// Time of the last change of content or attributes, likewise.
    pub changed: (i64, u64),
}

impl FileIdentity {
    /// The identity of an open file.
    pub fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    /// Whether every later change of content changes the identity, if `clock` is [`file_clock`] now
    /// or earlier. A change within the clock tick of the last one may keep the change time (Linux
    /// before 6.13, and file systems without multigrain timestamps); one in a later tick cannot.
    pub fn detects_changes_since(&self, clock: (i64, u64)) -> bool {
        clock > self.changed
    }

    /// Whether both are states of one file between which no write is known: size and modification time are the same. The
    /// time of the last change also follows changes of names and rights, which are none of the content.
    pub fn has_content_of(&self, other: &Self) -> bool {
        let content = |file: &Self| (file.inode, file.size, file.modified);
        content(self) == content(other)
    }

    fn from_stat(stat: &Stat) -> Self {
        Self {
            inode: (stat.st_dev, stat.st_ino),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// The clock of the kernel's file timestamps: seconds since 1970, nanoseconds. It ticks every 1 to
/// 10 ms.
pub fn file_clock() -> (i64, u64) {
    // The coarse clock is the one that the kernel uses for file timestamps.
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Root {
    /// The identity of what has the name `path` itself: a link is not followed.
    ///
    /// # Errors
    /// Nothing has this name.
    pub fn identity_of_name(&self, path: &VPath) -> Result<FileIdentity, StoreError> {
        self.at_parent("look at", path, |parent, name| {
            rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        })
        .map(|stat| FileIdentity::from_stat(&stat))
    }

    /// The identity of the file that `path` leads to, following links.
    pub fn identity(&self, path: &VPath) -> Result<FileIdentity, StoreError> {
        self.locate(path)
            .and_then(rustix::fs::fstat)
            .map(|stat| FileIdentity::from_stat(&stat))
            .map_err(|errno: Errno| StoreError::new("look at", path, errno))
    }
}
