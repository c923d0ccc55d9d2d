//! Moves the bytes of an attempt, by the method that the capabilities of both ends allow.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use data::job::{TransferControl, TransferReport};
use data::store::{Sink, Source};
use tokio::sync::watch;

use super::range_sums::{RANGES_FROM, RangeSums};
use super::{CopyState, FileCopy, StorageSessions};
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::SafeByteCount;
use crate::batch::parts_elsewhere::{MissingParts, PartMover};
use crate::batch::pool::StorageSessionPool;
use crate::file::attempt_watch::AttemptWatch;
use crate::file::destination::CopyDestination;
use crate::file::stall::{GrowthSign, StallDetector};
use crate::file::stream_plan::{new_transfer_spec, offset_and_length};
use crate::file::verify::{CONCURRENT_FROM_AHEAD, Verification};
use crate::file::{decisions, preserve, relay};
use crate::local::partial::store_failure;
use crate::storage::capabilities::DirectProtocol;
use crate::storage::contract::Storage;
use crate::storage::local_copy;
use crate::storage::optional::FollowUpQuery;
use ftp::answers::SourceFacts;
use ftp::location::{Location, StorageId};
use ftp::session::checksum::CONCURRENT_FROM;
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind};

/// How often a session whose file others store is used: servers end sessions that have been silent for some minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How the bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveMethod {
    /// From an open file to an open file, on this machine.
    Local,
    /// From a storage into an open file.
    Fetch,
    /// From an open file to a storage.
    Store,
    /// From storage to storage directly (third-party transfer of FTP, or COPY of HTTP).
    ThirdParty,
    /// From storage to storage, through this machine.
    Relay,
    /// By other processes, into an open file that they see, too.
    Parts,
}

/// Result of moving the bytes.
#[derive(Debug, Default)]
pub(super) struct MoveResult {
    /// This end's report. `None` when nothing had to be moved.
    pub(super) report: Option<TransferReport>,
    pub(super) measured: Option<TransferMeasurement>,
    /// Checksum of the file at its source, if it was requested and arrived during the transfer.
    pub(super) source_checksum: Option<String>,
    /// Checksum of the stored copy, if it was requested by ranges during the transfer.
    pub(super) copy_checksum: Option<String>,
}

impl<'a> FileCopy<'a> {
    fn move_method(&self, state: &CopyState<'_>, sessions: &StorageSessions) -> MoveMethod {
        match (state.source_is_local(), state.destination_is_storage()) {
            _ if self.part_mover(state).is_some() => MoveMethod::Parts,
            (true, false) => MoveMethod::Local,
            (false, false) => MoveMethod::Fetch,
            (true, true) => MoveMethod::Store,
            (false, true) if self.is_third_party(sessions) => MoveMethod::ThirdParty,
            (false, true) => MoveMethod::Relay,
        }
    }

    /// Warns if the bytes between two servers of one kind pass through this machine.
    fn warn_of_relayed_servers(&self, sessions: &StorageSessions) {
        let is_ftp = |at: &Location| at.server().is_some_and(|server| server.scheme.is_ftp());
        let are_ftp = is_ftp(&self.item.source) && is_ftp(&self.item.destination);
        let apart = self.relayed_because.clone();
        let apart = apart.or_else(|| self.ctx.apart.reason(&self.from, &self.to));
        if are_ftp || apart.is_some() {
            let ends = [&sessions.from, &sessions.to];
            let reason = match (apart, ends.iter().find(|end| end.capabilities().is_carried)) {
                (Some(_), _) if are_ftp => "the servers cannot connect to each other".to_owned(),
                (Some(reason), _) => reason,
                (None, Some(closed)) => format!("no port of {} can be reached", closed.name()),
                (None, None) => "the servers cannot protect a connection between them in the same way (two gsiftp: servers can)"
                    .to_owned(),
            };
            self.ctx.warn(format!(
                "the data from {} to {} passes through this machine, because {reason}",
                sessions.from.name(),
                sessions.to.name()
            ));
        }
    }

    /// Moves the missing bytes.
    pub(super) async fn transfer(
        &mut self,
        state: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<MoveResult, Failure> {
        if state.destination.is_whole(state.range) {
            return Ok(MoveResult::default());
        }
        let method = self.move_method(state, sessions);
        if method == MoveMethod::Relay {
            self.warn_of_relayed_servers(sessions);
        }
        // A new control block for each attempt: it counts this attempt's bytes and cancels it.
        let control = Arc::new(TransferControl::new());
        let mover = self.upload_mover(state, &*sessions.to, check);
        let mover = mover.filter(|_| method == MoveMethod::Store);
        let mut spec = self.transfer_spec(state, sessions, method, check);
        if mover.is_some() {
            // Of the bytes that pass here.
            spec.checksum = None;
        }
        let early_checksum = check.algorithm().filter(|_| {
            method == MoveMethod::Fetch && self.checksums_source_early(state, sessions, &spec)
        });
        self.queue_follow_ups(state, sessions, &spec, check, early_checksum.is_none());
        let early_checksum = self.request_source_checksum(state, early_checksum);
        let (end, ended) = watch::channel(false);
        let range_sums = self.sum_stored_ranges(state, sessions, &spec, &control, ended);
        // Set before the transfer: a failed attempt may have read from the pipe as well.
        self.pipe_consumed |= state.is_pipe();
        self.register_progress(
            state,
            method,
            sessions.to.capabilities().sends_markers,
            &control,
        );
        if let CopyDestination::Storage(upload) = &mut state.destination {
            upload.begin_attempt(&control, method != MoveMethod::ThirdParty);
        }
        let started = Instant::now();
        // Boxed: it is large, and would be copied into the future around it.
        let moving = Box::pin(self.run_transfer(state, sessions, (method, mover), &spec, &control));
        let moving = async {
            let moved = moving.await;
            end.send_replace(true);
            moved
        };
        let side_tasks = async { tokio::join!(early_checksum, range_sums) };
        let result = run_with_side_task(moving, side_tasks).await;
        self.store_began = method != MoveMethod::Store || spec.started.load(Ordering::Relaxed);
        // The server refused STOR before data was accepted: bytes in the socket buffer were never
        // stored.
        if result.is_err() && !self.store_began {
            self.meter.discard_attempt();
        }
        let recorded = record_result(result, state, &spec, &control, check);
        let (mut attempt, (source_checksum, copy_checksum)) = recorded.map_err(|failure| {
            let goes_on = method == MoveMethod::ThirdParty && spec.started.load(Ordering::Relaxed);
            match goes_on {
                true => leave_to_servers(state, failure),
                false => failure,
            }
        })?;
        if method == MoveMethod::ThirdParty {
            self.meter.report_bytes(attempt.report.evidence.bytes);
            self.ctx.apart.note_connected(&self.from, &self.to);
        }
        // A storage confirms a transfer in its final reply. A local file is safe when its bytes are
        // written.
        if state.destination_is_storage() {
            self.meter.confirm_attempt();
        }
        self.ctx.warn_all(std::mem::take(&mut attempt.warnings));
        if let Some(text) = attempt.report.prior_use.clone() {
            decisions::tell(self.ctx, Some(self.item.source.display()), text);
        }
        let fetched = method == MoveMethod::Fetch;
        if method != MoveMethod::Parts {
            self.path.learn(self.ctx, fetched, &mut attempt).await;
        }
        Ok(MoveResult {
            report: Some(attempt.report.clone())
                .filter(|_| !matches!(method, MoveMethod::ThirdParty | MoveMethod::Parts)),
            measured: measurement_of(method, attempt, started),
            source_checksum,
            copy_checksum,
        })
    }

    /// Moves the bytes and writes the journal meanwhile. Dropping the future stops both.
    async fn run_transfer(
        &self,
        state: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        (method, mover): (MoveMethod, Option<Arc<dyn PartMover>>),
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let in_order = self.stream_plan.unwrap_or_default().in_order;
        let (mut store_path, mut sink, mut partial) = (Vec::new(), None, None);
        match &mut state.destination {
            CopyDestination::Local(download) => {
                let file = download.lock(self.ctx)?;
                let source = state.source.as_ref().map(|opened| &*opened.source);
                preserve::leave_holes(self.ctx.options.file.sparse, source, &file);
                partial = download.partial_path();
                sink = Some(file as Arc<dyn Sink>);
            }
            CopyDestination::Storage(upload) => store_path = upload.store_path(),
        }
        let source = state.source.as_ref();
        let source = source.map(|opened| Arc::clone(&opened.source));
        let keep_empty = state.destination.length_shows_progress(in_order);
        // A pipe cannot be read again, so a journal could not be used.
        let keeps_journal = !state.is_pipe();
        let before = state.destination.safe_ranges().prefix_len();
        let size = state.range.size;
        let (journal, stored_ranges) = state.destination.journal_and_progress(control);
        let journal = journal.filter(|_| keeps_journal);
        let watch = AttemptWatch::new(Arc::clone(control), journal, keep_empty, stored_ranges);

        let StorageSessions { from, to } = sessions;
        let reports = from.capabilities().third_party == Some(DirectProtocol::HttpCopy);
        let path = self.item.source.path();
        let moving = async {
            match (method, source, sink) {
                (MoveMethod::Parts, _, Some(sink)) => {
                    self.move_parts(&*sink, partial, spec, control).await
                }
                (MoveMethod::Local, Some(source), Some(sink)) => {
                    local_copy::copy_local(source, sink, spec, control).await
                }
                (MoveMethod::Fetch, _, Some(sink)) => from.fetch(path, sink, spec, control).await,
                (MoveMethod::Store, Some(source), _) => {
                    let shared = match mover {
                        Some(mover) => {
                            let ends = (&source, &mut **to, store_path.as_slice());
                            self.share_store(&*mover, ends, spec, control).await?
                        }
                        None => None,
                    };
                    let spec = shared.unwrap_or_else(|| spec.clone());
                    to.store(source, &store_path, &spec, control).await
                }
                (MoveMethod::ThirdParty, ..) => {
                    let meter = self.meter;
                    let progress = move |bytes| meter.report_bytes(bytes);
                    let passing =
                        from.transfer_to(path, &mut **to, &store_path, spec, control, &progress);
                    // FTP servers report nothing in MODE S.
                    let watched = (in_order && !reports).then_some((&store_path, before));
                    tokio::select! {
                        // The transfer's own end takes precedence over a stall that is detected in
                        // the same poll.
                        biased;
                        result = passing => result,
                        stalled = self.detect_stall(watched, size) => Err(stalled),
                    }
                }
                _ => {
                    let from = relay::RelayEndpoint::new(&mut **from, path);
                    let to = relay::RelayEndpoint::new(&mut **to, &store_path);
                    relay::copy(from, to, spec, control).await
                }
            }
        };
        watch.run(moving).await
    }

    /// The other processes that move the parts of the file, if they do.
    pub(super) fn part_mover(&self, state: &CopyState<'_>) -> Option<Arc<dyn PartMover>> {
        let is_whole = self.item.part.is_none() && state.range.part.is_none();
        let CopyDestination::Local(download) = &state.destination else {
            return None;
        };
        if !is_whole || state.is_pipe() || download.partial_path().is_none() {
            return None;
        }
        let (from, to) = (&self.item.source, &self.item.destination);
        self.ctx.parts.dividing(from, to, state.range.size)
    }

    /// Has other processes move what is missing.
    async fn move_parts(
        &self,
        sink: &dyn Sink,
        partial: Option<PathBuf>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let (from, to) = (&self.item.source, &self.item.destination);
        let mover = self.ctx.parts.dividing(from, to, spec.size);
        let (Some(mover), Some(partial), Some(size)) = (mover, partial, spec.size) else {
            return Err(Failure::local("nobody moves the parts of the file"));
        };
        // From here on, the length does not change: clients of a file server would learn of it late.
        if let Some(file) = sink.clone_target() {
            rustix::fs::ftruncate(file, size)
                .map_err(|error| store_failure(&partial, &error.into()))?;
        }
        let parts = MissingParts {
            source: from,
            facts: SourceFacts {
                size: Some(size),
                ..self.item.facts
            },
            destination: Location::Local(partial),
            upload: None,
            missing: spec.completed_ranges.gaps(0, size),
            control: Arc::clone(control),
            stored: Arc::clone(&spec.stored_ranges),
        };
        mover.move_parts(parts).await?;
        Ok(TransferAttempt::default())
    }

    /// The other processes that store parts of the file at a storage, if they may: it gets its final name only as a whole, which is
    /// compared.
    pub(super) fn upload_mover(
        &self,
        state: &CopyState<'_>,
        to: &dyn Storage,
        check: Verification,
    ) -> Option<Arc<dyn PartMover>> {
        let CopyDestination::Storage(upload) = &state.destination else {
            return None;
        };
        // A length that shows what is stored would count the bytes between the parts.
        let in_order = self.stream_plan.is_some_and(|plan| plan.in_order);
        let is_compared = check.algorithm().is_some() && upload.store_path() != upload.path();
        let may_divide = to.capabilities().stores_whole || is_compared && !in_order;
        let is_whole = self.item.part.is_none() && state.range.part.is_none();
        let (from, at) = (&self.item.source, &self.item.destination);
        let mover = self.ctx.parts.dividing(from, at, state.range.size);
        mover.filter(|_| is_whole && may_divide)
    }

    /// Has other processes store all parts of the file that are missing at its destination, but the last one, if they can. Returns
    /// the parameters for the rest, by which the storage completes the file.
    async fn share_store(
        &self,
        mover: &dyn PartMover,
        (source, to, store_path): (&Arc<dyn Source>, &mut dyn Storage, &[u8]),
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<Option<TransferSpec>, Failure> {
        let stores_whole = to.capabilities().stores_whole;
        let (Some(size), Some(uploads)) = (spec.size, to.shared_uploads()) else {
            return Ok(None);
        };
        let shared = uploads.share_upload(source, store_path, (spec, size), control);
        let Some(upload) = shared.await? else {
            return Ok(None);
        };
        let last = size.saturating_sub(1) / upload.part * upload.part;
        let missing = spec.completed_ranges.gaps(0, last);
        let moving = mover.move_parts(MissingParts {
            source: &self.item.source,
            facts: SourceFacts {
                size: Some(size),
                ..self.item.facts
            },
            destination: self.item.destination.with_path(store_path.to_vec()),
            upload: Some(upload.clone()),
            missing: missing.clone(),
            control: Arc::clone(control),
            stored: Arc::clone(&spec.stored_ranges),
        });
        tokio::pin!(moving);
        let moved = loop {
            tokio::select! {
                moved = &mut moving => break moved,
                () = tokio::time::sleep(KEEP_ALIVE) => uploads.keep_alive().await,
            }
        };
        if let Err(failure) = moved {
            let stored = spec.stored_ranges.lock().clone();
            if !stored.is_empty() {
                // The parts of the others count, although this process has sent nothing.
                spec.started.store(true, Ordering::Relaxed);
            } else if failure.kind() == FailureKind::Protocol && !stores_whole {
                // Not every server that announces stores at offsets carries them out.
                self.ctx
                    .warn(format!("{failure}; the file is sent as a whole"));
                return Ok(None);
            }
            for range in stored.iter() {
                spec.confirmation.confirm_range(range.start, range.end);
            }
            if matches!(
                failure.kind(),
                FailureKind::Refused | FailureKind::ServerDiskFull | FailureKind::Protocol
            ) {
                spec.confirmation.mark_refused();
            }
            return Err(uploads.give_up_shared(store_path, &upload, failure).await);
        }
        let mut rest = spec.clone();
        rest.chunks = None;
        for range in missing.iter() {
            rest.completed_ranges.insert(range.start, range.end);
        }
        // By which the server sees the end of the file.
        rest.completed_ranges.remove(last, size);
        Ok(Some(rest))
    }

    /// After a refused store: whether the destination takes its final name, so that the store can be tried again.
    pub(super) async fn takes_final_name(
        &self,
        state: &mut CopyState<'_>,
        sessions: &mut StorageSessions,
        refusal: &Failure,
    ) -> Result<bool, Failure> {
        let CopyDestination::Storage(upload) = &mut state.destination else {
            return Ok(false);
        };
        let to = &mut *sessions.to;
        if self.store_began {
            upload.accept_final_name(self.ctx);
        } else if !self.pipe_consumed && to.is_usable() {
            return upload.may_use_final_name(to, refusal.clone()).await;
        }
        Ok(false)
    }

    fn transfer_spec(
        &self,
        state: &CopyState<'_>,
        sessions: &StorageSessions,
        method: MoveMethod,
        check: Verification,
    ) -> TransferSpec {
        let safe = state.destination.safe_ranges();
        let stream_plan = self.stream_plan.unwrap_or_default();
        let mut spec = new_transfer_spec(self.ctx, state.range, safe, stream_plan);
        // The checksum of the passing bytes is that of the whole file only if nothing is resumed.
        let checksum = check.algorithm().filter(|_| safe.is_empty());
        if method == MoveMethod::Store {
            spec.prior = self.path.known().clone();
        }
        spec.checksum = checksum.filter(|_| method != MoveMethod::ThirdParty);
        if method == MoveMethod::Fetch {
            let whole = state.range.part.is_none() && spec.chunks.is_none();
            // A smaller file is read again in less time than the request for it takes.
            let large = state.range.size.is_some_and(|size| size >= CONCURRENT_FROM);
            let able = sessions.from.capabilities().checksums_while_sending;
            spec.server_checksum = checksum.filter(|_| whole && large && able);
        }
        if let CopyDestination::Storage(upload) = &state.destination {
            let checksums = sessions.to.capabilities().checksums_while_storing;
            spec.server_checksum = checksum.filter(|_| checksums);
            spec.stored_ranges = Arc::clone(&upload.stored_ranges);
        }
        spec
    }

    /// Queues the queries that will follow the transfer, so that a session that pipelines can send
    /// them ahead.
    fn queue_follow_ups(
        &self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
        spec: &TransferSpec,
        check: Verification,
        checksums: bool,
    ) {
        let path = self.item.source.path();
        let checksum = |path, part| {
            let (offset, length) = offset_and_length(part);
            let query = move |algorithm| FollowUpQuery::Checksum {
                algorithm,
                offset,
                length,
                path,
            };
            check.algorithm().map(query)
        };
        if !state.source_is_local() {
            let facts = self
                .rechecks_source(state, check)
                .then_some(FollowUpQuery::Stat(path));
            let checksum_wanted = checksums && !state.checksums_passing_bytes;
            let checksum = checksum(path, state.range.part).filter(|_| checksum_wanted);
            let queries: Vec<_> = checksum.into_iter().chain(facts).collect();
            sessions.from.queue_follow_ups(spec, &queries);
        }
        if let CopyDestination::Storage(upload) = &state.destination {
            let path = upload.store_path();
            let stat_wanted = state.source_is_local() || state.range.size.is_some();
            let facts = stat_wanted.then_some(FollowUpQuery::Stat(&path));
            let query = checksum(&path, None).or(facts);
            sessions.to.queue_follow_ups(spec, query.as_slice());
        }
    }

    /// Whether the source reads the file for its checksum while the bytes move.
    fn checksums_source_early(
        &self,
        state: &CopyState<'_>,
        sessions: &StorageSessions,
        spec: &TransferSpec,
    ) -> bool {
        let threshold = match sessions.from.pipelines_follow_ups(spec) {
            true => CONCURRENT_FROM_AHEAD,
            false => CONCURRENT_FROM,
        };
        spec.server_checksum.is_none() && state.range.size.is_some_and(|size| size >= threshold)
    }

    /// Requests the source's checksum over a second session while the bytes move. `None` when that
    /// was not wanted or failed; the checksum is then requested afterwards.
    fn request_source_checksum(
        &self,
        state: &CopyState<'_>,
        algorithm: Option<proto::checksum::ChecksumAlgorithm>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let pool = Arc::clone(&self.ctx.pool);
        let id = self.from.clone();
        let path = self.item.source.path().to_vec();
        let (offset, length) = offset_and_length(state.range.part);
        async move {
            let algorithm = algorithm?;
            // The first session is busy with the transfer until its final reply.
            let mut session = pool.acquire_further(&id).await.ok()?;
            let checksum = session.checksum(algorithm, offset, length, &path).await;
            let checksum = checksum.ok()?;
            pool.release(&id, session);
            Some(checksum)
        }
    }

    /// Requests the checksums of stored ranges over a second session while the rest moves. `None` where the server
    /// computes the checksum itself, or when that failed; it is then requested afterwards.
    fn sum_stored_ranges(
        &self,
        state: &CopyState<'_>,
        sessions: &StorageSessions,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        ended: watch::Receiver<bool>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let size = state.range.size.filter(|size| *size >= RANGES_FROM);
        // A server with pipelining has been asked for the whole checksum by now.
        let algorithm = spec.checksum.filter(|algorithm| {
            algorithm.is_combinable()
                && spec.server_checksum.is_none()
                && !sessions.to.pipelines_follow_ups(spec)
        });
        let sums = match (&state.source, &state.destination, size, algorithm) {
            (Some(opened), CopyDestination::Storage(upload), Some(size), Some(algorithm))
                if opened.facts.is_some() =>
            {
                Some(RangeSums {
                    algorithm,
                    source: Arc::clone(&opened.source),
                    origin: state.range.origin(),
                    path: upload.store_path(),
                    size,
                    control: Arc::clone(control),
                })
            }
            _ => None,
        };
        let (pool, id) = (Arc::clone(&self.ctx.pool), self.to.clone());
        async move { Box::pin(sums?.follow(&pool, &id, ended)).await }
    }

    /// Registers the attempt with the progress totals.
    fn register_progress(
        &self,
        state: &mut CopyState<'_>,
        method: MoveMethod,
        markers: bool,
        control: &Arc<TransferControl>,
    ) {
        let in_order = self.stream_plan.unwrap_or_default().in_order;
        let safe = state.destination.safe_ranges().byte_count();
        let safe_bytes = match method {
            // The storage reports nothing until the transfer ends.
            MoveMethod::Store if in_order || !markers => SafeByteCount::acknowledged(control, safe),
            _ => {
                let (_, stored_ranges) = state.destination.journal_and_progress(control);
                SafeByteCount::from_fn(move || stored_ranges().safe.byte_count())
            }
        };
        self.meter.begin_attempt(Arc::clone(control), safe_bytes);
    }

    /// Completes with a failure when a third-party transfer in MODE S stalls, and otherwise never.
    /// In MODE S neither server reports progress, so a session of its own asks for the length of
    /// the file. `watched`: the path and the bytes that it held before.
    fn detect_stall(
        &self,
        watched: Option<(&Vec<u8>, u64)>,
        size: Option<u64>,
    ) -> impl Future<Output = Failure> + Send + use<'a> {
        let (pool, id, meter) = (Arc::clone(&self.ctx.pool), self.to.clone(), self.meter);
        let watched = watched.map(|(path, before)| (path.clone(), before));
        let limit = self.ctx.options.streams.transfer.stall;
        async move {
            let Some((path, before)) = watched else {
                return std::future::pending().await;
            };
            let mut detector = StallDetector::new(size, limit);
            let mut session = None;
            loop {
                tokio::time::sleep(detector.poll_interval()).await;
                let length = remote_length(&pool, &id, &mut session, &path).await;
                let Some(length) = length else {
                    // The length is unavailable. The end of the transfer itself will show what
                    // happened.
                    return std::future::pending().await;
                };
                match detector.observe(length, Instant::now()) {
                    GrowthSign::Grown(length) => meter.report_bytes(length.saturating_sub(before)),
                    GrowthSign::Inconclusive => {}
                    GrowthSign::Stalled(length) => {
                        return Failure::unreachable(format!(
                            "the copy to {id} stalled: its file stayed at {length} bytes for \
                             {} s; try again",
                            limit.as_secs()
                        ));
                    }
                }
            }
        }
    }
}

/// Records the result of an attempt in the state of its destination.
fn record_result<T>(
    result: Result<T, Failure>,
    state: &mut CopyState<'_>,
    spec: &TransferSpec,
    control: &TransferControl,
    check: Verification,
) -> Result<T, Failure> {
    let size = state.range.size;
    match (&result, &mut state.destination) {
        (Ok(_), CopyDestination::Local(download)) => download.attempt_succeeded(control),
        (Ok(_), CopyDestination::Storage(upload)) => upload.attempt_succeeded(size),
        (Err(_), CopyDestination::Local(download)) => {
            let has_checksum = check.algorithm().is_some();
            download.attempt_failed(control, &spec.confirmation, size, has_checksum);
        }
        (Err(failure), CopyDestination::Storage(upload)) => {
            upload.attempt_failed(failure, &spec.confirmation, size);
        }
    }
    result
}

/// After a copy between two servers that failed here, and may go on there: no further attempt writes the same file.
fn leave_to_servers(state: &mut CopyState<'_>, failure: Failure) -> Failure {
    let has_other_name = match &mut state.destination {
        CopyDestination::Storage(upload) => upload.leave_partial(),
        CopyDestination::Local(_) => true,
    };
    if has_other_name {
        return failure;
    }
    let failure = failure.of_kind(FailureKind::Unreachable).retried(false);
    failure.advise(
        "the servers may still be writing the file: see that they have ended, and start over",
    )
}

/// Length of a remote file, over a session that is opened on first use.
async fn remote_length(
    pool: &StorageSessionPool,
    id: &StorageId,
    session: &mut Option<Box<dyn Storage>>,
    path: &[u8],
) -> Option<u64> {
    if session.is_none() {
        *session = pool.acquire_further(id).await.ok();
    }
    session.as_mut()?.stat(path).await.ok()?.size
}

/// Measurements for the summary. Copies within this machine have none.
fn measurement_of(
    method: MoveMethod,
    attempt: TransferAttempt,
    started: Instant,
) -> Option<TransferMeasurement> {
    match method {
        MoveMethod::Local | MoveMethod::Parts => None,
        MoveMethod::Fetch => Some(TransferMeasurement::of_received(attempt)),
        MoveMethod::Store | MoveMethod::Relay => Some(TransferMeasurement::of_sent(attempt)),
        MoveMethod::ThirdParty => Some(TransferMeasurement::of_third_party(
            attempt,
            started.elapsed(),
        )),
    }
}

/// Runs `side` beside `main`. `side` is dropped when `main` fails and awaited when it succeeds.
pub(super) async fn run_with_side_task<T, S>(
    main: impl Future<Output = Result<T, Failure>>,
    side: impl Future<Output = S>,
) -> Result<(T, S), Failure> {
    tokio::pin!(main, side);
    // `biased`: when both are ready, a failure of `main` takes precedence.
    tokio::select! {
        biased;
        main_result = &mut main => Ok((main_result?, side.await)),
        side_result = &mut side => Ok((main.await?, side_result)),
    }
}
