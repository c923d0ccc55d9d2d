//! Rest of a file, and the pieces in which it is handed out: the tuner's chunks, cut to what is
//! missing and shared by the sessions that are at work.

use std::time::Duration;

use proto::ranges::{ByteRange, RangeSet};
use tune::streams::chunked::{Chunk, ChunkResult, ChunkTuner};

/// Smallest piece at the end of the file, bytes: less is not worth a command.
const MIN_TAIL_BYTES: u64 = 1 << 20;
/// The last pieces last at least this long, so that they do not wait for their commands.
const TAIL_DURATION: Duration = Duration::from_millis(200);

/// A part of the file for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeAssignment {
    /// Which bytes of the destination.
    pub(super) range: ByteRange,
    /// Over so many streams.
    pub(super) streams: u32,
    /// Of this chunk, counted from 0.
    chunk_number: u64,
}

/// Moment at which a session asked for work or ended a piece.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkProgress {
    /// Since the transfer began.
    pub(super) at: Duration,
    /// Bytes moved in all, by all sessions.
    pub(super) moved: u64,
    /// W: the smaller of both ends' socket buffers, bytes; 0: not known.
    pub(super) window: u64,
    /// R; zero: not known.
    pub(super) rtt: Duration,
}

/// A piece, and what the tuner decided for it, if it is the first of its chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedRange {
    /// To be moved.
    pub(super) assignment: RangeAssignment,
    /// Streams of the new chunk, over all sessions, and why.
    pub(super) decision: Option<(u32, String)>,
}

/// Work left to be done, by how many sessions, in which chunks.
pub(super) struct ChunkQueue {
    /// Not handed out.
    missing: RangeSet,
    tuner: Box<dyn ChunkTuner>,
    /// Sessions at work at the same time.
    session_count: u32,
    /// The running chunk.
    chunk: Option<RunningChunk>,
    /// The chunk that ended last, by the responses of its commands: mostly one, more where some of it
    /// was there already.
    last_chunk: Option<(u64, ChunkResult)>,
    chunk_count: u64,
}

/// A chunk that is being handed out.
#[derive(Debug, Clone, Copy)]
struct RunningChunk {
    streams: u32,
    /// X, bytes.
    bytes: u64,
    /// Bytes handed out.
    assigned: u64,
    /// Sessions that have begun with it, a bit each.
    session_bits: u32,
    /// When the last of them began.
    measured_from: ChunkProgress,
}

impl RunningChunk {
    /// Whether all sessions have begun with it.
    fn has_all_sessions(&self, sessions: u32) -> bool {
        self.session_bits.count_ones() >= sessions
    }

    /// Whether the next piece belongs to the next chunk. One session hands out the chunk's bytes and no
    /// more; several go on until all of them have moved about as many together, so that what was
    /// measured is this chunk's.
    fn is_complete(&self, sessions: u32, seen: ChunkProgress) -> bool {
        if sessions == 1 {
            return self.assigned >= self.bytes;
        }
        let together = seen.moved.saturating_sub(self.measured_from.moved);
        self.has_all_sessions(sessions) && together >= self.bytes / 4 * 3
    }
}

impl ChunkQueue {
    /// `missing` of the destination, by so many sessions at a time.
    pub(super) fn new(missing: RangeSet, tuner: Box<dyn ChunkTuner>, sessions: u32) -> Self {
        Self {
            missing,
            tuner,
            session_count: sessions.max(1),
            chunk: None,
            last_chunk: None,
            chunk_count: 0,
        }
    }

    /// The next piece for session number `session`; `None`: nothing is left.
    pub(super) fn next_range(&mut self, session: u32, seen: ChunkProgress) -> Option<QueuedRange> {
        let gap = self.missing.iter().next()?;
        let sessions = self.session_count;
        let mut decided = None;
        if self
            .chunk
            .is_none_or(|chunk| chunk.is_complete(sessions, seen))
        {
            decided = Some(self.begin_chunk(seen));
        }
        let left = self.missing.byte_count();
        let number = self.chunk_count;
        let chunk = self.chunk.as_mut()?;
        if chunk.session_bits & (1 << session) == 0 {
            chunk.session_bits |= 1 << session;
            chunk.measured_from = seen;
        }
        // Until the others come, pieces grow.
        let alone = if chunk.has_all_sessions(sessions) {
            0
        } else {
            chunk.assigned
        };
        let wanted = match sessions {
            1 => chunk.bytes.saturating_sub(chunk.assigned),
            // The sessions are to end together, so that the last pieces are ever smaller.
            n => {
                let share = |bytes: u64| bytes / u64::from(n);
                let piece = share(chunk.bytes).max(alone);
                piece.min(share(left).max(min_tail_bytes(seen)))
            }
        };
        let length = wanted.min(gap.len()).max(1);
        chunk.assigned = chunk.assigned.saturating_add(length);
        let piece = RangeAssignment {
            range: ByteRange {
                start: gap.start,
                end: gap.start + length,
            },
            streams: stream_share(chunk.streams, sessions, session),
            chunk_number: number,
        };
        self.missing.remove(piece.range.start, piece.range.end);
        Some(QueuedRange {
            assignment: piece,
            decision: decided,
        })
    }

    /// Asks the tuner for the next chunk.
    fn begin_chunk(&mut self, seen: ChunkProgress) -> (u32, String) {
        let last = self.measure_chunk(seen);
        let Chunk { streams, bytes } = self.tuner.next(last.as_ref());
        let streams = streams.max(self.session_count);
        self.chunk_count += 1;
        self.chunk = Some(RunningChunk {
            streams,
            bytes,
            assigned: 0,
            session_bits: 0,
            measured_from: seen,
        });
        (streams, self.tuner.reason())
    }

    /// Measurement of the running chunk. One session: its commands' responses. Several: all that moved
    /// since the last of them began with it, as they never stop between chunks.
    fn measure_chunk(&mut self, seen: ChunkProgress) -> Option<ChunkResult> {
        if self.session_count == 1 {
            return self.last_chunk.take().map(|(_, chunk)| chunk);
        }
        let chunk = self.chunk?;
        Some(ChunkResult {
            streams: chunk.streams,
            bytes: seen.moved.saturating_sub(chunk.measured_from.moved),
            time: seen.at.saturating_sub(chunk.measured_from.at),
            window: seen.window,
            rtt: seen.rtt,
        })
    }

    /// A piece has arrived, `streams` wide, its command answered after `time`.
    pub(super) fn range_done(
        &mut self,
        piece: &RangeAssignment,
        streams: u32,
        time: Duration,
        seen: ChunkProgress,
    ) {
        let bytes = piece.range.len();
        let (bytes, time) = match &self.last_chunk {
            Some((chunk, before)) if *chunk == piece.chunk_number => {
                (before.bytes + bytes, before.time + time)
            }
            _ => (bytes, time),
        };
        let chunk = ChunkResult {
            streams,
            bytes,
            time,
            window: seen.window,
            rtt: seen.rtt,
        };
        self.last_chunk = Some((piece.chunk_number, chunk));
    }

    /// A piece that a session could not begin with is for others, and so is all that follows: one
    /// session fewer is at work.
    pub(super) fn return_range(&mut self, piece: &RangeAssignment) {
        self.missing.insert(piece.range.start, piece.range.end);
        self.remove_session();
    }

    /// A session did not come to work.
    pub(super) fn remove_session(&mut self) {
        self.session_count = self.session_count.saturating_sub(1).max(1);
    }

    /// No streams can be had: what is left is one piece.
    pub(super) fn stop_chunking(&mut self) {
        self.session_count = 1;
        if let Some(chunk) = &mut self.chunk {
            chunk.bytes = u64::MAX;
        }
    }

    /// Whether something is left to be handed out.
    pub(super) fn has_more(&self) -> bool {
        !self.missing.is_empty()
    }
}

/// The part of `streams` that session number `session` has.
fn stream_share(streams: u32, sessions: u32, session: u32) -> u32 {
    let extra = u32::from(session < streams % sessions);
    (streams / sessions + extra).max(1)
}

/// The shortest piece that is worth a command at the rate so far.
fn min_tail_bytes(seen: ChunkProgress) -> u64 {
    let span = TAIL_DURATION.max(seen.rtt * 4).as_secs_f64();
    let rate = seen.moved as f64 / seen.at.as_secs_f64();
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
