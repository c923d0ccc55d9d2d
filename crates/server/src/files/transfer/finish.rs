//! The end of a store that arrived whole.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::job::Report;
use data::recv::RecvPlan;
use data::store::Sink;
use data::store::file::FileSink;
use data::store::root::{Identity, StoreError};
use proto::checksum::Algorithm;
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind, TransferError};
use proto::timestamp::Timestamp;

use crate::files::Files;

/// What is left to do when the bytes are there.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) files: Files,
    pub(super) file: Arc<FileSink>,
    pub(super) path: VPath,
    /// MODE S took the place of everything from its start on: the file ends where the stream
    /// ended.
    pub(super) cut: bool,
    pub(super) algorithm: Option<Algorithm>,
    /// The checksum that the file must have.
    pub(super) expect: Option<String>,
    pub(super) modify: Option<Timestamp>,
}

impl Ending {
    pub(super) fn run(
        self,
        plan: &RecvPlan,
        report: &Report,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        if self.cut {
            self.cut_at(plan.stream_start.saturating_add(report.bytes))?;
        }
        // Before anything is said or remembered of the file: a full volume may show only here.
        self.file.sync().map_err(|error| self.failed(&error))?;
        let computed = match (self.algorithm, &self.expect) {
            (Some(algorithm), Some(_)) => Some(match self.passed_whole(plan, report)? {
                Some(digest) => digest,
                None => self.read(algorithm, progress)?,
            }),
            _ => self.passed_whole(plan, report)?,
        };
        if let (Some(computed), Some(expected)) = (&computed, &self.expect)
            && !computed.eq_ignore_ascii_case(expected)
        {
            return Err(TransferError::Checksum {
                computed: computed.clone(),
                expected: expected.clone(),
            });
        }
        self.set_modified()?;
        if let (Some(algorithm), Some(computed)) = (self.algorithm, &computed) {
            let state = Identity::of(self.file.file()).map_err(|error| self.failed(&error))?;
            self.files.sums.put(state, algorithm, computed.clone());
        }
        Ok(computed)
    }

    fn cut_at(&self, end: u64) -> Result<(), TransferError> {
        let file = self.file.file();
        let size = file.metadata().map_err(|error| self.failed(&error))?.len();
        if size > end {
            file.set_len(end).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// The digest of what passed, if that was the whole file.
    fn passed_whole(
        &self,
        plan: &RecvPlan,
        report: &Report,
    ) -> Result<Option<String>, TransferError> {
        if plan.origin != 0 {
            return Ok(None);
        }
        let metadata = self.file.file().metadata();
        let size = metadata.map_err(|error| self.failed(&error))?.len();
        let whole = report.bytes == size && report.stored.contains(0, size);
        Ok(report.digest.clone().filter(|_| whole))
    }

    /// The checksum of the file as it is stored, provided it still has its name.
    fn read(
        &self,
        algorithm: Algorithm,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, TransferError> {
        let ours = Identity::of(self.file.file()).map_err(|error| self.failed(&error))?;
        let named = self
            .files
            .root
            .identity(&self.path)
            .map_err(FileError::from);
        if named.map_err(TransferError::File)?.inode != ours.inode {
            return Err(TransferError::File(FileError {
                kind: FileErrorKind::Other,
                errno: None,
                text: format!("{} was replaced while it was stored", self.path),
            }));
        }
        self.files
            .checksum(algorithm, &self.path, 0, None, progress)
            .map_err(|error| match error.kind {
                FileErrorKind::Aborted => TransferError::Aborted,
                _ => TransferError::File(error),
            })
    }

    /// Of the open file: another may have its name by now.
    fn set_modified(&self) -> Result<(), TransferError> {
        let Some(Timestamp(seconds)) = self.modify else {
            return Ok(());
        };
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        };
        time.map_or_else(
            || Err(io::ErrorKind::InvalidInput.into()),
            |time| self.file.file().set_modified(time),
        )
        .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> TransferError {
        TransferError::File(StoreError::from_io("store", &self.path, error).into())
    }
}
