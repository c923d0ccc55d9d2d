//! The copy engine: one file from any storage to any storage.
//!
//! An attempt compares what the destination holds, moves what is missing, verifies the copy and
//! renames it to its final name. The ends differ in their capabilities
//! ([`crate::storage::contract`]) and in whether this process has them open.

use tune::limiter::Role;

use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::FileMeter;

use crate::batch::path_knowledge::{PathKnowledge, RemotePath};
use crate::events::CopyEvent;
use crate::file::checksums::{ChecksumEndpoint, ComparableSource};
use crate::file::destination::{CopyDestination, open_endpoint};
use crate::file::download::LocalDestination;
use crate::file::resume::ExistingDestination;
use crate::file::stream_plan::{CopyRange, StreamPlan};
use crate::file::upload::StorageDestination;
use crate::file::upload_names::UploadFinish;
use crate::file::verify::{ChecksumAbility, Verification, choose_verification};
use crate::local::disk::run_blocking;
use crate::local::partial::WriteTarget;
use crate::plan::PlannedFile;
use crate::storage::capabilities::{AvailableChecksums, DirectProtocol};
use crate::storage::contract::Storage;
use crate::storage::open_source::OpenSource;
use ftp::answers::{SourceFacts, SourceVersion};
use ftp::location::{Location, Scheme, StorageId};
use ftp::{Failure, FailureKind};

use repair::Repairs;
use verification::Verdict;

mod attempt_watch;
mod block_proof;
pub(crate) mod checksums;
pub(crate) mod composite;
pub(crate) mod decisions;
mod destination;
mod destination_state;
mod download;
mod identity;
mod left_parts;
mod moving;
pub(crate) mod preserve;
mod range_sums;
mod relay;
mod repair;
mod resume;
pub(crate) mod shared_upload;
mod stall;
pub(crate) mod stream_plan;
mod upload;
mod upload_names;
mod verification;
pub(crate) mod verify;
mod wrong_ranges;

/// Result of a file that did not fail.
#[derive(Debug)]
pub(crate) enum FileOutcome {
    /// Complete and verified as requested.
    Done {
        /// Bytes moved in this run.
        bytes: u64,
        /// Name of the comparison that was made.
        verified: String,
        /// Measurements of the last attempt.
        measured: Option<Box<TransferMeasurement>>,
    },
    /// The destination existed and was left alone.
    Kept,
}

impl FileOutcome {
    pub(crate) fn done(
        bytes: u64,
        verified: String,
        measured: Option<TransferMeasurement>,
    ) -> Self {
        Self::Done {
            bytes,
            verified,
            measured: measured.map(Box::new),
        }
    }
}

/// Reports that a file's transfer begins. `resumed` bytes are safe already.
pub(crate) fn report_started(
    ctx: &BatchContext,
    item: &PlannedFile,
    bytes: Option<u64>,
    resumed: u64,
) {
    ctx.observer.on_event(CopyEvent::Started {
        source: item.source.display(),
        destination: item.destination.display(),
        bytes,
        resumed,
    });
}

/// The copy of one file: state that lasts over its attempts.
pub(crate) struct FileCopy<'a> {
    ctx: &'a BatchContext,
    item: &'a PlannedFile,
    meter: &'a FileMeter,
    from: StorageId,
    to: StorageId,
    state: Option<CopyState<'a>>,
    /// Chosen once, for all attempts.
    stream_plan: Option<StreamPlan>,
    /// Knowledge of the path to or from the server, if this machine is one of its ends.
    path: PathKnowledge,
    /// The version of a source at a storage, from the first attempt on.
    version: Option<SourceVersion>,
    /// Bytes were read from a pipe, which cannot be read again.
    pipe_consumed: bool,
    /// The destination server may have accepted bytes of the last attempt.
    store_began: bool,
    repairs: Repairs,
    /// Storages with which the last attempt could not connect.
    unreached: Vec<StorageId>,
    /// Why the servers do not move this file between them, though they move others.
    relayed_because: Option<String>,
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
                checksums: source,
                is_whole_file: self.range.part.is_none(),
            },
            ChecksumAbility {
                checksums: copy,
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
    pub(crate) fn new(ctx: &'a BatchContext, item: &'a PlannedFile, meter: &'a FileMeter) -> Self {
        Self {
            ctx,
            item,
            meter,
            from: item.source.storage_id(),
            to: item.destination.storage_id(),
            state: None,
            stream_plan: None,
            path: PathKnowledge::default(),
            version: None,
            pipe_consumed: false,
            store_began: false,
            repairs: Repairs::default(),
            unreached: Vec::new(),
            relayed_because: None,
        }
    }

    /// The storages for which the next attempt may have to wait.
    pub(crate) fn waits_for(&self) -> Vec<StorageId> {
        match self.unreached.as_slice() {
            [] => vec![self.from.clone(), self.to.clone()],
            unreached => unreached.to_vec(),
        }
    }

    /// One attempt: from connecting to the rename of the verified file. Continues after the bytes
    /// that earlier attempts made safe.
    pub(crate) async fn attempt(&mut self) -> Result<FileOutcome, Failure> {
        let mut state = match self.state.take() {
            Some(state) => state,
            None => self.start().await?,
        };
        let mut result = self.attempt_with_state(&mut state).await;
        if let Err(failure) = &result
            && failure.kind() == FailureKind::Apart
            && (self.ctx.apart.add(&self.from, &self.to, failure) || self.relays_after(failure))
        {
            tracing::debug!(%failure, "the servers are apart");
            // That was for bytes that do not pass through this machine.
            self.stream_plan = None;
            result = self.attempt_with_state(&mut state).await;
        }
        self.state = Some(state);
        result
    }

    /// Opens the ends that this process can open. A part beyond the source's end is an error.
    async fn start(&self) -> Result<CopyState<'a>, Failure> {
        let (ctx, item) = (self.ctx, self.item);
        let mut source = None;
        if !self.from.is_server() {
            // Local storages keep no connection, so this costs nothing.
            let mut storage = ctx.pool.acquire(&self.from).await?;
            source = storage.open(item.source.path()).await?;
        }
        // An open file cannot be replaced between listing and reading, so its own facts count.
        let facts = match &source {
            Some(opened) => opened.facts.unwrap_or_default(),
            None => item.facts,
        };
        let options = &ctx.options.file;
        let display_name = item.source.display();
        let (offset, length) = match item.part {
            Some(part) => (Some(part.offset), Some(part.length)),
            None => (options.offset, options.length),
        };
        let range = CopyRange::from_options(offset, length, facts, &display_name)?;
        let target = match (&item.destination, item.part) {
            (Location::Remote { .. }, _) => None,
            (Location::Local(path), Some(part)) => {
                let (path, policy) = (path.clone(), options.sync_policy);
                let target = run_blocking(move || WriteTarget::part_of(&path, part.offset, policy));
                Some(target.await?)
            }
            _ => {
                let mut storage = ctx.pool.acquire(&self.to).await?;
                storage.write_target(item.destination.path()).await?
            }
        };
        let display_name = item.destination.display();
        let destination = match target {
            Some(target) => {
                let takes_over = item.takes_over;
                CopyDestination::Local(Box::new(LocalDestination::new(
                    target,
                    display_name,
                    takes_over,
                )))
            }
            None => {
                let path = item.destination.path();
                CopyDestination::Storage(Box::new(StorageDestination::new(
                    ctx,
                    self.to.clone(),
                    path,
                    display_name,
                )))
            }
        };
        let mut state = CopyState {
            source,
            facts,
            range,
            destination,
            checksums_passing_bytes: false,
        };
        if state.is_pipe() {
            state.destination.ignore_leftovers();
        }
        Ok(state)
    }

    /// Whether this file alone takes the other way: HTTP servers may refuse one file and move others.
    fn relays_after(&mut self, failure: &Failure) -> bool {
        let is_first = self.relayed_because.is_none();
        let server = self.item.source.server();
        let is_http = server.is_some_and(|at| matches!(at.scheme, Scheme::Http | Scheme::Https));
        if is_http && is_first {
            self.relayed_because = Some(failure.reason().to_string());
        }
        is_http && is_first
    }

    async fn attempt_with_state(
        &mut self,
        state: &mut CopyState<'a>,
    ) -> Result<FileOutcome, Failure> {
        // The lock comes first: a destination that is busy costs no server a login.
        state.destination.lock(self.ctx, self.item)?;
        self.unreached.clear();
        // Both logins at the same time: each takes several round trips.
        let [from, to] = self.ctx.pool.acquire_both(&self.from, &self.to).await?;
        let mut sessions = StorageSessions { from, to };
        let result = self.copy_over_sessions(state, &mut sessions).await;
        let result = result.map_err(|failure| state.destination.explain_failure(failure));
        let StorageSessions { from, to } = sessions;
        let ends = [(&self.from, from.is_away()), (&self.to, to.is_away())];
        let away = ends.into_iter().filter(|(_, is_away)| *is_away);
        self.unreached = away.map(|(id, _)| id.clone()).collect();
        // After a failure between two servers, one of them may still execute its half of the
        // transfer. Neither session can be reused.
        if result.is_ok() || !(self.from.is_server() && self.to.is_server()) {
            self.ctx.return_session(&self.from, from, &result);
            self.ctx.return_session(&self.to, to, &result);
        } else {
            self.ctx.drop_session(&self.from, &*from, &result);
            self.ctx.drop_session(&self.to, &*to, &result);
        }
        result
    }

    async fn copy_over_sessions(
        &mut self,
        state: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
    ) -> Result<FileOutcome, Failure> {
        let path = self.item.source.path();
        let source_checksums = match &state.source {
            Some(_) => AvailableChecksums::all(),
            None => {
                // Between servers no bytes come here.
                let moves_there = state.destination_is_storage() && self.is_third_party(sessions);
                let is_whole = state.range.part.is_none();
                let is_fetched = is_whole && !moves_there && state.destination.is_new(self.ctx);
                if let Some(size) = state.range.size.filter(|_| is_fetched) {
                    sessions.from.expect_fetch(path, size);
                }
                sessions.from.available_checksums(path).await?
            }
        };
        let check = self
            .choose_verification(state, &source_checksums, sessions)
            .await?;
        if let Some(label) = self.find_in_place(state, sessions, check).await? {
            return Ok(FileOutcome::done(self.meter.moved(), label, None));
        }
        let mut measured = None;
        loop {
            self.prepare(state, sessions, check, &source_checksums)
                .await?;
            let mut move_result = match self.transfer(state, sessions, check).await {
                Err(refusal) if self.takes_final_name(state, sessions, &refusal).await? => continue,
                moved => moved?,
            };
            // A repair moves too little to measure anything.
            measured = measured.or_else(|| move_result.measured.take());
            // Some transfers leave their session unusable; the verification needs a new one.
            if !sessions.from.is_usable() {
                // Beside the session with the destination, which may be the same server.
                sessions.from = self.ctx.pool.acquire_further(&self.from).await?;
            }
            if self.take_waiting(state) {
                continue;
            }
            if let CopyDestination::Local(download) = &state.destination {
                download.check_length(state.range.size, &self.item.source.display())?;
            }
            let verified = self
                .verify(state, sessions, check, &source_checksums, &move_result)
                .await;
            let verified = match verified {
                Ok(Verdict::Different(mismatch)) => {
                    match self
                        .repair(state, sessions, &source_checksums, mismatch)
                        .await
                    {
                        Ok(()) => continue,
                        Err(failure) => Err(failure),
                    }
                }
                Ok(Verdict::Equal(label) | Verdict::SameSize(label)) => Ok(label),
                Err(failure) => Err(failure),
            };
            let label = state.destination.after_verification(verified).await?;
            let label = self
                .confirm_source(state, sessions, check, &source_checksums, label)
                .await?;
            let kept = preserve::kept_of_file(self.ctx.options.file.preserve, state.facts);
            let can_resend = !self.pipe_consumed;
            let to = &mut *sessions.to;
            let finish = state
                .destination
                .finish(self.ctx, to, kept, can_resend)
                .await?;
            if finish == UploadFinish::InPlace {
                return Ok(FileOutcome::done(self.meter.moved(), label, measured));
            }
        }
    }

    /// Chooses the verification that both ends support.
    async fn choose_verification(
        &self,
        state: &mut CopyState<'_>,
        source: &AvailableChecksums,
        sessions: &mut StorageSessions,
    ) -> Result<Verification, Failure> {
        let copy = state
            .destination
            .available_checksums(&mut *sessions.to)
            .await?;
        let requested = self.ctx.options.file.verify;
        let mut check = choose_verification(requested, &state.checksum_abilities(source, &copy));
        // The source storage has no checksum in common with the destination. Bytes that pass
        // through this machine can be checksummed here instead.
        let relayed = !state.source_is_local()
            && state.destination_is_storage()
            && !self.is_third_party(sessions);
        state.checksums_passing_bytes = relayed && matches!(check, Ok(Verification::Size) | Err(_));
        if state.checksums_passing_bytes {
            check = choose_verification(
                requested,
                &state.checksum_abilities(&AvailableChecksums::all(), &copy),
            );
        }
        // A pipe cannot be read again, and the checksum of the bytes written to it would equal the
        // source's by construction.
        let nothing_to_compare = state.source_is_local() && state.destination.is_unreadable();
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
        let is_http = sessions.from.capabilities().third_party == Some(DirectProtocol::HttpCopy);
        // XRootD fetches no empty file.
        if is_http && self.item.facts.size == Some(0) || self.relayed_because.is_some() {
            return false;
        }
        let ends = ((&self.from, &*sessions.from), (&self.to, &*sessions.to));
        self.ctx.apart.may_connect(ends.0, ends.1)
    }

    /// Checks with `--resume` whether the destination is already complete. Returns the name of the
    /// comparison that proved it.
    async fn find_in_place(
        &self,
        state: &CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<Option<String>, Failure> {
        let size = state.range.size;
        let to = &mut *sessions.to;
        let existing = state.destination.file_in_place(self.ctx, size, to).await?;
        let Some((existing, mut destination)) = existing else {
            return Ok(None);
        };
        let candidate = ExistingDestination {
            wanted: SourceFacts {
                size,
                ..state.facts
            },
            existing,
            part: state.range.part.map(|(_, length)| length),
            by_time: self.ctx.options.file.resume,
        };
        let path = self.item.source.path();
        let mut source = state.source_endpoint(&mut *sessions.from, path);
        let label = candidate
            .compare(check, &mut source, &mut destination)
            .await?;
        if label.is_some() {
            let source = self.ctx.place_key(&self.item.source);
            state
                .destination
                .confirm_in_place(self.ctx, self.item, &source, size)
                .await?;
        }
        Ok(label)
    }

    async fn prepare(
        &mut self,
        state: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
        checksums: &AvailableChecksums,
    ) -> Result<(), Failure> {
        let relayed = !state.source_is_local()
            && state.destination_is_storage()
            && !self.is_third_party(sessions);
        let sequential = state.is_sequential() || relayed;
        let size = state.range.size;
        let remote = remote_end(state, sessions);
        let path = remote.map(|(remote, role)| RemotePath::of(self.ctx, remote, role));
        if let Some(path) = path {
            self.path.recall(self.ctx, path, size).await;
        }
        let (from, to) = (&*sessions.from, &*sessions.to);
        let stream_plan = match state.source_is_local() && !state.destination_is_storage() {
            true => StreamPlan::for_local_copy(&self.ctx.options.streams, size, sequential),
            false => {
                StreamPlan::for_transfer(self.ctx, size, sequential, self.path.known(), from, to)
            }
        };
        let mover = self.part_mover(state);
        let stream_plan = match mover.or_else(|| self.upload_mover(state, to, check)) {
            Some(_) => stream_plan.in_any_order(),
            None => stream_plan,
        };
        // Kept over retries: the journal records whether bytes are in order, which depends on it.
        let is_first = self.stream_plan.is_none();
        let stream_plan = *self.stream_plan.get_or_insert(stream_plan);
        if is_first && (self.from.is_server() || self.to.is_server()) {
            decisions::report_stream_plan(self.ctx, self.item.source.display(), stream_plan);
        }
        let identity = self.identify(state, sessions).await?;
        if let CopyDestination::Storage(upload) = &mut state.destination {
            // A relayed file is always sent from its first byte.
            upload.set_can_resume(!relayed && sessions.to.capabilities().resumes_uploads);
        }
        let path = self.item.source.path();
        let origin = state.range.origin();
        let endpoint = match &state.source {
            Some(opened) => open_endpoint(&opened.source, origin),
            None => ChecksumEndpoint::Named {
                storage: &mut *sessions.from,
                path,
                origin,
            },
        };
        state
            .destination
            .prepare(
                self.ctx,
                self.item,
                check,
                identity,
                ComparableSource {
                    endpoint,
                    checksums,
                },
                &mut *sessions.to,
            )
            .await
    }

    /// After an integrity failure: discards what was resumed from an earlier run, or the whole copy if it differs and
    /// nothing shows where. Returns `false` when there is nothing to discard, or for the second time.
    pub(crate) fn start_over(&mut self) -> bool {
        let differs = self.repairs.take_unlocated();
        self.state
            .as_mut()
            .is_some_and(|state| state.destination.start_over(differs))
    }

    /// Whether the bytes of the last attempt must be moved again, so that it made no progress.
    pub(crate) fn attempt_was_wasted(&self) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.destination.attempt_was_wasted())
    }

    /// Whether the source can be read again.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.pipe_consumed
    }
}

/// The server at the other end of the path from this machine, and the role of this end. Within this machine there is
/// no path, and of one between two servers the ends are unknown.
fn remote_end<'s>(
    state: &CopyState<'_>,
    sessions: &'s StorageSessions,
) -> Option<(&'s dyn Storage, Role)> {
    match (state.source_is_local(), state.destination_is_storage()) {
        (true, true) => Some((&*sessions.to, Role::Sender)),
        (false, false) => Some((&*sessions.from, Role::Receiver)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
