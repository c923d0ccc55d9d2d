//! A file that is being stored: owned from its opening to the end of the store, and left as it was
//! until the first byte has come.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use data::store::file::FileSink;
use data::store::root::{FileIdentity, Root};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use data::store::{Sink, Source};
use proto::path::VPath;

use crate::files::uploads::UploadLease;

/// A client that is gone before its first byte, or a data connection that never brings one, changes
/// nothing: what the store replaces is cut at the first byte or at the store's proper end, and a
/// file that was made for nothing is removed. Of a store whose disk refused something, and that had
/// the file alone, only what is on disk stays.
#[derive(Debug)]
pub(super) struct StoreSink {
    /// Closed, and with it unlocked, before the lease ends.
    file: FileSink,
    pub(super) root: Arc<Root>,
    pub(super) path: VPath,
    /// This store made the file.
    created: bool,
    /// Where the file is cut before its first byte.
    cut: Option<u64>,
    begun: AtomicBool,
    beginning: Mutex<()>,
    /// The disk did not take something.
    refused: AtomicBool,
    /// The store has succeeded.
    kept: AtomicBool,
    pub(super) lease: UploadLease,
}

impl StoreSink {
    pub(super) fn new(
        file: FileSink,
        root: Arc<Root>,
        path: VPath,
        created: bool,
        cut: Option<u64>,
        lease: UploadLease,
    ) -> Self {
        Self {
            file,
            root,
            path,
            created,
            cut,
            begun: AtomicBool::new(false),
            beginning: Mutex::default(),
            refused: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            lease,
        }
    }

    /// The store has succeeded: its file stays, even if it is empty.
    pub(super) fn mark_succeeded(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Passes on what the disk says, and remembers a refusal.
    pub(super) fn note_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.refused.store(true, Ordering::Relaxed);
        }
        result
    }

    /// The file, to cut, stat or sync it.
    pub(super) fn file(&self) -> &File {
        self.file.file()
    }

    /// Whether the path leads to the very file that is written.
    pub(super) fn is_at_path(&self) -> io::Result<bool> {
        path_is_file(&self.root, &self.path, self.file())
    }

    fn begin_once(&self) -> io::Result<()> {
        let _one = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.begun.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.lease.check_wanted().is_err() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the client is gone",
            ));
        }
        if let Some(length) = self.cut
            && self.file().metadata()?.len() > length
        {
            self.file().set_len(length)?;
        }
        self.begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Nobody can take what memory alone holds for stored, not by a checksum either.
    /// What another upload stored over, too, stays: that one was perhaps told that it is on disk.
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

/// Whether the path leads to the very file that is open.
fn path_is_file(root: &Root, path: &VPath, file: &File) -> io::Result<bool> {
    let ours = FileIdentity::of(file)?;
    let named = root.identity(path);
    Ok(named.is_ok_and(|named| named.inode == ours.inode))
}

/// No other process stores into the file, or may begin to.
fn no_other_process_stores(file: &File) -> bool {
    let claimed = take_write_lock(file, WriteLockKind::Exclusive);
    matches!(
        claimed,
        Ok(WriteLockStatus::Held | WriteLockStatus::Unsupported)
    )
}

/// Removes a file that a store made, if it is empty and nobody else has it: only then was it made for
/// nothing.
pub(super) fn remove_unused(root: &Root, path: &VPath, file: &File, lease: &UploadLease) {
    lease.if_only_owner(|| {
        let empty = file.metadata().is_ok_and(|meta| meta.len() == 0);
        if empty && path_is_file(root, path, file).unwrap_or(false) && no_other_process_stores(file)
        {
            // What cannot be removed is an empty file, and stays one.
            let _ = root.delete(path);
        }
    });
}

impl Sink for StoreSink {
    fn name(&self) -> String {
        self.file.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.note_error(self.file.write_at(offset, buf))
    }

    fn begin(&self) -> io::Result<()> {
        if self.begun.load(Ordering::Acquire) {
            return Ok(());
        }
        self.begin_once()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }

    fn is_seekable(&self) -> bool {
        self.file.is_seekable()
    }

    /// Sums of an upload are made of what passes; only bytes that come twice are read.
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
        if self.created && !self.kept.load(Ordering::Relaxed) {
            remove_unused(&self.root, &self.path, self.file(), &self.lease);
        }
    }
}
