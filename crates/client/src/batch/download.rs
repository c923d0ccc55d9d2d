//! A destination that this process writes itself: a file of this machine under its partial name until it
//! is whole, or a pipe or device.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use data::store::file::{FileSink, FileSource};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::checksums::ChecksumEndpoint;
use super::destination_state::DestinationState;
use super::resume::{PartialLeftover, is_all, usable};
use super::{BatchContext, PlannedFile, disk};
use crate::answers::SourceFacts;
use crate::journal::{self, CopyIdentity, StoredRanges};
use crate::partial::{PartialFile, WriteTarget, local_failure};
use crate::storage::contract::{AvailableChecksums, OpenSource};
use crate::transfer::TransferConfirmation;
use crate::verify::{Verification, checksum_local};
use crate::{CopyFailure, Exit};

/// The destination here, over all attempts.
pub(super) struct LocalDestination {
    target: WriteTarget,
    /// For messages.
    shown: String,
    /// Open, and owned, over all attempts.
    sink: Option<Arc<FileSink>>,
    /// It is decided what of an earlier run is kept.
    ready: bool,
    pub(super) standing: DestinationState,
    /// Of what is safe, on disk.
    synced: RangeSet,
}

impl LocalDestination {
    /// Nothing done yet.
    pub(super) fn new(target: WriteTarget, shown: String) -> Self {
        Self {
            target,
            shown,
            sink: None,
            ready: false,
            standing: DestinationState::default(),
            synced: RangeSet::new(),
        }
    }

    /// Makes the destination this copy's own before anybody else is troubled: nobody else's file is
    /// waited for with a session in hand. Where nothing unfinished is, `--resume` looks at the
    /// destination first.
    pub(super) fn own_early(&mut self, ctx: &BatchContext) -> Result<(), CopyFailure> {
        let unfinished = match &self.target {
            WriteTarget::File(partial) => partial.length().is_some(),
            WriteTarget::Direct { .. } => false,
        };
        if unfinished || !ctx.options.resume {
            self.own(ctx)?;
        }
        Ok(())
    }

    /// The open destination, which nobody else writes until this copy is over.
    pub(super) fn own(&mut self, ctx: &BatchContext) -> Result<Arc<FileSink>, CopyFailure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match &self.target {
            WriteTarget::Direct { sink } => Arc::clone(sink),
            WriteTarget::File(partial) => ctx.own(partial)?,
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

    /// The checksums that can be had of what was written.
    pub(super) fn sums(&self) -> AvailableChecksums {
        AvailableChecksums::all()
    }

    /// Whether what was written has a name, under which it can be read again.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.target, WriteTarget::File(_))
    }

    /// The file that has the final name, if `--resume` asks for it to be looked at: it has this size,
    /// and nothing unfinished is beside it.
    pub(super) fn in_place(
        &self,
        ctx: &BatchContext,
        size: Option<u64>,
    ) -> Result<Option<OpenSource>, CopyFailure> {
        let WriteTarget::File(partial) = &self.target else {
            return Ok(None);
        };
        if !ctx.options.resume || self.ready || self.standing.distrust || partial.length().is_some()
        {
            return Ok(None);
        }
        let meta = std::fs::metadata(&partial.destination).ok();
        let Some(meta) = meta.filter(std::fs::Metadata::is_file) else {
            return Ok(None);
        };
        let there = SourceFacts::from_local_metadata(&meta);
        if there.size != size {
            return Ok(None);
        }
        let path = &partial.destination;
        let open = || FileSource::new(std::fs::File::open(path)?, path.to_string_lossy());
        let source = open().map_err(|e| local_failure(path, e))?;
        Ok(Some(OpenSource {
            source: Arc::new(source),
            facts: Some(there),
        }))
    }

    /// The file that has the final name is what was to be copied: it is forced to disk, and what a run
    /// left that was killed after the rename goes, unless somebody is at it again.
    pub(super) async fn found_in_place(
        &self,
        ctx: &BatchContext,
        item: &PlannedFile,
        size: Option<u64>,
    ) -> Result<(), CopyFailure> {
        if let WriteTarget::File(partial) = &self.target {
            disk::settle_in_place(&partial.destination, ctx.options.sync_policy).await?;
            let left = partial.journal.symlink_metadata().is_ok();
            if left && let Ok(sink) = ctx.own(partial) {
                journal::remove_file_and_temporary(&partial.journal);
                partial.remove_if_empty(&sink);
            }
        }
        ctx.started(item, size, size.unwrap_or(0));
        Ok(())
    }

    /// Before the first attempt: decides what of an earlier run is kept.
    pub(super) async fn prepare(
        &mut self,
        (ctx, item, check): (&BatchContext, &PlannedFile, Verification),
        identity: CopyIdentity,
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<(), CopyFailure> {
        let sink = self.own(ctx)?;
        if self.ready {
            return Ok(());
        }
        let size = identity.copy_length();
        if let WriteTarget::File(partial) = &self.target {
            let (partial, judged) = (partial.clone(), check.algorithm().is_some());
            self.open_partial(ctx, (&partial, &sink), (identity, judged), source)
                .await?;
        }
        self.ready = true;
        ctx.started(item, size, self.standing.have.byte_count());
        Ok(())
    }

    async fn open_partial(
        &mut self,
        ctx: &BatchContext,
        (partial, sink): (&PartialFile, &Arc<FileSink>),
        (mut identity, judged): (CopyIdentity, bool),
        source: (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<(), CopyFailure> {
        let length = length(sink).map_err(|e| local_failure(&partial.path, e))?;
        if ctx.options.resume && !self.standing.distrust && length > 0 {
            self.standing.have = self
                .leftover(ctx, (partial, sink, length), (&identity, judged), source)
                .await?;
        }
        self.standing.resumed = !self.standing.have.is_empty();
        if !self.standing.resumed {
            self.standing.journal = Some(disk::start_over(&partial.journal, identity).await?);
            return partial.start_over(sink);
        }
        identity.in_order &= is_all(&self.standing.have, Some(length));
        let (journal, state) = disk::take_up(partial, sink, identity, &self.standing.have).await?;
        (self.standing.journal, self.synced) = (Some(journal), state.synced);
        Ok(())
    }

    async fn leftover(
        &self,
        ctx: &BatchContext,
        (partial, sink, length): (&PartialFile, &FileSink, u64),
        (identity, judged): (&CopyIdentity, bool),
        (source, sums): (&mut ChecksumEndpoint<'_>, &AvailableChecksums),
    ) -> Result<RangeSet, CopyFailure> {
        let leftover = PartialLeftover {
            identity,
            length,
            journal: Some(&partial.journal),
            shown: &self.shown,
            judged,
        };
        let written = sink.open_reader();
        let mut destination = ChecksumEndpoint::Open {
            source: written.ok_or_else(|| local_failure(&partial.path, "cannot be read again"))?,
            origin: 0,
        };
        let own = self.sums();
        usable(ctx, &leftover, &[sums, &own], source, &mut destination).await
    }

    /// Safe and synced now.
    pub(super) fn state(&self) -> StoredRanges {
        StoredRanges {
            safe: self.standing.have.clone(),
            synced: self.synced.clone(),
        }
    }

    /// Likewise, while an attempt runs.
    pub(super) fn state_during(
        &self,
        control: &Arc<TransferControl>,
    ) -> impl Fn() -> StoredRanges + Clone + Send + Sync + use<> {
        let (before, control) = (self.state(), Arc::clone(control));
        move || disk::state(&before, &control)
    }

    /// An attempt ended well, and left this.
    pub(super) fn confirmed(&mut self, control: &TransferControl) {
        self.standing.in_vain = false;
        let state = disk::state(&self.state(), control);
        (self.standing.have, self.synced) = (state.safe, state.synced);
    }

    /// An attempt failed: decides what of it counts.
    pub(super) fn settle(
        &mut self,
        control: &TransferControl,
        said: &TransferConfirmation,
        size: Option<u64>,
        judged: bool,
    ) {
        self.standing.in_vain = false;
        self.synced = disk::state(&self.state(), control).synced;
        let arrived = control.stored();
        if let Some(safe) = self.standing.weigh(&arrived, said, size, judged) {
            self.take_back(safe);
        }
        if said.has_store_failed() {
            self.retreat();
        }
    }

    /// Nothing but `safe` counts any more.
    fn take_back(&mut self, safe: RangeSet) {
        if let (WriteTarget::File(_), Some(sink)) = (&self.target, &self.sink)
            && let Err(e) = sink.file().set_len(safe.end())
        {
            tracing::debug!("partial file: {e}");
        }
        self.standing.take_back(safe);
        self.synced = RangeSet::new();
    }

    /// The disk refused something: what was handed to the kernel and not forced to disk may be lost,
    /// whatever the length of the partial file.
    fn retreat(&mut self) {
        let Some(sink) = self.sink.as_ref().filter(|sink| sink.is_durable()) else {
            return;
        };
        self.synced = disk::forget_unsynced(sink, &self.synced);
        self.standing.have = self.synced.clone();
        let state = self.state();
        if let Some(journal) = &mut self.standing.journal
            && let Err(error) = journal.retract_to(&state)
        {
            tracing::debug!("journal: {error}");
        }
    }

    /// The sum of what was written, read again; `None` of pipes and devices.
    pub(super) async fn sum(
        &self,
        algorithm: ChecksumAlgorithm,
    ) -> Result<Option<String>, CopyFailure> {
        let written = match (&self.target, &self.sink) {
            (WriteTarget::File(_), Some(sink)) => sink.open_reader(),
            _ => None,
        };
        match written {
            Some(written) => checksum_local(algorithm, written, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// The source's end and its confirmation are not enough: the file must have the announced length.
    pub(super) fn check_length(&self, size: Option<u64>, source: &str) -> Result<(), CopyFailure> {
        let (WriteTarget::File(partial), Some(size), Some(sink)) = (&self.target, size, &self.sink)
        else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local_failure(&partial.path, e))?;
        if length == size {
            return Ok(());
        }
        let message = format!("{source}: {length} bytes arrived, {size} were announced");
        Err(CopyFailure::new(Exit::Integrity, message))
    }

    /// Passes the result of a verification on; after a mismatch, or where nothing proves what the source
    /// refused, nothing is left to resume.
    pub(super) async fn judged<T>(
        &mut self,
        verified: Result<T, CopyFailure>,
    ) -> Result<T, CopyFailure> {
        match verified {
            Err(mismatch) if mismatch.exit == Exit::Integrity => {
                let Some(sink) = self.sink.clone() else {
                    return Err(mismatch);
                };
                let failure = disk::refused_or(mismatch, &self.target, &sink).await;
                if failure.exit == Exit::Integrity || !sink.is_durable() {
                    // The file is known to be wrong, and where nothing is forced to disk, there is no
                    // part of it that is known to be right.
                    self.standing.forget_journal();
                } else {
                    self.retreat();
                }
                Err(failure)
            }
            Err(failure) if self.standing.disputed && failure.exit == Exit::Protocol => {
                self.take_back(RangeSet::new());
                Err(failure)
            }
            verified => verified,
        }
    }

    /// Forces the whole and verified file to disk and gives it its name.
    pub(super) async fn finish(&mut self, modified: Option<Timestamp>) -> Result<(), CopyFailure> {
        if let Some(sink) = self.sink.clone() {
            if let Err(failure) = disk::settle(&self.target, &sink, modified).await {
                self.retreat();
                return Err(failure);
            }
            disk::put_in_place(&self.target, &sink).await?;
        }
        self.standing.forget_journal();
        Ok(())
    }

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        let forgotten = self.standing.forget_resumed();
        if forgotten {
            self.ready = false;
            self.synced = RangeSet::new();
        }
        forgotten
    }
}

impl Drop for LocalDestination {
    /// A copy that stored nothing leaves nothing.
    fn drop(&mut self) {
        if let (WriteTarget::File(partial), Some(sink)) = (&self.target, &self.sink) {
            partial.remove_if_empty(sink);
        }
    }
}

/// Bytes in the open file.
fn length(sink: &FileSink) -> std::io::Result<u64> {
    sink.file().metadata().map(|meta| meta.len())
}
