//! The destination of a get before its bytes move.

use std::path::Path;
use std::sync::Arc;

use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::ranges::RangeSet;

use super::super::disk;
use super::super::in_place::Candidate;
use super::super::request::{Lanes, Way};
use super::super::resume::{Leftover, is_all, usable};
use super::super::sums::End;
use super::{Get, length};
use crate::Failure;
use crate::journal::{self, Identity};
use crate::partial::{Partial, Target, local};
use crate::session::Session;
use crate::tree::Facts;
use crate::verify::Check;

impl Get<'_> {
    /// The destination, which nobody else writes until this get is over.
    pub(super) fn own(&mut self) -> Result<Arc<FileSink>, Failure> {
        if let Some(sink) = &self.sink {
            return Ok(Arc::clone(sink));
        }
        let sink = match self.target {
            Target::Direct { sink } => Arc::clone(sink),
            Target::File(partial) => self.ctx.own(partial)?,
        };
        Ok(Arc::clone(self.sink.insert(sink)))
    }

    /// Names the comparison made if `--resume` finds the destination whole.
    pub(super) async fn in_place(
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
            disk::settle_in_place(&partial.destination, self.ctx.options.sync_policy).await?;
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
    pub(super) async fn open(
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
}

fn open_source(path: &Path) -> Result<Arc<dyn Source>, Failure> {
    let open = || {
        let file = std::fs::File::open(path)?;
        FileSource::new(file, path.to_string_lossy())
    };
    let source = open().map_err(|e| local(path, e))?;
    Ok(Arc::new(source))
}
