//! `auto` by chunks alone: how many streams a sender needs that cannot be looked at.

use std::time::Duration;

use units::show;

use super::modes::{rate, streams};
use super::size::whole;
use super::{Chunk, ChunkResult, ChunkTuner};

/// Twice the streams must bring so many times the goodput, or they are not worth it.
const WORTH: f64 = 1.15;
/// Fewer streams that reach this share of the most do as well.
const AS_GOOD: f64 = 0.96;
/// Of the goodput that it settled at: below this the path has changed.
const FALLEN: f64 = 0.75;
/// The first chunk is held back by slow start, but not by more: below this share of what more streams
/// reach, its number of streams need not be tried again.
const COLD: f64 = 0.6;

/// A chunk tells how fast it can be after as many round trips, and as much time.
const ROUND_TRIPS: u32 = 10;
const SHORT: Duration = Duration::from_secs(1);
/// How long chunks take when the number of streams is found.
const LONG: Duration = Duration::from_secs(5);
/// No round trip is so long that chunks have to be longer than this.
const LONGEST: Duration = Duration::from_secs(10);
/// A chunk that took less than this share of its time is repeated, larger, at most so often.
const CONCLUSIVE: f64 = 0.5;
const REPEATS: u32 = 4;
/// Largest step from one chunk's size to the next.
const GROWTH: f64 = 16.0;

/// A window that any stream may be expected to have: for the first chunk's size.
const WINDOW: f64 = 262_144.0;
/// Smallest and largest first chunk.
const FIRST: (f64, f64) = (1_048_576.0, 8_388_608.0);

/// When a number that was found is looked at again; doubled each time that nothing came of it.
const AGAIN: Duration = Duration::from_secs(60);
/// At most so often doubled.
const PATIENCE: u32 = 4;
/// So many chunks with another number of streams than was asked for: there are no others.
const STUBBORN: u32 = 3;

/// Measurement with a number of streams, in the present search.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StreamCountResult {
    streams: u32,
    /// Bytes per second.
    goodput: f64,
    /// Not of the transfer's first chunk, which slow start holds back.
    warm: bool,
}

/// Present question of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ProbePhase {
    /// More and more streams.
    Climb,
    /// Whether fewer than `enough` do as well.
    Descend { enough: u32 },
    /// The number is found; this is what it gives, bytes per second.
    Settled { goodput: f64 },
}

/// Why a number that was found is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReprobeCause {
    /// The goodput has fallen.
    Fall,
    /// It was long ago.
    Age,
}

/// The search for the fewest streams that are enough.
#[derive(Debug)]
pub(super) struct ProbeTuner {
    /// Never fewer, nor more; or what there is.
    least: u32,
    most: u32,
    /// How long a chunk of a search takes.
    short: Duration,
    phase: ProbePhase,
    /// N of the next chunk.
    streams: u32,
    /// Its size.
    bytes: u64,
    trials: Vec<StreamCountResult>,
    /// The transfer's first measurement was taken.
    warm: bool,
    repeats: u32,
    strangers: u32,
    /// Why it looked again, and with which goodput, bytes per second.
    began: Option<(ReprobeCause, f64)>,
    /// Time and chunks since the search ended.
    settled_for: Duration,
    settled_chunks: u32,
    /// How many searches in turn brought nothing, of those after long, and after a fall.
    vain: u32,
    vain_falls: u32,
    reason: String,
}

impl ProbeTuner {
    pub(super) fn new(first: u32, most: u32, rtt: Duration) -> Self {
        let most = most.max(1);
        let first = first.clamp(1, most);
        let short = (rtt.min(LONGEST) * ROUND_TRIPS).clamp(SHORT, LONGEST);
        let windows = f64::from(first) * WINDOW * short.as_secs_f64();
        // Of an unknown round trip this is the largest.
        let bytes = (windows / rtt.as_secs_f64()).clamp(FIRST.0, FIRST.1);
        Self {
            least: 1,
            most,
            short,
            phase: ProbePhase::Climb,
            streams: first,
            bytes: whole(bytes),
            trials: Vec::new(),
            warm: false,
            repeats: 0,
            strangers: 0,
            began: None,
            settled_for: Duration::ZERO,
            settled_chunks: 0,
            vain: 0,
            vain_falls: 0,
            reason: format!("{} to begin with", streams(first)),
        }
    }

    /// The same, with never fewer than `least` streams.
    pub(super) fn with_min_streams(mut self, least: u32) -> Self {
        self.least = least.clamp(1, self.most);
        if self.streams < self.least {
            self.streams = self.least;
            self.reason = format!("{} to begin with", streams(self.streams));
        }
        self
    }

    fn on_chunk(&mut self, chunk: &ChunkResult) {
        let Some(goodput) = chunk.goodput().filter(|_| chunk.streams > 0) else {
            "nothing was measured: the same again".clone_into(&mut self.reason);
            return;
        };
        let had = chunk.streams.min(self.most);
        let asked = had == self.streams || self.is_only_count(had);
        let wanted = self.wanted();
        if asked && self.is_too_short(chunk, wanted) {
            self.reason = format!("too short to tell: {} again", streams(self.streams));
        } else if asked {
            self.repeats = 0;
            self.decide(chunk, goodput);
            self.warm = true;
        } else if !matches!(self.phase, ProbePhase::Settled { .. }) {
            // Of an earlier trial, whose chunk ended after the next was asked for.
            self.note(had, goodput);
        }
        self.bytes = self.sized(chunk, goodput);
    }

    /// Whether another number than was asked for came so often that it is what there is.
    fn is_only_count(&mut self, had: u32) -> bool {
        self.strangers += 1;
        if self.strangers < STUBBORN {
            return false;
        }
        if had < self.streams {
            self.most = had;
        } else {
            self.least = had;
        }
        self.streams = had.min(self.most);
        self.strangers = 0;
        true
    }

    fn is_too_short(&mut self, chunk: &ChunkResult, wanted: Duration) -> bool {
        self.strangers = 0;
        let short = chunk.time.as_secs_f64() < CONCLUSIVE * wanted.as_secs_f64();
        self.repeats += u32::from(short);
        short && self.repeats <= REPEATS
    }

    fn decide(&mut self, chunk: &ChunkResult, goodput: f64) {
        match self.phase {
            ProbePhase::Climb => {
                self.note(self.streams, goodput);
                self.climb(goodput);
            }
            ProbePhase::Descend { enough } => {
                self.note(self.streams, goodput);
                self.descend(enough, goodput);
            }
            ProbePhase::Settled { goodput: settled } => self.stay(chunk, goodput, settled),
        }
    }

    /// Keeps what a number of streams reached, the latest of it.
    fn note(&mut self, n: u32, goodput: f64) {
        self.trials.retain(|trial| trial.streams != n);
        self.trials.push(StreamCountResult {
            streams: n,
            goodput,
            warm: self.warm,
        });
    }

    /// The goodput that `n` streams reached in this search, bytes per second, if they were tried.
    fn known(&self, n: u32) -> Option<f64> {
        let trial = self.trials.iter().find(|trial| trial.streams == n)?;
        Some(trial.goodput)
    }

    fn climb(&mut self, goodput: f64) {
        let fewer = self.trials.iter().filter(|t| t.streams < self.streams);
        let before = fewer.map(|t| t.goodput).reduce(f64::max);
        let worth = before.is_none_or(|before| goodput >= WORTH * before);
        let now = format!(
            "{} with {}",
            show::bits(rate(goodput * 8.0)),
            streams(self.streams)
        );
        if worth && self.streams < self.most {
            self.streams = self.streams.saturating_mul(2).min(self.most);
            self.reason = format!("{now}: {} now", streams(self.streams));
            return;
        }
        let enough = self.fewest_as_good().unwrap_or(self.streams);
        let why = if worth {
            "no more are allowed"
        } else {
            "more bring nothing"
        };
        self.try_fewer(enough, &format!("{now}: {why}"));
    }

    /// The fewest streams that did about as well as the best.
    fn fewest_as_good(&self) -> Option<u32> {
        let best = self.trials.iter().map(|t| t.goodput).reduce(f64::max)?;
        let good = self.trials.iter().filter(|t| t.goodput >= AS_GOOD * best);
        good.map(|t| t.streams).min()
    }

    fn descend(&mut self, enough: u32, goodput: f64) {
        let known = self.known(enough).unwrap_or_default();
        let now = format!(
            "{} with {}",
            show::bits(rate(goodput * 8.0)),
            streams(self.streams)
        );
        if goodput >= AS_GOOD * known {
            self.try_fewer(self.streams, &format!("{now}: as good"));
        } else {
            self.settle(enough, &format!("{now}: too few"));
        }
    }

    /// Half of `enough` is tried, if it was not, or only at the cold start.
    fn try_fewer(&mut self, enough: u32, why: &str) {
        let half = enough / 2;
        let best = self.known(enough).unwrap_or_default();
        let tried =
            |t: &&StreamCountResult| t.streams == half && (t.warm || t.goodput < COLD * best);
        if half < self.least || self.trials.iter().any(|t| tried(&t)) {
            self.settle(enough, why);
            return;
        }
        self.phase = ProbePhase::Descend { enough };
        self.streams = half;
        self.reason = format!("{why}; whether {} will do", streams(half));
    }

    fn settle(&mut self, n: u32, why: &str) {
        let goodput = self.known(n).unwrap_or_default();
        if let Some((cause, before)) = self.began {
            let vain = match cause {
                ReprobeCause::Fall => &mut self.vain_falls,
                ReprobeCause::Age => &mut self.vain,
            };
            let brought = goodput >= WORTH * before;
            *vain = if brought {
                0
            } else {
                (*vain + 1).min(PATIENCE)
            };
        }
        self.settled_for = Duration::ZERO;
        self.settled_chunks = 0;
        self.phase = ProbePhase::Settled { goodput };
        self.streams = n;
        self.reason = format!("{why}; {} it is", streams(n));
    }

    /// A chunk with the number that was found; `settled` is what it used to give.
    fn stay(&mut self, chunk: &ChunkResult, goodput: f64, settled: f64) {
        self.settled_for = self.settled_for.saturating_add(chunk.time);
        self.settled_chunks = self.settled_chunks.saturating_add(1);
        let now = show::bits(rate(goodput * 8.0));
        if goodput < FALLEN * settled && self.settled_chunks >= 1 << self.vain_falls {
            let was = show::bits(rate(settled * 8.0));
            self.reprobe(
                ReprobeCause::Fall,
                goodput,
                &format!("{now}, no longer {was}"),
            );
        } else if self.settled_for >= AGAIN * (1 << self.vain) {
            self.reprobe(ReprobeCause::Age, goodput, &format!("{now}, for long"));
        } else {
            if self.settled_chunks > 1 << PATIENCE {
                self.vain_falls = 0;
            }
            // Slowly, so that one slow chunk is not forgotten at once.
            self.phase = ProbePhase::Settled {
                goodput: settled + (goodput - settled) / 4.0,
            };
            self.reason = format!("{now} with {}", streams(self.streams));
        }
    }

    /// A new search from where it is.
    fn reprobe(&mut self, cause: ReprobeCause, goodput: f64, why: &str) {
        self.began = Some((cause, goodput));
        self.trials.clear();
        self.note(self.streams, goodput);
        if self.streams < self.most {
            self.phase = ProbePhase::Climb;
            self.streams = self.streams.saturating_mul(2).min(self.most);
            self.reason = format!("{why}: whether {} bring more", streams(self.streams));
        } else {
            self.try_fewer(self.streams, why);
        }
    }

    /// How long the next chunk should take.
    fn wanted(&self) -> Duration {
        match self.phase {
            ProbePhase::Settled { .. } => LONG.max(self.short),
            ProbePhase::Climb | ProbePhase::Descend { .. } => self.short,
        }
    }

    /// The next chunk's size, by what the last one reached.
    fn sized(&self, chunk: &ChunkResult, goodput: f64) -> u64 {
        let more = if self.streams > chunk.streams {
            1.5
        } else {
            1.0
        };
        let bytes = goodput * more * self.wanted().as_secs_f64();
        whole(bytes.min(chunk.bytes as f64 * GROWTH))
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
