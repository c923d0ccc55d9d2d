//! The file requests of a session whose root is a directory, carried out inside it; and what they share with those of other
//! sessions.
//!
//! All functions here block; the driver calls them on a blocking thread.

use std::sync::Arc;

use data::store::durability::SyncPolicy;
use data::store::root::{FileIdentity, Root, StoreError, file_clock};
use data::store::write_lock::WriteLockKind;
use proto::listing::{DirectoryEntry, EntryKind};
use proto::path::VPath;
use proto::server::{
    AccountRights, FileError, FileErrorKind, FileRequest, FileResponse, ListRequest, TransferError,
};

mod checksum;
mod checksum_cache;
mod counted_changes;
mod listing;
mod listing_memory;
mod message;
mod passed_bundle;
mod path_rights;
mod quota;
mod server_account;
mod transfer;
mod uploads;

#[cfg(test)]
mod tests;

pub use checksum::PassingChecksum;
pub use checksum::RunningChecksum;
pub(crate) use checksum::{ChecksumContent, ChecksumPart, ChecksumUse};
pub use checksum_cache::ChecksumCache;
pub(crate) use listing::{ListedFiles, ListingSource, ListingWriter, list_lines};
pub use listing_memory::{ListingMemory, ListingMemoryShare};
use passed_bundle::LastBundle;
pub(crate) use path_rights::Access;
pub use path_rights::PathRights;
pub use quota::{QuotaLedger, SessionQuota};
use server_account::told_as_the_servers;
pub use transfer::{
    OpenedBundleSource, OpenedBundleStore, OpenedSource, OpenedStore, OpenedTransfer,
};
pub(crate) use transfer::{StoreEnd, announced_end, require_announced_size, send_plan};
pub use uploads::{ActiveUpload, ControlSocket, UploadClient, UploadRegistry, Uploader};
use uploads::{KeptContent, LastUpload, StoredPlace};
pub(crate) use uploads::{UploadLease, aborted_error, in_use_error};

/// The files of one session, below a directory.
#[derive(Debug, Clone)]
pub struct DirectoryFiles {
    root: Arc<Root>,
    rights: AccountRights,
    paths: PathRights,
    checksums: Arc<ChecksumCache>,
    uploads: Arc<UploadRegistry>,
    listing_memory: ListingMemory,
    sync: SyncPolicy,
    last_upload: LastUpload,
    last_bundle: LastBundle,
    /// Name of the file with the message of a directory.
    directory_message: Option<Arc<str>>,
    quota: Option<SessionQuota>,
}

impl DirectoryFiles {
    /// Whether a quota bounds what this session stores.
    pub(crate) fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// The files below `root`, accessed with `rights`. All sessions share `checksums`, `uploads` and
    /// `listing_memory`.
    pub fn new(
        root: Arc<Root>,
        rights: AccountRights,
        checksums: Arc<ChecksumCache>,
        uploads: Arc<UploadRegistry>,
        listing_memory: ListingMemory,
    ) -> Self {
        Self {
            root,
            rights,
            paths: PathRights::default(),
            checksums,
            uploads,
            listing_memory,
            sync: SyncPolicy::default(),
            last_upload: LastUpload::default(),
            last_bundle: LastBundle::default(),
            directory_message: None,
            quota: None,
        }
    }

    /// The same files with another sync policy.
    #[must_use]
    pub fn with_sync(self, sync: SyncPolicy) -> Self {
        Self { sync, ..self }
    }

    /// The same files with rights that depend on the path; links are no longer followed.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub fn with_path_rights(self, paths: PathRights) -> std::io::Result<Self> {
        let root = Arc::new(self.root.without_links()?);
        Ok(Self {
            root,
            paths,
            ..self
        })
    }

    /// A listing for a reply, and the memory reserved for it until the reply is sent.
    pub fn list(
        &self,
        request: &ListRequest,
    ) -> Result<(FileResponse, ListingMemoryShare), FileError> {
        let (lines, share) = self.list_lines(request)?;
        Ok((FileResponse::Lines(lines), share))
    }

    /// Carries out a request. During a checksum `progress` is called from time to time with the number
    /// of bytes read so far; if it returns `false`, the request ends with [`FileErrorKind::Aborted`].
    pub fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileResponse, FileError> {
        match request {
            FileRequest::Stat(path) => Ok(FileResponse::Entry(Box::new(self.stat(path)?))),
            FileRequest::ChangeDir(path) => {
                self.paths.check(Access::Look, path)?;
                self.root.enter(path)?;
                Ok(self.message_of(path))
            }
            FileRequest::List(request) => self.list(request).map(|(answer, _)| answer),
            FileRequest::EndBundle(proof) => {
                let outcome = self.end_bundle(proof.as_ref())?;
                Ok(FileResponse::Bundle(Box::new(outcome)))
            }
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                marker_seconds: _,
            } => self
                .begin_checksum(*algorithm, path, *offset, *length)?
                .advance(progress)?
                .map(FileResponse::Checksum)
                .ok_or_else(aborted_error),
            change => self.run_change(change),
        }
    }

    /// Carries out a request that needs the right to write.
    fn run_change(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        self.require_write()?;
        if let FileRequest::SymlinkAmong(pairs) = request {
            return self.run_change(&self.pair_that_is_meant(pairs)?);
        }
        self.paths
            .check_change(request, |path| self.is_own_upload(path))?;
        let done = self.run_counted(request, || self.carry_out(request));
        done.map_err(told_as_the_servers)
    }

    fn carry_out(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        let root = &self.root;
        match request {
            FileRequest::MakeDir(path) => {
                root.make_dir(path)?;
                self.sync_directories(&[path])
            }
            FileRequest::RemoveDir(path) => {
                done_answer(self.remove_counted(path, None, || root.remove_dir(path)))
            }
            FileRequest::Delete(path) => {
                done_answer(self.remove_counted(path, None, || root.delete(path)))
            }
            FileRequest::RemoveTree(path) => done_answer(root.remove_tree(path)),
            FileRequest::Rename { from, to } => {
                self.keep_checksums(from, to, || self.rename(from, to))?;
                self.sync_directories(&[to, from])
            }
            FileRequest::SetModified(path, time) => {
                // A change of the time must not look like a change of the content.
                let before = root.identity(path);
                let kept = root.set_modified(path, *time)?;
                if let (Ok(before), Ok(after)) = (before, root.identity(path)) {
                    self.uploads.carry_over(&before, after);
                }
                Ok(FileResponse::Modified(kept))
            }
            FileRequest::Chmod(path, mode) => {
                self.keep_checksums(path, path, || done_answer(root.chmod(path, *mode)))
            }
            FileRequest::Chgrp(path, group) => {
                self.keep_checksums(path, path, || done_answer(root.chgrp(path, group)))
            }
            FileRequest::Symlink { target, link } => done_answer(root.symlink(target, link)),
            FileRequest::Truncate(path, length) => self.truncate(path, *length),
            // `run` handles these. They are listed, so that the compiler asks about a new kind of request.
            FileRequest::Stat(_)
            | FileRequest::ChangeDir(_)
            | FileRequest::List(_)
            | FileRequest::EndBundle(_)
            | FileRequest::SymlinkAmong(_)
            | FileRequest::Checksum { .. } => Ok(FileResponse::Done),
        }
    }

    /// The link of the only pair whose target exists and whose link does not.
    fn pair_that_is_meant(&self, pairs: &[(Vec<u8>, VPath)]) -> Result<FileRequest, FileError> {
        let mut meant = pairs.iter().filter(|(target, link)| {
            let target = link.parent().resolve(target);
            let is_there = |path: &VPath| self.stat(path).is_ok();
            target.is_ok_and(|target| is_there(&target))
                && is_there(&link.parent())
                && !is_there(link)
        });
        match (meant.next(), meant.next()) {
            (Some((target, link)), None) => Ok(FileRequest::Symlink {
                target: target.clone(),
                link: link.clone(),
            }),
            _ => {
                let mut links = pairs.iter().map(|(_, link)| link);
                links.try_for_each(|link| self.paths.check(Access::Create, link))?;
                Err(unclear_names())
            }
        }
    }

    /// Syncs the directories of these names, each once, if the policy says so.
    fn sync_directories(&self, names: &[&VPath]) -> Result<FileResponse, FileError> {
        if self.sync != SyncPolicy::None {
            let mut directories = Vec::new();
            for name in names {
                // A rename within one directory needs one sync.
                if !directories.contains(&name.parent()) {
                    self.root.sync_name(name)?;
                    directories.push(name.parent());
                }
            }
        }
        Ok(FileResponse::Done)
    }

    fn stat(&self, path: &VPath) -> Result<DirectoryEntry, FileError> {
        self.paths.check(Access::Look, path)?;
        let mut entry = self.root.stat(path)?;
        entry.permissions.write &= self.rights.write;
        if entry.kind == EntryKind::Dir {
            entry.permissions.read = self.root.may_list(path);
            entry.permissions.execute |= entry.permissions.read;
        }
        self.paths.narrow(&mut entry, path);
        Ok(entry)
    }

    fn require_write(&self) -> Result<(), FileError> {
        if self.rights.write {
            return Ok(());
        }
        Err(FileError::new(
            FileErrorKind::Denied,
            "Permission denied: this session may only read",
        ))
    }

    /// Renames a file. A client that renames its upload relies on the content it stored, so the rename is
    /// refused while another upload stores into the file, or if another account or program has changed the
    /// content of this session's upload, or has put another file there.
    fn rename(&self, from: &VPath, to: &VPath) -> Result<FileResponse, FileError> {
        let rename = || {
            let renamed = || {
                if !self.paths.may_overwrite(to) {
                    return self.root.rename_to_new_name(from, to);
                }
                self.keep_replaced_mode(from, to);
                self.root.rename(from, to)
            };
            // A file that has the new name already loses it.
            let answer = done_answer(self.remove_counted(to, Some(from), renamed))?;
            self.uploads.end_rename(&self.place(from), &self.place(to));
            Ok(answer)
        };
        match self.root.identity(from) {
            Ok(there) => {
                let renamed = self.uploads.unless_uploading(there.inode, || {
                    // Checked again: from here on no upload can begin.
                    match self.root.identity(from) {
                        Ok(now) if self.has_lost(from, Some(&now)) => Err(in_use_error()),
                        _ => rename(),
                    }
                });
                renamed.unwrap_or_else(|| Err(in_use_error()))
            }
            // The name is a dangling link, or does not exist.
            Err(_) if self.root.stat(from).is_ok() && self.has_lost(from, None) => {
                Err(in_use_error())
            }
            Err(_) => rename(),
        }
    }

    fn has_lost(&self, path: &VPath, now: Option<&FileIdentity>) -> bool {
        let place = self.place(path);
        self.uploads.has_lost(&self.last_upload, &place, now)
    }

    /// A path of this session among those of all sessions.
    fn place(&self, path: &VPath) -> StoredPlace {
        (self.root.inode().unwrap_or_default(), path.clone())
    }

    /// The file of an upload that takes the place of another one gets the permissions of that one. Some file systems have
    /// none.
    fn keep_replaced_mode(&self, from: &VPath, to: &VPath) {
        if let Ok(state) = self.root.identity(from)
            && self.last_upload.is_own(&state)
            && let Err(error) = self.root.take_over_mode(state.inode, from, to)
        {
            tracing::debug!(%error, "an upload has other permissions than the file that it replaces");
        }
    }

    /// Whether a path leads to the file that this session has stored last, unchanged and with no content
    /// of anybody else.
    fn is_own_upload(&self, path: &VPath) -> bool {
        let state = self.root.identity(path);
        state.is_ok_and(|state| self.last_upload.is_own(&state))
    }

    /// Truncates a file, unless an upload stores into it.
    fn truncate(&self, path: &VPath, length: u64) -> Result<FileResponse, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("truncate", path, &error);
        let file = self.root.open_existing(path)?;
        let before = FileIdentity::of(&file).map_err(failed)?;
        let lease = self
            .uploads
            .exclude_uploads(before.inode)
            .ok_or_else(in_use_error)?;
        self.last_upload.forget(before.inode);
        // The registry excludes uploads of this server; the lock excludes other processes.
        uploads::lock(&file, WriteLockKind::Exclusive, path)?;
        lease.begin_change(&before, KeptContent::Some);
        self.resize_counted(&file, length, failed)?;
        drop(file); // releases the lock while uploads are still excluded
        drop(lease);
        Ok(FileResponse::Done)
    }

    /// Runs a change that affects neither content nor modification time, and keeps the file's cached
    /// checksums.
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
            self.uploads.carry_over(&old, new);
        }
        Ok(answer)
    }
}

/// The transfer error for a store that failed before or after its bytes were transferred.
pub(crate) fn transfer_error_of_file(error: FileError) -> TransferError {
    match error.kind {
        FileErrorKind::Aborted => TransferError::Aborted,
        _ => TransferError::File(error),
    }
}

fn unclear_names() -> FileError {
    FileError::new(
        FileErrorKind::Other,
        "the names have spaces, and not exactly one way to divide them has a target that exists; \
               use SITE SYMLINKFROM and SITE SYMLINKTO",
    )
}

fn done_answer(result: Result<(), StoreError>) -> Result<FileResponse, FileError> {
    result?;
    Ok(FileResponse::Done)
}
