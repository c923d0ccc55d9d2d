//! Telling whether a file is still the one that was looked at.

use std::fs::File;

use proto::path::VPath;
use rustix::fs::Stat;
use rustix::io::Errno;

use super::{Root, StoreError};

/// One state of one file. Whatever changes its content changes this too, unless it happens within
/// one tick of the kernel's clock (some milliseconds) and keeps the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// Modification time: seconds since 1970, nanoseconds.
    pub modified: (i64, u64),
    /// Time of the last change of content or attributes, likewise.
    pub changed: (i64, u64),
}

impl Identity {
    /// Of an open file.
    pub fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
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

impl Root {
    /// Of what `path` leads to, links followed.
    pub fn identity(&self, path: &VPath) -> Result<Identity, StoreError> {
        self.locate(path)
            .and_then(rustix::fs::fstat)
            .map(|stat| Identity::from_stat(&stat))
            .map_err(|errno: Errno| StoreError::new("look at", path, errno))
    }
}
