//! The end of a store that arrived whole.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::job::TransferReport;
use data::recv::ReceivePlan;
use data::store::Sink;
use data::store::root::{FileIdentity, StoreError, file_clock};
use proto::checksum::ChecksumAlgorithm;
use proto::server::{FileError, FileErrorKind, TransferError};
use proto::timestamp::Timestamp;

use super::sink::StoreSink;
use crate::files::{SessionFiles, transfer_error_of_file};

/// From this size on, bytes, waiting for the clock's next tick (10 ms at most) is cheaper than
/// reading the file for its checksum.
const WORTH_A_TICK: u64 = 1 << 20;

/// Longest wait for it: a file system whose clock is ahead of this host's is not waited for.
const LONGEST_TICK: Duration = Duration::from_millis(50);

/// Work left to do when the bytes are there.
#[derive(Debug)]
pub(super) struct StoreCompletion {
    pub(super) files: SessionFiles,
    pub(super) sink: Arc<StoreSink>,
    /// MODE S took the place of everything from its start on: the file ends where the stream
    /// ended.
    pub(super) cut: bool,
    pub(super) algorithm: Option<ChecksumAlgorithm>,
    /// The checksum that the file must have.
    pub(super) expect: Option<String>,
    pub(super) modify: Option<Timestamp>,
}

impl StoreCompletion {
    pub(super) fn run(
        self,
        plan: &ReceivePlan,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        self.sink.lease.upload().mark_received();
        self.begin()?;
        if self.cut {
            self.truncate_at(plan.stream_start.saturating_add(report.evidence.bytes))?;
        }
        // Before anything is said or remembered of the file: a full volume may show only here.
        self.sink.sync().map_err(|error| self.store_error(&error))?;
        let computed = self.checksum_of_file(plan, report, progress)?;
        if let (Some(computed), Some(expected)) = (&computed, &self.expect)
            && !computed.eq_ignore_ascii_case(expected)
        {
            return Err(TransferError::Checksum {
                computed: computed.clone(),
                expected: expected.clone(),
            });
        }
        self.set_modified()?;
        // The file is not touched any more from here on: this is its state at the end.
        self.require_same_file()?;
        if self.sink.lease.is_exclusive() {
            let state =
                FileIdentity::of(self.sink.file()).map_err(|error| self.store_error(&error))?;
            self.files.last_upload.record(state);
        }
        if let (Some(algorithm), Some(computed)) = (self.algorithm, &computed) {
            self.remember_checksum(algorithm, computed)?;
        }
        self.sink.mark_succeeded();
        Ok(computed)
    }

    /// An empty file has no first byte: it ends here, unless its client is gone.
    fn begin(&self) -> Result<(), TransferError> {
        self.sink.begin().map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionAborted => TransferError::Aborted,
            _ => self.store_error(&error),
        })
    }

    fn checksum_of_file(
        &self,
        plan: &ReceivePlan,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        let passed = self.received_digest(plan, report)?;
        match (self.algorithm, &self.expect, passed) {
            (Some(algorithm), Some(_), None) => self.read_checksum(algorithm, progress).map(Some),
            (_, _, passed) => Ok(passed),
        }
    }

    /// Remembers the sum of what passed, together with the file's state, if every later change
    /// will show in that state.
    fn remember_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        sum: &str,
    ) -> Result<(), TransferError> {
        if !self.sink.lease.is_exclusive() {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            // Looked at before the clock: a thread that was descheduled for longer than it may wait
            // finds the later tick all the same.
            let in_time = began.elapsed() < LONGEST_TICK;
            let clock = file_clock();
            let state =
                FileIdentity::of(self.sink.file()).map_err(|error| self.store_error(&error))?;
            let may_wait = state.size >= WORTH_A_TICK && in_time;
            if state.detects_changes_since(clock) || !may_wait {
                self.files
                    .checksums
                    .insert(state, clock, algorithm, sum.to_owned());
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn truncate_at(&self, end: u64) -> Result<(), TransferError> {
        let file = self.sink.file();
        let size = file
            .metadata()
            .map_err(|error| self.store_error(&error))?
            .len();
        if size > end {
            file.set_len(end)
                .map_err(|error| self.store_error(&error))?;
        }
        Ok(())
    }

    /// The digest of what passed, if that is the whole file: nobody else may have stored into it.
    fn received_digest(
        &self,
        plan: &ReceivePlan,
        report: &TransferReport,
    ) -> Result<Option<String>, TransferError> {
        if plan.origin != 0 || !self.sink.lease.is_exclusive() {
            return Ok(None);
        }
        let metadata = self.sink.file().metadata();
        let size = metadata.map_err(|error| self.store_error(&error))?.len();
        let whole = report.evidence.bytes == size && report.stored.contains(0, size);
        Ok(report.checksum.clone().filter(|_| whole))
    }

    /// The checksum of the file as it is stored, provided it still has its name.
    fn read_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, TransferError> {
        self.require_same_file()?;
        self.files
            .checksum(algorithm, &self.sink.path, 0, None, progress)
            .map_err(transfer_error_of_file)
    }

    /// A store succeeds only if its name leads to what it wrote.
    fn require_same_file(&self) -> Result<(), TransferError> {
        if self
            .sink
            .is_at_path()
            .map_err(|error| self.store_error(&error))?
        {
            return Ok(());
        }
        Err(TransferError::File(FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: format!("{} was replaced while it was stored", self.sink.path),
        }))
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
            |time| self.sink.file().set_modified(time),
        )
        .map_err(|error| self.store_error(&error))
    }

    fn store_error(&self, error: &io::Error) -> TransferError {
        TransferError::File(StoreError::from_io("store", &self.sink.path, error).into())
    }
}
