//! CKSM, from memory or by reading; reading may pause, so that others have their turn.

use std::fs::File;

use data::checksum::SourceChecksum;
use data::error::DataError;
use data::store::file::FileSource;
use data::store::root::{FileIdentity, StoreError, file_clock};
use data::store::unwritten_pages::check_written_back;
use proto::checksum::ChecksumAlgorithm;
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};

use super::SessionFiles;

/// A checksum under way.
#[derive(Debug)]
pub struct RunningChecksum {
    files: SessionFiles,
    algorithm: ChecksumAlgorithm,
    path: VPath,
    source: FileSource,
    /// The same file, to see whether it changed.
    file: File,
    before: FileIdentity,
    /// Of the file system, from before `before`.
    clock: (i64, u64),
    /// All of the file is summed, and no upload of this server was writing it at the beginning.
    settled: bool,
    known: Option<String>,
    sum: SourceChecksum,
}

impl RunningChecksum {
    /// Goes on until the end (the checksum) or until `go_on`, which is called now and then with
    /// the bytes summed, returns `false` (`None`).
    pub fn advance(
        &mut self,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, FileError> {
        if let Some(known) = self.known.clone() {
            self.check_written_back()?;
            return Ok(Some(known));
        }
        let summed = self.sum.advance(&self.source, go_on);
        let Some(hex) = summed.map_err(|error| file_error_of_read(&self.path, &error))? else {
            return Ok(None);
        };
        self.check_written_back()?;
        if self.settled
            && let Ok(after) = FileIdentity::of(&self.file)
        {
            let sums = &self.files.checksums;
            sums.insert_if_unchanged(self.before, &after, self.clock, self.algorithm, &hex);
        }
        Ok(Some(hex))
    }

    /// A checksum of what the disk refused proves nothing: it is not told. The next one is of the disk.
    fn check_written_back(&self) -> Result<(), FileError> {
        check_written_back(&self.file).map_err(|error| {
            self.files.checksums.invalidate(&self.before);
            writeback_error(&self.path, &error)
        })
    }
}

/// Whatever the disk refused (also for want of space), it is no want of space for who reads: trying
/// again later would not help.
fn writeback_error(path: &VPath, error: &std::io::Error) -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        ..StoreError::from_io("read", path, error).into()
    }
}

impl SessionFiles {
    /// The checksum of `length` bytes from `offset` on (to the end if `None`); of what is there,
    /// if the file ends before.
    pub(super) fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, FileError> {
        self.begin_checksum(algorithm, path, offset, length)?
            .advance(progress)?
            .ok_or_else(aborted_error)
    }

    /// The checksum of `length` bytes from `offset` on (to the end if `None`), ready to be read; of what
    /// is there, if the file ends before.
    pub fn begin_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<RunningChecksum, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("read", path, &error);
        let clock = file_clock();
        let file = self.root.open_read(path)?;
        let before = FileIdentity::of(&file).map_err(failed)?;
        let whole = offset == 0 && length.is_none_or(|length| length >= before.size);
        // What is being written has no sum yet.
        let settled = whole && !self.uploads.is_being_written(before.inode);
        let known = settled
            .then(|| self.checksums.get(&before, algorithm))
            .flatten();
        let again = file.try_clone().map_err(failed)?;
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        Ok(RunningChecksum {
            files: self.clone(),
            algorithm,
            path: path.clone(),
            source,
            file: again,
            before,
            clock,
            settled,
            known,
            sum: SourceChecksum::new(algorithm, offset, length),
        })
    }
}

/// Of a checksum that was stopped.
pub(crate) fn aborted_error() -> FileError {
    FileError {
        kind: FileErrorKind::Aborted,
        errno: None,
        text: "aborted".to_owned(),
    }
}

fn file_error_of_read(path: &VPath, error: &DataError) -> FileError {
    match error {
        DataError::Aborted => aborted_error(),
        DataError::Read { source, .. } => StoreError::from_io("read", path, source).into(),
        other => FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_of_what_the_disk_refused_is_no_want_of_space() {
        const ENOSPC: i32 = 28;
        let refused = std::io::Error::from_raw_os_error(ENOSPC);
        let error = writeback_error(&VPath::root(), &refused);
        assert_eq!(error.kind, FileErrorKind::Other);
        assert_eq!(error.errno, Some(ENOSPC));
        assert!(error.text.contains("No space left"), "{}", error.text);
    }
}
