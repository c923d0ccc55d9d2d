//! Changes of names and sizes that a session makes, and their account.

use proto::server::{FileError, FileRequest, FileResponse};

use super::SessionQuota;
use crate::files::SessionFiles;

impl SessionFiles {
    /// The same files with a quota of their root.
    #[must_use]
    pub fn with_quota(self, quota: Option<SessionQuota>) -> Self {
        Self { quota, ..self }
    }

    /// Carries out a change, and keeps account of it.
    pub(in crate::files) fn run_counted(
        &self,
        request: &FileRequest,
        change: impl FnOnce() -> Result<FileResponse, FileError>,
    ) -> Result<FileResponse, FileError> {
        let Some(quota) = &self.quota else {
            return change();
        };
        match request {
            FileRequest::MakeDir(_) | FileRequest::Symlink { .. } => {
                quota.add(0, 1)?;
                change().inspect_err(|_| quota.subtract(0, 1))
            }
            // A file that has the new name already loses it.
            FileRequest::RemoveDir(path)
            | FileRequest::Delete(path)
            | FileRequest::Rename { to: path, .. } => {
                let removed = self.root.usage_of(path);
                let done = change()?;
                quota.note_removed(removed);
                Ok(done)
            }
            FileRequest::RemoveTree(_) => {
                let done = change();
                quota.forget_count();
                done
            }
            FileRequest::Truncate(path, length) => {
                let size = self.root.identity(path).map_or(0, |file| file.size);
                let more = length.saturating_sub(size);
                quota.add(more, 0)?;
                let done = change().inspect_err(|_| quota.subtract(more, 0))?;
                quota.subtract(size.saturating_sub(*length), 0);
                Ok(done)
            }
            _ => change(),
        }
    }
}
