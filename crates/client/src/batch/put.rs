//! One file from this machine to a server.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::job::{Control, Report};
use data::store::Source;
use data::store::file::FileSource;
use proto::checksum::Algorithm;
use proto::command::Command;

use super::in_place::Candidate;
use super::measured::Measured;
use super::meter::{FileMeter, Safe};
use super::persist::Job;
use super::request::{Lanes, Span, Way, spec};
use super::sums::End;
use super::upload::{Finish, Upload};
use super::watch::Watch;
use super::{Context, Item, Outcome, changed};
use crate::journal::{Identity, State};
use crate::location::{Location, Server};
use crate::partial::local;
use crate::session::Session;
use crate::transfer::{self, Attempt};
use crate::tree::Facts;
use crate::verify::{Check, Compared, Comparison, choose, sum_local};
use crate::{Exit, Failure};

/// A put: everything that lasts over its attempts.
pub(super) struct Put<'a> {
    ctx: &'a Context,
    item: &'a Item,
    meter: &'a FileMeter,
    source: Arc<dyn Source>,
    /// Of the open file; `None` for pipes.
    facts: Option<Facts>,
    span: Span,
    /// The same in all attempts.
    lanes: Option<Lanes>,
    upload: Upload<'a>,
    /// Something was read from a pipe: it cannot be read again.
    consumed: bool,
}

impl<'a> Put<'a> {
    /// Opens the source; a part beyond its end is an error.
    pub(super) fn new(
        ctx: &'a Context,
        item: &'a Item,
        (server, path): (&'a Server, &'a [u8]),
        meter: &'a FileMeter,
    ) -> Result<Self, Failure> {
        let (source, facts) = open(&item.source)?;
        let options = &ctx.options;
        let shown = item.source.display();
        let span = Span::of(
            options.offset,
            options.length,
            facts.unwrap_or_default(),
            &shown,
        )?;
        let upload = Upload::new(ctx, server, path, item.destination.display());
        Ok(Self {
            ctx,
            item,
            meter,
            source,
            facts,
            span,
            lanes: None,
            upload,
            consumed: false,
        })
    }

    async fn with(&mut self, session: &mut Session) -> Result<Outcome, Failure> {
        let check = choose(self.ctx.options.verify, &[session.features()], true)?;
        if let Some(label) = self.in_place(session, check).await? {
            return Ok(Outcome::done(self.meter.moved(), label, None));
        }
        loop {
            self.prepare(session, check).await?;
            let attempt = self.transfer(session, check).await?;
            let report = attempt.as_ref().map(|attempt| &attempt.report);
            let verified = self.verify(session, check, report).await;
            let label = self.upload.judged(verified)?;
            self.check_source()?;
            let modified = self.facts.and_then(|f| f.modified);
            let again = !self.consumed;
            let finish = self.upload.finish(self.ctx, session, modified, again);
            if finish.await? == Finish::InPlace {
                let measured = attempt.map(Measured::sent);
                return Ok(Outcome::done(self.meter.moved(), label, measured));
            }
        }
    }

    /// What was compared if `--resume` finds the destination whole.
    async fn in_place(
        &self,
        session: &mut Session,
        check: Check,
    ) -> Result<Option<String>, Failure> {
        let (upload, size) = (&self.upload, self.span.size);
        let Some(there) = upload.in_place(self.ctx, size, session).await? else {
            return Ok(None);
        };
        let candidate = Candidate {
            wanted: Facts {
                size,
                ..self.facts.unwrap_or_default()
            },
            there,
            part: self.span.part.map(|(_, length)| length),
        };
        let mut source = End::Local {
            source: Arc::clone(&self.source),
            origin: self.span.origin(),
        };
        let mut destination = End::Remote {
            session,
            path: upload.path(),
            origin: 0,
        };
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            upload.found_in_place(self.ctx, self.item, &absolute(&self.item.source), size);
        }
        Ok(label)
    }

    async fn prepare(&mut self, session: &mut Session, check: Check) -> Result<(), Failure> {
        let lanes = Lanes::of(
            self.ctx,
            self.span.size,
            self.facts.is_none(),
            Way::Put(session),
        );
        let lanes = *self.lanes.get_or_insert(lanes);
        let facts = self.facts.unwrap_or_default();
        let identity = Identity {
            source: absolute(&self.item.source),
            destination: self.item.destination.identity(),
            size: self.span.size,
            modified: facts.modified.map(|t| t.0),
            part: self.span.part,
            in_order: lanes.in_order,
        };
        let mut source = End::Local {
            source: Arc::clone(&self.source),
            origin: self.span.origin(),
        };
        self.upload
            .prepare(
                (self.ctx, self.item, check),
                identity,
                (&mut source, None),
                session,
            )
            .await
    }

    async fn transfer(
        &mut self,
        session: &mut Session,
        check: Check,
    ) -> Result<Option<Attempt>, Failure> {
        if self.upload.is_whole(self.span) {
            return Ok(None);
        }
        let control = Arc::new(Control::new());
        self.upload.begin(&control);
        let have = &self.upload.have;
        let (pipe, lanes) = (self.facts.is_none(), self.lanes.unwrap_or_default());
        let mut spec = spec(self.ctx, self.span, have, lanes);
        spec.sum = check.algorithm().filter(|_| have.is_empty());
        spec.remote_sum = spec.sum.filter(|_| session.features().stor_checksum);
        spec.marked = Arc::clone(&self.upload.marked);
        self.consumed = pipe;
        let path = self.upload.store_path();
        let questions = questions(session, check, &path);
        session.then_ask(&spec, questions);
        let safe = self.upload.safe();
        let shown = match lanes.in_order {
            true => Safe::acknowledged(&control, have.bytes()),
            false => Safe::told({
                let safe = safe.clone();
                move || safe().bytes()
            }),
        };
        self.meter.attempt(Arc::clone(&control), shown);
        let in_order = self.upload.size_tells();
        let begun = Arc::clone(&spec.begun);
        let journal = self.upload.journal.as_mut().filter(|_| !pipe);
        let moving = transfer::put(session, Arc::clone(&self.source), &path, &spec, &control);
        let watch = Watch::new(Arc::clone(&control), journal, in_order, move || {
            State::told(safe())
        });
        let attempt = watch.run(moving).await;
        if attempt.is_err() && !begun.load(Ordering::Relaxed) {
            self.meter.discard();
        }
        let size = self.span.size;
        let mut attempt =
            attempt.inspect_err(|failure| self.upload.settle(failure, &spec.said, size))?;
        self.upload.confirmed(size);
        self.meter.confirm();
        self.ctx.warn_all(std::mem::take(&mut attempt.warnings));
        Ok(Some(attempt))
    }

    /// Compares both ends; says what was compared.
    async fn verify(
        &self,
        session: &mut Session,
        check: Check,
        report: Option<&Report>,
    ) -> Result<String, Failure> {
        let sent = self.upload.have.bytes() + report.map_or(0, |r| r.evidence.bytes);
        let expected = self.span.size.unwrap_or(sent);
        let Some(algorithm) = check.algorithm() else {
            let told = self.upload.check_size(session, expected).await?;
            return Ok(check.size_label(told));
        };
        let path = self.upload.store_path();
        let inline = report.and_then(|r| r.digest.clone());
        let (mine, theirs) = tokio::join!(
            self.source_sum(algorithm, inline),
            session.checksum(algorithm, 0, None, &path)
        );
        let mine =
            mine?.ok_or_else(|| Failure::new(Exit::Local, "the source cannot be read again"));
        let comparison = Comparison {
            check,
            shown: &self.upload.shown,
            disputed: self.upload.disputed,
        };
        match comparison.of(algorithm, mine, theirs)? {
            Compared::Same => Ok(check.label()),
            Compared::SizeOnly(warning) => {
                let told = self.upload.check_size(session, expected).await?;
                self.ctx.warn(warning);
                Ok(check.size_label(told))
            }
        }
    }

    async fn source_sum(
        &self,
        algorithm: Algorithm,
        inline: Option<String>,
    ) -> Result<Option<String>, Failure> {
        if inline.is_some() || self.facts.is_none() {
            return Ok(inline);
        }
        let source = Arc::clone(&self.source);
        let (origin, size) = (self.span.origin(), self.span.size);
        sum_local(algorithm, source, origin, size).await.map(Some)
    }

    /// The source must be now what it was when it was opened.
    fn check_source(&self) -> Result<(), Failure> {
        let (Location::Local(path), Some(before)) = (&self.item.source, self.facts) else {
            return Ok(());
        };
        let now = fs::metadata(path).map_err(|e| local(path, e))?;
        if Facts::of_local(&now) == before {
            return Ok(());
        }
        Err(changed(&self.item.source))
    }
}

/// What will be asked of the server when the bytes are there.
fn questions(session: &Session, check: Check, path: &[u8]) -> Vec<Command> {
    match check.algorithm() {
        Some(algorithm) => session.checksum_questions(algorithm, 0, None, path),
        None => session.stat_questions(path),
    }
}

/// The source's identity, whatever the directory the command runs in.
fn absolute(source: &Location) -> String {
    match source {
        Location::Local(path) => {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            Location::Local(path).identity()
        }
        other => other.identity(),
    }
}

/// Opens a local source; facts only of regular files, which can be read again.
pub(super) fn open(source: &Location) -> Result<(Arc<dyn Source>, Option<Facts>), Failure> {
    let (path, file) = match source {
        Location::Local(path) => (path.as_path(), File::open(path)),
        _ => {
            let stdin = std::io::stdin().as_fd().try_clone_to_owned();
            (Path::new("standard input"), stdin.map(File::from))
        }
    };
    let file = file.map_err(|e| local(path, e))?;
    let meta = file.metadata().map_err(|e| local(path, e))?;
    let facts =
        (meta.is_file() && matches!(source, Location::Local(_))).then(|| Facts::of_local(&meta));
    let source = FileSource::new(file, path.to_string_lossy()).map_err(|e| local(path, e))?;
    Ok((Arc::new(source), facts))
}

impl Job for Put<'_> {
    async fn attempt(&mut self) -> Result<Outcome, Failure> {
        self.upload.own(self.item)?;
        let server = self.upload.server;
        let mut session = self.ctx.pool.take(server).await?;
        let result = self.with(&mut session).await;
        let result = result.map_err(|failure| self.upload.explained(failure));
        self.ctx.give_back(server, session, &result);
        result
    }

    fn forget_resumed(&mut self) -> bool {
        self.upload.forget_resumed()
    }

    fn in_vain(&self) -> bool {
        self.upload.in_vain
    }

    fn repeatable(&self) -> bool {
        !self.consumed
    }
}
