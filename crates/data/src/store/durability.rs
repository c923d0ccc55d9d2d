//! Forces a file to disk before it is reported as stored.
//!
//! A write ends in the page cache. Only fdatasync(2) tells whether it reached the disk, and reports
//! a full thin volume, a quota of a network file system or a broken disk. Only fsync(2) of the
//! directory shows whether a new or changed name did.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use parking_lot::{Mutex, RwLock};
use proto::ranges::RangeSet;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::writeback::WritebackPacer;
use crate::os::lookup::LOCATE;
use crate::os::{disk, writeback};

/// How much is forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// Nothing: the kernel writes when it chooses to. Errors that close(2) reports still count.
    None,
    /// Each file: its data before it is reported as stored and before it gets its name, and its
    /// directory afterwards. While it arrives, write-back starts early, and the stored bytes are
    /// forced to disk from time to time.
    #[default]
    File,
}

impl SyncPolicy {
    /// Parses `none` or `file`.
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
    /// The directory cannot be read or synced. A directory that may be written but not read (mode
    /// `-wx`) cannot be synced, which is no error.
    pub fn sync_directory(self, directory: &Path) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::File => {
                let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
                self.sync_open_directory(directory)
            }
        }
    }

    /// The same for a directory that is open in any way.
    ///
    /// # Errors
    /// As [`SyncPolicy::sync_directory`].
    pub fn sync_open_directory(self, directory: impl AsFd) -> io::Result<()> {
        if self == Self::None {
            return Ok(());
        }
        // A directory is synced through a descriptor opened for reading.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, c".", flags, Mode::empty()) {
            Ok(directory) => sync_names(&directory.into()),
            Err(Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// fsync(2) of a directory. A file system that does not support it (EINVAL) is ignored.
///
/// # Errors
/// Those of fsync(2).
pub(crate) fn sync_names(directory: &File) -> io::Result<()> {
    match retry_on_interrupt(|| disk::sync_all(directory)) {
        // Some network file systems do not support it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

/// Repeats fsync(2) or fdatasync(2), which signals may interrupt on some file systems.
fn retry_on_interrupt(mut step: impl FnMut() -> io::Result<()>) -> io::Result<()> {
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
    /// Whether the directory entry of the file is on disk.
    entry: Mutex<DirectoryEntryState>,
    /// Number of the first error: the kernel reports it once per open file.
    first_error: Mutex<Option<i32>>,
    /// Held for reading from a call that may return a write-back error until the error is recorded.
    /// With the write lock, [`FileDurability::first_error`] holds every error that the kernel has
    /// reported.
    error_barrier: RwLock<()>,
    /// Ranges written and not forced to disk since; recorded only if the policy forces.
    unsynced: Mutex<RangeSet>,
}

/// Whether the file's name is on disk.
#[derive(Debug)]
enum DirectoryEntryState {
    /// Not yet. The directory, if it could be opened.
    Due(Option<File>),
    Synced,
}

impl FileDurability {
    pub(super) fn new(policy: SyncPolicy, directory: Option<File>) -> Self {
        Self {
            policy,
            writeback: WritebackPacer::default(),
            entry: Mutex::new(DirectoryEntryState::Due(directory)),
            first_error: Mutex::new(None),
            error_barrier: RwLock::default(),
            unsynced: Mutex::default(),
        }
    }

    pub(super) fn is_forcing(&self) -> bool {
        self.policy != SyncPolicy::None
    }

    /// Records that `len` bytes at `offset` are about to be written: a write that fails may leave
    /// some of them.
    pub(super) fn note_write(&self, offset: u64, len: u64) {
        if self.is_forcing() {
            self.unsynced
                .lock()
                .insert(offset, offset.saturating_add(len));
        }
    }

    /// Records that `len` bytes at `offset` were written, and starts their write-back.
    pub(super) fn note_written(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        if !self.is_forcing() {
            return Ok(());
        }
        // A second time, because a sync since the write began may have come before its bytes.
        self.note_write(offset, len);
        self.run_recording_error(|| self.writeback.note_written(file.as_fd(), offset, len))
    }

    /// Runs a call that may return a write-back error, and records it.
    fn run_recording_error(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _guard = self.error_barrier.read();
        self.record_error(call())
    }

    /// See [`super::Sink::sync`].
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        // The kernel would report success for pages that it has dropped after an error.
        self.check_first_error()?;
        if !self.is_forcing() {
            return self.record_error(writeback::flush_as_close(file.as_fd()));
        }
        self.sync_by(|entry| match entry {
            DirectoryEntryState::Synced => retry_on_interrupt(|| disk::sync_content(file)),
            // fsync(2) writes the inode's metadata, too: where the directory cannot be opened, that
            // is what makes today's file systems keep a new file's name.
            DirectoryEntryState::Due(directory) => retry_on_interrupt(|| disk::sync_all(file))
                .and_then(|()| directory.as_ref().map_or(Ok(()), sync_names)),
        })
    }

    /// Counts what `force` forces to disk as synced, unless this or another thread got an error.
    fn sync_by(
        &self,
        force: impl FnOnce(&DirectoryEntryState) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut entry = self.entry.lock();
        // Ranges written during the sync stay in the set for the next one.
        let pending = std::mem::take(&mut *self.unsynced.lock());
        let forced = self.record_error(force(&entry));
        // The error of a write-back that `force` waited for may have been reported to another
        // thread. The lock for writing waits until every such error is recorded.
        let done = forced.and_then(|()| {
            drop(self.error_barrier.write());
            self.check_first_error()
        });
        match done {
            Ok(()) => *entry = DirectoryEntryState::Synced,
            // The ranges are still unsynced.
            Err(_) => self.unsynced.lock().extend(&pending),
        }
        done
    }

    /// Fails with the first recorded error.
    fn check_first_error(&self) -> io::Result<()> {
        let failed = *self.first_error.lock();
        failed.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }

    /// Ranges written and not forced to disk since; empty if the policy forces nothing.
    pub(super) fn unsynced(&self) -> RangeSet {
        self.unsynced.lock().clone()
    }

    fn record_error(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            self.first_error
                .lock()
                .get_or_insert(error.raw_os_error().unwrap_or(libc::EIO));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_parses_from_its_name() {
        for policy in [SyncPolicy::None, SyncPolicy::File] {
            assert_eq!(SyncPolicy::parse(policy.name()), Some(policy));
        }
        assert_eq!(SyncPolicy::parse("always"), None);
    }

    #[test]
    fn an_error_reported_once_by_the_kernel_is_returned_each_time() {
        let durability = FileDurability::new(SyncPolicy::File, None);
        let failed = durability.record_error(Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(failed.is_err());
        let file = tempfile::tempfile().unwrap();
        for _ in 0..2 {
            let error = durability.sync(&file).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
    }

    #[test]
    fn an_error_reported_to_another_thread_during_a_sync_fails_the_sync() {
        let file = tempfile::tempfile().unwrap();
        let durability = FileDurability::new(SyncPolicy::File, None);
        durability.note_written(&file, 0, 10).unwrap();
        let (report, reported) = std::sync::mpsc::channel();
        let synced = std::thread::scope(|scope| {
            durability.sync_by(|_| {
                // A writer waits for the same write-back, gets its error, and is then slow.
                scope.spawn(|| {
                    durability.run_recording_error(|| {
                        report.send(()).unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        Err(io::Error::from_raw_os_error(libc::ENOSPC))
                    })
                });
                reported.recv().unwrap();
                Ok(())
            })
        });
        assert_eq!(synced.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(durability.unsynced().to_string(), "0-10");
        let again = durability.sync_by(|_| Ok(())).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn ranges_written_since_the_last_sync_are_recorded() {
        let file = tempfile::tempfile().unwrap();
        let durability = FileDurability::new(SyncPolicy::File, None);
        durability.note_written(&file, 0, 10).unwrap();
        durability.sync(&file).unwrap();
        durability.note_written(&file, 20, 5).unwrap();
        durability.note_write(30, 5);
        assert_eq!(durability.unsynced().to_string(), "20-25,30-35");
        assert!(
            durability
                .record_error(Err(io::ErrorKind::Other.into()))
                .is_err()
        );
        durability.sync(&file).unwrap_err();
        assert_eq!(durability.unsynced().to_string(), "20-25,30-35");
        let none = FileDurability::new(SyncPolicy::None, None);
        none.note_written(&file, 0, 10).unwrap();
        assert!(none.unsynced().is_empty());
    }

    #[test]
    fn every_policy_syncs_a_file_and_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        for policy in [SyncPolicy::None, SyncPolicy::File] {
            let file = File::create(dir.path().join(policy.name())).unwrap();
            let entry = File::open(dir.path()).unwrap();
            let durability = FileDurability::new(policy, Some(entry));
            durability.note_written(&file, 0, 1 << 30).unwrap();
            durability.sync(&file).unwrap();
            durability.sync(&file).unwrap();
            policy.sync_directory(dir.path()).unwrap();
        }
    }
}
