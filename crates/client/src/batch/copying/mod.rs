//! One file from wherever it is to wherever it goes: the one way for a copy.
//!
//! An attempt compares what is there, moves what is missing, verifies it and puts it in place. The ends
//! differ in what they can do ([`crate::storage::contract`]) and in whether this process has them open.

use std::fs;

use super::checksums::ChecksumEndpoint;
use super::destination::{CopyDestination, open_endpoint};
use super::download::LocalDestination;
use super::meter::FileMeter;
use super::resume::ExistingDestination;
use super::stream_plan::{CopyRange, StreamPlan};
use super::upload::{StorageDestination, UploadFinish};
use super::{
    BatchContext, FileOutcome, PlannedFile, check_source_unchanged, source_changed_failure,
};
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
    state: Option<CopyState<'a>>,
    /// The same in all attempts.
    stream_plan: Option<StreamPlan>,
    /// Something was read from a pipe: it cannot be read again.
    pipe_consumed: bool,
}

/// Facts that hold from the first attempt on.
struct CopyState<'a> {
    /// The source, where this process has it open.
    source: Option<OpenSource>,
    /// Of the source.
    facts: SourceFacts,
    range: CopyRange,
    destination: CopyDestination<'a>,
    /// The source's sum is that of the bytes which pass this machine: nothing else tells it.
    checksums_passing_bytes: bool,
}

/// The sessions of an attempt.
struct StorageSessions {
    from: Box<dyn Storage>,
    to: Box<dyn Storage>,
}

impl CopyState<'_> {
    /// The bytes pass this machine, and the end that they come from is open here.
    fn source_is_local(&self) -> bool {
        self.source.is_some()
    }

    fn destination_is_storage(&self) -> bool {
        matches!(self.destination, CopyDestination::Storage(_))
    }

    /// A pipe gives its bytes once.
    fn is_pipe(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|opened| opened.facts.is_none())
    }

    /// One end must be read or written in order.
    fn is_sequential(&self) -> bool {
        self.is_pipe() || !self.destination.is_seekable()
    }

    /// Both ends, of which such checksums can be had.
    fn checksum_abilities<'s>(
        &self,
        source: &'s AvailableChecksums,
        copy: &'s AvailableChecksums,
    ) -> [ChecksumAbility<'s>; 2] {
        [
            ChecksumAbility {
                sums: source,
                is_whole_file: self.range.part.is_none(),
            },
            ChecksumAbility {
                sums: copy,
                is_whole_file: true,
            },
        ]
    }

    /// The source as something that can be summed.
    fn source_endpoint<'e>(
        &self,
        from: &'e mut dyn Storage,
        path: &'e [u8],
    ) -> ChecksumEndpoint<'e> {
        let origin = self.range.origin();
        match &self.source {
            Some(opened) => open_endpoint(&opened.source, origin),
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
            state: None,
            stream_plan: None,
            pipe_consumed: false,
        }
    }

    /// One attempt: from connecting to putting the verified file in place. Goes on from what earlier
    /// attempts made safe.
    pub(super) async fn attempt(&mut self) -> Result<FileOutcome, CopyFailure> {
        let mut begun = match self.state.take() {
            Some(begun) => begun,
            None => self.start().await?,
        };
        let result = self.attempt_with_state(&mut begun).await;
        self.state = Some(begun);
        result
    }

    /// Opens what can be opened here; a part beyond the source's end is an error.
    async fn start(&self) -> Result<CopyState<'a>, CopyFailure> {
        let (ctx, item) = (self.ctx, self.item);
        let mut source = None;
        if !self.from.is_server() {
            let mut here = ctx.pool.acquire(&self.from).await?;
            source = here.open(item.source.path()).await?;
        }
        let facts = match &source {
            Some(opened) => opened.facts.unwrap_or_default(),
            None => item.facts,
        };
        let options = &ctx.options;
        let shown = item.source.display();
        let span = CopyRange::from_options(options.offset, options.length, facts, &shown)?;
        let target = match self.to.is_server() {
            true => None,
            false => {
                let mut here = ctx.pool.acquire(&self.to).await?;
                here.write_target(item.destination.path())?
            }
        };
        let shown = item.destination.display();
        let receiving = match target {
            Some(target) => CopyDestination::Local(Box::new(LocalDestination::new(target, shown))),
            None => {
                let path = item.destination.path();
                CopyDestination::Storage(Box::new(StorageDestination::new(
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
            range: span,
            destination: receiving,
            checksums_passing_bytes: false,
        })
    }

    async fn attempt_with_state(
        &mut self,
        begun: &mut CopyState<'a>,
    ) -> Result<FileOutcome, CopyFailure> {
        // Before a server is troubled.
        begun.destination.lock(self.ctx, self.item)?;
        let pool = &self.ctx.pool;
        let (from, to) = tokio::try_join!(pool.acquire(&self.from), pool.acquire(&self.to))?;
        let mut sessions = StorageSessions { from, to };
        let result = self.copy_over_sessions(begun, &mut sessions).await;
        let result = result.map_err(|failure| begun.destination.explain_failure(failure));
        let StorageSessions { from, to } = sessions;
        // A refusal is one server's, but what another one was told is not undone: both start anew.
        if result.is_ok() || !(self.from.is_server() && self.to.is_server()) {
            self.ctx.return_session(&self.from, from, &result);
            self.ctx.return_session(&self.to, to, &result);
        }
        result
    }

    async fn copy_over_sessions(
        &mut self,
        begun: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
    ) -> Result<FileOutcome, CopyFailure> {
        let path = self.item.source.path();
        let source_sums = match &begun.source {
            Some(_) => AvailableChecksums::all(),
            None => sessions.from.available_checksums(path).await?,
        };
        let check = self
            .choose_verification(begun, &source_sums, sessions)
            .await?;
        if let Some(label) = self.find_in_place(begun, sessions, check).await? {
            return Ok(FileOutcome::done(self.meter.moved(), label, None));
        }
        loop {
            self.prepare(begun, sessions, (check, &source_sums)).await?;
            let moved = self.transfer(begun, sessions, check).await?;
            if !sessions.from.is_usable() {
                sessions.from = self.ctx.pool.acquire(&self.from).await?;
            }
            if let CopyDestination::Local(download) = &begun.destination {
                download.check_length(begun.range.size, &self.item.source.display())?;
            }
            let verified = self
                .verify(begun, sessions, (check, &source_sums), &moved)
                .await;
            let label = begun.destination.after_verification(verified).await?;
            self.check_source(begun, sessions, check).await?;
            let (modified, again) = (begun.facts.modified, !self.pipe_consumed);
            let to = &mut *sessions.to;
            let finish = begun
                .destination
                .finish(self.ctx, to, modified, again)
                .await?;
            if finish == UploadFinish::InPlace {
                return Ok(FileOutcome::done(self.meter.moved(), label, moved.measured));
            }
        }
    }

    /// The check that both ends can make.
    async fn choose_verification(
        &self,
        begun: &mut CopyState<'_>,
        source: &AvailableChecksums,
        sessions: &mut StorageSessions,
    ) -> Result<Verification, CopyFailure> {
        let copy = begun
            .destination
            .available_checksums(&mut *sessions.to)
            .await?;
        let wish = self.ctx.options.verify;
        let mut check = choose_verification(wish, &begun.checksum_abilities(source, &copy));
        // The source tells no sum that the copy has: what passes here has to stand for it.
        let relayed = !begun.source_is_local()
            && begun.destination_is_storage()
            && !self.is_third_party(sessions);
        begun.checksums_passing_bytes = relayed && matches!(check, Ok(Verification::Size) | Err(_));
        if begun.checksums_passing_bytes {
            check = choose_verification(
                wish,
                &begun.checksum_abilities(&AvailableChecksums::all(), &copy),
            );
        }
        // A pipe cannot be read again, and the sum of what went into it is the source's own.
        let nothing_to_compare = begun.source_is_local() && begun.destination.is_unreadable();
        Ok(match check? {
            Verification::Checksum {
                required: false, ..
            } if nothing_to_compare => Verification::Size,
            check => check,
        })
    }

    /// Both ends move the file between them, and nothing passes here.
    fn is_third_party(&self, sessions: &StorageSessions) -> bool {
        let from = sessions.from.capabilities().third_party;
        from.is_some() && from == sessions.to.capabilities().third_party
    }

    /// Names the comparison made if `--resume` finds the destination whole.
    async fn find_in_place(
        &self,
        begun: &CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<Option<String>, CopyFailure> {
        let size = begun.range.size;
        let to = &mut *sessions.to;
        let there = begun.destination.file_in_place(self.ctx, size, to).await?;
        let Some((there, mut destination)) = there else {
            return Ok(None);
        };
        let candidate = ExistingDestination {
            wanted: SourceFacts {
                size,
                ..begun.facts
            },
            existing: there,
            part: begun.range.part.map(|(_, length)| length),
        };
        let path = self.item.source.path();
        let mut source = begun.source_endpoint(&mut *sessions.from, path);
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            let source = self.source_identity(begun);
            let found = (source.as_str(), size);
            begun
                .destination
                .confirm_in_place(self.ctx, self.item, found)
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
        let relayed = !begun.source_is_local()
            && begun.destination_is_storage()
            && !self.is_third_party(sessions);
        let sequential = begun.is_sequential() || relayed;
        let ends = (&*sessions.from, &*sessions.to);
        let size = begun.range.size;
        let lanes = match begun.source_is_local() && !begun.destination_is_storage() {
            true => StreamPlan::for_local_copy(&self.ctx.options, size, sequential),
            false => StreamPlan::for_transfer(self.ctx, size, sequential, ends),
        };
        let lanes = *self.stream_plan.get_or_insert(lanes);
        let identity = CopyIdentity {
            source: self.source_identity(begun),
            destination: self.item.destination.identity_key(),
            size: match begun.source {
                Some(_) => begun.range.size,
                None => begun.facts.size,
            },
            modified: begun.facts.modified.map(|t| t.0),
            part: begun.range.part,
            in_order: lanes.in_order,
        };
        if let CopyDestination::Storage(upload) = &mut begun.destination {
            // What is relayed comes in order from its first byte.
            upload.set_can_resume(!relayed && sessions.to.capabilities().resumes_uploads);
        }
        let path = self.item.source.path();
        let origin = begun.range.origin();
        let mut source = match &begun.source {
            Some(opened) => open_endpoint(&opened.source, origin),
            None => ChecksumEndpoint::Named {
                storage: &mut *sessions.from,
                path,
                origin,
            },
        };
        begun
            .destination
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
            Location::Local(path) if begun.source_is_local() => {
                let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                Location::Local(path).identity_key()
            }
            other => other.identity_key(),
        }
    }

    /// A large file may have changed while it moved; a small one's sum, asked for afterwards, has told
    /// already. A file of this machine is looked at without a round trip.
    fn rechecks_source(&self, begun: &CopyState<'_>, check: Verification) -> bool {
        if begun.source_is_local() {
            return !begun.is_pipe() && self.from == StorageId::LocalFiles;
        }
        let large = begun.range.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Verification::ByteCount && large && begun.facts.size.is_some()
    }

    /// The source must be now what it was when the copy began.
    async fn check_source(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<(), CopyFailure> {
        if !self.rechecks_source(begun, check) {
            return Ok(());
        }
        let source = &self.item.source;
        let now = sessions.from.stat(source.path()).await?;
        if begun.source_is_local() {
            return match SourceFacts::from_entry(&now) == begun.facts {
                true => Ok(()),
                false => Err(source_changed_failure(source)),
            };
        }
        check_source_unchanged(source, begun.facts, &now)
    }

    /// Gives up what was resumed from an earlier run; `false` when nothing was.
    pub(super) fn discard_resumed(&mut self) -> bool {
        self.state
            .as_mut()
            .is_some_and(|begun| begun.destination.discard_resumed())
    }

    /// Whether the last attempt's bytes have to be moved again, so that it was no progress.
    pub(super) fn attempt_was_wasted(&self) -> bool {
        self.state
            .as_ref()
            .is_some_and(|begun| begun.destination.attempt_was_wasted())
    }

    /// Whether what was read from the source can be read again.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.pipe_consumed
    }
}

#[cfg(test)]
mod tests;
