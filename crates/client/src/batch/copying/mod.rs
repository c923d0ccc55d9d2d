//! One file from wherever it is to wherever it goes: the one way for a copy.
//!
//! An attempt compares what is there, moves what is missing, verifies it and puts it in place. The ends
//! differ in what they can do ([`crate::storage::contract`]) and in whether this process has them open.

use std::fs;

use super::checksums::ChecksumEndpoint;
use super::destination::{CopyDestination, open_end};
use super::download::LocalDestination;
use super::meter::FileMeter;
use super::resume::ExistingDestination;
use super::stream_plan::{CopyRange, StreamPlan};
use super::upload::{StorageDestination, UploadFinish};
use super::{BatchContext, FileOutcome, PlannedFile, changed, unchanged};
use crate::CopyFailure;
use crate::answers::SourceFacts;
use crate::journal::CopyIdentity;
use crate::location::{Location, StorageId};
use crate::storage::contract::{AvailableChecksums, OpenSource, Storage};
use crate::verify::{CONCURRENT_FROM, ChecksumAbility, Verification, choose_verification};

mod moving;
mod verification;

/// A copy of one file: everything that lasts over its attempts.
pub(super) struct FileCopy<'a> {
    ctx: &'a BatchContext,
    item: &'a PlannedFile,
    meter: &'a FileMeter,
    from: StorageId,
    to: StorageId,
    begun: Option<CopyState<'a>>,
    /// The same in all attempts.
    lanes: Option<StreamPlan>,
    /// Something was read from a pipe: it cannot be read again.
    consumed: bool,
}

/// Facts that hold from the first attempt on.
struct CopyState<'a> {
    /// The source, where this process has it open.
    source: Option<OpenSource>,
    /// Of the source.
    facts: SourceFacts,
    span: CopyRange,
    receiving: CopyDestination<'a>,
    /// The source's sum is that of the bytes which pass this machine: nothing else tells it.
    sums_what_passes: bool,
}

/// The sessions of an attempt.
struct StorageSessions {
    from: Box<dyn Storage>,
    to: Box<dyn Storage>,
}

impl CopyState<'_> {
    /// The bytes pass this machine, and the end that they come from is open here.
    fn reads_here(&self) -> bool {
        self.source.is_some()
    }

    fn stores_there(&self) -> bool {
        matches!(self.receiving, CopyDestination::There(_))
    }

    /// A pipe gives its bytes once.
    fn is_pipe(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|opened| opened.facts.is_none())
    }

    /// One end must be read or written in order.
    fn is_sequential(&self) -> bool {
        self.is_pipe() || !self.receiving.is_seekable()
    }

    /// Both ends, of which such checksums can be had.
    fn summed<'s>(
        &self,
        source: &'s AvailableChecksums,
        copy: &'s AvailableChecksums,
    ) -> [ChecksumAbility<'s>; 2] {
        [
            ChecksumAbility {
                sums: source,
                whole: self.span.part.is_none(),
            },
            ChecksumAbility {
                sums: copy,
                whole: true,
            },
        ]
    }

    /// The source as something that can be summed.
    fn source_end<'e>(&self, from: &'e mut dyn Storage, path: &'e [u8]) -> ChecksumEndpoint<'e> {
        let origin = self.span.origin();
        match &self.source {
            Some(opened) => open_end(&opened.source, origin),
            None => ChecksumEndpoint::Named {
                storage: from,
                path,
                origin,
            },
        }
    }
}

impl<'a> FileCopy<'a> {
    /// Nothing done yet.
    pub(super) fn new(ctx: &'a BatchContext, item: &'a PlannedFile, meter: &'a FileMeter) -> Self {
        Self {
            ctx,
            item,
            meter,
            from: item.source.storage_id(),
            to: item.destination.storage_id(),
            begun: None,
            lanes: None,
            consumed: false,
        }
    }

    /// One attempt: from connecting to putting the verified file in place. Goes on from what earlier
    /// attempts made safe.
    pub(super) async fn attempt(&mut self) -> Result<FileOutcome, CopyFailure> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => self.begin().await?,
        };
        let result = self.attempt_with(&mut begun).await;
        self.begun = Some(begun);
        result
    }

    /// Opens what can be opened here; a part beyond the source's end is an error.
    async fn begin(&self) -> Result<CopyState<'a>, CopyFailure> {
        let (ctx, item) = (self.ctx, self.item);
        let mut source = None;
        if !self.from.is_server() {
            let mut here = ctx.pool.take(&self.from).await?;
            source = here.open(item.source.path()).await?;
        }
        let facts = match &source {
            Some(opened) => opened.facts.unwrap_or_default(),
            None => item.facts,
        };
        let options = &ctx.options;
        let shown = item.source.display();
        let span = CopyRange::of(options.offset, options.length, facts, &shown)?;
        let target = match self.to.is_server() {
            true => None,
            false => {
                let mut here = ctx.pool.take(&self.to).await?;
                here.write_target(item.destination.path())?
            }
        };
        let shown = item.destination.display();
        let receiving = match target {
            Some(target) => CopyDestination::Here(Box::new(LocalDestination::new(target, shown))),
            None => {
                let path = item.destination.path();
                CopyDestination::There(Box::new(StorageDestination::new(
                    ctx,
                    self.to.clone(),
                    path,
                    shown,
                )))
            }
        };
        Ok(CopyState {
            source,
            facts,
            span,
            receiving,
            sums_what_passes: false,
        })
    }

    async fn attempt_with(
        &mut self,
        begun: &mut CopyState<'a>,
    ) -> Result<FileOutcome, CopyFailure> {
        // Before a server is troubled.
        begun.receiving.own(self.ctx, self.item)?;
        let pool = &self.ctx.pool;
        let (from, to) = tokio::try_join!(pool.take(&self.from), pool.take(&self.to))?;
        let mut sessions = StorageSessions { from, to };
        let result = self.with(begun, &mut sessions).await;
        let result = result.map_err(|failure| begun.receiving.explained(failure));
        let StorageSessions { from, to } = sessions;
        // A refusal is one server's, but what another one was told is not undone: both start anew.
        if result.is_ok() || !(self.from.is_server() && self.to.is_server()) {
            self.ctx.give_back(&self.from, from, &result);
            self.ctx.give_back(&self.to, to, &result);
        }
        result
    }

    async fn with(
        &mut self,
        begun: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
    ) -> Result<FileOutcome, CopyFailure> {
        let path = self.item.source.path();
        let source_sums = match &begun.source {
            Some(_) => AvailableChecksums::all(),
            None => sessions.from.available_checksums(path).await?,
        };
        let check = self.choose(begun, &source_sums, sessions).await?;
        if let Some(label) = self.in_place(begun, sessions, check).await? {
            return Ok(FileOutcome::done(self.meter.moved(), label, None));
        }
        loop {
            self.prepare(begun, sessions, (check, &source_sums)).await?;
            let moved = self.transfer(begun, sessions, check).await?;
            if !sessions.from.is_usable() {
                sessions.from = self.ctx.pool.take(&self.from).await?;
            }
            if let CopyDestination::Here(download) = &begun.receiving {
                download.check_length(begun.span.size, &self.item.source.display())?;
            }
            let verified = self
                .verify(begun, sessions, (check, &source_sums), &moved)
                .await;
            let label = begun.receiving.judged(verified).await?;
            self.check_source(begun, sessions, check).await?;
            let (modified, again) = (begun.facts.modified, !self.consumed);
            let to = &mut *sessions.to;
            let finish = begun
                .receiving
                .finish(self.ctx, to, modified, again)
                .await?;
            if finish == UploadFinish::InPlace {
                return Ok(FileOutcome::done(self.meter.moved(), label, moved.measured));
            }
        }
    }

    /// The check that both ends can make.
    async fn choose(
        &self,
        begun: &mut CopyState<'_>,
        source: &AvailableChecksums,
        sessions: &mut StorageSessions,
    ) -> Result<Verification, CopyFailure> {
        let copy = begun.receiving.sums(&mut *sessions.to).await?;
        let wish = self.ctx.options.verify;
        let mut check = choose_verification(wish, &begun.summed(source, &copy));
        // The source tells no sum that the copy has: what passes here has to stand for it.
        let relayed = !begun.reads_here() && begun.stores_there() && !self.passes(sessions);
        begun.sums_what_passes = relayed && matches!(check, Ok(Verification::Size) | Err(_));
        if begun.sums_what_passes {
            check = choose_verification(wish, &begun.summed(&AvailableChecksums::all(), &copy));
        }
        // A pipe cannot be read again, and the sum of what went into it is the source's own.
        let nothing_to_compare = begun.reads_here() && begun.receiving.is_unreadable();
        Ok(match check? {
            Verification::Sum {
                required: false, ..
            } if nothing_to_compare => Verification::Size,
            check => check,
        })
    }

    /// Both ends move the file between them, and nothing passes here.
    fn passes(&self, sessions: &StorageSessions) -> bool {
        let from = sessions.from.capabilities().third_party;
        from.is_some() && from == sessions.to.capabilities().third_party
    }

    /// Names the comparison made if `--resume` finds the destination whole.
    async fn in_place(
        &self,
        begun: &CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<Option<String>, CopyFailure> {
        let size = begun.span.size;
        let to = &mut *sessions.to;
        let there = begun.receiving.in_place(self.ctx, size, to).await?;
        let Some((there, mut destination)) = there else {
            return Ok(None);
        };
        let candidate = ExistingDestination {
            wanted: SourceFacts {
                size,
                ..begun.facts
            },
            there,
            part: begun.span.part.map(|(_, length)| length),
        };
        let path = self.item.source.path();
        let mut source = begun.source_end(&mut *sessions.from, path);
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            let source = self.source_identity(begun);
            let found = (source.as_str(), size);
            begun
                .receiving
                .found_in_place(self.ctx, self.item, found)
                .await?;
        }
        Ok(label)
    }

    async fn prepare(
        &mut self,
        begun: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        (check, sums): (Verification, &AvailableChecksums),
    ) -> Result<(), CopyFailure> {
        let relayed = !begun.reads_here() && begun.stores_there() && !self.passes(sessions);
        let sequential = begun.is_sequential() || relayed;
        let ends = (&*sessions.from, &*sessions.to);
        let size = begun.span.size;
        let lanes = match begun.reads_here() && !begun.stores_there() {
            true => StreamPlan::within(&self.ctx.options, size, sequential),
            false => StreamPlan::of(self.ctx, size, sequential, ends),
        };
        let lanes = *self.lanes.get_or_insert(lanes);
        let identity = CopyIdentity {
            source: self.source_identity(begun),
            destination: self.item.destination.identity_key(),
            size: match begun.source {
                Some(_) => begun.span.size,
                None => begun.facts.size,
            },
            modified: begun.facts.modified.map(|t| t.0),
            part: begun.span.part,
            in_order: lanes.in_order,
        };
        if let CopyDestination::There(upload) = &mut begun.receiving {
            // What is relayed comes in order from its first byte.
            upload.goes_on(!relayed && sessions.to.capabilities().resumes_uploads);
        }
        let path = self.item.source.path();
        let origin = begun.span.origin();
        let mut source = match &begun.source {
            Some(opened) => open_end(&opened.source, origin),
            None => ChecksumEndpoint::Named {
                storage: &mut *sessions.from,
                path,
                origin,
            },
        };
        begun
            .receiving
            .prepare(
                (self.ctx, self.item, check),
                identity,
                (&mut source, sums),
                &mut *sessions.to,
            )
            .await
    }

    /// The source's identity, whatever the directory the command runs in.
    fn source_identity(&self, begun: &CopyState<'_>) -> String {
        match &self.item.source {
            Location::Local(path) if begun.reads_here() => {
                let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                Location::Local(path).identity_key()
            }
            other => other.identity_key(),
        }
    }

    /// A large file may have changed while it moved; a small one's sum, asked for afterwards, has told
    /// already. A file of this machine is looked at without a round trip.
    fn looks_again(&self, begun: &CopyState<'_>, check: Verification) -> bool {
        if begun.reads_here() {
            return !begun.is_pipe() && self.from == StorageId::LocalFiles;
        }
        let large = begun.span.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Verification::Bytes && large && begun.facts.size.is_some()
    }

    /// The source must be now what it was when the copy began.
    async fn check_source(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<(), CopyFailure> {
        if !self.looks_again(begun, check) {
            return Ok(());
        }
        let source = &self.item.source;
        let now = sessions.from.stat(source.path()).await?;
        if begun.reads_here() {
            return match SourceFacts::from_entry(&now) == begun.facts {
                true => Ok(()),
                false => Err(changed(source)),
            };
        }
        unchanged(source, begun.facts, &now)
    }

    /// Gives up what was resumed from an earlier run; `false` when nothing was.
    pub(super) fn forget_resumed(&mut self) -> bool {
        self.begun
            .as_mut()
            .is_some_and(|begun| begun.receiving.forget_resumed())
    }

    /// Whether the last attempt's bytes have to be moved again, so that it was no progress.
    pub(super) fn in_vain(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.receiving.in_vain())
    }

    /// Whether what was read from the source can be read again.
    pub(super) fn repeatable(&self) -> bool {
        !self.consumed
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod web_tests;
