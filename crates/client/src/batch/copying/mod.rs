//! The copy engine: one file from any storage to any storage.
//!
//! An attempt compares what the destination holds, moves what is missing, verifies the copy and
//! renames it to its final name. The ends differ in their capabilities
//! ([`crate::storage::contract`]) and in whether this process has them open.

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

/// The copy of one file: state that lasts over its attempts.
pub(super) struct FileCopy<'a> {
    ctx: &'a BatchContext,
    item: &'a PlannedFile,
    meter: &'a FileMeter,
    from: StorageId,
    to: StorageId,
    state: Option<CopyState<'a>>,
    /// Chosen once, for all attempts.
    stream_plan: Option<StreamPlan>,
    /// Bytes were read from a pipe, which cannot be read again.
    pipe_consumed: bool,
}

/// State of a copy from its first attempt on.
struct CopyState<'a> {
    /// The source, if this process has it open.
    source: Option<OpenSource>,
    /// Facts of the source.
    facts: SourceFacts,
    range: CopyRange,
    destination: CopyDestination<'a>,
    /// The checksum of the source is computed from the bytes that pass through this machine,
    /// because the source storage cannot provide it.
    checksums_passing_bytes: bool,
}

/// The storage sessions of one attempt.
struct StorageSessions {
    from: Box<dyn Storage>,
    to: Box<dyn Storage>,
}

impl CopyState<'_> {
    /// Whether the source is open in this process, so that the bytes pass through this machine.
    fn source_is_local(&self) -> bool {
        self.source.is_some()
    }

    fn destination_is_storage(&self) -> bool {
        matches!(self.destination, CopyDestination::Storage(_))
    }

    /// Whether the source is a pipe, which can be read only once.
    fn is_pipe(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|opened| opened.facts.is_none())
    }

    /// Whether one end must be read or written in order.
    fn is_sequential(&self) -> bool {
        self.is_pipe() || !self.destination.is_seekable()
    }

    /// The checksums that each end can provide.
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

    /// The source as an endpoint whose bytes can be checksummed.
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
    /// A copy that has not started.
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

    /// One attempt: from connecting to the rename of the verified file. Continues after the bytes
    /// that earlier attempts made safe.
    pub(super) async fn attempt(&mut self) -> Result<FileOutcome, CopyFailure> {
        let mut begun = match self.state.take() {
            Some(begun) => begun,
            None => self.start().await?,
        };
        let result = self.attempt_with_state(&mut begun).await;
        self.state = Some(begun);
        result
    }

    /// Opens the ends that this process can open. A part beyond the source's end is an error.
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
        // The lock comes first: a destination that is busy costs no server a login.
        begun.destination.lock(self.ctx, self.item)?;
        let pool = &self.ctx.pool;
        // Both logins at the same time: each takes several round trips.
        let (from, to) = tokio::try_join!(pool.acquire(&self.from), pool.acquire(&self.to))?;
        let mut sessions = StorageSessions { from, to };
        let result = self.copy_over_sessions(begun, &mut sessions).await;
        let result = result.map_err(|failure| begun.destination.explain_failure(failure));
        let StorageSessions { from, to } = sessions;
        // After a failure between two servers, one of them may still execute its half of the
        // transfer. Neither session can be reused.
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
            // Some transfers leave their session unusable; the verification needs a new one.
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

    /// Chooses the verification that both ends support.
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
        // The source storage has no checksum in common with the destination. Bytes that pass
        // through this machine can be checksummed here instead.
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
        // A pipe cannot be read again, and the checksum of the bytes written to it would equal the
        // source's by construction.
        let nothing_to_compare = begun.source_is_local() && begun.destination.is_unreadable();
        Ok(match check? {
            Verification::Checksum {
                required: false, ..
            } if nothing_to_compare => Verification::Size,
            check => check,
        })
    }

    /// Whether both storages move the file between themselves, so that no bytes pass through this
    /// machine.
    fn is_third_party(&self, sessions: &StorageSessions) -> bool {
        let from = sessions.from.capabilities().third_party;
        from.is_some() && from == sessions.to.capabilities().third_party
    }

    /// Checks with `--resume` whether the destination is already complete. Returns the name of the
    /// comparison that proved it.
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
            // A relayed file is always sent from its first byte.
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

    /// Identifies the source independently of the current directory.
    fn source_identity(&self, begun: &CopyState<'_>) -> String {
        match &self.item.source {
            Location::Local(path) if begun.source_is_local() => {
                let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                Location::Local(path).identity_key()
            }
            other => other.identity_key(),
        }
    }

    /// Whether the source's facts are read again after the transfer. A large file may have changed
    /// while it moved; the checksum of a small one, requested afterwards, would have shown it.
    /// Local files are always checked, because that costs no round trip.
    fn rechecks_source(&self, begun: &CopyState<'_>, check: Verification) -> bool {
        if begun.source_is_local() {
            return !begun.is_pipe() && self.from == StorageId::LocalFiles;
        }
        let large = begun.range.size.is_none_or(|size| size >= CONCURRENT_FROM);
        check != Verification::ByteCount && large && begun.facts.size.is_some()
    }

    /// Fails when the source changed since the copy began.
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

    /// Discards what was resumed from an earlier run. Returns `false` when nothing was resumed.
    pub(super) fn discard_resumed(&mut self) -> bool {
        self.state
            .as_mut()
            .is_some_and(|begun| begun.destination.discard_resumed())
    }

    /// Whether the bytes of the last attempt must be moved again, so that it made no progress.
    pub(super) fn attempt_was_wasted(&self) -> bool {
        self.state
            .as_ref()
            .is_some_and(|begun| begun.destination.attempt_was_wasted())
    }

    /// Whether the source can be read again.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.pipe_consumed
    }
}

#[cfg(test)]
mod tests;
