//! The end of a store that arrived whole.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::job::Report;
use data::recv::RecvPlan;
use data::store::Sink;
use data::store::root::{Identity, StoreError, file_clock};
use proto::checksum::Algorithm;
use proto::server::{FileError, FileErrorKind, TransferError};
use proto::timestamp::Timestamp;

use super::sink::StoreSink;
use crate::files::{Files, transfer_failure};

/// From this size on, bytes, waiting for the clock's next tick (10 ms at most) is cheaper than
/// reading the file for its checksum.
const WORTH_A_TICK: u64 = 1 << 20;

/// Longest wait for it: a file system whose clock is ahead of this host's is not waited for.
const LONGEST_TICK: Duration = Duration::from_millis(50);

/// Work left to do when the bytes are there.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) files: Files,
    pub(super) sink: Arc<StoreSink>,
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
        self.sink.lease.upload().note_ending();
        self.begin()?;
        if self.cut {
            self.cut_at(plan.stream_start.saturating_add(report.evidence.bytes))?;
        }
        // Before anything is said or remembered of the file: a full volume may show only here.
        self.sink.sync().map_err(|error| self.failed(&error))?;
        let computed = self.computed(plan, report, progress)?;
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
        self.require_name()?;
        if self.sink.lease.is_sole() {
            let state = Identity::of(self.sink.file()).map_err(|error| self.failed(&error))?;
            self.files.last_upload.note(state);
        }
        if let (Some(algorithm), Some(computed)) = (self.algorithm, &computed) {
            self.remember(algorithm, computed)?;
        }
        self.sink.keep();
        Ok(computed)
    }

    /// An empty file has no first byte: it ends here, unless its client is gone.
    fn begin(&self) -> Result<(), TransferError> {
        self.sink.begin().map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionAborted => TransferError::Aborted,
            _ => self.failed(&error),
        })
    }

    fn computed(
        &self,
        plan: &RecvPlan,
        report: &Report,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        let passed = self.passed_whole(plan, report)?;
        match (self.algorithm, &self.expect, passed) {
            (Some(algorithm), Some(_), None) => self.read(algorithm, progress).map(Some),
            (_, _, passed) => Ok(passed),
        }
    }

    /// Remembers the sum of what passed, together with the file's state, if every later change
    /// will show in that state.
    fn remember(&self, algorithm: Algorithm, sum: &str) -> Result<(), TransferError> {
        if !self.sink.lease.is_sole() {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            // Looked at before the clock: a thread that was descheduled for longer than it may wait
            // finds the later tick all the same.
            let in_time = began.elapsed() < LONGEST_TICK;
            let clock = file_clock();
            let state = Identity::of(self.sink.file()).map_err(|error| self.failed(&error))?;
            let may_wait = state.size >= WORTH_A_TICK && in_time;
            if state.tells_changes(clock) || !may_wait {
                self.files.sums.put(state, clock, algorithm, sum.to_owned());
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn cut_at(&self, end: u64) -> Result<(), TransferError> {
        let file = self.sink.file();
        let size = file.metadata().map_err(|error| self.failed(&error))?.len();
        if size > end {
            file.set_len(end).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// The digest of what passed, if that is the whole file: nobody else may have stored into it.
    fn passed_whole(
        &self,
        plan: &RecvPlan,
        report: &Report,
    ) -> Result<Option<String>, TransferError> {
        if plan.origin != 0 || !self.sink.lease.is_sole() {
            return Ok(None);
        }
        let metadata = self.sink.file().metadata();
        let size = metadata.map_err(|error| self.failed(&error))?.len();
        let whole = report.evidence.bytes == size && report.stored.contains(0, size);
        Ok(report.digest.clone().filter(|_| whole))
    }

    /// The checksum of the file as it is stored, provided it still has its name.
    fn read(
        &self,
        algorithm: Algorithm,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<String, TransferError> {
        self.require_name()?;
        self.files
            .checksum(algorithm, &self.sink.path, 0, None, progress)
            .map_err(transfer_failure)
    }

    /// A store succeeds only if its name leads to what it wrote.
    fn require_name(&self) -> Result<(), TransferError> {
        if self.sink.is_named().map_err(|error| self.failed(&error))? {
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
        .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> TransferError {
        TransferError::File(StoreError::from_io("store", &self.sink.path, error).into())
    }
}
