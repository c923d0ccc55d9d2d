//! Detects whether a file has changed.

use std::os::fd::AsFd;
use std::time::Duration;

use proto::path::VPath;
use rustix::fs::Stat;
use rustix::io::Errno;

use super::{Root, StoreError};
use crate::os::{clock, stat};

/// One state of one file. Every change of content changes it, once
/// [`FileIdentity::detects_changes_since`] returns true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Size, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: FileTime,
    /// Time of the last change of content or attributes.
    pub changed: FileTime,
}

/// A timestamp of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The rest.
    pub nanoseconds: u64,
}

impl FileTime {
    fn of((seconds, nanoseconds): (i64, u64)) -> Self {
        Self {
            seconds,
            nanoseconds,
        }
    }
}

/// The change of a file between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// Nothing, as far as the first identity shows every change.
    None,
    /// The change time alone: its mode, owner or names, or its content by one who has set the modification time back.
    Attributes,
    /// Its content, or it is another file.
    Content,
}

/// Longest wait for the next tick of the clock of file timestamps.
const MAX_TICK_WAIT: Duration = Duration::from_millis(20);

impl FileIdentity {
    /// The identity of an open file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of(file: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    /// The identity of an open file, once every later change of content changes it. Blocks for some milliseconds if the file
    /// was changed just now; where its timestamps are those of another machine, whose clock is ahead, it may be too early.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn once_settled(file: impl AsFd) -> std::io::Result<Self> {
        let begin = std::time::Instant::now();
        loop {
            let clock = file_clock();
            let identity = Self::of(&file)?;
            if identity.detects_changes_since(clock) || begin.elapsed() >= MAX_TICK_WAIT {
                return Ok(identity);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The change of the file since this look, if `now` is a later one.
    pub fn change_until(&self, now: &Self) -> FileChange {
        let content = |look: &Self| (look.inode, look.size, look.modified);
        if content(self) != content(now) {
            FileChange::Content
        } else if self.changed != now.changed {
            FileChange::Attributes
        } else {
            FileChange::None
        }
    }

    /// Whether every later change of content changes the identity, if `clock` is [`file_clock`] now
    /// or earlier. A change within the clock tick of the last one may keep the change time (Linux
    /// before 6.13, and file systems without multigrain timestamps); one in a later tick cannot.
    pub fn detects_changes_since(&self, clock: FileTime) -> bool {
        clock > self.changed
    }

    /// The identity of the file with these attributes.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            inode: stat::inode(stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: FileTime::of(stat::modified(stat)),
            changed: FileTime::of(stat::changed(stat)),
        }
    }
}

/// The clock of the kernel's file timestamps: see [`clock::file_clock`].
pub fn file_clock() -> FileTime {
    let now = clock::file_clock();
    FileTime::of((now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0)))
}

impl Root {
    /// The identity of the file that `path` leads to, following links.
    pub fn identity(&self, path: &VPath) -> Result<FileIdentity, StoreError> {
        self.locate(path)
            .and_then(rustix::fs::fstat)
            .map(|stat| FileIdentity::from_stat(&stat))
            .map_err(|errno: Errno| StoreError::new("look at", path, errno))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_rewrite_within_a_second_is_a_change_of_content_and_a_chmod_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        file.set_modified(time).unwrap();
        let before = FileIdentity::once_settled(&file).unwrap();
        let change = || before.change_until(&FileIdentity::of(&file).unwrap());
        assert_eq!(change(), FileChange::None);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(change(), FileChange::Attributes);
        // One who sets the time back, too, is not told from that.
        file.write_all_at(b"two", 0).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(change(), FileChange::Attributes);
        file.set_modified(time + Duration::from_nanos(1)).unwrap();
        assert_eq!(change(), FileChange::Content);
    }
}
