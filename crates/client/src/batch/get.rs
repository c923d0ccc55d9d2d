//! One file from a server to this machine.

use std::sync::Arc;

use data::job::Control;
use data::store::Sink;
use data::store::file::FileSink;
use proto::ranges::RangeSet;

use super::keep::{Kept, after_failure};
use super::measured::Measured;
use super::meter::{FileMeter, Safe};
use super::persist::Job;
use super::request::{Lanes, Span, spec};
use super::watch::Watch;
use super::{Context, Item, Outcome, alongside, disk};
use crate::journal::{Journal, State};
use crate::location::Server;
use crate::partial::Target;
use crate::session::Session;
use crate::transfer::{self, Attempt, TransferSpec};
use crate::verify::{Check, choose};
use crate::{Exit, Failure};

mod opening;
mod proof;

/// A get: everything that lasts over its attempts.
pub(super) struct Get<'a> {
    ctx: &'a Context,
    item: &'a Item,
    server: &'a Server,
    path: &'a [u8],
    target: &'a Target,
    meter: &'a FileMeter,
    span: Span,
    /// The same in all attempts.
    lanes: Option<Lanes>,
    /// Open, and owned, over all attempts.
    sink: Option<Arc<FileSink>>,
    /// It is decided what of an earlier run is kept.
    ready: bool,
    journal: Option<Journal>,
    /// Safe at the destination.
    have: RangeSet,
    /// Of that, on disk.
    synced: RangeSet,
    /// Some of it is from an earlier run.
    resumed: bool,
    /// Nothing of an earlier run is to be used.
    distrust: bool,
    /// Some of what is safe came in an attempt that the server did not stand by: a checksum must
    /// judge it.
    disputed: bool,
    /// The last attempt's bytes are sent again.
    in_vain: bool,
    /// A mismatch has led to a new beginning once.
    started_over: bool,
}

/// What one transfer brought.
#[derive(Default)]
struct Moved {
    /// The attempt that ended well; `None` when all was here already.
    attempt: Option<Attempt>,
    /// The file's sum at the server, if it came in time.
    remote: Option<String>,
}

impl<'a> Get<'a> {
    /// Nothing done yet; a part beyond the source's end is an error.
    pub(super) fn new(
        ctx: &'a Context,
        item: &'a Item,
        (server, path): (&'a Server, &'a [u8]),
        target: &'a Target,
        meter: &'a FileMeter,
    ) -> Result<Self, Failure> {
        let options = &ctx.options;
        let shown = item.source.display();
        Ok(Self {
            span: Span::of(options.offset, options.length, item.facts, &shown)?,
            ctx,
            item,
            server,
            path,
            target,
            meter,
            lanes: None,
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
        })
    }

    async fn with(&mut self, session: &mut Session) -> Result<Outcome, Failure> {
        let check = choose(
            self.ctx.options.verify,
            &[session.features()],
            self.span.part.is_none(),
        )?;
        if !self.ready
            && let Some(label) = self.in_place(session, check).await?
        {
            return Ok(Outcome::done(self.meter.moved(), label, None));
        }
        let sink = self.own()?;
        if !self.ready {
            self.open(session, &sink, check).await?;
        }
        let moved = self.transfer(session, &sink, check).await?;
        if !session.is_usable() {
            *session = self.ctx.pool.take(self.server).await?;
        }
        self.check_length(&sink)?;
        let label = match self.verify(session, &sink, check, &moved).await {
            Err(mismatch) if mismatch.exit == Exit::Integrity => {
                let failure = disk::refused_or(mismatch, self.target, &sink).await;
                if failure.exit == Exit::Integrity || !sink.durable() {
                    // The file is known to be wrong, and where nothing is forced to disk, there is no
                    // part of it that is known to be right.
                    self.forget_journal();
                } else {
                    self.retreat(&sink);
                }
                return Err(failure);
            }
            Err(failure) if self.disputed && failure.exit == Exit::Protocol => {
                self.take_back(&sink, RangeSet::new());
                return Err(failure);
            }
            label => label?,
        };
        self.check_source(session, check).await?;
        let settled = disk::settle(self.target, &sink, self.item.facts.modified).await;
        if let Err(failure) = settled {
            self.retreat(&sink);
            return Err(failure);
        }
        disk::put_in_place(self.target, &sink).await?;
        self.forget_journal();
        let measured = moved.attempt.map(Measured::received);
        Ok(Outcome::done(self.meter.moved(), label, measured))
    }

    fn forget_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// The disk refused something: what was handed to the kernel and not forced to disk may be lost,
    /// whatever the length of the partial file.
    fn retreat(&mut self, sink: &FileSink) {
        if !sink.durable() {
            return;
        }
        self.synced = disk::forget_unsynced(sink, &self.synced);
        self.have = self.synced.clone();
        let state = self.state();
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.take_back(&state)
        {
            tracing::debug!("journal: {error}");
        }
    }

    fn state(&self) -> State {
        State {
            safe: self.have.clone(),
            synced: self.synced.clone(),
        }
    }

    async fn transfer(
        &mut self,
        session: &mut Session,
        sink: &Arc<FileSink>,
        check: Check,
    ) -> Result<Moved, Failure> {
        let size = self.span.size;
        if !self.have.is_empty() && size.is_some_and(|size| self.have.contains(0, size)) {
            return Ok(Moved::default());
        }
        let control = Arc::new(Control::new());
        let lanes = self.lanes.unwrap_or_default();
        let mut spec = spec(self.ctx, self.span, &self.have, lanes);
        spec.sum = check.algorithm().filter(|_| self.have.is_empty());
        let state = {
            let (before, control) = (self.state(), Arc::clone(&control));
            move || disk::state(&before, &control)
        };
        let count = state.clone();
        self.meter.attempt(
            Arc::clone(&control),
            Safe::told(move || count().safe.bytes()),
        );
        let early = check
            .algorithm()
            .filter(|_| self.sums_early(session.asks_ahead(&spec)));
        let questions = self.questions(session, check, early.is_none());
        session.then_ask(&spec, questions);
        let early = self.sum_early(early);
        let moving = transfer::get(
            session,
            self.path,
            Arc::clone(sink) as Arc<dyn Sink>,
            &spec,
            &control,
        );
        let watch = Watch::new(
            Arc::clone(&control),
            self.journal.as_mut(),
            lanes.in_order,
            &state,
        );
        self.in_vain = false;
        let result = alongside(watch.run(moving), early).await;
        self.synced = state().synced;
        let (mut attempt, remote) = match result {
            Ok(moved) => moved,
            Err(failure) => {
                self.keep(sink, &control.stored(), &spec, check);
                if spec.said.store_failed() {
                    self.retreat(sink);
                }
                return Err(failure);
            }
        };
        self.have = state().safe;
        self.ctx.warn_all(std::mem::take(&mut attempt.warnings));
        Ok(Moved {
            attempt: Some(attempt),
            remote,
        })
    }

    /// Decides which bytes of a failed attempt count.
    fn keep(&mut self, sink: &FileSink, arrived: &RangeSet, spec: &TransferSpec, check: Check) {
        let judged = check.algorithm().is_some();
        match after_failure(&self.have, arrived, &spec.said, self.span.size, judged) {
            Kept::Safe(all) => self.have = all,
            Kept::Disputed(all) => {
                self.have = all;
                self.disputed = true;
            }
            Kept::Dropped(safe) => self.take_back(sink, safe),
        }
    }

    /// Nothing but `safe` counts any more.
    fn take_back(&mut self, sink: &FileSink, safe: RangeSet) {
        self.in_vain = true;
        if let Target::File(_) = self.target
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
}

/// Bytes in the open file.
fn length(sink: &FileSink) -> std::io::Result<u64> {
    sink.file().metadata().map(|meta| meta.len())
}

impl Job for Get<'_> {
    async fn attempt(&mut self) -> Result<Outcome, Failure> {
        // Before the server is troubled: nobody else's file is waited for with a session in hand.
        // Where nothing unfinished is, `--resume` looks at the destination first.
        let unfinished = match self.target {
            Target::File(partial) => partial.length().is_some(),
            Target::Direct { .. } => false,
        };
        if unfinished || !self.ctx.options.resume {
            self.own()?;
        }
        let mut session = self.ctx.pool.take(self.server).await?;
        let result = self.with(&mut session).await;
        self.ctx.give_back(self.server, session, &result);
        result
    }

    fn forget_resumed(&mut self) -> bool {
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

    fn in_vain(&self) -> bool {
        self.in_vain
    }
}

impl Drop for Get<'_> {
    /// A copy that stored nothing leaves nothing.
    fn drop(&mut self) {
        if let (Target::File(partial), Some(sink)) = (self.target, &self.sink) {
            partial.abandon(sink);
        }
    }
}
