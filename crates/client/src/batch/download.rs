//! A destination that this process writes itself: a file of this machine under its partial name until it
//! is whole, or a pipe or device.

use std::sync::Arc;

use data::job::Control;
use data::store::Sink;
use data::store::file::{FileSink, FileSource};
use proto::checksum::Algorithm;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::keep::{Kept, after_failure};
use super::resume::{Leftover, is_all, usable};
use super::sums::End;
use super::{Context, Item, disk};
use crate::journal::{self, Identity, Journal, State};
use crate::partial::{Partial, Target, local};
use crate::storage::contract::{Opened, Sums};
use crate::transfer::Confirmation;
use crate::tree::Facts;
use crate::verify::{Check, sum_local};
use crate::{Exit, Failure};

/// The destination here, over all attempts.
pub(super) struct Download {
    target: Target,
    /// For messages.
    shown: String,
    /// Open, and owned, over all attempts.
    sink: Option<Arc<FileSink>>,
    /// It is decided what of an earlier run is kept.
    ready: bool,
    pub(super) journal: Option<Journal>,
    /// Safe at the destination.
    pub(super) have: RangeSet,
    /// Of that, on disk.
    synced: RangeSet,
    /// Some of it is from an earlier run.
    resumed: bool,
    /// Nothing of an earlier run is to be used.
    distrust: bool,
    /// Some of what is safe came in an attempt that the source did not stand by: a checksum must
    /// judge it.
    pub(super) disputed: bool,
    /// The last attempt's bytes are sent again.
    pub(super) in_vain: bool,
    /// A mismatch has led to a new beginning once.
    started_over: bool,
}

impl Download {
    /// Nothing done yet.
    pub(super) fn new(target: Target, shown: String) -> Self {
        Self {
            target,
            shown,
            sink: None,
            ready: false,
            journal: None,
            have: RangeSet::new(),
            synced: RangeSet::new(),
            resumed: false,
            distrust: false,
            disputed: false,
            in_vain: false,
            started_over: false,
        }
    }

    /// Makes the destination this copy's own before anybody else is troubled: nobody else's file is
    /// waited for with a session in hand. Where nothing unfinished is, `--resume` looks at the
    /// destination first.
    pub(super) fn own_early(&mut self, ctx: &Context) -> Result<(), Failure> {
        let unfinished = match &self.target {
            Target::File(partial) => partial.length().is_some(),
            Target::Direct { .. } => false,
        };
        if unfinished || !ctx.options.resume {
            self.own(ctx)?;
        }
        Ok(())
    }

    /// The open destination, which nobody else writes until this copy is over.
    pub(super) fn own(&mut self, ctx: &Context) -> Result<Arc<FileSink>, Failure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match &self.target {
            Target::Direct { sink } => Arc::clone(sink),
            Target::File(partial) => ctx.own(partial)?,
        };
        Ok(Arc::clone(self.sink.insert(sink)))
    }

    /// Whether bytes can be written at any offset.
    pub(super) fn is_seekable(&self) -> bool {
        match &self.target {
            Target::Direct { sink } => sink.seekable(),
            Target::File(_) => true,
        }
    }

    /// The checksums that can be had of what was written.
    pub(super) fn sums(&self) -> Sums {
        Sums::all()
    }

    /// Whether what was written has a name, under which it can be read again.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.target, Target::File(_))
    }

    /// The file that has the final name, if `--resume` asks for it to be looked at: it has this size,
    /// and nothing unfinished is beside it.
    pub(super) fn in_place(
        &self,
        ctx: &Context,
        size: Option<u64>,
    ) -> Result<Option<Opened>, Failure> {
        let Target::File(partial) = &self.target else {
            return Ok(None);
        };
        if !ctx.options.resume || self.ready || self.distrust || partial.length().is_some() {
            return Ok(None);
        }
        let meta = std::fs::metadata(&partial.destination).ok();
        let Some(meta) = meta.filter(std::fs::Metadata::is_file) else {
            return Ok(None);
        };
        let there = Facts::of_local(&meta);
        if there.size != size {
            return Ok(None);
        }
        let path = &partial.destination;
        let open = || FileSource::new(std::fs::File::open(path)?, path.to_string_lossy());
        let source = open().map_err(|e| local(path, e))?;
        Ok(Some(Opened {
            source: Arc::new(source),
            facts: Some(there),
        }))
    }

    /// The file that has the final name is what was to be copied: it is forced to disk, and what a run
    /// left that was killed after the rename goes, unless somebody is at it again.
    pub(super) async fn found_in_place(
        &self,
        ctx: &Context,
        item: &Item,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        if let Target::File(partial) = &self.target {
            disk::settle_in_place(&partial.destination, ctx.options.sync_policy).await?;
            let left = partial.journal.symlink_metadata().is_ok();
            if left && let Ok(sink) = ctx.own(partial) {
                journal::forget(&partial.journal);
                partial.abandon(&sink);
            }
        }
        ctx.started(item, size, size.unwrap_or(0));
        Ok(())
    }

    /// Before the first attempt: decides what of an earlier run is kept.
    pub(super) async fn prepare(
        &mut self,
        (ctx, item, check): (&Context, &Item, Check),
        identity: Identity,
        source: (&mut End<'_>, &Sums),
    ) -> Result<(), Failure> {
        let sink = self.own(ctx)?;
        if self.ready {
            return Ok(());
        }
        let size = identity.copied();
        if let Target::File(partial) = &self.target {
            let (partial, judged) = (partial.clone(), check.algorithm().is_some());
            self.open_partial(ctx, (&partial, &sink), (identity, judged), source)
                .await?;
        }
        self.ready = true;
        ctx.started(item, size, self.have.bytes());
        Ok(())
    }

    async fn open_partial(
        &mut self,
        ctx: &Context,
        (partial, sink): (&Partial, &Arc<FileSink>),
        (mut identity, judged): (Identity, bool),
        source: (&mut End<'_>, &Sums),
    ) -> Result<(), Failure> {
        let length = length(sink).map_err(|e| local(&partial.path, e))?;
        if ctx.options.resume && !self.distrust && length > 0 {
            self.have = self
                .leftover(ctx, (partial, sink, length), (&identity, judged), source)
                .await?;
        }
        self.resumed = !self.have.is_empty();
        if !self.resumed {
            self.journal = Some(disk::start_over(&partial.journal, identity).await?);
            return partial.start_over(sink);
        }
        identity.in_order &= is_all(&self.have, Some(length));
        let (journal, state) = disk::take_up(partial, sink, identity, &self.have).await?;
        (self.journal, self.synced) = (Some(journal), state.synced);
        Ok(())
    }

    async fn leftover(
        &self,
        ctx: &Context,
        (partial, sink, length): (&Partial, &FileSink, u64),
        (identity, judged): (&Identity, bool),
        (source, sums): (&mut End<'_>, &Sums),
    ) -> Result<RangeSet, Failure> {
        let leftover = Leftover {
            identity,
            length,
            journal: Some(&partial.journal),
            shown: &self.shown,
            judged,
        };
        let written = sink.reread();
        let mut destination = End::Open {
            source: written.ok_or_else(|| local(&partial.path, "cannot be read again"))?,
            origin: 0,
        };
        let own = self.sums();
        usable(ctx, &leftover, &[sums, &own], source, &mut destination).await
    }

    /// Safe and synced now.
    pub(super) fn state(&self) -> State {
        State {
            safe: self.have.clone(),
            synced: self.synced.clone(),
        }
    }

    /// Likewise, while an attempt runs.
    pub(super) fn state_during(
        &self,
        control: &Arc<Control>,
    ) -> impl Fn() -> State + Clone + Send + Sync + use<> {
        let (before, control) = (self.state(), Arc::clone(control));
        move || disk::state(&before, &control)
    }

    /// An attempt ended well, and left this.
    pub(super) fn confirmed(&mut self, control: &Control) {
        self.in_vain = false;
        let state = disk::state(&self.state(), control);
        (self.have, self.synced) = (state.safe, state.synced);
    }

    /// An attempt failed: decides what of it counts.
    pub(super) fn settle(
        &mut self,
        control: &Control,
        said: &Confirmation,
        size: Option<u64>,
        judged: bool,
    ) {
        self.in_vain = false;
        self.synced = disk::state(&self.state(), control).synced;
        match after_failure(&self.have, &control.stored(), said, size, judged) {
            Kept::Safe(all) => self.have = all,
            Kept::Disputed(all) => {
                self.have = all;
                self.disputed = true;
            }
            Kept::Dropped(safe) => self.take_back(safe),
        }
        if said.store_failed() {
            self.retreat();
        }
    }

    /// Nothing but `safe` counts any more.
    fn take_back(&mut self, safe: RangeSet) {
        self.in_vain = true;
        if let (Target::File(_), Some(sink)) = (&self.target, &self.sink)
            && let Err(e) = sink.file().set_len(safe.end())
        {
            tracing::debug!("partial file: {e}");
        }
        if let Some(journal) = &mut self.journal
            && let Err(e) = journal.take_back(&State::told(safe.clone()))
        {
            tracing::debug!("journal: {e}");
        }
        (self.have, self.synced) = (safe, RangeSet::new());
    }

    /// The disk refused something: what was handed to the kernel and not forced to disk may be lost,
    /// whatever the length of the partial file.
    fn retreat(&mut self) {
        let Some(sink) = self.sink.as_ref().filter(|sink| sink.durable()) else {
            return;
        };
        self.synced = disk::forget_unsynced(sink, &self.synced);
        self.have = self.synced.clone();
        let state = self.state();
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.take_back(&state)
        {
            tracing::debug!("journal: {error}");
        }
    }

    /// The sum of what was written, read again; `None` of pipes and devices.
    pub(super) async fn sum(&self, algorithm: Algorithm) -> Result<Option<String>, Failure> {
        let written = match (&self.target, &self.sink) {
            (Target::File(_), Some(sink)) => sink.reread(),
            _ => None,
        };
        match written {
            Some(written) => sum_local(algorithm, written, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// The source's end and its confirmation are not enough: the file must have the announced length.
    pub(super) fn check_length(&self, size: Option<u64>, source: &str) -> Result<(), Failure> {
        let (Target::File(partial), Some(size), Some(sink)) = (&self.target, size, &self.sink)
        else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local(&partial.path, e))?;
        if length == size {
            return Ok(());
        }
        let message = format!("{source}: {length} bytes arrived, {size} were announced");
        Err(Failure::new(Exit::Integrity, message))
    }

    /// Passes the result of a verification on; after a mismatch, or where nothing proves what the source
    /// refused, nothing is left to resume.
    pub(super) async fn judged<T>(&mut self, verified: Result<T, Failure>) -> Result<T, Failure> {
        match verified {
            Err(mismatch) if mismatch.exit == Exit::Integrity => {
                let Some(sink) = self.sink.clone() else {
                    return Err(mismatch);
                };
                let failure = disk::refused_or(mismatch, &self.target, &sink).await;
                if failure.exit == Exit::Integrity || !sink.durable() {
                    // The file is known to be wrong, and where nothing is forced to disk, there is no
                    // part of it that is known to be right.
                    self.forget_journal();
                } else {
                    self.retreat();
                }
                Err(failure)
            }
            Err(failure) if self.disputed && failure.exit == Exit::Protocol => {
                self.take_back(RangeSet::new());
                Err(failure)
            }
            verified => verified,
        }
    }

    /// Forces the whole and verified file to disk and gives it its name.
    pub(super) async fn finish(&mut self, modified: Option<Timestamp>) -> Result<(), Failure> {
        if let Some(sink) = self.sink.clone() {
            if let Err(failure) = disk::settle(&self.target, &sink, modified).await {
                self.retreat();
                return Err(failure);
            }
            disk::put_in_place(&self.target, &sink).await?;
        }
        self.forget_journal();
        Ok(())
    }

    fn forget_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// Gives up what was resumed; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        let resumed = std::mem::take(&mut self.resumed);
        let disputed = std::mem::take(&mut self.disputed) && !self.started_over;
        if !resumed && !disputed {
            return false;
        }
        self.started_over = true;
        self.distrust = true;
        self.ready = false;
        self.journal = None;
        (self.have, self.synced) = (RangeSet::new(), RangeSet::new());
        true
    }
}

impl Drop for Download {
    /// A copy that stored nothing leaves nothing.
    fn drop(&mut self) {
        if let (Target::File(partial), Some(sink)) = (&self.target, &self.sink) {
            partial.abandon(sink);
        }
    }
}

/// Bytes in the open file.
fn length(sink: &FileSink) -> std::io::Result<u64> {
    sink.file().metadata().map(|meta| meta.len())
}
