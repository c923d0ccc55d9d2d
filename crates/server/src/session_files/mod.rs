//! The files of a session: those below a directory, or the objects of a store that is served in place of one.

mod entries;
mod served;
mod sums;
#[cfg(test)]
mod tests;
mod uploads;

use proto::checksum::ChecksumAlgorithm;
use proto::path::VPath;
use proto::server::{FileError, FileRequest, FileResponse, ListRequest, TransferRequest};

pub(crate) use served::ServedFiles;
pub(crate) use sums::VersionSums;

use crate::files::{
    DirectoryFiles, ListingMemoryShare, OpenedTransfer, PathRights, RunningChecksum, UploadClient,
    list_lines,
};

/// The files of one session.
#[derive(Debug, Clone)]
pub(crate) enum SessionFiles {
    /// Below a directory.
    Directory(DirectoryFiles),
    /// In a store of objects.
    Served(ServedFiles),
}

impl From<DirectoryFiles> for SessionFiles {
    fn from(files: DirectoryFiles) -> Self {
        Self::Directory(files)
    }
}

impl SessionFiles {
    /// Whether a quota bounds what this session stores.
    pub(crate) fn has_quota(&self) -> bool {
        match self {
            Self::Directory(files) => files.has_quota(),
            Self::Served(_) => false,
        }
    }

    /// The same files with rights that depend on the path; links are no longer followed.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub(crate) fn with_path_rights(self, paths: PathRights) -> std::io::Result<Self> {
        Ok(match self {
            Self::Directory(files) => Self::Directory(files.with_path_rights(paths)?),
            Self::Served(files) => Self::Served(files.with_path_rights(paths)),
        })
    }

    /// A listing for a reply, and the memory reserved for it until the reply is sent.
    ///
    /// # Errors
    /// The directory cannot be listed; the listing is too large.
    pub(crate) fn list(
        &self,
        request: &ListRequest,
    ) -> Result<(FileResponse, ListingMemoryShare), FileError> {
        match self {
            Self::Directory(files) => files.list(request),
            Self::Served(files) => {
                let (lines, share) = list_lines(files, request)?;
                Ok((FileResponse::Lines(lines), share))
            }
        }
    }

    /// Carries out a request. During a checksum `progress` is called from time to time with the number
    /// of bytes read so far; if it returns `false`, the request ends with
    /// [`FileErrorKind::Aborted`](proto::server::FileErrorKind::Aborted).
    ///
    /// # Errors
    /// The request is refused.
    pub(crate) fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileResponse, FileError> {
        match self {
            Self::Directory(files) => files.run(request, progress),
            Self::Served(files) => files.run(request, progress),
        }
    }

    /// Opens a file for the checksum of `length` bytes from `offset` (`None`: to the end), or of fewer if
    /// the file ends earlier.
    ///
    /// # Errors
    /// See [`DirectoryFiles::begin_checksum`].
    pub(crate) fn begin_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<RunningChecksum, FileError> {
        match self {
            Self::Directory(files) => files.begin_checksum(algorithm, path, offset, length),
            Self::Served(files) => files.begin_checksum(algorithm, path, offset, length),
        }
    }

    /// Opens the file or listing of a transfer.
    ///
    /// # Errors
    /// See [`DirectoryFiles::open`].
    pub(crate) fn open(
        &self,
        request: &TransferRequest,
        by: &UploadClient,
    ) -> Result<OpenedTransfer, FileError> {
        match self {
            Self::Directory(files) => files.open(request, by),
            Self::Served(files) => files.open(request, by),
        }
    }
}
