//! A destination that this process writes: a local file under its partial name until it is
//! complete, or a pipe or device.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use data::job::TransferControl;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use rustix::fs::Stat;

use super::checksums::{ChecksumEndpoint, ComparableSource};
use super::destination_state::DestinationState;
use super::resume::{PartialLeftover, discarded, is_whole_file, usable_ranges};
use crate::batch::BatchContext;
use crate::file::report_started;
use crate::file::verify::Verification;
use crate::local::journal::{CopyIdentity, StoredRanges};
use crate::local::local_name::{directory_of, is_file};
use crate::local::partial::{PartialFile, WriteTarget, local_failure};
use crate::local::{disk, journal};
use crate::plan::PlannedFile;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::local_checksum::checksum_local;
use crate::storage::open_source::OpenSource;
use ftp::answers::{KeptMetadata, SourceFacts};
use ftp::transfer::TransferConfirmation;
use ftp::{Failure, FailureKind};

/// The local destination, over all attempts.
pub(crate) struct LocalDestination {
    target: WriteTarget,
    /// Name for messages.
    display_name: String,
    /// Open and locked over all attempts.
    sink: Option<Arc<FileSink>>,
    /// Another process that was given up may still hold the partial file.
    takes_over: bool,
    /// Leftovers of an earlier run have been examined.
    prepared: bool,
    pub(crate) state: DestinationState,
    /// The part of the safe ranges that is on disk.
    synced: RangeSet,
}

impl LocalDestination {
    /// A destination that is not open yet.
    pub(crate) fn new(target: WriteTarget, display_name: String, takes_over: bool) -> Self {
        Self {
            target,
            display_name,
            takes_over,
            sink: None,
            prepared: false,
            state: DestinationState::default(),
            synced: RangeSet::new(),
        }
    }

    /// Takes the lock before a session is opened, so that no session waits for another copy's file,
    /// unless the finished destination is examined first.
    pub(crate) fn lock_early(&mut self, ctx: &BatchContext) -> Result<(), Failure> {
        if !self.may_be_in_place(ctx) {
            self.lock(ctx)?;
        }
        Ok(())
    }

    /// Whether an earlier run may have put the file in place: with `--resume`, or if it has left its journal without the
    /// partial file.
    fn may_be_in_place(&self, ctx: &BatchContext) -> bool {
        let WriteTarget::File(partial) = &self.target else {
            return false;
        };
        let options = &ctx.options;
        let is_asked = options.file.resume || !options.file.restart && partial.journal.is_taken();
        is_asked
            && !self.prepared
            && !self.state.ignore_leftovers
            && partial.existing_length().is_none()
    }

    /// Whether an earlier run has left nothing of the file that could be used.
    pub(crate) fn is_new(&self, ctx: &BatchContext) -> bool {
        match &self.target {
            WriteTarget::Direct { .. } => true,
            WriteTarget::File(partial) => {
                // The lock makes an empty one.
                !self.may_be_in_place(ctx) && partial.existing_length().is_none_or(|len| len == 0)
            }
        }
    }

    /// The open destination, locked until this copy ends.
    pub(crate) fn lock(&mut self, ctx: &BatchContext) -> Result<Arc<FileSink>, Failure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match &self.target {
            WriteTarget::Direct { sink } => Arc::clone(sink),
            WriteTarget::File(partial) => match lock_partial_file(ctx, partial) {
                Err(busy) if self.takes_over && busy.kind() == FailureKind::DestinationBusy => {
                    // Whoever holds it may not give it its name any more: it is checked to be the same file then.
                    let _ = partial.name.remove();
                    journal::remove_file_and_temporary(&partial.journal);
                    lock_partial_file(ctx, partial)?
                }
                locked => locked?,
            },
        };
        Ok(Arc::clone(self.sink.insert(sink)))
    }

    /// The path of the unfinished file; `None` for pipes and devices.
    pub(crate) fn partial_path(&self) -> Option<PathBuf> {
        match &self.target {
            WriteTarget::Direct { .. } => None,
            WriteTarget::File(partial) => Some(partial.name.path().to_owned()),
        }
    }

    /// Whether bytes can be written at any offset.
    pub(crate) fn is_seekable(&self) -> bool {
        match &self.target {
            WriteTarget::Direct { sink } => sink.is_seekable(),
            WriteTarget::File(_) => true,
        }
    }

    /// The checksums that can be computed of the written file: all.
    pub(crate) fn available_checksums(&self) -> AvailableChecksums {
        AvailableChecksums::all()
    }

    /// Whether the destination is a named file that can be read again.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.target, WriteTarget::File(_))
    }

    /// The file with the final name, if it may be the finished one and has the right size.
    pub(crate) fn file_in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
    ) -> Result<Option<OpenSource>, Failure> {
        let WriteTarget::File(partial) = &self.target else {
            return Ok(None);
        };
        if !self.may_be_in_place(ctx) {
            return Ok(None);
        }
        let is_candidate = |there: &Stat| SourceFacts::from_stat(there).size == size;
        let there = partial.destination.stat().ok().filter(is_file);
        if !there.as_ref().is_some_and(is_candidate) {
            return Ok(None);
        }
        let path = partial.destination.path();
        // The open file is compared, whatever happens to its name meanwhile.
        let open = || {
            let file = partial.destination.open_to_read()?;
            let there = rustix::fs::fstat(&file)?;
            let is_candidate = is_file(&there) && is_candidate(&there);
            Ok::<_, io::Error>(is_candidate.then_some((file, SourceFacts::from_stat(&there))))
        };
        let Some((file, existing)) = open().map_err(|e| local_failure(path, e))? else {
            return Ok(None);
        };
        let source = FileSource::new(file, path.to_string_lossy());
        Ok(Some(OpenSource {
            source: Arc::new(source.map_err(|e| local_failure(path, e))?),
            facts: Some(existing),
            identity: None,
        }))
    }

    /// The file with the final name is the wanted copy. Syncs it, and removes what a run left that
    /// was killed after the rename, unless another copy has taken over.
    pub(crate) async fn confirm_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        if let WriteTarget::File(partial) = &self.target {
            disk::sync_in_place(&partial.destination, ctx.options.file.sync_policy).await?;
            // Only a leftover journal justifies taking the lock of a file that is complete.
            let journal_left = partial.journal.is_taken();
            if journal_left && let Ok(sink) = lock_partial_file(ctx, partial) {
                journal::remove_file_and_temporary(&partial.journal);
                partial.remove_if_empty(&sink);
            }
        }
        report_started(ctx, item, size, size.unwrap_or(0));
        Ok(())
    }

    /// Before the first attempt: decides which bytes of an earlier run are kept.
    pub(crate) async fn prepare(
        &mut self,
        ctx: &BatchContext,
        item: &PlannedFile,
        check: Verification,
        identity: CopyIdentity,
        source: ComparableSource<'_>,
    ) -> Result<(), Failure> {
        let sink = self.lock(ctx)?;
        if self.prepared {
            return Ok(());
        }
        let size = identity.copy_length();
        if let WriteTarget::File(partial) = &self.target {
            let (partial, has_checksum) = (partial.clone(), check.algorithm().is_some());
            self.open_partial(ctx, &partial, &sink, identity, has_checksum, source)
                .await?;
        }
        self.prepared = true;
        report_started(ctx, item, size, self.state.safe.byte_count());
        Ok(())
    }

    async fn open_partial(
        &mut self,
        ctx: &BatchContext,
        partial: &PartialFile,
        sink: &Arc<FileSink>,
        mut identity: CopyIdentity,
        has_checksum: bool,
        source: ComparableSource<'_>,
    ) -> Result<(), Failure> {
        let length = length(sink).map_err(|e| local_failure(partial.name.path(), e))?;
        if ctx.options.file.restart && length > 0 {
            ctx.warn(discarded(&self.display_name, length));
        } else if !self.state.ignore_leftovers && length > 0 {
            self.state.safe = self
                .usable_leftover(ctx, partial, sink, &identity, has_checksum, source)
                .await?;
        }
        self.state.resumed = !self.state.safe.is_empty();
        if !self.state.resumed {
            self.state.journal = Some(disk::new_journal(&partial.journal, identity).await?);
            // The old journal goes before the file is truncated: it must never claim bytes of the
            // new copy.
            return partial.truncate(sink);
        }
        // Appending in order is only meaningful if the kept bytes are the whole partial file.
        identity.in_order &= is_whole_file(&self.state.safe, Some(length));
        let (journal, state) =
            disk::resume_journal(partial, sink, identity, &self.state.safe).await?;
        (self.state.journal, self.synced) = (Some(journal), state.synced);
        Ok(())
    }

    async fn usable_leftover(
        &self,
        ctx: &BatchContext,
        partial: &PartialFile,
        sink: &FileSink,
        identity: &CopyIdentity,
        has_checksum: bool,
        mut source: ComparableSource<'_>,
    ) -> Result<RangeSet, Failure> {
        let facts = rustix::fs::fstat(sink.file());
        let facts = facts.map_err(|e| local_failure(partial.name.path(), e))?;
        let leftover = PartialLeftover {
            identity,
            length: facts.st_size.unsigned_abs(),
            journal: Some((&partial.journal, facts.st_uid)),
            display_name: &self.display_name,
            has_checksum,
        };
        let reader = sink.open_reader();
        let mut destination = ChecksumEndpoint::Open {
            source: reader
                .ok_or_else(|| local_failure(partial.name.path(), "cannot be read again"))?,
            origin: 0,
        };
        let local_checksums = self.available_checksums();
        usable_ranges(
            ctx,
            &leftover,
            &[source.checksums, &local_checksums],
            &mut source.endpoint,
            &mut destination,
        )
        .await
    }

    /// The safe and synced ranges now.
    pub(crate) fn stored_ranges(&self) -> StoredRanges {
        StoredRanges {
            safe: self.state.safe.clone(),
            synced: self.synced.clone(),
        }
    }

    /// The safe and synced ranges while an attempt runs.
    pub(crate) fn stored_ranges_during(
        &self,
        control: &Arc<TransferControl>,
    ) -> impl Fn() -> StoredRanges + Clone + Send + Sync + use<> {
        let (before, control) = (self.stored_ranges(), Arc::clone(control));
        move || disk::stored_ranges_during(&before, &control)
    }

    /// Records the ranges of a successful attempt.
    pub(crate) fn attempt_succeeded(&mut self, control: &TransferControl) {
        self.state.attempt_wasted = false;
        let state = disk::stored_ranges_during(&self.stored_ranges(), control);
        (self.state.safe, self.synced) = (state.safe, state.synced);
    }

    /// Records a failed attempt and decides which of its bytes count.
    pub(crate) fn attempt_failed(
        &mut self,
        control: &TransferControl,
        confirmation: &TransferConfirmation,
        size: Option<u64>,
        has_checksum: bool,
    ) {
        self.state.attempt_wasted = false;
        self.synced = disk::stored_ranges_during(&self.stored_ranges(), control).synced;
        let stored = control.stored();
        if let Some(safe) =
            self.state
                .record_failed_attempt(&stored, confirmation, size, has_checksum)
        {
            self.retract_to(safe);
        }
        // A store error may have lost bytes of earlier attempts too, as the kernel drops dirty
        // pages that it cannot write.
        if confirmation.has_store_failed() {
            self.keep_only_synced();
        }
    }

    /// Keeps only the ranges `safe`.
    fn retract_to(&mut self, safe: RangeSet) {
        if let (WriteTarget::File(_), Some(sink)) = (&self.target, &self.sink)
            && let Err(e) = sink.file().set_len(safe.end())
        {
            tracing::debug!("partial file: {e}");
        }
        self.state.retract_to(safe);
        self.synced = RangeSet::new();
    }

    /// After a disk error: data that was written but not synced may be lost, whatever the length of
    /// the partial file, so only synced ranges stay safe.
    fn keep_only_synced(&mut self) {
        let Some(sink) = self.sink.as_ref().filter(|sink| sink.is_durable()) else {
            return;
        };
        self.synced = disk::drop_unsynced(sink, &self.synced);
        self.state.safe = self.synced.clone();
        let state = self.stored_ranges();
        if let Some(journal) = &mut self.state.journal
            && let Err(error) = journal.retract_to(&state)
        {
            tracing::debug!("journal: {error}");
        }
    }

    /// Checksum of the written file, read again. `None` for pipes and devices.
    pub(crate) async fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
    ) -> Result<Option<String>, Failure> {
        match self.reader() {
            Some(reader) => checksum_local(algorithm, reader, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Checks that the file has the announced length, although source and transfer reported
    /// success.
    pub(crate) fn check_length(&self, size: Option<u64>, source: &str) -> Result<(), Failure> {
        let (WriteTarget::File(partial), Some(size), Some(sink)) = (&self.target, size, &self.sink)
        else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local_failure(partial.name.path(), e))?;
        if length == size {
            return Ok(());
        }
        let reason = format_args!("{length} bytes arrived, {size} were announced");
        Err(Failure::about(FailureKind::Integrity, source, reason))
    }

    /// Passes on the result of a verification. After a mismatch, or when nothing proves the bytes
    /// that the source did not confirm, nothing is left to resume.
    pub(crate) async fn after_verification<T>(
        &mut self,
        verified: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match verified {
            Err(mismatch) if mismatch.kind() == FailureKind::Integrity => {
                let failure = self.explain_mismatch(mismatch).await;
                let is_durable = self.sink.as_ref().is_some_and(|sink| sink.is_durable());
                if failure.kind() == FailureKind::Integrity || !is_durable {
                    // The file is wrong, and without syncs no part of it is known to be right.
                    self.state.remove_journal();
                } else {
                    self.keep_only_synced();
                }
                Err(failure)
            }
            Err(failure) if self.state.unconfirmed && failure.kind() == FailureKind::Protocol => {
                self.retract_to(RangeSet::new());
                Err(failure)
            }
            verified => verified,
        }
    }

    /// The written file, to be read again. `None` for pipes and devices.
    pub(crate) fn reader(&self) -> Option<Arc<dyn Source>> {
        match (&self.target, &self.sink) {
            (WriteTarget::File(_), Some(sink)) => sink.open_reader(),
            _ => None,
        }
    }

    /// Why the file differs from what was written: `mismatch`, or the failure of the disk that lost its pages. After
    /// `mismatch`, all of the file is on disk.
    pub(crate) async fn explain_mismatch(&mut self, mismatch: Failure) -> Failure {
        let Some(sink) = &self.sink else {
            return mismatch;
        };
        let failure = disk::sync_failure_or(mismatch, &self.target, sink).await;
        if failure.kind() == FailureKind::Integrity && sink.is_durable() {
            self.synced = self.state.safe.clone();
        }
        failure
    }

    /// Takes ranges that differ from the source out of the safe ones.
    pub(crate) fn remove_wrong(&mut self, wrong: &RangeSet) {
        for range in wrong.iter() {
            self.synced.remove(range.start, range.end);
        }
        self.state.remove_wrong(wrong, &self.synced);
    }

    /// Syncs the complete and verified file and renames it.
    pub(crate) async fn finish(&mut self, kept: KeptMetadata) -> Result<(), Failure> {
        if let Some(sink) = self.sink.clone() {
            if let Err(failure) = disk::sync_with_metadata(&self.target, &sink, kept).await {
                self.keep_only_synced();
                return Err(failure);
            }
            disk::put_in_place(&self.target, &sink).await?;
        }
        self.state.remove_journal();
        Ok(())
    }

    /// See [`DestinationState::start_over`].
    pub(crate) fn start_over(&mut self, differs: bool) -> bool {
        let forgotten = self.state.start_over(differs);
        if forgotten {
            self.prepared = false;
            self.synced = RangeSet::new();
        }
        forgotten
    }
}

impl Drop for LocalDestination {
    /// A copy that stored nothing leaves no file.
    fn drop(&mut self) {
        if let (WriteTarget::File(partial), Some(sink)) = (&self.target, &self.sink) {
            partial.remove_if_empty(sink);
        }
    }
}

/// Length of the open file, bytes.
fn length(sink: &FileSink) -> io::Result<u64> {
    sink.file().metadata().map(|meta| meta.len())
}

/// Takes the exclusive lock of a local partial file. Warns once where the file system has no
/// locks.
fn lock_partial_file(ctx: &BatchContext, partial: &PartialFile) -> Result<Arc<FileSink>, Failure> {
    let locked = partial.lock(ctx.options.file.sync_policy)?;
    if !locked.has_lock {
        let directory = directory_of(partial.destination.path());
        ctx.warn(format!(
            "{}: this file system has no locks, so nothing prevents another copy from \
             writing the same file at the same time",
            directory.display()
        ));
    }
    if locked.was_foreign {
        ctx.warn(format!(
            "{} was discarded: others could read or write it (a file that a copy leaves belongs to its user, has mode \
             0600 and one name)",
            partial.name.path().display()
        ));
    }
    Ok(locked.sink)
}
