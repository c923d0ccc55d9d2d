//! One file from a server to this machine.

use std::path::Path;
use std::sync::Arc;

use data::job::Control;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::Algorithm;
use proto::command::Command;
use proto::ranges::RangeSet;

use super::in_place::Candidate;
use super::keep::{Kept, after_failure, unproved};
use super::meter::{FileMeter, Safe};
use super::persist::Job;
use super::request::{Lanes, Span, Way, extent, spec};
use super::resume::{Leftover, is_all, usable};
use super::sums::End;
use super::watch::Watch;
use super::{Context, Item, Measured, Outcome, alongside, disk, unchanged};
use crate::journal::{self, Identity, Journal, State};
use crate::location::Server;
use crate::partial::{Partial, Target, local};
use crate::session::Session;
use crate::transfer::{self, Attempt, TransferSpec};
use crate::tree::Facts;
use crate::verify::{CONCURRENT_FROM, CONCURRENT_FROM_AHEAD, Check, choose, compare, sum_local};
use crate::{Exit, Failure};

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
            Err(failure) if failure.exit == Exit::Integrity => {
                self.forget_journal();
                return Err(failure);
            }
            Err(failure) if self.disputed && failure.exit == Exit::Protocol => {
                self.take_back(&sink, RangeSet::new());
                return Err(failure);
            }
            label => label?,
        };
        self.check_source(session, check).await?;
        let finished = disk::finish(self.target, &sink, self.item.facts.modified).await;
        if let Err(failure) = finished {
            self.retreat();
            return Err(failure);
        }
        self.forget_journal();
        let measured = moved.attempt.map(Measured::received);
        Ok(Outcome::done(self.meter.moved(), label, measured))
    }

    /// The destination, which nobody else writes until this get is over.
    fn own(&mut self) -> Result<Arc<FileSink>, Failure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match self.target {
            Target::Direct { sink } => Arc::clone(sink),
            Target::File(partial) => self.ctx.own(partial)?,
        };
        Ok(Arc::clone(self.sink.insert(sink)))
    }

    fn forget_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// The disk refused something: what was handed to the kernel and not forced to disk may be lost,
    /// whatever the length of the partial file.
    fn retreat(&mut self) {
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

    /// What was compared if `--resume` finds the destination whole.
    async fn in_place(
        &self,
        session: &mut Session,
        check: Check,
    ) -> Result<Option<String>, Failure> {
        let Target::File(partial) = self.target else {
            return Ok(None);
        };
        let meta = std::fs::metadata(&partial.destination).ok();
        let Some(meta) = meta.filter(std::fs::Metadata::is_file) else {
            return Ok(None);
        };
        let wanted = Facts {
            size: self.span.size,
            ..self.item.facts
        };
        let there = Facts::of_local(&meta);
        let unfinished = partial.length().is_some();
        if !self.ctx.options.resume || self.distrust || unfinished || wanted.size != there.size {
            return Ok(None);
        }
        let candidate = Candidate {
            wanted,
            there,
            part: self.span.part.map(|(_, length)| length),
        };
        let mut source = End::Remote {
            session,
            path: self.path,
            origin: self.span.origin(),
        };
        let mut destination = End::Local {
            source: open_source(&partial.destination)?,
            origin: 0,
        };
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            self.forget_unused(partial);
            let size = self.span.size;
            self.ctx.started(self.item, size, size.unwrap_or(0));
        }
        Ok(label)
    }

    /// Removes what a run left that was killed after the rename, unless somebody is at it again.
    fn forget_unused(&self, partial: &Partial) {
        let left = partial.journal.symlink_metadata().is_ok();
        if left && let Ok(sink) = self.ctx.own(partial) {
            journal::forget(&partial.journal);
            partial.abandon(&sink);
        }
    }

    /// Decides what of an earlier run is kept.
    async fn open(
        &mut self,
        session: &mut Session,
        sink: &Arc<FileSink>,
        check: Check,
    ) -> Result<(), Failure> {
        let pipe = matches!(self.target, Target::Direct { sink } if !sink.seekable());
        let lanes = Lanes::of(self.ctx, self.span.size, pipe, Way::Get(session));
        let lanes = *self.lanes.get_or_insert(lanes);
        if let Target::File(partial) = self.target {
            let judged = check.algorithm().is_some();
            self.open_partial(session, (partial, sink), lanes, judged)
                .await?;
        }
        self.ready = true;
        self.ctx
            .started(self.item, self.span.size, self.have.bytes());
        Ok(())
    }

    async fn open_partial(
        &mut self,
        session: &mut Session,
        (partial, sink): (&Partial, &Arc<FileSink>),
        lanes: Lanes,
        judged: bool,
    ) -> Result<(), Failure> {
        let mut identity = Identity {
            source: self.item.source.identity(),
            destination: self.item.destination.identity(),
            size: self.item.facts.size,
            modified: self.item.facts.modified.map(|t| t.0),
            part: self.span.part,
            in_order: lanes.in_order,
        };
        let length = length(sink).map_err(|e| local(&partial.path, e))?;
        if self.ctx.options.resume && !self.distrust && length > 0 {
            self.have = self
                .leftover(session, partial, (sink, length), (&identity, judged))
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
        session: &mut Session,
        partial: &Partial,
        (sink, length): (&FileSink, u64),
        (identity, judged): (&Identity, bool),
    ) -> Result<RangeSet, Failure> {
        let leftover = Leftover {
            identity,
            length,
            journal: Some(&partial.journal),
            shown: &self.item.destination.display(),
            judged,
        };
        let features = session.features().clone();
        let mut source = End::Remote {
            session,
            path: self.path,
            origin: self.span.origin(),
        };
        let written = sink.reread();
        let mut destination = End::Local {
            source: written.ok_or_else(|| local(&partial.path, "cannot be read again"))?,
            origin: 0,
        };
        usable(
            self.ctx,
            &leftover,
            &[&features],
            &mut source,
            &mut destination,
        )
        .await
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
                if failure.exit == Exit::Local && sink.durable() {
                    self.retreat();
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

    /// Whether the server is to sum while the bytes move.
    fn sums_early(&self, asks_ahead: bool) -> bool {
        let worth = match asks_ahead {
            true => CONCURRENT_FROM_AHEAD,
            false => CONCURRENT_FROM,
        };
        self.span.size.is_some_and(|size| size >= worth)
    }

    /// What will be asked of the server when the bytes are here.
    fn questions(&self, session: &Session, check: Check, sums: bool) -> Vec<Command> {
        let sum = check.algorithm().filter(|_| sums).map(|algorithm| {
            let (offset, length) = extent(self.span.part);
            session.checksum_questions(algorithm, offset, length, self.path)
        });
        let facts = self.looks_again(check);
        let facts = facts.then(|| session.stat_questions(self.path));
        sum.into_iter().chain(facts).flatten().collect()
    }

    /// The source's sum, asked for over a second session while the bytes move. `None` when that
    /// was not wanted or does not work: then it is asked for afterwards.
    fn sum_early(
        &self,
        algorithm: Option<Algorithm>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let pool = Arc::clone(&self.ctx.pool);
        let server = self.server.clone();
        let path = self.path.to_vec();
        let part = self.span.part;
        async move {
            let algorithm = algorithm?;
            let mut session = pool.take(&server).await.ok()?;
            let sum = source_sum(&mut session, algorithm, part, &path)
                .await
                .ok()?;
            pool.give(&server, session);
            Some(sum)
        }
    }

    /// Compares both ends; says what was compared.
    async fn verify(
        &self,
        session: &mut Session,
        sink: &FileSink,
        check: Check,
        moved: &Moved,
    ) -> Result<String, Failure> {
        let Some(algorithm) = check.algorithm() else {
            return Ok(check.size_label(self.span.size.is_some()));
        };
        let inline = moved.attempt.as_ref();
        let inline = inline.and_then(|a| a.report.digest.clone());
        let Some(copy) = self.copy_sum(sink, algorithm, inline).await? else {
            return self.without_sum(check, "what was written cannot be read again");
        };
        let source = match &moved.remote {
            Some(sum) => Ok(sum.clone()),
            None => source_sum(session, algorithm, self.span.part, self.path).await,
        };
        match source {
            Ok(source) => {
                compare(algorithm, &source, &copy, &self.item.source.display())?;
                Ok(check.label())
            }
            Err(failure) if failure.transient => Err(failure),
            Err(failure) => self.without_sum(check, &failure.message),
        }
    }

    fn without_sum(&self, check: Check, why: &str) -> Result<String, Failure> {
        let shown = self.item.source.display();
        if self.disputed {
            return Err(Failure::new(Exit::Protocol, unproved(&shown, why)));
        }
        if check.is_required() {
            let message = format!("{shown}: cannot be verified as asked: {why}");
            return Err(Failure::new(Exit::Integrity, message));
        }
        self.ctx
            .warn(format!("{shown}: verified by size only: {why}"));
        Ok(check.size_label(self.span.size.is_some()))
    }

    /// The copy's sum: as computed on the way, else of the open partial file.
    async fn copy_sum(
        &self,
        sink: &FileSink,
        algorithm: Algorithm,
        inline: Option<String>,
    ) -> Result<Option<String>, Failure> {
        if inline.is_some() || matches!(self.target, Target::Direct { .. }) {
            return Ok(inline);
        }
        match sink.reread() {
            Some(written) => sum_local(algorithm, written, 0, None).await.map(Some),
            None => Ok(None),
        }
    }

    fn check_length(&self, sink: &FileSink) -> Result<(), Failure> {
        let (Target::File(partial), Some(size)) = (self.target, self.span.size) else {
            return Ok(());
        };
        let length = length(sink).map_err(|e| local(&partial.path, e))?;
        if length == size {
            return Ok(());
        }
        let message = format!(
            "{}: {length} bytes arrived, {size} were announced",
            self.item.source.display(),
        );
        Err(Failure::new(Exit::Integrity, message))
    }

    /// A large file may have changed while it moved; a small one's sum, asked for afterwards, has
    /// told already.
    fn looks_again(&self, check: Check) -> bool {
        let large = self.span.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Check::Bytes && large && self.item.facts.size.is_some()
    }

    async fn check_source(&self, session: &mut Session, check: Check) -> Result<(), Failure> {
        if !self.looks_again(check) {
            return Ok(());
        }
        let now = session.stat(self.path).await?;
        unchanged(&self.item.source, self.item.facts, &now)
    }
}

/// The sum of what is copied, at the source.
async fn source_sum(
    session: &mut Session,
    algorithm: Algorithm,
    part: Option<(u64, u64)>,
    path: &[u8],
) -> Result<String, Failure> {
    let (offset, length) = extent(part);
    session.checksum(algorithm, offset, length, path).await
}

/// Bytes in the open file.
fn length(sink: &FileSink) -> std::io::Result<u64> {
    sink.file().metadata().map(|meta| meta.len())
}

fn open_source(path: &Path) -> Result<Arc<dyn Source>, Failure> {
    let open = || {
        let file = std::fs::File::open(path)?;
        FileSource::new(file, path.to_string_lossy())
    };
    let source = open().map_err(|e| local(path, e))?;
    Ok(Arc::new(source))
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
