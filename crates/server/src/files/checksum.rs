//! CKSM, from memory or by reading.

use data::digest::sum_source;
use data::error::DataError;
use data::store::file::FileSource;
use data::store::root::{Identity, StoreError, file_clock};
use proto::checksum::Algorithm;
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};

use super::Files;

impl Files {
    /// The checksum of `length` bytes from `offset` on (to the end if `None`); of what is there,
    /// if the file ends before.
    pub(super) fn checksum(
        &self,
        algorithm: Algorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("read", path, &error);
        let clock = file_clock();
        let file = self.root.open_read(path)?;
        let before = Identity::of(&file).map_err(failed)?;
        let whole = offset == 0 && length.is_none_or(|length| length >= before.size);
        // What is being written has no sum yet.
        let settled = !self.uploads.is_written(before.inode);
        if whole
            && settled
            && let Some(known) = self.sums.get(&before, algorithm)
        {
            return Ok(known);
        }
        let again = file.try_clone().map_err(failed)?;
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        let hex = sum_source(algorithm, &source, offset, length, progress)
            .map_err(|error| data_error(path, &error))?;
        if whole
            && settled
            && let Ok(after) = Identity::of(&again)
        {
            self.sums.put_read(before, &after, clock, algorithm, &hex);
        }
        Ok(hex)
    }
}

/// Of a checksum that was stopped.
pub(crate) fn aborted() -> FileError {
    FileError {
        kind: FileErrorKind::Aborted,
        errno: None,
        text: "aborted".to_owned(),
    }
}

fn data_error(path: &VPath, error: &DataError) -> FileError {
    match error {
        DataError::Aborted => aborted(),
        DataError::Read { source, .. } => StoreError::from_io("read", path, source).into(),
        other => FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: other.to_string(),
        },
    }
}
