//! CKSM: checksums from the cache or by reading the file. Reading can pause, so that others can run. And those that
//! are computed while a file is sent, for the CKSM that follows.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use data::checksum::SourceChecksum;
use data::error::DataError;
use data::job::TransferReport;
use data::store::Source;
use data::store::file::FileSource;
use data::store::root::StoreError;
use data::store::unwritten_pages::check_written_back;
use proto::checksum::ChecksumAlgorithm;
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};

use super::checksum_cache::UnreadFile;
use super::uploads::aborted_error;
use super::{Access, ChecksumCache, DirectoryFiles};

/// Whether what was read for a checksum counts, and what becomes of the checksum.
pub(crate) trait ChecksumUse: Send + Debug {
    /// Fails if the bytes that were read say nothing about the file.
    fn check(&self) -> Result<(), FileError> {
        Ok(())
    }

    /// Keeps the checksum of the whole file for later requests, if the file has not changed meanwhile.
    fn keep(&self, algorithm: ChecksumAlgorithm, hex: &str);
}

/// The part of a file whose checksum is computed.
#[derive(Debug, Clone)]
pub(crate) struct ChecksumPart {
    pub(crate) path: VPath,
    pub(crate) algorithm: ChecksumAlgorithm,
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Number of bytes; `None`: to the end.
    pub(crate) length: Option<u64>,
    /// The checksum is that of the whole file, and may be kept.
    pub(crate) is_kept: bool,
}

/// Of what a checksum is.
#[derive(Debug)]
pub(crate) enum ChecksumContent {
    /// It is known.
    Known(String),
    /// It is computed of these bytes.
    Of(Arc<dyn Source>),
}

/// A checksum in progress.
#[derive(Debug)]
pub struct RunningChecksum {
    part: ChecksumPart,
    content: ChecksumContent,
    computation: SourceChecksum,
    purpose: Box<dyn ChecksumUse>,
}

impl RunningChecksum {
    /// The checksum of a part of `content`.
    pub(crate) fn new(
        part: ChecksumPart,
        content: ChecksumContent,
        purpose: Box<dyn ChecksumUse>,
    ) -> Self {
        Self {
            computation: SourceChecksum::new(part.algorithm, part.offset, part.length),
            part,
            content,
            purpose,
        }
    }

    /// Reads on until the end and returns the checksum, or returns `None` when `go_on` returns `false`.
    /// `go_on` is called from time to time with the number of bytes read.
    pub fn advance(
        &mut self,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, FileError> {
        let source = match &self.content {
            ChecksumContent::Known(known) => {
                self.purpose.check()?;
                return Ok(Some(known.clone()));
            }
            ChecksumContent::Of(source) => source,
        };
        let summed = self.computation.advance(&**source, go_on);
        let Some(hex) = summed.map_err(|error| file_error_of_read(&self.part.path, &error))? else {
            return Ok(None);
        };
        self.purpose.check()?;
        if self.part.is_kept {
            self.purpose.keep(self.part.algorithm, &hex);
        }
        Ok(Some(hex))
    }
}

/// The checksum of a file in a directory.
#[derive(Debug)]
struct UnreadFileChecksum {
    path: VPath,
    /// The same file, to detect changes.
    before: UnreadFile,
    cache: Arc<ChecksumCache>,
}

impl ChecksumUse for UnreadFileChecksum {
    /// Fails if the disk refused to write pages of the file. The checksum of such pages says nothing about
    /// the disk, so it is not returned; the next one reads the disk.
    fn check(&self) -> Result<(), FileError> {
        check_written_back(&self.before.file).map_err(|error| {
            self.cache.invalidate(&self.before.state);
            writeback_error(&self.path, &error)
        })
    }

    fn keep(&self, algorithm: ChecksumAlgorithm, hex: &str) {
        self.cache.insert_if_unchanged(&self.before, algorithm, hex);
    }
}

/// The error of a checksum after failed write-back. Even if the disk was full, the reader's request
/// does not lack space: trying again later would not help, so the kind is not `NoSpace`.
fn writeback_error(path: &VPath, error: &io::Error) -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        ..StoreError::from_io("read", path, error).into()
    }
}

impl DirectoryFiles {
    /// The checksum of `length` bytes from `offset` (`None`: to the end), or of fewer if the file ends
    /// earlier. Asks for no right: the server itself verifies a store.
    pub(super) fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, FileError> {
        self.begin_allowed_checksum(algorithm, path, offset, length)?
            .advance(progress)?
            .ok_or_else(aborted_error)
    }

    /// Opens a file for the checksum of `length` bytes from `offset` (`None`: to the end), or of fewer if
    /// the file ends earlier.
    ///
    /// # Errors
    /// Also [`FileErrorKind::Denied`], unless the session may read the file or has stored it last.
    pub fn begin_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<RunningChecksum, FileError> {
        if let Err(denied) = self.paths.check(Access::Read, path) {
            // Who may store a file may also verify what was stored.
            if self.paths.check(Access::Create, path).is_err() || !self.is_own_upload(path) {
                return Err(denied);
            }
        }
        self.begin_allowed_checksum(algorithm, path, offset, length)
    }

    fn begin_allowed_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<RunningChecksum, FileError> {
        let failed = |error: io::Error| StoreError::from_io("read", path, &error);
        let file = self.root.open_read(path)?;
        let before = file.try_clone().and_then(UnreadFile::new).map_err(failed)?;
        let whole = offset == 0 && length.is_none_or(|length| length >= before.state.size);
        // While an upload writes the file, its checksum is not settled.
        let cacheable = whole && !self.uploads.is_being_written(before.state.inode);
        let cached = cacheable
            .then(|| self.checksums.get(&before.state, algorithm))
            .flatten();
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        let content = match cached {
            Some(cached) => ChecksumContent::Known(cached),
            None => ChecksumContent::Of(Arc::new(source)),
        };
        let part = ChecksumPart {
            path: path.clone(),
            algorithm,
            offset,
            length,
            is_kept: cacheable,
        };
        let purpose = UnreadFileChecksum {
            path: path.clone(),
            before,
            cache: Arc::clone(&self.checksums),
        };
        Ok(RunningChecksum::new(part, content, Box::new(purpose)))
    }

    /// `None` if the result could not be cached, or is already.
    pub(super) fn passing_checksum(
        &self,
        file: &File,
        algorithm: ChecksumAlgorithm,
    ) -> io::Result<Option<PassingChecksum>> {
        let before = UnreadFile::new(file.try_clone()?)?;
        let is_settled = !self.uploads.is_being_written(before.state.inode);
        let is_wanted = is_settled && self.checksums.get(&before.state, algorithm).is_none();
        Ok(is_wanted.then(|| PassingChecksum {
            algorithm,
            size: before.state.size,
            purpose: Box::new(UnreadFileChecksum {
                // It names the file in errors of `check`, which is for files that are read from the disk.
                path: VPath::root(),
                before,
                cache: Arc::clone(&self.checksums),
            }),
        }))
    }
}

fn file_error_of_read(path: &VPath, error: &DataError) -> FileError {
    match error {
        DataError::Aborted => aborted_error(),
        DataError::Read { source, .. } => StoreError::from_io("read", path, source).into(),
        other => FileError::new(FileErrorKind::Other, other.to_string()),
    }
}

/// A checksum to compute of the bytes of a file that is sent as a whole.
#[derive(Debug)]
pub struct PassingChecksum {
    algorithm: ChecksumAlgorithm,
    size: u64,
    purpose: Box<dyn ChecksumUse>,
}

impl PassingChecksum {
    /// Of a file of `size` bytes.
    pub(crate) fn new(
        algorithm: ChecksumAlgorithm,
        size: u64,
        purpose: Box<dyn ChecksumUse>,
    ) -> Self {
        Self {
            algorithm,
            size,
            purpose,
        }
    }

    /// Algorithm of the checksum ([`data::job::TransferSettings::checksum`]).
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Caches the checksum of the bytes that were sent, if they are those of one state of the file.
    pub fn sent(self, report: &TransferReport) {
        let is_whole = report.evidence.bytes == self.size;
        if let Some(checksum) = report.checksum.as_ref().filter(|_| is_whole) {
            self.purpose.keep(self.algorithm, checksum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_back_is_not_reported_as_missing_space() {
        const ENOSPC: i32 = 28;
        let refused = io::Error::from_raw_os_error(ENOSPC);
        let error = writeback_error(&VPath::root(), &refused);
        assert_eq!(error.kind, FileErrorKind::Other);
        assert_eq!(error.errno, Some(ENOSPC));
        assert!(error.text.contains("No space left"), "{}", error.text);
    }
}
