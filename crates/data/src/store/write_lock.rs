//! Who may write an open file: an advisory lock (flock(2)) that lasts as long as the open file.
//!
//! The lock belongs to the open file description, so the kernel drops it when the last descriptor
//! is closed, also when the process is killed: a crash leaves no stale lock. Descriptors made with
//! dup(2) share it.

use std::fs::File;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The share of a file that a writer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteLockKind {
    /// Nobody else may write: the file is truncated, replaced or renamed.
    Exclusive,
    /// Others may store other ranges at the same time (ESTO), but nobody may truncate.
    Shared,
}

/// The answer to a [`WriteLockKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteLockStatus {
    /// The lock is held until the file is closed.
    Held,
    /// Another open file, of this process or another, holds a lock that excludes this one.
    Busy,
    /// The file system knows no locks, or none of this kind for a file opened like this (some network
    /// file systems): nothing is excluded.
    Unsupported,
}

/// Takes the lock without waiting. Asking again with another claim replaces the lock, not
/// atomically.
///
/// # Errors
/// Those of flock(2), but for a lock that is held elsewhere.
pub fn take_write_lock(file: &File, claim: WriteLockKind) -> std::io::Result<WriteLockStatus> {
    let operation = match claim {
        WriteLockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        WriteLockKind::Shared => FlockOperation::NonBlockingLockShared,
    };
    loop {
        return match rustix::fs::flock(file, operation) {
            Ok(()) => Ok(WriteLockStatus::Held),
            Err(Errno::WOULDBLOCK) => Ok(WriteLockStatus::Busy),
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(WriteLockStatus::Unsupported),
            Err(Errno::INTR) => continue,
            // NFS makes a lock of byte ranges of it, and shares none on a file that is open only to
            // be written (flock(2), NFS details).
            Err(Errno::BADF) if claim == WriteLockKind::Shared => Ok(WriteLockStatus::Unsupported),
            Err(errno) => Err(errno.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sole_claim_excludes_all_others_until_the_file_is_closed() {
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
    fn writers_of_ranges_share_a_file_and_exclude_a_sole_one() {
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
