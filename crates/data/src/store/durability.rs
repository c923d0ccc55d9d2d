//! Forcing a file to disk before it is called stored.
//!
//! A write ends in the page cache. Whether it reached the disk is known only after fdatasync(2),
//! which is also where a full thin volume, a quota of a network file system or a broken disk shows;
//! whether a new or changed name did, after fsync(2) of the directory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use proto::ranges::RangeSet;

use super::writeback::WritebackPacer;
use crate::locks::lock;
use crate::os::writeback;

/// How much is forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// Nothing: the kernel writes when it sees fit. Errors that close(2) tells still count.
    None,
    /// Each file: its data before it is called stored and before it gets its name, its directory
    /// afterwards; while it arrives, write-back is begun early and what has arrived is forced to disk
    /// every now and then.
    #[default]
    File,
}

impl SyncPolicy {
    /// `none` or `file`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "file" => Some(Self::File),
            _ => None,
        }
    }

    /// The text that [`SyncPolicy::parse`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::File => "file",
        }
    }

    /// Forces the names in `directory` to disk, if this policy forces anything.
    ///
    /// # Errors
    /// The directory cannot be read or synced. One that may be written but not read (mode `-wx`) has
    /// nothing that could be synced: that is no error.
    pub fn sync_directory(self, directory: &Path) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::File => match File::open(directory) {
                Ok(directory) => sync_names(&directory),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                Err(error) => Err(error),
            },
        }
    }
}

/// fsync(2) of a directory. A file system without it (EINVAL) is left alone.
///
/// # Errors
/// Those of fsync(2).
pub(crate) fn sync_names(directory: &File) -> io::Result<()> {
    match retry(|| directory.sync_all()) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

/// fsync(2) and fdatasync(2) may be interrupted by a signal on some file systems.
fn retry(mut step: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match step() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// How one open file gets to disk.
#[derive(Debug)]
pub(super) struct FileDurability {
    policy: SyncPolicy,
    writeback: WritebackPacer,
    /// The directory of a file whose entry was not yet forced to disk.
    entry: Mutex<DirectoryEntryState>,
    /// Number of the first error: the kernel tells it once per open file.
    failed: Mutex<Option<i32>>,
    /// Held by all who ask for early write-back, from the call to the end of remembering its error: only
    /// when nobody holds it does [`FileDurability::failed`] have every error that the kernel told.
    telling: RwLock<()>,
    /// Written, and not forced to disk since; kept only where the policy forces.
    unsynced: Mutex<RangeSet>,
}

/// Whether the file's name is on disk.
#[derive(Debug)]
enum DirectoryEntryState {
    /// Not yet; the directory, if it could be opened.
    Due(Option<File>),
    Synced,
}

impl FileDurability {
    pub(super) fn new(policy: SyncPolicy, directory: Option<File>) -> Self {
        Self {
            policy,
            writeback: WritebackPacer::default(),
            entry: Mutex::new(DirectoryEntryState::Due(directory)),
            failed: Mutex::new(None),
            telling: RwLock::default(),
            unsynced: Mutex::default(),
        }
    }

    pub(super) fn forces(&self) -> bool {
        self.policy != SyncPolicy::None
    }

    /// `len` bytes at `offset` are about to be written: a write that fails halfway leaves a part of them.
    pub(super) fn writes(&self, offset: u64, len: u64) {
        if self.forces() {
            lock(&self.unsynced).insert(offset, offset.saturating_add(len));
        }
    }

    /// `len` bytes at `offset` were written.
    pub(super) fn wrote(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        if !self.forces() {
            return Ok(());
        }
        // Again: a sync since the write began may have come before its bytes.
        self.writes(offset, len);
        self.told(|| self.writeback.wrote(file.as_fd(), offset, len))
    }

    /// Runs a call that the kernel may tell an error of write-back, and remembers it.
    fn told(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _telling = self.telling.read().unwrap_or_else(PoisonError::into_inner);
        self.remember(call())
    }

    /// See [`super::Sink::sync`].
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.without_failure()?;
        if !self.forces() {
            return self.remember(writeback::flush_as_close(file.as_fd()));
        }
        self.sync_by(|entry| match entry {
            DirectoryEntryState::Synced => retry(|| file.sync_data()),
            // With the inode's metadata: where the directory is closed to us, that is what makes
            // today's file systems keep a new file's name.
            DirectoryEntryState::Due(directory) => retry(|| file.sync_all())
                .and_then(|()| directory.as_ref().map_or(Ok(()), sync_names)),
        })
    }

    /// Takes what `force` forces to disk for synced, unless it or anybody else was told an error.
    fn sync_by(
        &self,
        force: impl FnOnce(&DirectoryEntryState) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut entry = lock(&self.entry);
        let pending = std::mem::take(&mut *lock(&self.unsynced));
        let forced = self.remember(force(&entry));
        // The error of a write-back that `force` waited for, too, may have been told to another thread.
        let done = forced.and_then(|()| {
            drop(self.telling.write().unwrap_or_else(PoisonError::into_inner));
            self.without_failure()
        });
        match done {
            Ok(()) => *entry = DirectoryEntryState::Synced,
            Err(_) => lock(&self.unsynced).extend(&pending),
        }
        done
    }

    /// Fails as what failed first did.
    fn without_failure(&self) -> io::Result<()> {
        let failed = *lock(&self.failed);
        failed.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }

    /// Ranges written and not forced to disk since; empty where the policy forces nothing.
    pub(super) fn unsynced(&self) -> RangeSet {
        lock(&self.unsynced).clone()
    }

    fn remember(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            lock(&self.failed).get_or_insert(error.raw_os_error().unwrap_or(libc::EIO));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_named() {
        for policy in [SyncPolicy::None, SyncPolicy::File] {
            assert_eq!(SyncPolicy::parse(policy.name()), Some(policy));
        }
        assert_eq!(SyncPolicy::parse("always"), None);
    }

    #[test]
    fn an_error_that_the_kernel_tells_once_is_told_each_time() {
        let durability = FileDurability::new(SyncPolicy::File, None);
        let failed = durability.remember(Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(failed.is_err());
        let file = tempfile::tempfile().unwrap();
        for _ in 0..2 {
            let error = durability.sync(&file).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
    }

    #[test]
    fn an_error_that_another_thread_is_told_during_a_sync_fails_the_sync() {
        let file = tempfile::tempfile().unwrap();
        let durability = FileDurability::new(SyncPolicy::File, None);
        durability.wrote(&file, 0, 10).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let synced = std::thread::scope(|scope| {
            durability.sync_by(|_| {
                // A writer waits for the same write-back, is told of its failure, and then is slow.
                scope.spawn(|| {
                    durability.told(|| {
                        tell.send(()).unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        Err(io::Error::from_raw_os_error(libc::ENOSPC))
                    })
                });
                told.recv().unwrap();
                Ok(())
            })
        });
        assert_eq!(synced.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(durability.unsynced().to_string(), "0-10");
        let again = durability.sync_by(|_| Ok(())).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn what_was_written_since_the_last_sync_is_known() {
        let file = tempfile::tempfile().unwrap();
        let durability = FileDurability::new(SyncPolicy::File, None);
        durability.wrote(&file, 0, 10).unwrap();
        durability.sync(&file).unwrap();
        durability.wrote(&file, 20, 5).unwrap();
        durability.writes(30, 5);
        assert_eq!(durability.unsynced().to_string(), "20-25,30-35");
        assert!(
            durability
                .remember(Err(io::ErrorKind::Other.into()))
                .is_err()
        );
        durability.sync(&file).unwrap_err();
        assert_eq!(durability.unsynced().to_string(), "20-25,30-35");
        let none = FileDurability::new(SyncPolicy::None, None);
        none.wrote(&file, 0, 10).unwrap();
        assert!(none.unsynced().is_empty());
    }

    #[test]
    fn every_policy_syncs_a_file_and_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for policy in [SyncPolicy::None, SyncPolicy::File] {
            let file = File::create(dir.path().join(policy.name())).unwrap();
            let entry = File::open(dir.path()).unwrap();
            let durability = FileDurability::new(policy, Some(entry));
            durability.wrote(&file, 0, 1 << 30).unwrap();
            durability.sync(&file).unwrap();
            durability.sync(&file).unwrap();
            policy.sync_directory(dir.path()).unwrap();
        }
    }
}
