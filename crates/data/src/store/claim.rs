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
pub enum Claim {
    /// Nobody else may write: the file is truncated, replaced or renamed.
    Sole,
    /// Others may store other ranges at the same time (ESTO), but nobody may truncate.
    Ranges,
}

/// The answer to a [`Claim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
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
pub fn claim(file: &File, claim: Claim) -> std::io::Result<Claimed> {
    let operation = match claim {
        Claim::Sole => FlockOperation::NonBlockingLockExclusive,
        Claim::Ranges => FlockOperation::NonBlockingLockShared,
    };
    loop {
        return match rustix::fs::flock(file, operation) {
            Ok(()) => Ok(Claimed::Held),
            Err(Errno::WOULDBLOCK) => Ok(Claimed::Busy),
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Claimed::Unsupported),
            Err(Errno::INTR) => continue,
            // NFS makes a lock of byte ranges of it, and shares none on a file that is open only to
            // be written (flock(2), NFS details).
            Err(Errno::BADF) if claim == Claim::Ranges => Ok(Claimed::Unsupported),
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
        assert_eq!(claim(&first, Claim::Sole).unwrap(), Claimed::Held);
        let copy = first.try_clone().unwrap();
        drop(first);
        let second = File::options().write(true).open(&path).unwrap();
        assert_eq!(claim(&second, Claim::Sole).unwrap(), Claimed::Busy);
        assert_eq!(claim(&second, Claim::Ranges).unwrap(), Claimed::Busy);
        drop(copy);
        assert_eq!(claim(&second, Claim::Sole).unwrap(), Claimed::Held);
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
        assert_eq!(claim(&first, Claim::Ranges).unwrap(), Claimed::Held);
        assert_eq!(claim(&second, Claim::Ranges).unwrap(), Claimed::Held);
        assert_eq!(claim(&third, Claim::Sole).unwrap(), Claimed::Busy);
    }
}
