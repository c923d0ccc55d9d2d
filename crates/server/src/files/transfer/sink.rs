//! The sink of a store: the upload owns the file until the store ends, and the file is unchanged
//! until the first byte arrives.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use data::store::file::FileSink;
use data::store::root::{FileIdentity, Root};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use data::store::{Sink, Source};
use parking_lot::Mutex;
use proto::path::VPath;

use crate::files::quota::FileCharge;
use crate::files::uploads::{KeptContent, UploadLease};

/// The file of a store. The old content is truncated at the first byte, or at the successful end of an
/// empty store, so a store without data changes nothing. The store ends with [`StoreSink::finish`] or
/// [`StoreSink::abandon`]; after that the sink takes no more bytes.
#[derive(Debug)]
pub(super) struct StoreSink {
    /// The fields drop in order: the file is closed, and so unlocked, before the lease ends.
    file: FileSink,
    pub(super) target: TargetFile,
    state: Mutex<StoreState>,
    pub(super) lease: UploadLease,
    /// The file's charge to the quota.
    charge: Option<FileCharge>,
}

/// The file that a store has opened.
#[derive(Debug)]
pub(super) struct TargetFile {
    pub(super) root: Arc<Root>,
    pub(super) path: VPath,
    /// The store created the file.
    pub(super) created: bool,
    /// Length to which the file is truncated before its first byte.
    pub(super) truncate_to: Option<u64>,
}

/// How far a store has come.
#[derive(Debug)]
enum StoreState {
    /// No byte has arrived: the file is unchanged.
    Unchanged(StoreFaults),
    /// The file's content changes.
    Changing(StoreFaults),
    /// The store has succeeded or was abandoned.
    Ended,
}

/// Refusals of a store, which decide what stays of it.
#[derive(Debug, Clone, Copy, Default)]
struct StoreFaults {
    /// The disk refused a write or a sync.
    disk: bool,
    /// The quota refused bytes.
    quota: bool,
}

impl StoreSink {
    pub(super) fn new(
        file: FileSink,
        target: TargetFile,
        lease: UploadLease,
        charge: Option<FileCharge>,
    ) -> Self {
        Self {
            file,
            target,
            state: Mutex::new(StoreState::Unchanged(StoreFaults::default())),
            lease,
            charge,
        }
    }

    /// Ends a store that has succeeded: its file stays, even if it is empty.
    pub(super) fn finish(&self) {
        *self.state.lock() = StoreState::Ended;
    }

    /// Ends a store that has failed: the received bytes stay for a restart, except those that the disk or the
    /// quota refused, and a file that the store created and left empty is removed. If the disk refused a write
    /// and the store had the file alone, only bytes that are on disk stay.
    pub(super) fn abandon(&self) {
        let ended = std::mem::replace(&mut *self.state.lock(), StoreState::Ended);
        let (StoreState::Unchanged(faults) | StoreState::Changing(faults)) = ended else {
            return;
        };
        if faults.disk {
            self.discard_unsynced();
        }
        if faults.quota {
            self.undo();
        }
        if self.target.created {
            let TargetFile { root, path, .. } = &self.target;
            remove_unused(root, path, self.file(), &self.lease);
        }
    }

    /// Charges the file for bytes up to `end`.
    fn charge_to(&self, end: u64) -> io::Result<()> {
        let Some(charge) = &self.charge else {
            return Ok(());
        };
        let charged = charge.grow_to(end);
        if charged.is_err() {
            self.state.lock().note(|faults| faults.quota = true);
        }
        charged
    }

    /// Undoes a store that the quota has stopped: no part of a file stays under the name of the whole. A file that
    /// was there before, and is appended to or resumed, or of which a range was stored, gets its former length. A file
    /// of which others have stored ranges meanwhile stays, because none of them has the whole.
    fn undo(&self) {
        let is_alone = || self.lease.begin_rollback() && no_other_process_stores(self.file());
        if !(self.lease.is_exclusive() || is_alone()) {
            return;
        }
        let TargetFile { root, path, .. } = &self.target;
        if self.target.created || self.target.truncate_to == Some(0) {
            remove_if(root, path, self.file(), &self.lease, |_| true);
        } else if let Some(charge) = &self.charge
            && let Err(error) = self.file().set_len(charge.size_before)
        {
            tracing::warn!(%path, %error, "a store above the quota cannot be undone");
        }
    }

    /// Returns the result unchanged, and records whether it is an error.
    pub(super) fn note_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.state.lock().note(|faults| faults.disk = true);
        }
        result
    }

    /// The file, to truncate, stat or sync it.
    pub(super) fn file(&self) -> &File {
        self.file.file()
    }

    /// Whether the path still leads to the file that is written.
    pub(super) fn is_at_path(&self) -> io::Result<bool> {
        path_is_file(&self.target.root, &self.target.path, self.file())
    }

    /// Truncates the old content. The caller holds the state's lock: other streams must not write before.
    fn begin_change(&self) -> io::Result<()> {
        if self.lease.check_wanted().is_err() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the client has disconnected",
            ));
        }
        let before = FileIdentity::of(self.file())?;
        self.lease.begin_change(&before, self.keeps());
        if let Some(length) = self.target.truncate_to
            && before.size > length
        {
            self.file().set_len(length)?;
        }
        Ok(())
    }

    fn keeps(&self) -> KeptContent {
        match self.target.truncate_to {
            _ if self.target.created => KeptContent::IsNew,
            Some(0) => KeptContent::Nothing,
            _ => KeptContent::Some,
        }
    }

    /// Removes bytes that are only in memory, so that no checksum or size vouches for them. If another
    /// upload had the file, too, they stay, because its client may have been told that they are on disk;
    /// then only the cached pages are dropped.
    fn discard_unsynced(&self) {
        if !(self.lease.begin_rollback() && no_other_process_stores(self.file())) {
            self.file.forget_pages();
            return;
        }
        if let Err(error) = self.file.forget_unsynced(self.lease.is_exclusive()) {
            let path = &self.target.path;
            tracing::warn!(%path, %error, "a store failed, and its file may hold bytes that are not on disk");
        }
    }
}

impl StoreState {
    fn note(&mut self, fault: impl FnOnce(&mut StoreFaults)) {
        if let Self::Unchanged(faults) | Self::Changing(faults) = self {
            fault(faults);
        }
    }
}

/// Whether the path leads to the open file.
fn path_is_file(root: &Root, path: &VPath, file: &File) -> io::Result<bool> {
    let ours = FileIdentity::of(file)?;
    let named = root.identity(path);
    Ok(named.is_ok_and(|named| named.inode == ours.inode))
}

/// Whether no other process stores into the file or may begin to.
fn no_other_process_stores(file: &File) -> bool {
    let claimed = take_write_lock(file, WriteLockKind::Exclusive);
    matches!(
        claimed,
        Ok(WriteLockStatus::Held | WriteLockStatus::Unsupported)
    )
}

/// Removes a file that a store created, if it is empty and no other store has it open.
pub(super) fn remove_unused(root: &Root, path: &VPath, file: &File, lease: &UploadLease) {
    // If the removal fails, an empty file stays; nothing is lost.
    remove_if(root, path, file, lease, |meta| meta.len() == 0);
}

/// Removes a file that this store owns alone, under a condition.
fn remove_if(
    root: &Root,
    path: &VPath,
    file: &File,
    lease: &UploadLease,
    condition: impl FnOnce(&Metadata) -> bool,
) {
    lease.if_only_owner(|| {
        let fulfilled = file.metadata().is_ok_and(|meta| condition(&meta));
        let is_at_path = || path_is_file(root, path, file).unwrap_or(false);
        if fulfilled && is_at_path() && no_other_process_stores(file) {
            let _ = root.delete(path);
        }
    });
}

impl Sink for StoreSink {
    fn name(&self) -> String {
        self.file.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.begin(offset.saturating_add(buf.len() as u64))?;
        self.note_error(self.file.write_at(offset, buf))
    }

    fn begin(&self, end: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        match *state {
            StoreState::Unchanged(faults) => {
                self.begin_change()?;
                *state = StoreState::Changing(faults);
            }
            StoreState::Changing(_) => {}
            StoreState::Ended => return Err(io::Error::other("the store has ended")),
        }
        drop(state);
        self.charge_to(end)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }

    fn is_seekable(&self) -> bool {
        self.file.is_seekable()
    }

    /// The stored bytes. Checksums of an upload are computed from received bytes; only bytes that arrive
    /// twice are read back.
    fn open_for_comparison(&self) -> Option<Arc<dyn Source>> {
        self.file.open_for_comparison()
    }

    fn spliced(&self, offset: u64, len: u64) -> io::Result<()> {
        self.note_error(self.file.spliced(offset, len))
    }

    fn is_durable(&self) -> bool {
        self.file.is_durable()
    }

    fn sync(&self) -> io::Result<()> {
        self.note_error(self.file.sync())
    }
}

impl Drop for StoreSink {
    fn drop(&mut self) {
        // Only after a panic has nobody ended it.
        self.abandon();
        if let Some(charge) = &self.charge {
            charge.settle(self.file());
        }
    }
}
