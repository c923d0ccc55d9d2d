//! Search for the number of streams by the goodput of chunks, for senders that cannot be sampled.

use std::time::Duration;

use units::show;

use super::chunk::{Chunk, ChunkResult, ChunkTuner};
use super::size::whole_bytes;
use crate::streams::describe::{describe_streams, whole_rate};

/// Goodput of doubled streams, relative to before, from which on they are worth it.
const MIN_GAIN: f64 = 1.15;
/// Share of the best goodput that fewer streams must reach to count as equally good.
const EQUAL_SHARE: f64 = 0.96;
/// Share of the settled goodput below which the path must have changed.
const FALLEN_SHARE: f64 = 0.75;
/// Slow start lowers the goodput of the first chunk, but not below this share of the goodput of more streams.
/// A number of streams that stayed below it need not be tried again.
const SLOW_START_SHARE: f64 = 0.6;

/// Length of a chunk in a search: at least so many round trips, and this time.
const ROUND_TRIPS: u32 = 10;
const MIN_SEARCH_CHUNK: Duration = Duration::from_secs(1);
/// Length of a chunk once the number of streams is found.
const SETTLED_CHUNK: Duration = Duration::from_secs(5);
/// Longest chunk of a search, and longest round trip that counts.
const MAX_SEARCH_CHUNK: Duration = Duration::from_secs(10);
/// A chunk that took less than this share of its intended time is repeated with a larger size, at most
/// [`MAX_REPEATS`] times.
const MIN_TIME_SHARE: f64 = 0.5;
const MAX_REPEATS: u32 = 4;
/// Largest growth from one chunk's size to the next.
const GROWTH: f64 = 16.0;

/// Window that any stream has at least, bytes: used for the size of the first chunk.
const ASSUMED_WINDOW: f64 = 262_144.0;
/// Smallest and largest first chunk, bytes.
const FIRST_CHUNK_BYTES: (f64, f64) = (1_048_576.0, 8_388_608.0);

/// Time after which a new search begins; doubled after every search without gain.
const NEW_SEARCH_AFTER: Duration = Duration::from_secs(60);
/// Largest number of doublings.
const MAX_DOUBLINGS: u32 = 4;
/// Consecutive chunks with an unrequested number of streams after which the tuner adopts that number.
const MAX_UNREQUESTED: u32 = 3;

/// Goodput of one number of streams in the present search.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StreamCountResult {
    streams: u32,
    /// Bytes per second.
    goodput: f64,
    /// Whether the chunk came after the slow start of the first chunk of the transfer.
    is_warm: bool,
}

/// Phase of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ProbePhase {
    /// Trying more and more streams.
    Climb,
    /// Trying whether fewer than `enough` streams do as well.
    Descend { enough: u32 },
    /// The number is found; `goodput` is its average, bytes per second.
    Settled { goodput: f64 },
}

/// Cause of a new search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReprobeCause {
    /// Goodput has fallen.
    Fall,
    /// The last search was long ago.
    Age,
}

/// The search for the fewest streams that are enough.
#[derive(Debug)]
pub(super) struct ProbeTuner {
    /// Bounds on the number of streams.
    min_streams: u32,
    max_streams: u32,
    /// Length of a chunk in a search.
    search_chunk_time: Duration,
    phase: ProbePhase,
    /// N of the next chunk.
    streams: u32,
    /// Size of the next chunk, bytes.
    bytes: u64,
    trials: Vec<StreamCountResult>,
    /// Whether the first chunk of the transfer has ended.
    is_warm: bool,
    repeats: u32,
    unrequested_chunks: u32,
    /// Cause of the present search, and the goodput at its start, bytes per second.
    cause: Option<(ReprobeCause, f64)>,
    /// Time and number of chunks since the search ended.
    settled_for: Duration,
    settled_chunks: u32,
    /// Consecutive searches without gain: those for age, and those after a fall of goodput.
    failed_searches: u32,
    failed_searches_after_fall: u32,
    reason: String,
}

impl ProbeTuner {
    pub(super) fn new(first: u32, max_streams: u32, rtt: Duration) -> Self {
        let max_streams = max_streams.max(1);
        let first = first.clamp(1, max_streams);
        let search_chunk_time =
            (rtt.min(MAX_SEARCH_CHUNK) * ROUND_TRIPS).clamp(MIN_SEARCH_CHUNK, MAX_SEARCH_CHUNK);
        let windows = f64::from(first) * ASSUMED_WINDOW * search_chunk_time.as_secs_f64();
        // An unknown round trip (zero) gives the largest size.
        let bytes = (windows / rtt.as_secs_f64()).clamp(FIRST_CHUNK_BYTES.0, FIRST_CHUNK_BYTES.1);
        Self {
            min_streams: 1,
            max_streams,
            search_chunk_time,
            phase: ProbePhase::Climb,
            streams: first,
            bytes: whole_bytes(bytes),
            trials: Vec::new(),
            is_warm: false,
            repeats: 0,
            unrequested_chunks: 0,
            cause: None,
            settled_for: Duration::ZERO,
            settled_chunks: 0,
            failed_searches: 0,
            failed_searches_after_fall: 0,
            reason: format!("{} to begin with", describe_streams(first)),
        }
    }

    /// The same tuner with at least `min_streams` streams.
    pub(super) fn with_min_streams(mut self, min_streams: u32) -> Self {
        self.min_streams = min_streams.clamp(1, self.max_streams);
        if self.streams < self.min_streams {
            self.streams = self.min_streams;
            self.reason = format!("{} to begin with", describe_streams(self.streams));
        }
        self
    }

    fn on_chunk(&mut self, chunk: &ChunkResult) {
        let Some(goodput) = chunk.goodput().filter(|_| chunk.streams > 0) else {
            "nothing was measured: the same number again".clone_into(&mut self.reason);
            return;
        };
        // A server may open more streams than allowed; they count as the largest number.
        let used = chunk.streams.min(self.max_streams);
        let is_requested = used == self.streams || self.adopt_imposed_count(used);
        let intended_time = self.intended_time();
        if is_requested && self.count_short_chunk(chunk, intended_time) {
            self.reason = format!(
                "the chunk was too short: {} again",
                describe_streams(self.streams)
            );
        } else if is_requested {
            self.repeats = 0;
            self.on_requested_chunk(chunk, goodput);
            self.is_warm = true;
        } else if !matches!(self.phase, ProbePhase::Settled { .. }) {
            // The chunk belongs to an earlier phase: it ended after the next one was requested.
            self.note(used, goodput);
        }
        self.bytes = self.next_size(chunk, goodput);
    }

    /// Counts a chunk with an unrequested number of streams. After several in a row no other number is possible:
    /// it is adopted, and the result is true.
    fn adopt_imposed_count(&mut self, used: u32) -> bool {
        self.unrequested_chunks += 1;
        if self.unrequested_chunks < MAX_UNREQUESTED {
            return false;
        }
        if used < self.streams {
            self.max_streams = used;
        } else {
            self.min_streams = used;
        }
        self.streams = used.min(self.max_streams);
        self.unrequested_chunks = 0;
        true
    }

    /// Counts a chunk that was too short to measure; returns whether to repeat it.
    fn count_short_chunk(&mut self, chunk: &ChunkResult, intended_time: Duration) -> bool {
        self.unrequested_chunks = 0;
        let is_short = chunk.time.as_secs_f64() < MIN_TIME_SHARE * intended_time.as_secs_f64();
        self.repeats += u32::from(is_short);
        is_short && self.repeats <= MAX_REPEATS
    }

    fn on_requested_chunk(&mut self, chunk: &ChunkResult, goodput: f64) {
        match self.phase {
            ProbePhase::Climb => {
                self.note(self.streams, goodput);
                self.climb(goodput);
            }
            ProbePhase::Descend { enough } => {
                self.note(self.streams, goodput);
                self.descend(enough, goodput);
            }
            ProbePhase::Settled { goodput: settled } => {
                self.continue_settled(chunk, goodput, settled);
            }
        }
    }

    /// Stores the latest goodput of a number of streams.
    fn note(&mut self, n: u32, goodput: f64) {
        self.trials.retain(|trial| trial.streams != n);
        self.trials.push(StreamCountResult {
            streams: n,
            goodput,
            is_warm: self.is_warm,
        });
    }

    /// Goodput of `n` streams in this search, bytes per second, if they were tried.
    fn goodput_of(&self, n: u32) -> Option<f64> {
        let trial = self.trials.iter().find(|trial| trial.streams == n)?;
        Some(trial.goodput)
    }

    fn climb(&mut self, goodput: f64) {
        let fewer = self.trials.iter().filter(|t| t.streams < self.streams);
        let before = fewer.map(|t| t.goodput).reduce(f64::max);
        let is_worth_it = before.is_none_or(|before| goodput >= MIN_GAIN * before);
        let now = format!(
            "{} with {}",
            show::bits(whole_rate(goodput * 8.0)),
            describe_streams(self.streams)
        );
        if is_worth_it && self.streams < self.max_streams {
            self.streams = self.streams.saturating_mul(2).min(self.max_streams);
            self.reason = format!("{now}: next {}", describe_streams(self.streams));
            return;
        }
        let enough = self.fewest_as_good().unwrap_or(self.streams);
        let why = if is_worth_it {
            "no more are allowed"
        } else {
            "more do not help"
        };
        self.try_fewer(enough, &format!("{now}: {why}"));
    }

    /// Smallest number of streams that did about as well as the best.
    fn fewest_as_good(&self) -> Option<u32> {
        let best = self.trials.iter().map(|t| t.goodput).reduce(f64::max)?;
        let good = self
            .trials
            .iter()
            .filter(|t| t.goodput >= EQUAL_SHARE * best);
        good.map(|t| t.streams).min()
    }

    fn descend(&mut self, enough: u32, goodput: f64) {
        let goodput_of = self.goodput_of(enough).unwrap_or_default();
        let now = format!(
            "{} with {}",
            show::bits(whole_rate(goodput * 8.0)),
            describe_streams(self.streams)
        );
        if goodput >= EQUAL_SHARE * goodput_of {
            self.try_fewer(self.streams, &format!("{now}: as good"));
        } else {
            self.settle(enough, &format!("{now}: too few"));
        }
    }

    /// Tries half of `enough`, unless that was tried before and not only at the start of the transfer.
    fn try_fewer(&mut self, enough: u32, why: &str) {
        let half = enough / 2;
        let best = self.goodput_of(enough).unwrap_or_default();
        let tried = |t: &&StreamCountResult| {
            t.streams == half && (t.is_warm || t.goodput < SLOW_START_SHARE * best)
        };
        if half < self.min_streams || self.trials.iter().any(|t| tried(&t)) {
            self.settle(enough, why);
            return;
        }
        self.phase = ProbePhase::Descend { enough };
        self.streams = half;
        self.reason = format!("{why}; trying {}", describe_streams(half));
    }

    fn settle(&mut self, n: u32, why: &str) {
        let goodput = self.goodput_of(n).unwrap_or_default();
        if let Some((cause, before)) = self.cause {
            let failed_searches = match cause {
                ReprobeCause::Fall => &mut self.failed_searches_after_fall,
                ReprobeCause::Age => &mut self.failed_searches,
            };
            let has_gained = goodput >= MIN_GAIN * before;
            *failed_searches = if has_gained {
                0
            } else {
                (*failed_searches + 1).min(MAX_DOUBLINGS)
            };
        }
        self.settled_for = Duration::ZERO;
        self.settled_chunks = 0;
        self.phase = ProbePhase::Settled { goodput };
        self.streams = n;
        self.reason = format!("{why}; settled at {}", describe_streams(n));
    }

    /// Takes a chunk with the settled number of streams; `settled` is its average goodput, bytes per second.
    fn continue_settled(&mut self, chunk: &ChunkResult, goodput: f64, settled: f64) {
        self.settled_for = self.settled_for.saturating_add(chunk.time);
        self.settled_chunks = self.settled_chunks.saturating_add(1);
        let now = show::bits(whole_rate(goodput * 8.0));
        // Each failed search doubles the number of chunks before the next one may begin.
        if goodput < FALLEN_SHARE * settled
            && self.settled_chunks >= 1 << self.failed_searches_after_fall
        {
            let was = show::bits(whole_rate(settled * 8.0));
            self.reprobe(
                ReprobeCause::Fall,
                goodput,
                &format!("{now}, down from {was}"),
            );
        } else if self.settled_for >= NEW_SEARCH_AFTER * (1 << self.failed_searches) {
            self.reprobe(
                ReprobeCause::Age,
                goodput,
                &format!("{now}, unchanged for long"),
            );
        } else {
            if self.settled_chunks > 1 << MAX_DOUBLINGS {
                self.failed_searches_after_fall = 0;
            }
            // A slow average keeps the reference when single chunks are slow.
            self.phase = ProbePhase::Settled {
                goodput: settled + (goodput - settled) / 4.0,
            };
            self.reason = format!("{now} with {}", describe_streams(self.streams));
        }
    }

    /// Begins a new search from the present number of streams.
    fn reprobe(&mut self, cause: ReprobeCause, goodput: f64, why: &str) {
        self.cause = Some((cause, goodput));
        self.trials.clear();
        self.note(self.streams, goodput);
        if self.streams < self.max_streams {
            self.phase = ProbePhase::Climb;
            self.streams = self.streams.saturating_mul(2).min(self.max_streams);
            self.reason = format!("{why}: trying {}", describe_streams(self.streams));
        } else {
            self.try_fewer(self.streams, why);
        }
    }

    /// Intended time of the next chunk.
    fn intended_time(&self) -> Duration {
        match self.phase {
            ProbePhase::Settled { .. } => SETTLED_CHUNK.max(self.search_chunk_time),
            ProbePhase::Climb | ProbePhase::Descend { .. } => self.search_chunk_time,
        }
    }

    /// Size of the next chunk, by the goodput of the last one.
    fn next_size(&self, chunk: &ChunkResult, goodput: f64) -> u64 {
        // Doubled streams bring between nothing and twice the goodput.
        let more = if self.streams > chunk.streams {
            1.5
        } else {
            1.0
        };
        let bytes = goodput * more * self.intended_time().as_secs_f64();
        whole_bytes(bytes.min(chunk.bytes as f64 * GROWTH))
    }
}

impl ChunkTuner for ProbeTuner {
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
        if let Some(chunk) = last {
            self.on_chunk(chunk);
        }
        Chunk {
            streams: self.streams,
            bytes: self.bytes,
        }
    }

    fn reason(&self) -> String {
        self.reason.clone()
    }

    fn is_settled(&self) -> bool {
        matches!(self.phase, ProbePhase::Settled { .. })
    }
}

#[cfg(test)]
mod tests;
