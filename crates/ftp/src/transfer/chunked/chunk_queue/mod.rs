//! The missing ranges of a file, handed out to sessions in the sizes that the tuner chooses for its
//! chunks.

use std::time::Duration;

use proto::ranges::{ByteRange, RangeSet};
use tune::streams::chunked::{Chunk, ChunkResult, ChunkTuner, MarkerRateMeter};

/// Smallest range at the end of the file, bytes: less is not worth a command.
const MIN_TAIL_BYTES: u64 = 1 << 20;
/// Shortest duration of the last ranges, so that the time of their commands does not dominate.
const TAIL_DURATION: Duration = Duration::from_millis(200);

/// A range of the file for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeAssignment {
    /// Bytes of the destination.
    pub(super) range: ByteRange,
    /// Number of streams.
    pub(super) streams: u32,
    /// The session.
    session: u32,
    /// Number of its chunk, counted from 0.
    chunk_number: u64,
}

/// Progress of the transfer when a session asks for a range or ends one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkProgress {
    /// Time since the transfer started.
    pub(super) at: Duration,
    /// Bytes moved by all sessions.
    pub(super) moved: u64,
    /// W: the smaller of both ends' socket buffers, bytes; 0 if unknown.
    pub(super) window: u64,
    /// R; zero if unknown.
    pub(super) rtt: Duration,
}

/// A range, and the tuner's decision if it is the first of its chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedRange {
    /// The range to move.
    pub(super) assignment: RangeAssignment,
    /// Streams of the new chunk, over all sessions, and the reason.
    pub(super) decision: Option<(u32, String)>,
}

/// The ranges left to move, and the running chunk.
pub(super) struct ChunkQueue {
    /// Ranges not handed out yet.
    missing: RangeSet,
    tuner: Box<dyn ChunkTuner>,
    /// Sessions at work at the same time.
    session_count: u32,
    /// The running chunk.
    chunk: Option<RunningChunk>,
    /// The chunk that ended last, measured by the response times of its commands: usually one
    /// command, more if parts of the chunk were there already.
    last_chunk: Option<(u64, ChunkResult)>,
    chunk_count: u64,
    /// The rate of the running ranges, by the servers' markers.
    rates: MarkerRateMeter,
}

/// A chunk whose ranges are being handed out.
#[derive(Debug, Clone, Copy)]
struct RunningChunk {
    streams: u32,
    /// X, bytes.
    bytes: u64,
    /// Bytes handed out.
    assigned: u64,
    /// Sessions that have started with it, one bit each.
    session_bits: u32,
    /// Progress when the last of them started.
    measured_from: ChunkProgress,
}

impl RunningChunk {
    /// Whether all sessions have started with it.
    fn has_all_sessions(&self, sessions: u32) -> bool {
        self.session_bits.count_ones() >= sessions
    }

    /// Whether the next range belongs to the next chunk. One session hands out exactly the chunk's
    /// bytes. Several sessions continue until together they have moved about as many bytes, so that
    /// the measurement belongs to this chunk.
    fn is_complete(&self, sessions: u32, progress: ChunkProgress) -> bool {
        if sessions == 1 {
            return self.assigned >= self.bytes;
        }
        let together = progress.moved.saturating_sub(self.measured_from.moved);
        // Three quarters: the sessions' ranges do not end at the same moment.
        self.has_all_sessions(sessions) && together >= self.bytes / 4 * 3
    }
}

impl ChunkQueue {
    /// The `missing` ranges of the destination, for this many sessions at a time.
    pub(super) fn new(missing: RangeSet, tuner: Box<dyn ChunkTuner>, sessions: u32) -> Self {
        Self {
            missing,
            tuner,
            session_count: sessions.max(1),
            chunk: None,
            last_chunk: None,
            chunk_count: 0,
            rates: MarkerRateMeter::default(),
        }
    }

    /// The next range for session number `session`; `None` when nothing is left.
    pub(super) fn next_range(
        &mut self,
        session: u32,
        progress: ChunkProgress,
    ) -> Option<QueuedRange> {
        let gap = self.missing.iter().next()?;
        let sessions = self.session_count;
        let mut decision = None;
        if self.tuner.ends_chunk() {
            // The other sessions' ranges cannot be shortened; their next ones follow.
            (self.chunk, self.last_chunk) = (None, None);
            self.rates.forget();
        }
        if self
            .chunk
            .is_none_or(|chunk| chunk.is_complete(sessions, progress))
        {
            decision = Some(self.begin_chunk(progress));
        }
        let left = self.missing.byte_count();
        let number = self.chunk_count;
        let chunk = self.chunk.as_mut()?;
        if chunk.session_bits & (1 << session) == 0 {
            chunk.session_bits |= 1 << session;
            chunk.measured_from = progress;
        }
        // Ranges grow until the other sessions start, so that a lone session sends few commands.
        let lone_minimum = if chunk.has_all_sessions(sessions) {
            0
        } else {
            chunk.assigned
        };
        let wanted = match sessions {
            1 => chunk.bytes.saturating_sub(chunk.assigned),
            // The last ranges get smaller and smaller, so that all sessions end at about the same
            // time.
            n => {
                let share = |bytes: u64| bytes / u64::from(n);
                let length = share(chunk.bytes).max(lone_minimum);
                length.min(share(left).max(min_tail_bytes(progress)))
            }
        };
        let length = wanted.min(gap.len()).max(1);
        chunk.assigned = chunk.assigned.saturating_add(length);
        let assignment = RangeAssignment {
            range: ByteRange {
                start: gap.start,
                end: gap.start + length,
            },
            streams: stream_share(chunk.streams, sessions, session),
            session,
            chunk_number: number,
        };
        self.rates
            .begin_range(session, assignment.streams, chunk.streams, progress.at);
        self.missing
            .remove(assignment.range.start, assignment.range.end);
        Some(QueuedRange {
            assignment,
            decision,
        })
    }

    /// Asks the tuner for the next chunk.
    fn begin_chunk(&mut self, progress: ChunkProgress) -> (u32, String) {
        let last = self.measure_chunk(progress);
        let Chunk { streams, bytes } = self.tuner.next(last.as_ref());
        // Each session needs at least one stream.
        let streams = streams.max(self.session_count);
        self.rates.begin_chunk();
        self.chunk_count += 1;
        self.chunk = Some(RunningChunk {
            streams,
            bytes,
            assigned: 0,
            session_bits: 0,
            measured_from: progress,
        });
        (streams, self.tuner.reason())
    }

    /// Measurement of the running chunk. With one session: the response times of its commands. With
    /// several: the bytes moved since the last of them started with it, as they do not pause
    /// between chunks.
    fn measure_chunk(&mut self, progress: ChunkProgress) -> Option<ChunkResult> {
        if self.session_count == 1 {
            // Taken, so that a chunk without a completed range has no measurement.
            return self.last_chunk.take().map(|(_, chunk)| chunk);
        }
        let chunk = self.chunk?;
        Some(ChunkResult {
            streams: chunk.streams,
            bytes: progress.moved.saturating_sub(chunk.measured_from.moved),
            time: progress.at.saturating_sub(chunk.measured_from.at),
            window: progress.window,
            rtt: progress.rtt,
        })
    }

    /// Takes a marker that arrived at `at`, since the transfer started: the server has stored `bytes` of the session's
    /// running range.
    pub(super) fn on_marker(&mut self, session: u32, at: Duration, bytes: u64) {
        if let Some(rate) = self.rates.on_marker(session, at, bytes) {
            self.tuner.on_rate(rate);
        }
    }

    /// Records that a range has arrived over `streams` streams, its command answered after `time`.
    pub(super) fn range_done(
        &mut self,
        assignment: &RangeAssignment,
        streams: u32,
        time: Duration,
        progress: ChunkProgress,
    ) {
        self.rates.end_range(assignment.session);
        let bytes = assignment.range.len();
        let (bytes, time) = match &self.last_chunk {
            Some((chunk, before)) if *chunk == assignment.chunk_number => {
                (before.bytes + bytes, before.time + time)
            }
            _ => (bytes, time),
        };
        let chunk = ChunkResult {
            streams,
            bytes,
            time,
            window: progress.window,
            rtt: progress.rtt,
        };
        self.last_chunk = Some((assignment.chunk_number, chunk));
    }

    /// Takes back a range that a session could not start with, and counts one session fewer.
    pub(super) fn return_range(&mut self, assignment: &RangeAssignment) {
        self.missing
            .insert(assignment.range.start, assignment.range.end);
        self.rates.end_range(assignment.session);
        self.remove_session();
    }

    /// Counts one session fewer.
    pub(super) fn remove_session(&mut self) {
        self.session_count = self.session_count.saturating_sub(1).max(1);
    }

    /// Without MODE E there is only one stream, so everything left is one range.
    pub(super) fn stop_chunking(&mut self) {
        self.session_count = 1;
        if let Some(chunk) = &mut self.chunk {
            chunk.bytes = u64::MAX;
        }
    }

    /// The finding of the tuner's last search about the limiter.
    pub(super) fn finding(&self) -> Option<String> {
        self.tuner.finding()
    }

    /// Whether ranges are left to hand out.
    pub(super) fn has_more(&self) -> bool {
        !self.missing.is_empty()
    }
}

/// The number of `streams` for session number `session`.
fn stream_share(streams: u32, sessions: u32, session: u32) -> u32 {
    let extra = u32::from(session < streams % sessions);
    (streams / sessions + extra).max(1)
}

/// The smallest range that is worth a command at the rate so far, bytes.
fn min_tail_bytes(progress: ChunkProgress) -> u64 {
    // Four round trips or 200 ms, whichever is longer, hide the time of a command.
    let span = TAIL_DURATION.max(progress.rtt * 4).as_secs_f64();
    let rate = progress.moved as f64 / progress.at.as_secs_f64();
    let bytes = if rate.is_finite() { rate * span } else { 0.0 };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite and not negative; beyond the range it saturates"
    )]
    let bytes = bytes as u64;
    bytes.max(MIN_TAIL_BYTES)
}

#[cfg(test)]
mod tests;
