//! A session's files: what the state machine asks for, done inside the session's root.
//!
//! Everything here blocks; the driver calls it on a blocking thread.

use std::sync::Arc;

use data::store::durability::SyncPolicy;
use data::store::root::{FileIdentity, Root, StoreError, file_clock};
use data::store::write_lock::WriteLockKind;
use proto::path::VPath;
use proto::server::{
    AccountRights, FileError, FileErrorKind, FileRequest, FileResponse, ListRequest, TransferError,
};

mod checksum;
mod checksum_cache;
mod listing;
mod listing_memory;
mod transfer;
mod uploads;

#[cfg(test)]
mod tests;

pub use checksum::RunningChecksum;
pub(crate) use checksum::aborted_error;
pub use checksum_cache::ChecksumCache;
pub use listing_memory::{ListingMemory, ListingMemoryShare};
pub use transfer::{OpenedSource, OpenedStore, OpenedTransfer};
use uploads::LastUpload;
pub use uploads::{ActiveUpload, ControlSocket, UploadClient, UploadRegistry, Uploader};

/// The files of one session.
#[derive(Debug, Clone)]
pub struct SessionFiles {
    root: Arc<Root>,
    rights: AccountRights,
    checksums: Arc<ChecksumCache>,
    uploads: Arc<UploadRegistry>,
    listing_memory: ListingMemory,
    sync: SyncPolicy,
    last_upload: LastUpload,
}

impl SessionFiles {
    /// The files below `root`, used with `rights`; `sums`, `uploads` and `room` are shared by all
    /// sessions.
    pub fn new(
        root: Arc<Root>,
        rights: AccountRights,
        sums: Arc<ChecksumCache>,
        uploads: Arc<UploadRegistry>,
        room: ListingMemory,
    ) -> Self {
        Self {
            root,
            rights,
            checksums: sums,
            uploads,
            listing_memory: room,
            sync: SyncPolicy::default(),
            last_upload: LastUpload::default(),
        }
    }

    /// The same, with another policy about what is forced to disk.
    #[must_use]
    pub fn with_sync(self, sync: SyncPolicy) -> Self {
        Self { sync, ..self }
    }

    /// A listing for a reply, and the memory that it takes until the reply is sent.
    pub fn list(
        &self,
        request: &ListRequest,
    ) -> Result<(FileResponse, ListingMemoryShare), FileError> {
        let (lines, share) = self.list_lines(request)?;
        Ok((FileResponse::Lines(lines), share))
    }

    /// Carries out a request. `progress` is called now and then during a checksum with the bytes
    /// summed so far; `false` stops it ([`FileErrorKind::Aborted`]).
    pub fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileResponse, FileError> {
        match request {
            FileRequest::Stat(path) => Ok(FileResponse::Entry(Box::new(self.stat(path)?))),
            FileRequest::ChangeDir(path) => done_answer(self.root.enter(path)),
            FileRequest::List(request) => self.list(request).map(|(answer, _)| answer),
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                marker_seconds: _,
            } => self
                .checksum(*algorithm, path, *offset, *length, progress)
                .map(FileResponse::Checksum),
            change => self.run_change(change),
        }
    }

    /// The requests that need the right to write.
    fn run_change(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        self.require_write()?;
        let root = &self.root;
        match request {
            FileRequest::MakeDir(path) => {
                root.make_dir(path)?;
                self.sync_directories(&[path])
            }
            FileRequest::RemoveDir(path) => done_answer(root.remove_dir(path)),
            FileRequest::Delete(path) => done_answer(root.delete(path)),
            FileRequest::RemoveTree(path) => done_answer(root.remove_tree(path)),
            FileRequest::Rename { from, to } => {
                self.keep_checksums(from, to, || self.rename(from, to))?;
                self.sync_directories(&[to, from])
            }
            FileRequest::SetModified(path, time) => {
                let before = root.identity(path);
                root.set_modified(path, *time)?;
                if let (Ok(before), Ok(after)) = (before, root.identity(path)) {
                    self.last_upload.carry_over(&before, after);
                }
                Ok(FileResponse::Done)
            }
            FileRequest::Chmod(path, mode) => {
                self.keep_checksums(path, path, || done_answer(root.chmod(path, *mode)))
            }
            FileRequest::Chgrp(path, group) => {
                self.keep_checksums(path, path, || done_answer(root.chgrp(path, group)))
            }
            FileRequest::Symlink { target, link } => done_answer(root.symlink(target, link)),
            FileRequest::Truncate(path, length) => self.truncate(path, *length),
            FileRequest::Stat(_)
            | FileRequest::ChangeDir(_)
            | FileRequest::List(_)
            | FileRequest::Checksum { .. } => Ok(FileResponse::Done),
        }
    }

    /// The answer to a change of these names, once it is on disk.
    fn sync_directories(&self, names: &[&VPath]) -> Result<FileResponse, FileError> {
        if self.sync != SyncPolicy::None {
            let mut directories = Vec::new();
            for name in names {
                if !directories.contains(&name.parent()) {
                    self.root.sync_name(name)?;
                    directories.push(name.parent());
                }
            }
        }
        Ok(FileResponse::Done)
    }

    fn stat(&self, path: &VPath) -> Result<proto::listing::DirectoryEntry, FileError> {
        let mut entry = self.root.stat(path)?;
        entry.permissions.write &= self.rights.write;
        Ok(entry)
    }

    fn require_write(&self) -> Result<(), FileError> {
        if self.rights.write {
            return Ok(());
        }
        Err(FileError {
            kind: FileErrorKind::Denied,
            errno: None,
            text: "Permission denied: this session may only read".to_owned(),
        })
    }

    /// Who renames a file takes it for whole, and for what it stored: one that somebody else stores, or
    /// has stored over this session's upload, is not renamed.
    fn rename(&self, from: &VPath, to: &VPath) -> Result<FileResponse, FileError> {
        let rename = || done_answer(self.root.rename(from, to));
        match self.root.identity(from) {
            Ok(there) => {
                let renamed = self.uploads.unless_uploading(there.inode, || {
                    // Again, now that no upload can begin.
                    match self.root.identity(from) {
                        Ok(now) if self.last_upload.was_overwritten(&now) => {
                            Err(uploads::in_use_error())
                        }
                        _ => rename(),
                    }
                });
                renamed.unwrap_or_else(|| Err(uploads::in_use_error()))
            }
            // A link that leads nowhere, or nothing.
            Err(_) => rename(),
        }
    }

    /// Only a file that nobody stores is cut.
    fn truncate(&self, path: &VPath, length: u64) -> Result<FileResponse, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("truncate", path, &error);
        let file = self.root.open_existing(path)?;
        let inode = FileIdentity::of(&file).map_err(failed)?.inode;
        let lease = self
            .uploads
            .exclude_uploads(inode)
            .ok_or_else(uploads::in_use_error)?;
        self.last_upload.forget(inode);
        transfer::lock(&file, WriteLockKind::Exclusive, path)?;
        file.set_len(length).map_err(failed)?;
        drop(file); // unlocks, while uploads are still kept away
        drop(lease);
        Ok(FileResponse::Done)
    }

    /// Runs a change that touches neither content nor modification time, and lets the file keep the checksums known of it.
    fn keep_checksums(
        &self,
        before: &VPath,
        after: &VPath,
        change: impl FnOnce() -> Result<FileResponse, FileError>,
    ) -> Result<FileResponse, FileError> {
        let clock = file_clock();
        let old: Option<FileIdentity> = self.root.identity(before).ok();
        let answer = change()?;
        if let (Some(old), Ok(new)) = (old, self.root.identity(after)) {
            self.checksums.carry_over(&old, new, clock);
            self.last_upload.carry_over(&old, new);
        }
        Ok(answer)
    }
}

/// A store that failed before or after its bytes passed.
pub(crate) fn transfer_error_of_file(error: FileError) -> TransferError {
    match error.kind {
        FileErrorKind::Aborted => TransferError::Aborted,
        _ => TransferError::File(error),
    }
}

fn done_answer(result: Result<(), StoreError>) -> Result<FileResponse, FileError> {
    result?;
    Ok(FileResponse::Done)
}
