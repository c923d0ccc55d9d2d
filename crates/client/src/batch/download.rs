//! A destination that this process writes: a local file under its partial name until it is
//! complete, or a pipe or device.

use std::io;
use std::sync::Arc;

use data::job::TransferControl;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use rustix::fs::Stat;

use super::checksums::ChecksumEndpoint;
use super::destination_state::DestinationState;
use super::resume::{PartialLeftover, discarded, is_whole_file, usable_ranges};
use super::{BatchContext, PlannedFile, disk};
use crate::answers::{KeptMetadata, SourceFacts};
use crate::journal::{self, CopyIdentity, StoredRanges};
use crate::local_name::is_file;
use crate::partial::{PartialFile, WriteTarget, local_failure};
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::open_source::OpenSource;
use crate::transfer::TransferConfirmation;
use crate::verify::{Verification, checksum_local};
use crate::{CopyFailure, FailureKind};

/// The local destination, over all attempts.
pub(super) struct LocalDestination {
    target: WriteTarget,
    /// Name for messages.
    display_name: String,
    /// Open and locked over all attempts.
    sink: Option<Arc<FileSink>>,
    /// Leftovers of an earlier run have been examined.
    prepared: bool,
    pub(super) state: DestinationState,
    /// The part of the safe ranges that is on disk.
    synced: RangeSet,
}

impl LocalDestination {
    /// A destination that is not open yet.
    pub(super) fn new(target: WriteTarget, display_name: String) -> Self {
        Self {
            target,
            display_name,
            sink: None,
            prepared: false,
            state: DestinationState::default(),
            synced: RangeSet::new(),
        }
    }

    /// Takes the lock before a session is opened, so that no session waits for another copy's file,
    /// unless the finished destination is examined first.
    pub(super) fn lock_early(&mut self, ctx: &BatchContext) -> Result<(), CopyFailure> {
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
        let is_asked = options.resume || !options.restart && partial.journal.is_taken();
        is_asked
            && !self.prepared
            && !self.state.ignore_leftovers
            && partial.existing_length().is_none()
    }

    /// The open destination, locked until this copy ends.
    pub(super) fn lock(&mut self, ctx: &BatchContext) -> Result<Arc<FileSink>, CopyFailure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match &self.target {
            WriteTarget::Direct { sink } => Arc::clone(sink),
            WriteTarget::File(partial) => ctx.lock_partial_file(partial)?,
        };
        Ok(Arc::clone(self.sink.insert(sink)))
    }

    /// Whether bytes can be written at any offset.
    pub(super) fn is_seekable(&self) -> bool {
        match &self.target {
            WriteTarget::Direct { sink } => sink.is_seekable(),
            WriteTarget::File(_) => true,
        }
    }

    /// The checksums that can be computed of the written file: all.
    pub(super) fn available_checksums(&self) -> AvailableChecksums {
        AvailableChecksums::all()
    }

    /// Whether the destination is a named file that can be read again.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.target, WriteTarget::File(_))
    }

    /// The file with the final name, if it may be the finished one and has the right size.
    pub(super) fn file_in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
    ) -> Result<Option<OpenSource>, CopyFailure> {
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
    pub(super) async fn confirm_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        size: Option<u64>,
    ) -> Result<(), CopyFailure> {
        if let WriteTarget::File(partial) = &self.target {
            disk::sync_in_place(&partial.destination, ctx.options.sync_policy).await?;
            // Only a leftover journal justifies taking the lock of a file that is complete.
            let journal_left = partial.journal.is_taken();
            if journal_left && let Ok(sink) = ctx.lock_partial_file(partial) {
                journal::remove_file_and_temporary(&partial.journal);
                partial.remove_if_empty(&sink);
            }
        }
        ctx.report_started(item, size, size.unwrap_or(0));
        Ok(())
    }

    /// Before the first attempt: decides which bytes of an earlier run are kept.
    pub(super) async fn prepare(
        &mut self,
        (ctx, item, check): (&BatchContext, &PlannedFile, Verification),
        identity: CopyIdentity,
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<(), CopyFailure> {
        let sink = self.lock(ctx)?;
        if self.prepared {
            return Ok(());
        }
        let size = identity.copy_length();
        if let WriteTarget::File(partial) = &self.target {
            let (partial, has_checksum) = (partial.clone(), check.algorithm().is_some());
            self.open_partial(ctx, (&partial, &sink), (identity, has_checksum), source)
                .await?;
        }
        self.prepared = true;
        ctx.report_started(item, size, self.state.safe.byte_count());
        Ok(())
    }

    async fn open_partial(
        &mut self,
        ctx: &BatchContext,
        (partial, sink): (&PartialFile, &Arc<FileSink>),
        (mut identity, has_checksum): (CopyIdentity, bool),
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<(), CopyFailure> {
        let length = length(sink).map_err(|e| local_failure(partial.name.path(), e))?;
        if ctx.options.restart && length > 0 {
            ctx.warn(discarded(&self.display_name, length));
        } else if !self.state.ignore_leftovers && length > 0 {
            self.state.safe = self
                .usable_leftover(
                    ctx,
                    (partial, sink, length),
                    (&identity, has_checksum),
                    source,
                )
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
        (partial, sink, length): (&PartialFile, &FileSink, u64),
        (identity, has_checksum): (&CopyIdentity, bool),
        (source, checksums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<RangeSet, CopyFailure> {
        let owner = rustix::fs::fstat(sink.file()).map(|there| there.st_uid);
        let owner = owner.map_err(|e| local_failure(partial.name.path(), e))?;
        let leftover = PartialLeftover {
            identity,
            length,
            journal: Some((&partial.journal, owner)),
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
            &[checksums, &local_checksums],
            source,
            &mut destination,
        )
        .await
    }

    /// The safe and synced ranges now.
    pub(super) fn stored_ranges(&self) -> StoredRanges {
        StoredRanges {
            safe: self.state.safe.clone(),
            synced: self.synced.clone(),
        }
    }

    /// The safe and synced ranges while an attempt runs.
    pub(super) fn stored_ranges_during(
        &self,
        control: &Arc<TransferControl>,
    ) -> impl Fn() -> StoredRanges + Clone + Send + Sync + use<> {
        let (before, control) = (self.stored_ranges(), Arc::clone(control));
        move || disk::stored_ranges_during(&before, &control)
    }

    /// Records the ranges of a successful attempt.
    pub(super) fn attempt_succeeded(&mut self, control: &TransferControl) {
        self.state.attempt_wasted = false;
        let state = disk::stored_ranges_during(&self.stored_ranges(), control);
        (self.state.safe, self.synced) = (state.safe, state.synced);
    }

    /// Records a failed attempt and decides which of its bytes count.
    pub(super) fn attempt_failed(
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
    pub(super) async fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
    ) -> Result<Option<String>, CopyFailure> {
        match self.reader() {
            Some(reader) => checksum_local(algorithm, reader, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Checks that the file has the announced length, although source and transfer reported
    /// success.
    pub(super) fn check_length(&self, size: Option<u64>, source: &str) -> Result<(), CopyFailure> {
        let (WriteTarget::File(partial), Some(size), Some(sink)) = (&self.target, size, &self.sink)
        else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local_failure(partial.name.path(), e))?;
        if length == size {
            return Ok(());
        }
        let reason = format_args!("{length} bytes arrived, {size} were announced");
        Err(CopyFailure::about(FailureKind::Integrity, source, reason))
    }

    /// Passes on the result of a verification. After a mismatch, or when nothing proves the bytes
    /// that the source did not confirm, nothing is left to resume.
    pub(super) async fn after_verification<T>(
        &mut self,
        verified: Result<T, CopyFailure>,
    ) -> Result<T, CopyFailure> {
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
    pub(super) fn reader(&self) -> Option<Arc<dyn Source>> {
        match (&self.target, &self.sink) {
            (WriteTarget::File(_), Some(sink)) => sink.open_reader(),
            _ => None,
        }
    }

    /// Why the file differs from what was written: `mismatch`, or the failure of the disk that lost its pages. After
    /// `mismatch`, all of the file is on disk.
    pub(super) async fn explain_mismatch(&mut self, mismatch: CopyFailure) -> CopyFailure {
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
    pub(super) fn remove_wrong(&mut self, wrong: &RangeSet) {
        for range in wrong.iter() {
            self.synced.remove(range.start, range.end);
        }
        self.state.remove_wrong(wrong, &self.synced);
    }

    /// Syncs the complete and verified file and renames it.
    pub(super) async fn finish(&mut self, kept: KeptMetadata) -> Result<(), CopyFailure> {
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
    pub(super) fn start_over(&mut self, differs: bool) -> bool {
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
