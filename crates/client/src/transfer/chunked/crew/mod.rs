//! A file's chunks, moved by one session or two.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::job::Control;
use proto::ranges::RangeSet;
use tokio::sync::Notify;
use tune::limiter::Limiter;
use tune::streams::auto::{Decision, Step};

use super::lane::Lane;
use super::outcome::Outcome;
use super::round_trips::{Pulse, RoundTrips};
use super::work::{Assignment, Piece, Seen, Work};
use crate::Failure;
use crate::transfer::{Attempt, TransferSpec};

/// How often what destination servers tell of a chunk is told of the whole.
const TELL: Duration = Duration::from_millis(100);

/// Where commands are sent whose answers give R.
pub(super) enum Trips {
    /// Nowhere: the path's own round trip does.
    Known(Duration),
    /// On the session that moves the chunks, before each of them.
    Between(RoundTrips),
    /// On a session of their own, while data flows.
    Flowing(RoundTrips, Pulse),
}

/// A file on its way in chunks.
pub(super) struct Crew<'a> {
    /// The whole transfer.
    pub(super) spec: &'a TransferSpec,
    /// Counts all chunks.
    pub(super) control: &'a Arc<Control>,
    /// Hears of bytes that do not pass here.
    pub(super) progress: &'a (dyn Fn(u64) + Send + Sync),
    pub(super) trips: Trips,
    begun: Instant,
    /// A chunk has arrived.
    arrived: Notify,
    state: Mutex<State>,
}

/// State that the sessions of a crew share.
struct State {
    work: Work,
    outcome: Outcome,
    /// W of the chunk that ended last, bytes.
    window: u64,
    /// Bytes between servers, by session: of ended chunks and of the running one.
    elsewhere: BTreeMap<u32, (u64, u64)>,
    /// A chunk is in the destination, so that none begins the file anew.
    begun: bool,
}

impl<'a> Crew<'a> {
    /// To do `work`.
    pub(super) fn new(
        spec: &'a TransferSpec,
        control: &'a Arc<Control>,
        progress: &'a (dyn Fn(u64) + Send + Sync),
        (work, trips): (Work, Trips),
    ) -> Self {
        Self {
            spec,
            control,
            progress,
            trips,
            begun: Instant::now(),
            arrived: Notify::new(),
            state: Mutex::new(State {
                work,
                outcome: Outcome::default(),
                window: spec.options.buffers.pinned_bytes().unwrap_or(0),
                elsewhere: BTreeMap::new(),
                begun: !spec.have.is_empty(),
            }),
        }
    }

    /// Moves everything by `first`, and by another session beside it if `two`. Dropping it stops both.
    pub(super) async fn run(
        self,
        mut first: Box<dyn Lane + 'a>,
        two: bool,
    ) -> Result<Attempt, Failure> {
        let another = two.then(|| first.another());
        let done = Notify::new();
        let alone = async {
            let ended = self.drive(&mut *first, 0).await;
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
                self.lock().work.one_fewer();
                return Ok(());
            };
            if second.stores_at_server() && self.spec.have.is_empty() {
                // The first chunk begins the file anew, which must not happen to others.
                self.arrived.notified().await;
            }
            let ended = self.drive(&mut *second, 1).await;
            second.close().await;
            ended
        };
        tokio::try_join!(alone, beside)?;
        // What the second session gave back.
        while self.lock().work.is_left() {
            self.drive(&mut *first, 0).await?;
        }
        let Self { trips, state, .. } = self;
        if let Trips::Flowing(_, pulse) = trips {
            pulse.stop();
        }
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (stored, elapsed) = (self.control.stored(), self.begun.elapsed());
        Ok(state.outcome.finish(stored, elapsed, self.spec.sum))
    }

    /// Moves pieces by one session until none is left.
    async fn drive(&self, lane: &mut (dyn Lane + '_), session: u32) -> Result<(), Failure> {
        loop {
            if let Trips::Between(trips) = &self.trips {
                trips.sample(lane.session()).await;
            }
            let Some(piece) = self.order(session) else {
                return Ok(());
            };
            let control = Arc::new(Control::part_of(self.control, piece.range.start));
            let spec = self.chunk_spec(&piece);
            let begun = Instant::now();
            // What a server's markers tell may be anything.
            let most = piece.range.len();
            let progress = |bytes: u64| self.note_elsewhere(session, bytes.min(most));
            let moving = lane.chunk(&spec, &control, &progress);
            match self.telling(&spec, piece.range.start, moving).await {
                Ok(attempt) => {
                    let time = lane.response_time(&control, begun);
                    self.done(session, &piece, attempt, time);
                }
                // The first session can do it: this one could not even begin, or it is between servers,
                // where nobody here knows, and stores the same bytes again at worst.
                Err(_) if session > 0 && control.bytes() == 0 && !self.control.cancelled() => {
                    self.give_back(session, &piece);
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The next piece for a session; a new chunk is told of.
    fn order(&self, session: u32) -> Option<Piece> {
        let seen = self.seen();
        let Assignment { piece, decided } = self.lock().work.next(session, seen)?;
        if let Some((streams, reason)) = decided {
            self.control.note_stream_decision(Decision {
                at: seen.at,
                step: Some(Step::Streams(streams)),
                limiter: Limiter::Unknown,
                reason,
            });
        }
        Some(piece)
    }

    fn seen(&self) -> Seen {
        let state = self.lock();
        let elsewhere: u64 = state.elsewhere.values().map(|(a, b)| a + b).sum();
        Seen {
            at: self.begun.elapsed(),
            moved: self.control.bytes() + elsewhere,
            window: state.window,
            rtt: match &self.trips {
                Trips::Known(rtt) => *rtt,
                Trips::Between(trips) | Trips::Flowing(trips, _) => trips.average(),
            },
        }
    }

    /// How the attempt at a piece is to be made.
    fn chunk_spec(&self, piece: &Piece) -> TransferSpec {
        let whole = self.spec;
        let (start, length) = (piece.range.start, piece.range.len());
        let origin = whole.part.map_or(0, |(offset, _)| offset);
        let mut state = self.lock();
        // The file begins anew with its first chunk, unless something of it is to be kept.
        let anew = start == 0 && !state.begun;
        state.begun = true;
        TransferSpec {
            size: Some(length),
            part: Some((origin.saturating_add(start), length)),
            place: (!anew).then_some(start),
            chunks: None,
            have: RangeSet::new(),
            streams: piece.streams,
            most_streams: piece.streams.max(2),
            remote_sum: None,
            marked: Arc::default(),
            ..whole.clone()
        }
    }

    /// Waits for a chunk, and meanwhile tells of the whole what the destination server tells of it.
    async fn telling(
        &self,
        chunk: &TransferSpec,
        start: u64,
        moving: impl Future<Output = Result<Attempt, Failure>>,
    ) -> Result<Attempt, Failure> {
        let length = chunk.size.unwrap_or(0);
        let tell = || {
            let told = std::mem::take(&mut *unpoisoned(&chunk.marked));
            let mut marked = unpoisoned(&self.spec.marked);
            for range in told.iter() {
                // Whatever a server says of other chunks, it was asked for this one.
                let at = |offset: u64| start.saturating_add(offset.min(length));
                marked.insert(at(range.start), at(range.end));
            }
        };
        tokio::pin!(moving);
        loop {
            let ended = tokio::time::timeout(TELL, &mut moving).await;
            tell();
            if let Ok(ended) = ended {
                return ended;
            }
        }
    }

    fn done(&self, session: u32, piece: &Piece, attempt: Attempt, time: Duration) {
        let mut state = self.lock();
        // The kernel's account of a buffer is twice what a window can be.
        let own = attempt.report.evidence.buffer_bytes / 2;
        state.window = self.spec.options.buffers.pinned_bytes().unwrap_or(own);
        let bytes = state.elsewhere.entry(session).or_default();
        *bytes = (bytes.0 + bytes.1, 0);
        drop(state);
        let seen = self.seen();
        let mut state = self.lock();
        let streams = u32::try_from(attempt.streams).unwrap_or(u32::MAX);
        state.work.done(piece, streams, time, seen);
        if !attempt.extended {
            state.work.in_one_piece();
        }
        state.outcome.add(session, piece.range, attempt);
        self.spec.said.confirm(piece.range.start, piece.range.end);
        self.arrived.notify_one();
    }

    fn give_back(&self, session: u32, piece: &Piece) {
        let mut state = self.lock();
        state.work.give_back(piece);
        // What markers told of it will be told again.
        if let Some((_, running)) = state.elsewhere.get_mut(&session) {
            *running = 0;
        }
    }

    fn note_elsewhere(&self, session: u32, bytes: u64) {
        let mut state = self.lock();
        state.elsewhere.entry(session).or_default().1 = bytes;
        let all = state.elsewhere.values().map(|(a, b)| a + b).sum();
        drop(state);
        (self.progress)(all);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }
}

/// The data, whole after every statement.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
