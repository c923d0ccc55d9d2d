//! The file that several sessions fetch together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::job::TransferControl;
use data::store::Sink;
use parking_lot::Mutex;
use proto::command::TransferMode;
use proto::ranges::{ByteRange, RangeSet};
use tune::streams::sessions::ReceiverSample;

use super::range_board::{RangeBoard, RangeProgress, RangeRequest};
use crate::session::{ClientSession, RestartEffect};
use crate::transfer::chunk_totals::ChunkTotals;
use crate::transfer::{RestartProof, TransferAttempt, TransferSpec, get};
use crate::{Failure, ModeChoice};

/// A session and its number of streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionStreams {
    /// Number of the session, 0 for the first.
    pub(super) number: u32,
    pub(super) streams: u32,
}

/// A fetch, and the state that its sessions share.
pub(super) struct SharedFetch {
    path: Vec<u8>,
    sink: Arc<dyn Sink>,
    mode: TransferMode,
    /// The whole fetch.
    spec: TransferSpec,
    /// Counts the bytes of all sessions.
    control: Arc<TransferControl>,
    rtt: Duration,
    started: Instant,
    /// Bytes that were missing at the start.
    missing: u64,
    state: Mutex<FetchState>,
}

struct FetchState {
    board: RangeBoard,
    /// The ranges that are being fetched, by session.
    running: BTreeMap<u32, RunningFetch>,
    /// Sessions that are logging in.
    expected: u32,
    /// The server refused a session or a range of it.
    refused: bool,
    /// Why the last session ended early.
    failure: Option<Failure>,
    /// A range has begun where REST said.
    restart_seen: bool,
    /// A range inside the file was fetched in MODE S.
    has_parts: bool,
    totals: ChunkTotals,
}

struct RunningFetch {
    control: Arc<TransferControl>,
    start: u64,
    since: Instant,
    streams: u32,
}

impl SharedFetch {
    pub(super) fn new(
        path: &[u8],
        sink: Arc<dyn Sink>,
        mode: TransferMode,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        missing: RangeSet,
        rtt: Duration,
    ) -> Self {
        Self {
            path: path.to_vec(),
            sink,
            mode,
            spec: spec.clone(),
            control: Arc::clone(control),
            rtt,
            started: Instant::now(),
            missing: missing.byte_count(),
            state: Mutex::new(FetchState {
                board: RangeBoard::new(missing),
                running: BTreeMap::new(),
                expected: 0,
                refused: false,
                failure: None,
                restart_seen: false,
                has_parts: false,
                totals: ChunkTotals::default(),
            }),
        }
    }

    pub(super) fn mode(&self) -> TransferMode {
        self.mode
    }

    /// Round trip of the path without a queue.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    pub(super) fn control(&self) -> &TransferControl {
        &self.control
    }

    /// Counts a session that logs in.
    pub(super) fn expect_session(&self) {
        self.state.lock().expected += 1;
    }

    /// A session that was expected has logged in, or failed to.
    pub(super) fn session_opened(&self, failure: Option<&Failure>) {
        let mut state = self.state.lock();
        state.expected = state.expected.saturating_sub(1);
        if let Some(failure) = failure {
            tracing::debug!(%failure, "no further session");
            state.refused = true;
        }
    }

    /// Whether the server refused a further session.
    pub(super) fn was_refused(&self) -> bool {
        self.state.lock().refused
    }

    /// Whether a session fetches a range now.
    pub(super) fn has_running(&self) -> bool {
        !self.state.lock().running.is_empty()
    }

    /// Whether everything is fetched.
    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().board.is_complete()
    }

    /// Goodput and round trip of all sessions together, as this end sees them now.
    pub(super) fn sample(&self) -> ReceiverSample {
        let mut rtts: Vec<Duration> = self
            .control
            .sample_streams()
            .iter()
            .map(|stream| stream.receiver_rtt)
            .filter(|rtt| !rtt.is_zero())
            .collect();
        rtts.sort_unstable();
        let bytes = self.control.bytes();
        let streams = self.state.lock().running.values().map(|f| f.streams).sum();
        ReceiverSample {
            at: self.started.elapsed(),
            bytes,
            left: self.missing.saturating_sub(bytes),
            streams,
            rtt: rtts.get(rtts.len() / 2).copied().unwrap_or_default(),
        }
    }

    /// Fetches ranges over one session until none is left for it.
    ///
    /// # Errors
    /// A failure that other sessions cannot make up for.
    pub(super) async fn fetch_ranges(
        &self,
        session: &mut ClientSession,
        streams: SessionStreams,
    ) -> Result<(), Failure> {
        while session.is_usable()
            && let Some((range, control)) = self.take(streams)
        {
            let spec = self.range_spec(range, streams.streams);
            let sink = Arc::clone(&self.sink);
            let fetching = get::get(session, &self.path, sink, &spec, &control);
            match Box::pin(fetching).await {
                Ok(attempt) => {
                    if !attempt.extended_mode {
                        self.note_restart(session, &spec);
                    }
                    self.range_done(streams.number, &control, attempt);
                }
                Err(failure) => {
                    if self.mode == TransferMode::Stream && control.bytes() > 0 {
                        // It stays stored, so it must have been sent from where REST said.
                        self.note_restart(session, &spec);
                    }
                    return self.range_failed(streams.number, &control, failure);
                }
            }
        }
        Ok(())
    }

    fn note_restart(&self, session: &ClientSession, spec: &TransferSpec) {
        let mut state = self.state.lock();
        state.restart_seen |= session.habits().restart == RestartEffect::Seen;
        state.has_parts |= spec.part.is_some_and(|(offset, _)| offset > 0);
    }

    /// Whether ranges were fetched by REST, and none of them has shown that it had effect.
    pub(super) fn lacks_restart_proof(&self) -> bool {
        let state = self.state.lock();
        state.has_parts && !state.restart_seen
    }

    /// Takes a range. The session that it is taken from stops where it begins.
    fn take(&self, streams: SessionStreams) -> Option<(ByteRange, Arc<TransferControl>)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let request = RangeRequest {
            session: streams.number,
            streams: streams.streams,
            others_coming: state.expected,
            rtt: self.rtt,
        };
        let running = &state.running;
        let taken = state.board.take(request, |session| {
            running
                .get(&session)
                .map(RunningFetch::progress)
                .unwrap_or_default()
        })?;
        if let Some(other) = taken.taken_from.and_then(|session| running.get(&session)) {
            other.control.end_at(taken.range.start - other.start);
        }
        let control = Arc::new(TransferControl::part_of(&self.control, taken.range.start));
        let fetch = RunningFetch {
            control: Arc::clone(&control),
            start: taken.range.start,
            since: Instant::now(),
            streams: streams.streams,
        };
        state.running.insert(streams.number, fetch);
        Some((taken.range, control))
    }

    /// The specification of one range.
    fn range_spec(&self, range: ByteRange, streams: u32) -> TransferSpec {
        let origin = self.spec.part.map_or(0, |(offset, _)| offset);
        let (mode, max_streams) = match self.mode {
            TransferMode::Stream => (ModeChoice::Stream, 1),
            TransferMode::Extended => (self.spec.mode, streams.max(2)),
        };
        // The server ends the whole file by itself.
        let is_whole = self.spec.part.is_none() && Some(range.len()) == self.spec.size;
        let part = (origin.saturating_add(range.start), range.len());
        // The session that fetches the last range, and is not relieved of its end, sees whether REST has effect.
        let is_last = self.spec.part.is_none() && Some(range.end) == self.spec.size;
        TransferSpec {
            size: Some(range.len()),
            part: (!is_whole).then_some(part),
            restart_proof: match is_last {
                true => RestartProof::EndOfFile,
                false => RestartProof::Elsewhere,
            },
            destination_offset: Some(range.start),
            chunks: None,
            completed_ranges: RangeSet::new(),
            streams,
            max_streams,
            mode,
            ..self.spec.clone()
        }
    }

    fn range_done(&self, session: u32, control: &TransferControl, mut attempt: TransferAttempt) {
        let mut state = self.state.lock();
        state.running.remove(&session);
        let stored = self.control.stored();
        let Some(range) = state.board.end(session, &stored) else {
            return;
        };
        // Bytes that arrived before the end moved down belong to another session's range, too: a
        // checksum with them is not that of this range.
        if control.stored().end() > range.len() {
            attempt.report.checksum = None;
        }
        state.totals.add_chunk(session, range, attempt);
        self.spec.confirmation.confirm_range(range.start, range.end);
    }

    /// A session has failed. Another one can fetch what it left, if the server is the reason.
    fn range_failed(
        &self,
        session: u32,
        control: &TransferControl,
        failure: Failure,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.running.remove(&session);
        let began = control.bytes() > 0;
        if began {
            state.totals.add_unfinished();
            state.board.end(session, &self.control.stored());
        } else if let Some((other, end)) = state.board.give_back(session)
            && let Some(other) = state.running.get(&other)
        {
            other.control.end_at(end - other.start);
        }
        state.refused = true;
        let others_can = match began {
            true => failure.kind().is_unreachable(),
            false => session > 0,
        };
        if !others_can || self.control.is_cancelled() || state.running.is_empty() {
            return Err(failure);
        }
        tracing::debug!(%failure, session, "a session of the transfer ended early");
        state.failure = Some(failure);
        Ok(())
    }

    /// Why the fetch is not complete.
    pub(super) fn failure(&self, server: &str) -> Failure {
        let lost = || Failure::unreachable(format!("{server} did not send the whole file"));
        self.state.lock().failure.clone().unwrap_or_else(lost)
    }

    /// The whole attempt, once it is complete.
    pub(super) fn finish(&self) -> TransferAttempt {
        let totals = std::mem::take(&mut self.state.lock().totals);
        let (stored, elapsed) = (self.control.stored(), self.started.elapsed());
        totals.finish(stored, elapsed, self.spec.checksum)
    }
}

impl RunningFetch {
    fn progress(&self) -> RangeProgress {
        let stored = self.control.stored();
        RangeProgress {
            stored: stored.byte_count(),
            reached: self.start + stored.end(),
            elapsed: self.since.elapsed(),
        }
    }
}
