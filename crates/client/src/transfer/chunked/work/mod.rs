//! Rest of a file, and the pieces in which it is handed out: the tuner's chunks, cut to what is
//! missing and shared by the sessions that are at work.

use std::time::Duration;

use proto::ranges::{ByteRange, RangeSet};
use tune::streams::chunked::{Chunk, Transferred, Tuner};

/// Smallest piece at the end of the file, bytes: less is not worth a command.
const LEAST_TAIL: u64 = 1 << 20;
/// The last pieces last at least this long, so that they do not wait for their commands.
const TAIL: Duration = Duration::from_millis(200);

/// A part of the file for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Which bytes of the destination.
    pub(super) range: ByteRange,
    /// Over so many streams.
    pub(super) streams: u32,
    /// Of this chunk, counted from 0.
    chunk: u64,
}

/// Moment at which a session asked for work or ended a piece.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
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
pub(super) struct Assignment {
    /// To be moved.
    pub(super) piece: Piece,
    /// Streams of the new chunk, over all sessions, and why.
    pub(super) decided: Option<(u32, String)>,
}

/// Work left to be done, by how many sessions, in which chunks.
pub(super) struct Work {
    /// Not handed out.
    missing: RangeSet,
    tuner: Box<dyn Tuner>,
    /// Sessions at work at the same time.
    sessions: u32,
    /// The running chunk.
    chunk: Option<Running>,
    /// The chunk that ended last, by the responses of its commands: mostly one, more where some of it
    /// was there already.
    ended: Option<(u64, Transferred)>,
    chunks: u64,
}

/// A chunk that is being handed out.
#[derive(Debug, Clone, Copy)]
struct Running {
    streams: u32,
    /// X, bytes.
    bytes: u64,
    /// Bytes handed out.
    out: u64,
    /// Sessions that have begun with it, a bit each.
    begun: u32,
    /// When the last of them began.
    from: Seen,
}

impl Running {
    /// Whether all sessions have begun with it.
    fn has_all(&self, sessions: u32) -> bool {
        self.begun.count_ones() >= sessions
    }

    /// Whether the next piece belongs to the next chunk. One session hands out the chunk's bytes and no
    /// more; several go on until all of them have moved about as many together, so that what was
    /// measured is this chunk's.
    fn is_over(&self, sessions: u32, seen: Seen) -> bool {
        if sessions == 1 {
            return self.out >= self.bytes;
        }
        let together = seen.moved.saturating_sub(self.from.moved);
        self.has_all(sessions) && together >= self.bytes / 4 * 3
    }
}

impl Work {
    /// `missing` of the destination, by so many sessions at a time.
    pub(super) fn new(missing: RangeSet, tuner: Box<dyn Tuner>, sessions: u32) -> Self {
        Self {
            missing,
            tuner,
            sessions: sessions.max(1),
            chunk: None,
            ended: None,
            chunks: 0,
        }
    }

    /// The next piece for session number `session`; `None`: nothing is left.
    pub(super) fn next(&mut self, session: u32, seen: Seen) -> Option<Assignment> {
        let gap = self.missing.iter().next()?;
        let sessions = self.sessions;
        let mut decided = None;
        if self.chunk.is_none_or(|chunk| chunk.is_over(sessions, seen)) {
            decided = Some(self.begin(seen));
        }
        let left = self.missing.bytes();
        let number = self.chunks;
        let chunk = self.chunk.as_mut()?;
        if chunk.begun & (1 << session) == 0 {
            chunk.begun |= 1 << session;
            chunk.from = seen;
        }
        // Until the others come, pieces grow.
        let alone = if chunk.has_all(sessions) {
            0
        } else {
            chunk.out
        };
        let wanted = match sessions {
            1 => chunk.bytes.saturating_sub(chunk.out),
            // The sessions are to end together, so that the last pieces are ever smaller.
            n => {
                let share = |bytes: u64| bytes / u64::from(n);
                let piece = share(chunk.bytes).max(alone);
                piece.min(share(left).max(tail(seen)))
            }
        };
        let length = wanted.min(gap.len()).max(1);
        chunk.out = chunk.out.saturating_add(length);
        let piece = Piece {
            range: ByteRange {
                start: gap.start,
                end: gap.start + length,
            },
            streams: share(chunk.streams, sessions, session),
            chunk: number,
        };
        self.missing.remove(piece.range.start, piece.range.end);
        Some(Assignment { piece, decided })
    }

    /// Asks the tuner for the next chunk.
    fn begin(&mut self, seen: Seen) -> (u32, String) {
        let last = self.measured(seen);
        let Chunk { streams, bytes } = self.tuner.next(last.as_ref());
        let streams = streams.max(self.sessions);
        self.chunks += 1;
        self.chunk = Some(Running {
            streams,
            bytes,
            out: 0,
            begun: 0,
            from: seen,
        });
        (streams, self.tuner.reason())
    }

    /// Measurement of the running chunk. One session: its commands' responses. Several: all that moved
    /// since the last of them began with it, as they never stop between chunks.
    fn measured(&mut self, seen: Seen) -> Option<Transferred> {
        if self.sessions == 1 {
            return self.ended.take().map(|(_, chunk)| chunk);
        }
        let chunk = self.chunk?;
        Some(Transferred {
            streams: chunk.streams,
            bytes: seen.moved.saturating_sub(chunk.from.moved),
            time: seen.at.saturating_sub(chunk.from.at),
            window: seen.window,
            rtt: seen.rtt,
        })
    }

    /// A piece has arrived, `streams` wide, its command answered after `time`.
    pub(super) fn done(&mut self, piece: &Piece, streams: u32, time: Duration, seen: Seen) {
        let bytes = piece.range.len();
        let (bytes, time) = match &self.ended {
            Some((chunk, before)) if *chunk == piece.chunk => {
                (before.bytes + bytes, before.time + time)
            }
            _ => (bytes, time),
        };
        let chunk = Transferred {
            streams,
            bytes,
            time,
            window: seen.window,
            rtt: seen.rtt,
        };
        self.ended = Some((piece.chunk, chunk));
    }

    /// A piece that a session could not begin with is for others, and so is all that follows: one
    /// session fewer is at work.
    pub(super) fn give_back(&mut self, piece: &Piece) {
        self.missing.insert(piece.range.start, piece.range.end);
        self.one_fewer();
    }

    /// A session did not come to work.
    pub(super) fn one_fewer(&mut self) {
        self.sessions = self.sessions.saturating_sub(1).max(1);
    }

    /// No streams can be had: what is left is one piece.
    pub(super) fn in_one_piece(&mut self) {
        self.sessions = 1;
        if let Some(chunk) = &mut self.chunk {
            chunk.bytes = u64::MAX;
        }
    }

    /// Whether something is left to be handed out.
    pub(super) fn is_left(&self) -> bool {
        !self.missing.is_empty()
    }
}

/// The part of `streams` that session number `session` has.
fn share(streams: u32, sessions: u32, session: u32) -> u32 {
    let extra = u32::from(session < streams % sessions);
    (streams / sessions + extra).max(1)
}

/// The shortest piece that is worth a command at the rate so far.
fn tail(seen: Seen) -> u64 {
    let span = TAIL.max(seen.rtt * 4).as_secs_f64();
    let rate = seen.moved as f64 / seen.at.as_secs_f64();
    let bytes = if rate.is_finite() { rate * span } else { 0.0 };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite and not negative; beyond the range it saturates"
    )]
    let bytes = bytes as u64;
    bytes.max(LEAST_TAIL)
}

#[cfg(test)]
mod tests;
