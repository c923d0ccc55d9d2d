//! A destination that this process writes itself: a file of this machine under its partial name until it
//! is whole, or a pipe or device.

use std::sync::Arc;

use data::job::Control;
use data::store::Sink;
use data::store::file::{FileSink, FileSource};
use proto::checksum::Algorithm;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::keep::Standing;
use super::resume::{Leftover, is_all, usable};
use super::sums::End;
use super::{Context, Item, disk};
use crate::journal::{self, Identity, State};
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
    pub(super) standing: Standing,
    /// Of what is safe, on disk.
    synced: RangeSet,
}

impl Download {
    /// Nothing done yet.
    pub(super) fn new(target: Target, shown: String) -> Self {
        Self {
            target,
            shown,
            sink: None,
            ready: false,
            standing: Standing::default(),
            synced: RangeSet::new(),
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
        if !ctx.options.resume || self.ready || self.standing.distrust || partial.length().is_some()
        {
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
        ctx.started(item, size, self.standing.have.bytes());
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
            safe: self.standing.have.clone(),
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
        self.standing.in_vain = false;
        let state = disk::state(&self.state(), control);
        (self.standing.have, self.synced) = (state.safe, state.synced);
    }

    /// An attempt failed: decides what of it counts.
    pub(super) fn settle(
        &mut self,
        control: &Control,
        said: &Confirmation,
        size: Option<u64>,
        judged: bool,
    ) {
        self.standing.in_vain = false;
        self.synced = disk::state(&self.state(), control).synced;
        let arrived = control.stored();
        if let Some(safe) = self.standing.weigh(&arrived, said, size, judged) {
            self.take_back(safe);
        }
        if said.store_failed() {
            self.retreat();
        }
    }

    /// Nothing but `safe` counts any more.
    fn take_back(&mut self, safe: RangeSet) {
        if let (Target::File(_), Some(sink)) = (&self.target, &self.sink)
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
        let Some(sink) = self.sink.as_ref().filter(|sink| sink.durable()) else {
            return;
        };
        self.synced = disk::forget_unsynced(sink, &self.synced);
        self.standing.have = self.synced.clone();
        let state = self.state();
        if let Some(journal) = &mut self.standing.journal
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
    pub(super) async fn finish(&mut self, modified: Option<Timestamp>) -> Result<(), Failure> {
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
