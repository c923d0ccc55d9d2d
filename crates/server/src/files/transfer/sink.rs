//! The sink of a store: the upload owns the file until the store ends, and the file is unchanged
//! until the first byte arrives.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::store::file::FileSink;
use data::store::root::{FileIdentity, Root};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use data::store::{Sink, Source};
use parking_lot::Mutex;
use proto::path::VPath;

use crate::files::quota::FileCharge;
use crate::files::uploads::{KeptContent, UploadLease};

/// The file of a store. The old content is truncated at the first byte, or at the successful end of an
/// empty store. So a store without data changes nothing, and a file that it created is removed. If
/// the disk refused a write and the store had the file alone, only bytes that are on disk stay.
#[derive(Debug)]
pub(super) struct StoreSink {
    /// The fields drop in order: the file is closed, and so unlocked, before the lease ends.
    file: FileSink,
    pub(super) root: Arc<Root>,
    pub(super) path: VPath,
    /// The store created the file.
    created: bool,
    /// Length to which the file is truncated before its first byte.
    truncate_to: Option<u64>,
    has_begun: AtomicBool,
    beginning: Mutex<()>,
    /// The disk refused a write or a sync.
    refused: AtomicBool,
    /// The store has succeeded: its file stays.
    succeeded: AtomicBool,
    pub(super) lease: UploadLease,
    /// The file's charge to the quota.
    charge: Option<FileCharge>,
    /// The quota has refused bytes.
    over_quota: AtomicBool,
}

impl StoreSink {
    pub(super) fn new(
        file: FileSink,
        root: Arc<Root>,
        path: VPath,
        created: bool,
        truncate_to: Option<u64>,
        lease: UploadLease,
        charge: Option<FileCharge>,
    ) -> Self {
        Self {
            file,
            root,
            path,
            created,
            truncate_to,
            has_begun: AtomicBool::new(false),
            beginning: Mutex::default(),
            refused: AtomicBool::new(false),
            succeeded: AtomicBool::new(false),
            lease,
            charge,
            over_quota: AtomicBool::new(false),
        }
    }

    /// Charges the file for bytes up to `end`.
    fn charge_to(&self, end: u64) -> io::Result<()> {
        let Some(charge) = &self.charge else {
            return Ok(());
        };
        let charged = charge.grow_to(end);
        if charged.is_err() {
            self.over_quota.store(true, Ordering::Relaxed);
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
        if self.created || self.truncate_to == Some(0) {
            remove_if(&self.root, &self.path, self.file(), &self.lease, |_| true);
        } else if let Some(charge) = &self.charge
            && let Err(error) = self.file().set_len(charge.size_before)
        {
            let path = self.path.to_string();
            tracing::warn!(%path, %error, "a store above the quota cannot be undone");
        }
    }

    /// Records that the store has succeeded: its file stays, even if it is empty.
    pub(super) fn mark_succeeded(&self) {
        self.succeeded.store(true, Ordering::Relaxed);
    }

    /// Returns the result unchanged, and records whether it is an error.
    pub(super) fn note_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.refused.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The file, to truncate, stat or sync it.
    pub(super) fn file(&self) -> &File {
        self.file.file()
    }

    /// Whether the path still leads to the file that is written.
    pub(super) fn is_at_path(&self) -> io::Result<bool> {
        path_is_file(&self.root, &self.path, self.file())
    }

    fn begin_once(&self) -> io::Result<()> {
        let _guard = self.beginning.lock();
        if self.has_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.lease.check_wanted().is_err() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the client has disconnected",
            ));
        }
        let before = FileIdentity::of(self.file())?;
        self.lease.begin_change(&before, self.keeps());
        if let Some(length) = self.truncate_to
            && before.size > length
        {
            self.file().set_len(length)?;
        }
        // Release pairs with the Acquire in `begin`: other streams must not write before the
        // truncation.
        self.has_begun.store(true, Ordering::Release);
        Ok(())
    }

    fn keeps(&self) -> KeptContent {
        match self.truncate_to {
            _ if self.created => KeptContent::IsNew,
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
            let path = self.path.to_string();
            tracing::warn!(%path, %error, "a store failed, and its file may hold bytes that are not on disk");
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
        if !self.has_begun.load(Ordering::Acquire) {
            self.begin_once()?;
        }
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
        if self.refused.load(Ordering::Relaxed) {
            self.discard_unsynced();
        }
        if self.over_quota.load(Ordering::Relaxed) {
            self.undo();
        }
        if self.created && !self.succeeded.load(Ordering::Relaxed) {
            remove_unused(&self.root, &self.path, self.file(), &self.lease);
        }
        if let Some(charge) = &self.charge {
            charge.settle(self.file());
        }
    }
}
