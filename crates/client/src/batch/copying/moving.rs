//! The bytes of an attempt, by the way that the ends leave open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use data::job::{TransferControl, TransferReport};
use data::store::Sink;

use super::super::alongside;
use super::super::attempt_watch::AttemptWatch;
use super::super::destination::CopyDestination;
use super::super::measurement::{MeasurementSource, TransferMeasurement};
use super::super::meter::SafeByteCount;
use super::super::pool::StorageSessionPool;
use super::super::relay;
use super::super::stall::{GrowthSign, StallDetector};
use super::super::stream_plan::{extent, spec};
use super::{CopyState, FileCopy, StorageSessions};
use crate::CopyFailure;
use crate::location::StorageId;
use crate::session::control::unreachable_failure;
use crate::storage::contract::{FollowUpQuery, Storage};
use crate::storage::local_copy;
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::verify::{CONCURRENT_FROM, CONCURRENT_FROM_AHEAD, Verification};
use crate::why;

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveMethod {
    /// From an open file to an open file.
    Within,
    /// From a storage into an open file.
    Fetch,
    /// From an open file to a storage.
    Store,
    /// From a storage to a storage, by their own doing.
    Pass,
    /// From a storage to a storage, by way of this machine.
    Relay,
}

/// Result of one transfer.
#[derive(Debug, Default)]
pub(super) struct MoveResult {
    /// This end's report; `None` when all was there already.
    pub(super) report: Option<TransferReport>,
    pub(super) measured: Option<TransferMeasurement>,
    /// The file's sum at its source, if it came in time.
    pub(super) source_sum: Option<String>,
}

impl<'a> FileCopy<'a> {
    fn way(&self, begun: &CopyState<'_>, sessions: &StorageSessions) -> MoveMethod {
        match (begun.reads_here(), begun.stores_there()) {
            (true, false) => MoveMethod::Within,
            (false, false) => MoveMethod::Fetch,
            (true, true) => MoveMethod::Store,
            (false, true) if self.passes(sessions) => MoveMethod::Pass,
            (false, true) => MoveMethod::Relay,
        }
    }

    /// Moves what is missing.
    pub(super) async fn transfer(
        &mut self,
        begun: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        check: Verification,
    ) -> Result<MoveResult, CopyFailure> {
        if begun.receiving.is_whole(begun.span) {
            return Ok(MoveResult::default());
        }
        let way = self.way(begun, sessions);
        let control = Arc::new(TransferControl::new());
        let spec = self.spec_of(begun, sessions, (way, check));
        let early = check
            .algorithm()
            .filter(|_| way == MoveMethod::Fetch && self.sums_early(begun, sessions, &spec));
        self.ask_ahead(begun, sessions, &spec, (check, early.is_none()));
        let early = self.sum_early(begun, early);
        self.consumed |= begun.is_pipe();
        self.show(begun, (way, sessions.to.capabilities().markers), &control);
        if let CopyDestination::There(upload) = &mut begun.receiving {
            upload.begin(&control, way != MoveMethod::Pass);
        }
        let started = Instant::now();
        let moving = self.run(begun, sessions, (way, &spec, &control));
        let result = alongside(moving, early).await;
        if way == MoveMethod::Store && result.is_err() && !spec.started.load(Ordering::Relaxed) {
            self.meter.discard();
        }
        let size = begun.span.size;
        let (mut attempt, source_sum) = match (result, &mut begun.receiving) {
            (Ok(moved), CopyDestination::Here(download)) => {
                download.confirmed(&control);
                moved
            }
            (Ok(moved), CopyDestination::There(upload)) => {
                upload.confirmed(size);
                moved
            }
            (Err(failure), CopyDestination::Here(download)) => {
                let judged = check.algorithm().is_some();
                download.settle(&control, &spec.confirmation, size, judged);
                return Err(failure);
            }
            (Err(failure), CopyDestination::There(upload)) => {
                upload.settle(&failure, &spec.confirmation, size);
                return Err(failure);
            }
        };
        if way == MoveMethod::Pass {
            self.meter.report(attempt.report.evidence.bytes);
        }
        if begun.stores_there() {
            self.meter.confirm();
        }
        self.ctx.warn_all(std::mem::take(&mut attempt.warnings));
        Ok(MoveResult {
            report: Some(attempt.report.clone()).filter(|_| way != MoveMethod::Pass),
            measured: measured(way, attempt, started),
            source_sum,
        })
    }

    /// Moves the bytes, and keeps the journal meanwhile. Dropping the future stops it all.
    async fn run(
        &self,
        begun: &mut CopyState<'a>,
        sessions: &mut StorageSessions,
        (way, spec, control): (MoveMethod, &TransferSpec, &Arc<TransferControl>),
    ) -> Result<TransferAttempt, CopyFailure> {
        let in_order = self.lanes.unwrap_or_default().in_order;
        let (mut store_path, mut sink) = (Vec::new(), None);
        match &mut begun.receiving {
            CopyDestination::Here(download) => {
                sink = Some(download.own(self.ctx)? as Arc<dyn Sink>);
            }
            CopyDestination::There(upload) => store_path = upload.store_path(),
        }
        let source = begun.source.as_ref();
        let source = source.map(|opened| Arc::clone(&opened.source));
        let keep_empty = begun.receiving.size_tells(in_order);
        let keeps_journal = !begun.is_pipe();
        let before = begun.receiving.have().prefix_len();
        let size = begun.span.size;
        let (journal, state) = begun.receiving.watched(control);
        let journal = journal.filter(|_| keeps_journal);
        let watch = AttemptWatch::new(Arc::clone(control), journal, keep_empty, state);
        let StorageSessions { from, to } = sessions;
        let path = self.item.source.path();
        let moving = async {
            match (way, source, sink) {
                (MoveMethod::Within, Some(source), Some(sink)) => {
                    local_copy::copy(source, sink, spec, control).await
                }
                (MoveMethod::Fetch, _, Some(sink)) => from.fetch(path, sink, spec, control).await,
                (MoveMethod::Store, Some(source), _) => {
                    to.store(source, &store_path, spec, control).await
                }
                (MoveMethod::Pass, ..) => {
                    let meter = self.meter;
                    let progress = move |bytes| meter.report(bytes);
                    let passing = from.transfer_to(path, &mut **to, &store_path, spec, &progress);
                    let silent = in_order.then_some((&store_path, before));
                    tokio::select! {
                        biased;
                        ended = passing => ended,
                        stalled = self.stall(silent, size) => Err(stalled),
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

    fn spec_of(
        &self,
        begun: &CopyState<'_>,
        sessions: &StorageSessions,
        (way, check): (MoveMethod, Verification),
    ) -> TransferSpec {
        let have = begun.receiving.have();
        let lanes = self.lanes.unwrap_or_default();
        let mut spec = spec(self.ctx, begun.span, have, lanes);
        let sum = check.algorithm().filter(|_| have.is_empty());
        spec.checksum = sum.filter(|_| way != MoveMethod::Pass);
        if let CopyDestination::There(upload) = &begun.receiving {
            let sums = sessions.to.capabilities().checksums_while_storing;
            spec.server_checksum = sum.filter(|_| sums);
            spec.stored_ranges = Arc::clone(&upload.marked);
        }
        spec
    }

    /// Has both ends asked ahead what will be asked of them when the bytes are there.
    fn ask_ahead(
        &self,
        begun: &CopyState<'_>,
        sessions: &mut StorageSessions,
        spec: &TransferSpec,
        (check, sums): (Verification, bool),
    ) {
        let path = self.item.source.path();
        let sum = |path, part| {
            let (offset, length) = extent(part);
            let question = move |algorithm| FollowUpQuery::Sum {
                algorithm,
                offset,
                length,
                path,
            };
            check.algorithm().map(question)
        };
        if !begun.reads_here() {
            let facts = self
                .looks_again(begun, check)
                .then_some(FollowUpQuery::Facts(path));
            let asked = sums && !begun.sums_what_passes;
            let sum = sum(path, begun.span.part).filter(|_| asked);
            let questions: Vec<_> = sum.into_iter().chain(facts).collect();
            sessions.from.queue_follow_ups(spec, &questions);
        }
        if let CopyDestination::There(upload) = &begun.receiving {
            let path = upload.store_path();
            let told = begun.reads_here() || begun.span.size.is_some();
            let facts = told.then_some(FollowUpQuery::Facts(&path));
            let question = sum(&path, None).or(facts);
            sessions.to.queue_follow_ups(spec, question.as_slice());
        }
    }

    /// Whether the source is to sum while the bytes move.
    fn sums_early(
        &self,
        begun: &CopyState<'_>,
        sessions: &StorageSessions,
        spec: &TransferSpec,
    ) -> bool {
        let worth = match sessions.from.pipelines_follow_ups(spec) {
            true => CONCURRENT_FROM_AHEAD,
            false => CONCURRENT_FROM,
        };
        begun.span.size.is_some_and(|size| size >= worth)
    }

    /// The source's sum, asked for over a second session while the bytes move. `None` when that
    /// was not wanted or does not work: then it is asked for afterwards.
    fn sum_early(
        &self,
        begun: &CopyState<'_>,
        algorithm: Option<proto::checksum::ChecksumAlgorithm>,
    ) -> impl Future<Output = Option<String>> + Send + use<> {
        let pool = Arc::clone(&self.ctx.pool);
        let id = self.from.clone();
        let path = self.item.source.path().to_vec();
        let (offset, length) = extent(begun.span.part);
        async move {
            let algorithm = algorithm?;
            let mut session = pool.take(&id).await.ok()?;
            let sum = session.checksum(algorithm, offset, length, &path).await;
            let sum = sum.ok()?;
            pool.give(&id, session);
            Some(sum)
        }
    }

    /// Shows the attempt in the totals.
    fn show(
        &self,
        begun: &mut CopyState<'_>,
        (way, markers): (MoveMethod, bool),
        control: &Arc<TransferControl>,
    ) {
        let in_order = self.lanes.unwrap_or_default().in_order;
        let have = begun.receiving.have().byte_count();
        let shown = match way {
            // A storage that tells nothing until the end.
            MoveMethod::Store if in_order || !markers => SafeByteCount::acknowledged(control, have),
            _ => {
                let (_, state) = begun.receiving.watched(control);
                SafeByteCount::told(move || state().safe.byte_count())
            }
        };
        self.meter.attempt(Arc::clone(control), shown);
    }

    /// The failure of a silent transfer between two storages (`asked`: where the bytes are stored, so many
    /// of them having been there) that stands still; never anything else. Another session asks for the
    /// length.
    fn stall(
        &self,
        asked: Option<(&Vec<u8>, u64)>,
        size: Option<u64>,
    ) -> impl Future<Output = CopyFailure> + Send + use<'a> {
        let (pool, id, meter) = (Arc::clone(&self.ctx.pool), self.to.clone(), self.meter);
        let asked = asked.map(|(path, before)| (path.clone(), before));
        let limit = self.ctx.options.transfer.stall;
        async move {
            let Some((path, before)) = asked else {
                return std::future::pending().await;
            };
            let mut growth = StallDetector::new(size, limit);
            let mut session = None;
            loop {
                tokio::time::sleep(growth.period()).await;
                let length = length(&pool, &id, &mut session, &path).await;
                let Some(length) = length else {
                    // A server that cannot be asked: the transfer's own end has to tell.
                    return std::future::pending().await;
                };
                match growth.look(length, Instant::now()) {
                    GrowthSign::Moved(length) => meter.report(length.saturating_sub(before)),
                    GrowthSign::Nothing => {}
                    GrowthSign::Stalled(length) => {
                        return unreachable_failure(format!(
                            "the copy to {id} stalled: its file stood at {length} bytes for \
                             {} s; try again, with --resume",
                            limit.as_secs()
                        ));
                    }
                }
            }
        }
    }
}

/// Length of a file, over a session that is opened for it.
async fn length(
    pool: &StorageSessionPool,
    id: &StorageId,
    session: &mut Option<Box<dyn Storage>>,
    path: &[u8],
) -> Option<u64> {
    if session.is_none() {
        *session = pool.take(id).await.ok();
    }
    session.as_mut()?.stat(path).await.ok()?.size
}

/// Measurements that are told at the end; nothing of what stayed within this machine.
fn measured(
    way: MoveMethod,
    attempt: TransferAttempt,
    started: Instant,
) -> Option<TransferMeasurement> {
    match way {
        MoveMethod::Within => None,
        MoveMethod::Fetch => Some(TransferMeasurement::received(attempt)),
        MoveMethod::Store | MoveMethod::Relay => Some(TransferMeasurement::sent(attempt)),
        MoveMethod::Pass => Some(TransferMeasurement {
            seen: MeasurementSource::Between(why::ThirdPartyStats {
                bytes: attempt.report.evidence.bytes,
                elapsed: started.elapsed(),
                streams: attempt.streams,
                markers: attempt.extended_mode,
            }),
            buffers: attempt.buffers.name(),
            remarks: attempt.remarks,
        }),
    }
}
