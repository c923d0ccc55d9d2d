//! Changes of names and sizes that a session makes, and their account in its quota.

use std::fs::File;
use std::io;

use data::store::root::StoreError;
use proto::path::VPath;
use proto::server::{FileError, FileRequest, FileResponse};

use super::quota::ONE_NAME;
use super::{DirectoryFiles, SessionQuota};

impl DirectoryFiles {
    /// The same files with a quota of their root.
    #[must_use]
    pub fn with_quota(self, quota: Option<SessionQuota>) -> Self {
        Self { quota, ..self }
    }

    /// Carries out a change that may add a name, and keeps account of it.
    pub(super) fn run_counted(
        &self,
        request: &FileRequest,
        change: impl FnOnce() -> Result<FileResponse, FileError>,
    ) -> Result<FileResponse, FileError> {
        let Some(quota) = &self.quota else {
            return change();
        };
        match request {
            FileRequest::MakeDir(_) | FileRequest::Symlink { .. } => {
                quota.add(ONE_NAME)?;
                change().inspect_err(|_| quota.subtract(ONE_NAME))
            }
            FileRequest::RemoveTree(_) => {
                let done = change();
                quota.forget_count();
                done
            }
            _ => change(),
        }
    }

    /// Carries out a change after which the file that has the name `path` now has none, and keeps account of it. It may be
    /// the rename of `from` to that name.
    pub(super) fn remove_counted<E>(
        &self,
        path: &VPath,
        from: Option<&VPath>,
        change: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(quota) = &self.quota else {
            return change();
        };
        let _changing = quota.changing();
        let inode_of = |path| self.root.usage_of(path).map(|entry| entry.inode);
        let renamed = from.and_then(inode_of);
        let removed = self.root.usage_of(path);
        change()?;
        // A rename of a file to another of its names, or to the same, does nothing (rename(2)).
        let removed = removed.filter(|entry| renamed != Some(entry.inode));
        quota.note_removed(removed);
        Ok(())
    }

    /// Truncates a file into which nobody stores, or extends it, and keeps account of it.
    pub(super) fn resize_counted(
        &self,
        file: &File,
        length: u64,
        failed: impl Fn(io::Error) -> StoreError,
    ) -> Result<(), FileError> {
        let resize = || Ok(file.set_len(length).map_err(&failed)?);
        let Some(quota) = &self.quota else {
            return resize();
        };
        let charge = quota.open_file(file, length, false, |error| failed(error).into())?;
        let resized = resize();
        charge.settle(file);
        resized
    }
}
