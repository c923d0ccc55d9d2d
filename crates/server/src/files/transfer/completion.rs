//! Completion of a store that was received completely.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferReport;
use data::recv::ReceivePlan;
use data::store::Sink;
use data::store::modification_time::set_modified;
use data::store::root::{FileIdentity, StoreError, file_clock};
use proto::checksum::ChecksumAlgorithm;
use proto::server::{FileError, FileErrorKind, TransferError};
use proto::timestamp::Timestamp;

use super::StoreEnd;
use super::sink::StoreSink;
use crate::files::uploads::ActiveUpload;
use crate::files::{Access, DirectoryFiles, transfer_error_of_file};

/// File size, bytes, from which waiting for the next tick of the file system's clock (10 ms at most)
/// is cheaper than reading the file again for its checksum.
const MIN_SIZE_TO_WAIT: u64 = 1 << 20;

/// Longest wait for the tick: the clock of a network file system may be ahead of this host's.
const MAX_TICK_WAIT: Duration = Duration::from_millis(50);

/// The work that remains when all bytes have been received.
#[derive(Debug)]
pub(super) struct StoreCompletion {
    pub(super) files: DirectoryFiles,
    pub(super) sink: Arc<StoreSink>,
    /// The store was in MODE S and replaces everything from its start: the file ends where the stream
    /// ended.
    pub(super) replaces_rest: bool,
    /// The store keeps nothing of an older file.
    pub(super) is_whole: bool,
    /// Offset that the end of a MODE S stream must reach, from ALLO; `None`: there is nothing to compare.
    pub(super) announced_end: Option<u64>,
    pub(super) algorithm: Option<ChecksumAlgorithm>,
    /// The checksum that the client announced (SCKS).
    pub(super) expect: Option<String>,
    pub(super) modify: Option<Timestamp>,
}

impl StoreEnd for StoreCompletion {
    /// Completes the store, and ends it either way.
    fn finish(
        self: Box<Self>,
        plan: &ReceivePlan,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        let completed = self.complete(plan, report, progress);
        match &completed {
            Ok(_) => self.sink.finish(),
            Err(_) => self.sink.abandon(),
        }
        completed
    }

    fn abandon(self: Box<Self>) {
        self.sink.abandon();
    }

    fn upload(&self) -> &Arc<ActiveUpload> {
        self.sink.lease.upload()
    }

    #[cfg(test)]
    fn fail_disk(&self) {
        let refusal = io::Error::from_raw_os_error(28); // ENOSPC
        let _ = self.sink.note_error(Err::<(), _>(refusal));
    }
}

impl StoreCompletion {
    fn complete(
        &self,
        plan: &ReceivePlan,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        // First: a store that was cut before its first byte keeps the old file.
        require_announced_size(self.announced_end, plan, report)?;
        self.sink.lease.upload().mark_received();
        self.begin()?;
        if self.replaces_rest {
            self.truncate_at(plan.stream_start.saturating_add(report.evidence.bytes))?;
        }
        // A full volume may be reported only here, so the sync comes before the file is verified.
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
        // From here on the server does not change the file, so this is its final state.
        self.require_same_file()?;
        let state = FileIdentity::of(self.sink.file()).map_err(|error| self.store_error(&error))?;
        let last_upload = &self.files.last_upload;
        let place = self.files.place(&self.sink.target.path);
        self.sink
            .lease
            .record(last_upload, place, state, self.is_whole);
        if let (Some(algorithm), Some(computed)) = (self.algorithm, &computed) {
            self.remember_checksum(algorithm, computed)?;
        }
        Ok(computed)
    }

    /// Truncates the old content if no byte did so, because the upload is empty; fails if the client has
    /// disconnected.
    fn begin(&self) -> Result<(), TransferError> {
        self.sink.begin(0).map_err(|error| match error.kind() {
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

    /// Caches the checksum with the file's state, if every later write must change that state.
    fn remember_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        sum: &str,
    ) -> Result<(), TransferError> {
        if !self.sink.lease.is_exclusive() {
            return Ok(());
        }
        let wait_start = Instant::now();
        loop {
            // Read before the clock: a thread that was descheduled for longer than the wait then
            // still sees the later tick.
            let within_wait = wait_start.elapsed() < MAX_TICK_WAIT;
            let clock = file_clock();
            let state =
                FileIdentity::of(self.sink.file()).map_err(|error| self.store_error(&error))?;
            let may_wait = state.size >= MIN_SIZE_TO_WAIT && within_wait;
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

    /// The checksum of the received bytes, if they are the whole file: no other upload may have stored
    /// into it.
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

    /// Reads the stored file for its checksum, provided the path still leads to it.
    fn read_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, TransferError> {
        self.require_same_file()?;
        // The checksum of content that another has stored tells something about it.
        if !self.is_whole {
            let allowed = self.files.paths.check(Access::Read, &self.sink.target.path);
            allowed.map_err(TransferError::File)?;
        }
        self.files
            .checksum(algorithm, &self.sink.target.path, 0, None, progress)
            .map_err(transfer_error_of_file)
    }

    /// Fails unless the path still leads to the file that was written.
    fn require_same_file(&self) -> Result<(), TransferError> {
        if self
            .sink
            .is_at_path()
            .map_err(|error| self.store_error(&error))?
        {
            return Ok(());
        }
        Err(TransferError::File(FileError::new(
            FileErrorKind::Other,
            format!("{} was replaced while it was stored", self.sink.target.path),
        )))
    }

    /// Sets the modification time of the open file: another file may have the path by now.
    fn set_modified(&self) -> Result<(), TransferError> {
        let Some(time) = self.modify else {
            return Ok(());
        };
        let kept = set_modified(self.sink.file(), time);
        kept.map_err(|errno| self.store_error(&errno.into()))?;
        Ok(())
    }

    fn store_error(&self, error: &io::Error) -> TransferError {
        TransferError::File(StoreError::from_io("store", &self.sink.target.path, error).into())
    }
}

/// Fails if the stream ended before the announced size. In MODE S the end of the connection is the end of
/// the file (RFC 959 section 3.4.1), and nothing but ALLO tells a whole file from one that was cut, where the
/// connection has no end mark of its own (clear data, and GSI, whose peers send no close_notify).
pub(crate) fn require_announced_size(
    announced_end: Option<u64>,
    plan: &ReceivePlan,
    report: &TransferReport,
) -> Result<(), TransferError> {
    let start = plan.origin.saturating_add(plan.stream_start);
    let end = start.saturating_add(report.evidence.bytes);
    match announced_end {
        Some(announced) if end < announced => Err(TransferError::Broken(format!(
            "the data ended at byte {end} of the {announced} that ALLO announced"
        ))),
        _ => Ok(()),
    }
}
