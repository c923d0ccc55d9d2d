//! The write lock of an open file: an advisory lock (flock(2)) that lasts as long as the open file.
//!
//! The lock belongs to the open file description, so the kernel releases it when the last
//! descriptor is closed, also when the process is killed: a crash leaves no stale lock. Descriptors
//! made with dup(2) share it.

use std::fs::File;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The access that a writer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteLockKind {
    /// Nobody else may write: the file is truncated, replaced or renamed.
    Exclusive,
    /// Others may store other ranges at the same time (ESTO), but nobody may truncate.
    Shared,
}

/// The result of [`take_write_lock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteLockStatus {
    /// The lock is held until the file is closed.
    Held,
    /// Another open file, of this process or another, holds a conflicting lock.
    Busy,
    /// The file system does not support locks, or not this kind for a file opened like this (some
    /// network file systems): nothing is excluded.
    Unsupported,
}

/// Takes the lock without waiting. A second call with another kind replaces the lock, not
/// atomically.
///
/// # Errors
/// Those of flock(2), except that the lock is held elsewhere.
pub fn take_write_lock(file: &File, claim: WriteLockKind) -> std::io::Result<WriteLockStatus> {
    let operation = match claim {
        WriteLockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        WriteLockKind::Shared => FlockOperation::NonBlockingLockShared,
    };
    loop {
        return match rustix::fs::flock(file, operation) {
            Ok(()) => Ok(WriteLockStatus::Held),
            Err(Errno::WOULDBLOCK) => Ok(WriteLockStatus::Busy),
            // The file system cannot lock, so the caller decides whether to continue without.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(WriteLockStatus::Unsupported),
            Err(Errno::INTR) => continue,
            // NFS emulates flock by byte-range locks, and refuses a shared one on a write-only file
            // (flock(2), NFS details).
            Err(Errno::BADF) if claim == WriteLockKind::Shared => Ok(WriteLockStatus::Unsupported),
            Err(errno) => Err(errno.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_excludes_all_others_until_the_file_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = File::create(&path).unwrap();
        assert_eq!(
            take_write_lock(&first, WriteLockKind::Exclusive).unwrap(),
            WriteLockStatus::Held
        );
        let copy = first.try_clone().unwrap();
        drop(first);
        let second = File::options().write(true).open(&path).unwrap();
        assert_eq!(
            take_write_lock(&second, WriteLockKind::Exclusive).unwrap(),
            WriteLockStatus::Busy
        );
        assert_eq!(
            take_write_lock(&second, WriteLockKind::Shared).unwrap(),
            WriteLockStatus::Busy
        );
        drop(copy);
        assert_eq!(
            take_write_lock(&second, WriteLockKind::Exclusive).unwrap(),
            WriteLockStatus::Held
        );
    }

    #[test]
    fn shared_locks_coexist_and_exclude_an_exclusive_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(&path)
                .unwrap()
        };
        let (first, second, third) = (open(), open(), open());
        assert_eq!(
            take_write_lock(&first, WriteLockKind::Shared).unwrap(),
            WriteLockStatus::Held
        );
        assert_eq!(
            take_write_lock(&second, WriteLockKind::Shared).unwrap(),
            WriteLockStatus::Held
        );
        assert_eq!(
            take_write_lock(&third, WriteLockKind::Exclusive).unwrap(),
            WriteLockStatus::Busy
        );
    }
}
