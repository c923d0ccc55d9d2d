//! A session's files: what the state machine asks for, done inside the session's root.
//!
//! Everything here blocks; the driver calls it on a blocking thread.

use std::sync::Arc;

use data::store::claim::Claim;
use data::store::durability::SyncPolicy;
use data::store::root::{Identity, Root, StoreError, file_clock};
use proto::path::VPath;
use proto::server::{
    FileAnswer, FileError, FileErrorKind, FileRequest, ListRequest, Rights, TransferError,
};

mod checksum;
mod listing;
mod room;
mod sums;
mod transfer;
mod uploads;

#[cfg(test)]
mod tests;

pub use checksum::Summing;
pub(crate) use checksum::aborted;
pub use room::{Room, Share};
pub use sums::Sums;
pub use transfer::{Opened, Sending, Storing};
use uploads::LastUpload;
pub use uploads::{ControlLine, LiveUpload, Storer, Uploader, Uploads};

/// The files of one session.
#[derive(Debug, Clone)]
pub struct Files {
    root: Arc<Root>,
    rights: Rights,
    sums: Arc<Sums>,
    uploads: Arc<Uploads>,
    room: Room,
    sync: SyncPolicy,
    last_upload: LastUpload,
}

impl Files {
    /// The files below `root`, used with `rights`; `sums`, `uploads` and `room` are shared by all
    /// sessions.
    pub fn new(
        root: Arc<Root>,
        rights: Rights,
        sums: Arc<Sums>,
        uploads: Arc<Uploads>,
        room: Room,
    ) -> Self {
        Self {
            root,
            rights,
            sums,
            uploads,
            room,
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
    pub fn list(&self, request: &ListRequest) -> Result<(FileAnswer, Share), FileError> {
        let (lines, share) = self.list_lines(request)?;
        Ok((FileAnswer::Lines(lines), share))
    }

    /// Carries out a request. `progress` is called now and then during a checksum with the bytes
    /// summed so far; `false` stops it ([`FileErrorKind::Aborted`]).
    pub fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileAnswer, FileError> {
        match request {
            FileRequest::Stat(path) => Ok(FileAnswer::Entry(Box::new(self.stat(path)?))),
            FileRequest::ChangeDir(path) => done(self.root.enter(path)),
            FileRequest::List(request) => self.list(request).map(|(answer, _)| answer),
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                marker_seconds: _,
            } => self
                .checksum(*algorithm, path, *offset, *length, progress)
                .map(FileAnswer::Digest),
            change => self.change(change),
        }
    }

    /// The requests that need the right to write.
    fn change(&self, request: &FileRequest) -> Result<FileAnswer, FileError> {
        self.require_write()?;
        let root = &self.root;
        match request {
            FileRequest::MakeDir(path) => {
                root.make_dir(path)?;
                self.sync_names(&[path])
            }
            FileRequest::RemoveDir(path) => done(root.remove_dir(path)),
            FileRequest::Delete(path) => done(root.delete(path)),
            FileRequest::RemoveTree(path) => done(root.remove_tree(path)),
            FileRequest::Rename { from, to } => {
                self.keeping_sums(from, to, || self.rename(from, to))?;
                self.sync_names(&[to, from])
            }
            FileRequest::SetModified(path, time) => {
                let before = root.identity(path);
                root.set_modified(path, *time)?;
                if let (Ok(before), Ok(after)) = (before, root.identity(path)) {
                    self.last_upload.carry(&before, after);
                }
                Ok(FileAnswer::Done)
            }
            FileRequest::Chmod(path, mode) => {
                self.keeping_sums(path, path, || done(root.chmod(path, *mode)))
            }
            FileRequest::Chgrp(path, group) => {
                self.keeping_sums(path, path, || done(root.chgrp(path, group)))
            }
            FileRequest::Symlink { target, link } => done(root.symlink(target, link)),
            FileRequest::Truncate(path, length) => self.truncate(path, *length),
            FileRequest::Stat(_)
            | FileRequest::ChangeDir(_)
            | FileRequest::List(_)
            | FileRequest::Checksum { .. } => Ok(FileAnswer::Done),
        }
    }

    /// The answer to a change of these names, once it is on disk.
    fn sync_names(&self, names: &[&VPath]) -> Result<FileAnswer, FileError> {
        if self.sync != SyncPolicy::None {
            let mut directories = Vec::new();
            for name in names {
                if !directories.contains(&name.parent()) {
                    self.root.sync_name(name)?;
                    directories.push(name.parent());
                }
            }
        }
        Ok(FileAnswer::Done)
    }

    fn stat(&self, path: &VPath) -> Result<proto::listing::Entry, FileError> {
        let mut entry = self.root.stat(path)?;
        entry.access.write &= self.rights.write;
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
    fn rename(&self, from: &VPath, to: &VPath) -> Result<FileAnswer, FileError> {
        let rename = || done(self.root.rename(from, to));
        match self.root.identity(from) {
            Ok(there) => {
                let renamed = self.uploads.unless_written(there.inode, || {
                    // Again, now that no upload can begin.
                    match self.root.identity(from) {
                        Ok(now) if self.last_upload.is_overtaken(&now) => Err(uploads::in_use()),
                        _ => rename(),
                    }
                });
                renamed.unwrap_or_else(|| Err(uploads::in_use()))
            }
            // A link that leads nowhere, or nothing.
            Err(_) => rename(),
        }
    }

    /// Only a file that nobody stores is cut.
    fn truncate(&self, path: &VPath, length: u64) -> Result<FileAnswer, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("truncate", path, &error);
        let file = self.root.open_existing(path)?;
        let inode = Identity::of(&file).map_err(failed)?.inode;
        let lease = self.uploads.keep_away(inode).ok_or_else(uploads::in_use)?;
        self.last_upload.forget(inode);
        transfer::lock(&file, Claim::Sole, path)?;
        file.set_len(length).map_err(failed)?;
        drop(file); // unlocks, while uploads are still kept away
        drop(lease);
        Ok(FileAnswer::Done)
    }

    /// Runs a change that touches neither content nor modification time, and lets the file keep the checksums known of it.
    fn keeping_sums(
        &self,
        before: &VPath,
        after: &VPath,
        change: impl FnOnce() -> Result<FileAnswer, FileError>,
    ) -> Result<FileAnswer, FileError> {
        let clock = file_clock();
        let old: Option<Identity> = self.root.identity(before).ok();
        let answer = change()?;
        if let (Some(old), Ok(new)) = (old, self.root.identity(after)) {
            self.sums.carry(&old, new, clock);
            self.last_upload.carry(&old, new);
        }
        Ok(answer)
    }
}

/// A store that failed before or after its bytes passed.
pub(crate) fn transfer_failure(error: FileError) -> TransferError {
    match error.kind {
        FileErrorKind::Aborted => TransferError::Aborted,
        _ => TransferError::File(error),
    }
}

fn done(result: Result<(), StoreError>) -> Result<FileAnswer, FileError> {
    result?;
    Ok(FileAnswer::Done)
}
