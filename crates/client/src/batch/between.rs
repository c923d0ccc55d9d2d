//! One file from one server to another; the bytes do not pass through here.

use std::sync::Arc;
use std::time::Instant;

use data::job::Control;

use super::in_place::Candidate;
use super::measured::{Measured, Seen};
use super::meter::{FileMeter, Safe};
use super::persist::Job;
use super::pool::Pool;
use super::request::{Lanes, Span, Way, extent, spec};
use super::silent::{Growth, Sign};
use super::sums::End;
use super::upload::{Finish, Upload};
use super::watch::Watch;
use super::{Context, Item, Outcome, unchanged};
use crate::Failure;
use crate::journal::{Identity, State};
use crate::location::Server;
use crate::session::Session;
use crate::session::control::unreachable;
use crate::transfer::{self, TransferSpec};
use crate::tree::Facts;
use crate::verify::{CONCURRENT_FROM, Check, Compared, Comparison, choose};
use crate::why;

/// A third-party copy: everything that lasts over its attempts.
pub(super) struct Between<'a> {
    ctx: &'a Context,
    item: &'a Item,
    meter: &'a FileMeter,
    server: &'a Server,
    path: &'a [u8],
    span: Span,
    /// The same in all attempts.
    lanes: Option<Lanes>,
    upload: Upload<'a>,
}

impl<'a> Between<'a> {
    /// Nothing done yet; a part beyond the source's end is an error.
    pub(super) fn new(
        ctx: &'a Context,
        item: &'a Item,
        (server, path): (&'a Server, &'a [u8]),
        (to, to_path): (&'a Server, &'a [u8]),
        meter: &'a FileMeter,
    ) -> Result<Self, Failure> {
        let options = &ctx.options;
        let shown = item.source.display();
        Ok(Self {
            span: Span::of(options.offset, options.length, item.facts, &shown)?,
            lanes: None,
            upload: Upload::new(ctx, to, to_path, item.destination.display()),
            ctx,
            item,
            meter,
            server,
            path,
        })
    }

    async fn with(&mut self, from: &mut Session, to: &mut Session) -> Result<Outcome, Failure> {
        let whole = self.span.part.is_none();
        let servers = [from.features(), to.features()];
        let check = choose(self.ctx.options.verify, &servers, whole)?;
        if let Some(label) = self.in_place(from, to, check).await? {
            return Ok(Outcome::done(self.meter.moved(), label, None));
        }
        loop {
            self.prepare(from, to, check).await?;
            let mut measured = None;
            if !self.upload.is_whole(self.span) {
                measured = Some(self.transfer(from, to, check).await?);
            }
            let verified = self.verify(from, to, check).await;
            let label = self.upload.judged(verified)?;
            self.check_source(from).await?;
            let modified = self.item.facts.modified;
            let finish = self.upload.finish(self.ctx, to, modified, true);
            if finish.await? == Finish::InPlace {
                return Ok(Outcome::done(self.meter.moved(), label, measured));
            }
        }
    }

    /// What was compared if `--resume` finds the destination whole.
    async fn in_place(
        &self,
        from: &mut Session,
        to: &mut Session,
        check: Check,
    ) -> Result<Option<String>, Failure> {
        let (upload, size) = (&self.upload, self.span.size);
        let Some(there) = upload.in_place(self.ctx, size, to).await? else {
            return Ok(None);
        };
        let candidate = Candidate {
            wanted: Facts {
                size,
                ..self.item.facts
            },
            there,
            part: self.span.part.map(|(_, length)| length),
        };
        let mut source = End::Remote {
            session: from,
            path: self.path,
            origin: self.span.origin(),
        };
        let mut destination = End::Remote {
            session: to,
            path: upload.path(),
            origin: 0,
        };
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            upload.found_in_place(self.ctx, self.item, &self.item.source.identity(), size);
        }
        Ok(label)
    }

    async fn prepare(
        &mut self,
        from: &mut Session,
        to: &mut Session,
        check: Check,
    ) -> Result<(), Failure> {
        let lanes = Lanes::of(self.ctx, self.span.size, false, Way::Between(from, to));
        let lanes = *self.lanes.get_or_insert(lanes);
        let identity = Identity {
            source: self.item.source.identity(),
            destination: self.item.destination.identity(),
            size: self.span.size,
            modified: self.item.facts.modified.map(|t| t.0),
            part: self.span.part,
            in_order: lanes.in_order,
        };
        let features = from.features().clone();
        let mut source = End::Remote {
            session: from,
            path: self.path,
            origin: self.span.origin(),
        };
        self.upload
            .prepare(
                (self.ctx, self.item, check),
                identity,
                (&mut source, Some(&features)),
                to,
            )
            .await
    }

    async fn transfer(
        &mut self,
        from: &mut Session,
        to: &mut Session,
        check: Check,
    ) -> Result<Measured, Failure> {
        // Nothing runs here that a Control could stop; it carries the byte count's epoch.
        let control = Arc::new(Control::new());
        let lanes = self.lanes.unwrap_or_default();
        let mut spec = spec(self.ctx, self.span, &self.upload.have, lanes);
        spec.remote_sum = check
            .algorithm()
            .filter(|_| self.upload.have.is_empty() && to.features().stor_checksum);
        spec.marked = Arc::clone(&self.upload.marked);
        let path = self.upload.store_path();
        self.ask_ahead(from, to, check, &spec);
        let safe = self.upload.safe();
        let count = safe.clone();
        self.meter
            .attempt(Arc::clone(&control), Safe::told(move || count().bytes()));
        let in_order = self.upload.size_tells();
        let meter = self.meter;
        let progress = move |bytes| meter.report(bytes);
        let moving = transfer::third_party(from, self.path, to, &path, &spec, &progress);
        let stall = self.stall(&path, self.upload.have.prefix(), lanes.in_order);
        let moving = async {
            tokio::select! {
                biased;
                ended = moving => ended,
                stalled = stall => Err(stalled),
            }
        };
        let journal = self.upload.journal.as_mut();
        let watch = Watch::new(control, journal, in_order, move || State::told(safe()));
        let start = Instant::now();
        let size = self.span.size;
        let attempt = watch.run(moving).await;
        let attempt =
            attempt.inspect_err(|failure| self.upload.settle(failure, &spec.said, size))?;
        self.upload.confirmed(size);
        self.meter.report(attempt.report.evidence.bytes);
        self.meter.confirm();
        self.ctx.warn_all(attempt.warnings);
        Ok(Measured {
            seen: Seen::Between(why::Between {
                bytes: attempt.report.evidence.bytes,
                elapsed: start.elapsed(),
                streams: attempt.streams,
                markers: attempt.extended,
            }),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        })
    }

    /// Has both servers asked ahead what [`Between::verify`] and [`Between::check_source`] will ask.
    fn ask_ahead(&self, from: &mut Session, to: &mut Session, check: Check, spec: &TransferSpec) {
        let path = self.upload.store_path();
        let (offset, length) = extent(self.span.part);
        let sum = check.algorithm();
        let sum = sum.map(|a| from.checksum_questions(a, offset, length, self.path));
        let facts = self.looks_again().then(|| from.stat_questions(self.path));
        from.then_ask(spec, sum.into_iter().chain(facts).flatten().collect());
        let questions = match (check.algorithm(), self.span.size) {
            (Some(algorithm), _) => to.checksum_questions(algorithm, 0, None, &path),
            (None, Some(_)) => to.stat_questions(&path),
            (None, None) => Vec::new(),
        };
        to.then_ask(spec, questions);
    }

    /// The failure of a `silent` transfer (MODE S) that stands still, `before` bytes having been
    /// there; never anything else. Another session asks for the length.
    fn stall(
        &self,
        path: &[u8],
        before: u64,
        silent: bool,
    ) -> impl Future<Output = Failure> + Send + use<'a> {
        let (pool, server) = (Arc::clone(&self.ctx.pool), self.upload.server);
        let (meter, size, path) = (self.meter, self.span.size, path.to_vec());
        let limit = self.ctx.options.transfer.stall;
        async move {
            if !silent {
                return std::future::pending().await;
            }
            let mut growth = Growth::new(size, limit);
            let mut session = None;
            loop {
                tokio::time::sleep(growth.period()).await;
                let length = length(&pool, server, &mut session, &path).await;
                let Some(length) = length else {
                    // A server that cannot be asked: the transfer's own end has to tell.
                    return std::future::pending().await;
                };
                match growth.look(length, Instant::now()) {
                    Sign::Moved(length) => meter.report(length.saturating_sub(before)),
                    Sign::Nothing => {}
                    Sign::Stalled(length) => {
                        return unreachable(format!(
                            "the copy to {server} stalled: its file stood at {length} bytes for \
                             {} s; try again, with --resume",
                            limit.as_secs()
                        ));
                    }
                }
            }
        }
    }

    /// Both servers sum at the same time.
    async fn verify(
        &self,
        from: &mut Session,
        to: &mut Session,
        check: Check,
    ) -> Result<String, Failure> {
        let Some(algorithm) = check.algorithm() else {
            return self.by_size(to, check).await;
        };
        let (offset, length) = extent(self.span.part);
        let path = self.upload.store_path();
        let (source, copy) = tokio::join!(
            from.checksum(algorithm, offset, length, self.path),
            to.checksum(algorithm, 0, None, &path)
        );
        let comparison = Comparison {
            check,
            shown: &self.upload.shown,
            disputed: self.upload.disputed,
        };
        match comparison.of(algorithm, source, copy)? {
            Compared::Same => Ok(check.label()),
            Compared::SizeOnly(warning) => {
                self.ctx.warn(warning);
                self.by_size(to, check).await
            }
        }
    }

    async fn by_size(&self, to: &mut Session, check: Check) -> Result<String, Failure> {
        let told = match self.span.size {
            Some(size) => self.upload.check_size(to, size).await?,
            None => false,
        };
        Ok(check.size_label(told))
    }

    fn looks_again(&self) -> bool {
        self.item
            .facts
            .size
            .is_some_and(|size| size >= CONCURRENT_FROM)
    }

    async fn check_source(&self, from: &mut Session) -> Result<(), Failure> {
        if !self.looks_again() {
            return Ok(());
        }
        let now = from.stat(self.path).await?;
        unchanged(&self.item.source, self.item.facts, &now)
    }
}

/// Length of a file, over a session that is opened for it.
async fn length(
    pool: &Pool,
    server: &Server,
    session: &mut Option<Session>,
    path: &[u8],
) -> Option<u64> {
    if session.is_none() {
        *session = pool.take(server).await.ok();
    }
    session.as_mut()?.stat(path).await.ok()?.size
}

impl Job for Between<'_> {
    async fn attempt(&mut self) -> Result<Outcome, Failure> {
        self.upload.own(self.item)?;
        let ctx = self.ctx;
        let to_server = self.upload.server;
        let sessions = tokio::try_join!(ctx.pool.take(self.server), ctx.pool.take(to_server));
        let (mut from, mut to) = sessions?;
        let result = self.with(&mut from, &mut to).await;
        let result = result.map_err(|failure| self.upload.explained(failure));
        // A refusal is one server's, but what the other was told is not undone: both start anew.
        if result.is_ok() {
            ctx.pool.give(self.server, from);
            ctx.pool.give(to_server, to);
        }
        result
    }

    fn forget_resumed(&mut self) -> bool {
        self.upload.forget_resumed()
    }

    fn in_vain(&self) -> bool {
        self.upload.in_vain
    }
}
