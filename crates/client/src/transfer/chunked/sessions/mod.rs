//! A file's chunks, moved by one session or two.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::job::TransferControl;
use proto::ranges::RangeSet;
use tokio::sync::Notify;
use tune::limiter::Limiter;
use tune::streams::auto::{TransferDecision, TransferSetting};

use super::chunk_queue::{ChunkProgress, ChunkQueue, QueuedRange, RangeAssignment};
use super::chunk_session::ChunkSession;
use super::outcome::ChunkTotals;
use super::rtt_sampling::{RttProbeSession, SharedRttAverage};
use crate::CopyFailure;
use crate::transfer::{TransferAttempt, TransferSpec};

/// How often what destination servers tell of a chunk is told of the whole.
const MARKER_FORWARD_INTERVAL: Duration = Duration::from_millis(100);

/// Where commands are sent whose answers give R.
pub(super) enum RttSource {
    /// Nowhere: the path's own round trip does.
    Known(Duration),
    /// On the session that moves the chunks, before each of them.
    BetweenChunks(SharedRttAverage),
    /// On a session of their own, while data flows.
    WhileDataFlows(SharedRttAverage, RttProbeSession),
}

/// A file on its way in chunks.
pub(super) struct ChunkSessions<'a> {
    /// The whole transfer.
    pub(super) spec: &'a TransferSpec,
    /// Counts all chunks.
    pub(super) control: &'a Arc<TransferControl>,
    /// Hears of bytes that do not pass here.
    pub(super) progress: &'a (dyn Fn(u64) + Send + Sync),
    pub(super) rtt_source: RttSource,
    started: Instant,
    /// A chunk has arrived.
    chunk_done: Notify,
    state: Mutex<ChunkSessionsState>,
}

/// State that the sessions of a crew share.
struct ChunkSessionsState {
    queue: ChunkQueue,
    total: ChunkTotals,
    /// W of the chunk that ended last, bytes.
    window: u64,
    /// Bytes between servers, by session: of ended chunks and of the running one.
    third_party_bytes: BTreeMap<u32, (u64, u64)>,
    /// A chunk is in the destination, so that none begins the file anew.
    file_started: bool,
}

impl<'a> ChunkSessions<'a> {
    /// To do `work`.
    pub(super) fn new(
        spec: &'a TransferSpec,
        control: &'a Arc<TransferControl>,
        progress: &'a (dyn Fn(u64) + Send + Sync),
        (work, trips): (ChunkQueue, RttSource),
    ) -> Self {
        Self {
            spec,
            control,
            progress,
            rtt_source: trips,
            started: Instant::now(),
            chunk_done: Notify::new(),
            state: Mutex::new(ChunkSessionsState {
                queue: work,
                total: ChunkTotals::default(),
                window: spec.options.buffers.pinned_bytes().unwrap_or(0),
                third_party_bytes: BTreeMap::new(),
                file_started: !spec.completed_ranges.is_empty(),
            }),
        }
    }

    /// Moves everything by `first`, and by another session beside it if `two`. Dropping it stops both.
    pub(super) async fn transfer(
        self,
        mut first: Box<dyn ChunkSession + 'a>,
        two: bool,
    ) -> Result<TransferAttempt, CopyFailure> {
        let another = two.then(|| first.open_another());
        let done = Notify::new();
        let alone = async {
            let ended = self.move_ranges(&mut *first, 0).await;
            done.notify_one();
            ended
        };
        let beside = async {
            let Some(another) = another else {
                return Ok(());
            };
            let opened = tokio::select! {
                opened = another => opened,
                // One that takes long to come is not waited for.
                () = done.notified() => return Ok(()),
            };
            let Ok(mut second) = opened else {
                // Most likely it is at its bound of sessions: one has to do.
                self.lock().queue.remove_session();
                return Ok(());
            };
            if second.stores_at_server() && self.spec.completed_ranges.is_empty() {
                // The first chunk begins the file anew, which must not happen to others.
                self.chunk_done.notified().await;
            }
            let ended = self.move_ranges(&mut *second, 1).await;
            second.close().await;
            ended
        };
        tokio::try_join!(alone, beside)?;
        // What the second session gave back.
        while self.lock().queue.has_more() {
            self.move_ranges(&mut *first, 0).await?;
        }
        let Self {
            rtt_source: trips,
            state,
            ..
        } = self;
        if let RttSource::WhileDataFlows(_, pulse) = trips {
            pulse.stop();
        }
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (stored, elapsed) = (self.control.stored(), self.started.elapsed());
        Ok(state.total.finish(stored, elapsed, self.spec.checksum))
    }

    /// Moves pieces by one session until none is left.
    async fn move_ranges(
        &self,
        lane: &mut (dyn ChunkSession + '_),
        session: u32,
    ) -> Result<(), CopyFailure> {
        loop {
            if let RttSource::BetweenChunks(trips) = &self.rtt_source {
                trips.sample(lane.session()).await;
            }
            let Some(piece) = self.next_range(session) else {
                return Ok(());
            };
            let control = Arc::new(TransferControl::part_of(self.control, piece.range.start));
            let spec = self.chunk_spec(&piece);
            let begun = Instant::now();
            // What a server's markers tell may be anything.
            let most = piece.range.len();
            let progress = |bytes: u64| self.note_third_party_bytes(session, bytes.min(most));
            let moving = lane.transfer_chunk(&spec, &control, &progress);
            match self.forward_markers(&spec, piece.range.start, moving).await {
                Ok(attempt) => {
                    let time = lane.response_time(&control, begun);
                    self.range_done(session, &piece, attempt, time);
                }
                // The first session can do it: this one could not even begin, or it is between servers,
                // where nobody here knows, and stores the same bytes again at worst.
                Err(_) if session > 0 && control.bytes() == 0 && !self.control.is_cancelled() => {
                    self.return_range(session, &piece);
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The next piece for a session; a new chunk is told of.
    fn next_range(&self, session: u32) -> Option<RangeAssignment> {
        let seen = self.progress_now();
        let QueuedRange {
            assignment: piece,
            decision: decided,
        } = self.lock().queue.next_range(session, seen)?;
        if let Some((streams, reason)) = decided {
            self.control.note_stream_decision(TransferDecision {
                at: seen.at,
                setting: Some(TransferSetting::Streams(streams)),
                limiter: Limiter::Unknown,
                reason,
            });
        }
        Some(piece)
    }

    fn progress_now(&self) -> ChunkProgress {
        let state = self.lock();
        let elsewhere: u64 = state.third_party_bytes.values().map(|(a, b)| a + b).sum();
        ChunkProgress {
            at: self.started.elapsed(),
            moved: self.control.bytes() + elsewhere,
            window: state.window,
            rtt: match &self.rtt_source {
                RttSource::Known(rtt) => *rtt,
                RttSource::BetweenChunks(trips) | RttSource::WhileDataFlows(trips, _) => {
                    trips.average()
                }
            },
        }
    }

    /// How the attempt at a piece is to be made.
    fn chunk_spec(&self, piece: &RangeAssignment) -> TransferSpec {
        let whole = self.spec;
        let (start, length) = (piece.range.start, piece.range.len());
        let origin = whole.part.map_or(0, |(offset, _)| offset);
        let mut state = self.lock();
        // The file begins anew with its first chunk, unless something of it is to be kept.
        let anew = start == 0 && !state.file_started;
        state.file_started = true;
        TransferSpec {
            size: Some(length),
            part: Some((origin.saturating_add(start), length)),
            destination_offset: (!anew).then_some(start),
            chunks: None,
            completed_ranges: RangeSet::new(),
            streams: piece.streams,
            max_streams: piece.streams.max(2),
            server_checksum: None,
            stored_ranges: Arc::default(),
            ..whole.clone()
        }
    }

    /// Waits for a chunk, and meanwhile tells of the whole what the destination server tells of it.
    async fn forward_markers(
        &self,
        chunk: &TransferSpec,
        start: u64,
        moving: impl Future<Output = Result<TransferAttempt, CopyFailure>>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let length = chunk.size.unwrap_or(0);
        let tell = || {
            let told = std::mem::take(&mut *lock_ignoring_poison(&chunk.stored_ranges));
            let mut marked = lock_ignoring_poison(&self.spec.stored_ranges);
            for range in told.iter() {
                // Whatever a server says of other chunks, it was asked for this one.
                let at = |offset: u64| start.saturating_add(offset.min(length));
                marked.insert(at(range.start), at(range.end));
            }
        };
        tokio::pin!(moving);
        loop {
            let ended = tokio::time::timeout(MARKER_FORWARD_INTERVAL, &mut moving).await;
            tell();
            if let Ok(ended) = ended {
                return ended;
            }
        }
    }

    fn range_done(
        &self,
        session: u32,
        piece: &RangeAssignment,
        attempt: TransferAttempt,
        time: Duration,
    ) {
        let mut state = self.lock();
        // The kernel's account of a buffer is twice what a window can be.
        let own = attempt.report.evidence.buffer_bytes / 2;
        state.window = self.spec.options.buffers.pinned_bytes().unwrap_or(own);
        let bytes = state.third_party_bytes.entry(session).or_default();
        *bytes = (bytes.0 + bytes.1, 0);
        drop(state);
        let seen = self.progress_now();
        let mut state = self.lock();
        let streams = u32::try_from(attempt.streams).unwrap_or(u32::MAX);
        state.queue.range_done(piece, streams, time, seen);
        if !attempt.extended_mode {
            state.queue.stop_chunking();
        }
        state.total.add_chunk(session, piece.range, attempt);
        self.spec
            .confirmation
            .confirm_range(piece.range.start, piece.range.end);
        self.chunk_done.notify_one();
    }

    fn return_range(&self, session: u32, piece: &RangeAssignment) {
        let mut state = self.lock();
        state.queue.return_range(piece);
        // What markers told of it will be told again.
        if let Some((_, running)) = state.third_party_bytes.get_mut(&session) {
            *running = 0;
        }
    }

    fn note_third_party_bytes(&self, session: u32, bytes: u64) {
        let mut state = self.lock();
        state.third_party_bytes.entry(session).or_default().1 = bytes;
        let all = state.third_party_bytes.values().map(|(a, b)| a + b).sum();
        drop(state);
        (self.progress)(all);
    }

    fn lock(&self) -> MutexGuard<'_, ChunkSessionsState> {
        lock_ignoring_poison(&self.state)
    }
}

/// The data, whole after every statement.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
