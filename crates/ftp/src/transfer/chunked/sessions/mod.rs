//! Moves the chunks of a file over one session or two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use tokio::sync::Notify;
use tune::limiter::Limiter;
use tune::streams::auto::{TransferDecision, TransferSetting};

use super::chunk_queue::{ChunkProgress, ChunkQueue, QueuedRange, RangeAssignment};
use super::chunk_session::ChunkSession;
use super::rtt_sampling::{RttProbeSession, SharedRttAverage};
use crate::Failure;
use crate::transfer::chunk_totals::ChunkTotals;
use crate::transfer::{HostRemark, TransferAttempt, TransferSpec};

/// How often stored ranges reported for a chunk are added to those of the whole file.
const MARKER_FORWARD_INTERVAL: Duration = Duration::from_millis(100);

/// Where R, the average round trip of the 2008 paper, comes from.
pub(super) enum RttSource {
    /// Not sampled: the round-trip time of the path is used.
    Known(Duration),
    /// From commands on the session that moves the chunks, before each chunk.
    BetweenChunks(SharedRttAverage),
    /// From the commands that the session has sent for its own purposes.
    OwnReplies(SharedRttAverage),
    /// From commands on a separate session while data flows.
    WhileDataFlows(SharedRttAverage, RttProbeSession),
}

/// A transfer in chunks, and the state its sessions share.
pub(super) struct ChunkSessions<'a> {
    /// The whole transfer.
    pub(super) spec: &'a TransferSpec,
    /// Counts the bytes of all chunks.
    pub(super) control: &'a Arc<TransferControl>,
    /// Gets the bytes of third-party transfers, which do not pass this machine.
    pub(super) progress: &'a (dyn Fn(u64) + Send + Sync),
    pub(super) rtt_source: RttSource,
    started: Instant,
    /// Notified when a chunk has ended.
    chunk_done: Notify,
    state: Mutex<ChunkSessionsState>,
}

/// State that the sessions share.
struct ChunkSessionsState {
    queue: ChunkQueue,
    total: ChunkTotals,
    /// W of the chunk that ended last, bytes.
    window: u64,
    /// Third-party bytes by session: of ended chunks and of the running one.
    third_party_bytes: BTreeMap<u32, (u64, u64)>,
    /// A chunk has been stored, so that later ones do not truncate the file.
    file_started: bool,
}

impl<'a> ChunkSessions<'a> {
    /// A transfer of the ranges in the queue.
    pub(super) fn new(
        spec: &'a TransferSpec,
        control: &'a Arc<TransferControl>,
        progress: &'a (dyn Fn(u64) + Send + Sync),
        queue: ChunkQueue,
        rtt_source: RttSource,
    ) -> Self {
        Self {
            spec,
            control,
            progress,
            rtt_source,
            started: Instant::now(),
            chunk_done: Notify::new(),
            state: Mutex::new(ChunkSessionsState {
                queue,
                total: ChunkTotals::default(),
                window: spec.options.buffers.pinned_bytes().unwrap_or(0),
                third_party_bytes: BTreeMap::new(),
                file_started: !spec.completed_ranges.is_empty(),
            }),
        }
    }

    /// Transfers everything over `first`, and over a second session if `use_second_session`.
    /// Dropping the future stops both.
    pub(super) async fn transfer(
        self,
        mut first: Box<dyn ChunkSession + 'a>,
        use_second_session: bool,
    ) -> Result<TransferAttempt, Failure> {
        let opening = use_second_session.then(|| first.open_another());
        let first_finished = Notify::new();
        let first_session = async {
            let ended = self.move_ranges(&mut *first, 0).await;
            first_finished.notify_one();
            ended
        };
        let second_session = async {
            let Some(opening) = opening else {
                return Ok(());
            };
            let opened = tokio::select! {
                opened = opening => opened,
                // The first session may finish before the second one is open.
                () = first_finished.notified() => return Ok(()),
            };
            let Ok(mut second) = opened else {
                // Most likely the server is at its session limit: one session has to do.
                self.state.lock().queue.remove_session();
                return Ok(());
            };
            if second.stores_at_server() && self.spec.completed_ranges.is_empty() {
                // The first chunk truncates the file, which must not happen after others are
                // stored.
                self.chunk_done.notified().await;
            }
            let ended = self.move_ranges(&mut *second, 1).await;
            second.close().await;
            ended
        };
        // The first failure drops the other future, which closes its session.
        tokio::try_join!(first_session, second_session)?;
        // Ranges that the second session returned are left.
        while self.state.lock().queue.has_more() {
            self.move_ranges(&mut *first, 0).await?;
        }
        let Self {
            rtt_source, state, ..
        } = self;
        if let RttSource::WhileDataFlows(_, probe) = rtt_source {
            probe.stop();
        }
        let state = state.into_inner();
        let (stored, elapsed) = (self.control.stored(), self.started.elapsed());
        let finding = state.queue.finding();
        let mut attempt = state.total.finish(stored, elapsed, self.spec.checksum);
        attempt.remarks.extend(finding.map(|text| HostRemark {
            host: None,
            verdict: None,
            text: Some(text),
        }));
        Ok(attempt)
    }

    /// Moves ranges over one session until none is left.
    async fn move_ranges(
        &self,
        chunk_session: &mut (dyn ChunkSession + '_),
        session: u32,
    ) -> Result<(), Failure> {
        loop {
            match &self.rtt_source {
                RttSource::BetweenChunks(average) => {
                    average.sample(chunk_session.session()).await;
                }
                RttSource::OwnReplies(average) => {
                    average.take_from_replies(chunk_session.session());
                }
                RttSource::Known(_) | RttSource::WhileDataFlows(..) => {}
            }
            let Some(assignment) = self.next_range(session) else {
                return Ok(());
            };
            let control = Arc::new(TransferControl::part_of(
                self.control,
                assignment.range.start,
            ));
            let spec = self.chunk_spec(&assignment);
            let sent_at = Instant::now();
            // A server's markers may report any number of bytes.
            let length = assignment.range.len();
            let progress = |bytes: u64| {
                self.note_third_party_bytes(session, bytes.min(length), self.started.elapsed());
            };
            let moving = chunk_session.transfer_chunk(&spec, &control, &progress);
            match self
                .forward_markers(&spec, assignment.range.start, moving)
                .await
            {
                Ok(attempt) => {
                    let response_time = chunk_session.response_time(&control, sent_at);
                    self.range_done(session, &assignment, attempt, response_time);
                }
                // The first session can move the range instead: either nothing of it moved here, or
                // it is a third-party transfer, which at worst stores the same bytes again.
                Err(_) if session > 0 && control.bytes() == 0 && !self.control.is_cancelled() => {
                    self.return_range(session, &assignment);
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The next range for a session. The decision for a new chunk is recorded.
    fn next_range(&self, session: u32) -> Option<RangeAssignment> {
        let now = self.progress_now();
        let QueuedRange {
            assignment,
            decision,
        } = self.state.lock().queue.next_range(session, now)?;
        if let Some((streams, reason)) = decision {
            self.control.note_stream_decision(TransferDecision {
                at: now.at,
                setting: Some(TransferSetting::Streams(streams)),
                limiter: Limiter::Unknown,
                reason,
            });
        }
        Some(assignment)
    }

    fn progress_now(&self) -> ChunkProgress {
        let state = self.state.lock();
        let third_party: u64 = state.third_party_bytes.values().map(|(a, b)| a + b).sum();
        ChunkProgress {
            at: self.started.elapsed(),
            moved: self.control.bytes() + third_party,
            window: state.window,
            rtt: match &self.rtt_source {
                RttSource::Known(rtt) => *rtt,
                RttSource::BetweenChunks(average)
                | RttSource::OwnReplies(average)
                | RttSource::WhileDataFlows(average, _) => average.average(),
            },
        }
    }

    /// The specification of the transfer of one range.
    fn chunk_spec(&self, assignment: &RangeAssignment) -> TransferSpec {
        let whole = self.spec;
        let (start, length) = (assignment.range.start, assignment.range.len());
        let origin = whole.part.map_or(0, |(offset, _)| offset);
        let mut state = self.state.lock();
        // The first chunk truncates the file, unless a part of the file is kept.
        let truncates = start == 0 && !state.file_started;
        state.file_started = true;
        TransferSpec {
            size: Some(length),
            part: Some((origin.saturating_add(start), length)),
            destination_offset: (!truncates).then_some(start),
            chunks: None,
            completed_ranges: RangeSet::new(),
            streams: assignment.streams,
            max_streams: assignment.streams.max(2),
            server_checksum: None,
            stored_ranges: Arc::default(),
            ..whole.clone()
        }
    }

    /// Waits for a chunk, and meanwhile adds the ranges that the destination reports to those of
    /// the whole file.
    async fn forward_markers(
        &self,
        chunk: &TransferSpec,
        start: u64,
        moving: impl Future<Output = Result<TransferAttempt, Failure>>,
    ) -> Result<TransferAttempt, Failure> {
        let length = chunk.size.unwrap_or(0);
        let forward = || {
            let reported = std::mem::take(&mut *chunk.stored_ranges.lock());
            let mut stored = self.spec.stored_ranges.lock();
            for range in reported.iter() {
                // Markers may report other chunks' bytes; only this chunk's count.
                let at = |offset: u64| start.saturating_add(offset.min(length));
                stored.insert(at(range.start), at(range.end));
            }
        };
        tokio::pin!(moving);
        loop {
            let ended = tokio::time::timeout(MARKER_FORWARD_INTERVAL, &mut moving).await;
            forward();
            if let Ok(ended) = ended {
                return ended;
            }
        }
    }

    fn range_done(
        &self,
        session: u32,
        assignment: &RangeAssignment,
        attempt: TransferAttempt,
        response_time: Duration,
    ) {
        let mut state = self.state.lock();
        // The kernel doubles SO_SNDBUF and SO_RCVBUF for its own bookkeeping (socket(7)), so half
        // of the value can be window.
        let own_window = attempt.report.evidence.buffer_bytes / 2;
        state.window = self
            .spec
            .options
            .buffers
            .pinned_bytes()
            .unwrap_or(own_window);
        let bytes = state.third_party_bytes.entry(session).or_default();
        *bytes = (bytes.0 + bytes.1, 0);
        // Released here, since `progress_now` takes the lock, too.
        drop(state);
        let now = self.progress_now();
        let mut state = self.state.lock();
        let streams = u32::try_from(attempt.streams).unwrap_or(u32::MAX);
        state
            .queue
            .range_done(assignment, streams, response_time, now);
        if !attempt.extended_mode {
            state.queue.stop_chunking();
        }
        state.total.add_chunk(session, assignment.range, attempt);
        self.spec
            .confirmation
            .confirm_range(assignment.range.start, assignment.range.end);
        self.chunk_done.notify_one();
    }

    fn return_range(&self, session: u32, assignment: &RangeAssignment) {
        let mut state = self.state.lock();
        state.queue.return_range(assignment);
        // The bytes that its markers reported will be reported again.
        if let Some((_, running)) = state.third_party_bytes.get_mut(&session) {
            *running = 0;
        }
    }

    /// Takes the bytes of the session's running range that its servers report `at` this time since the start.
    fn note_third_party_bytes(&self, session: u32, bytes: u64, at: Duration) {
        let mut state = self.state.lock();
        state.third_party_bytes.entry(session).or_default().1 = bytes;
        state.queue.on_marker(session, at, bytes);
        let all = state.third_party_bytes.values().map(|(a, b)| a + b).sum();
        drop(state);
        (self.progress)(all);
    }
}

#[cfg(test)]
mod tests;
