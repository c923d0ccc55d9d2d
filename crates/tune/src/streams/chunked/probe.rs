//! Search for the number of streams by the goodput of chunks, for senders that cannot be sampled.

use std::time::Duration;

use units::show;

use super::chunk::{Chunk, ChunkResult, ChunkTuner};
use super::marker_rate::RelativeRate;
use super::size::whole_bytes;
use crate::streams::describe::whole_rate;

/// Goodput of doubled streams, relative to before, from which on they are worth it.
const MIN_GAIN: f64 = 1.15;
/// Share of the best goodput that fewer streams must reach to count as equally good.
const EQUAL_SHARE: f64 = 0.96;
/// Shares of the settled goodput below and above which the path must have changed.
const FALLEN_SHARE: f64 = 0.75;
const RISEN_SHARE: f64 = 1.0 / FALLEN_SHARE;
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
    /// Goodput has fallen or risen.
    Change,
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
    /// Consecutive searches without gain: those for age, and those after a change of goodput.
    failed_searches: u32,
    failed_searches_after_change: u32,
    /// Rate of the running chunk, relative to the settled goodput, if it has clearly changed.
    changed_to: Option<f64>,
    reason: String,
    /// The finding of the last search about the limiter.
    finding: Option<String>,
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
            failed_searches_after_change: 0,
            changed_to: None,
            reason: format!("{} to begin with", show::count(first, "stream")),
            finding: None,
        }
    }

    /// The same tuner with at least `min_streams` streams.
    pub(super) fn with_min_streams(mut self, min_streams: u32) -> Self {
        self.min_streams = min_streams.clamp(1, self.max_streams);
        if self.streams < self.min_streams {
            self.streams = self.min_streams;
            self.reason = format!("{} to begin with", show::count(self.streams, "stream"));
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
                show::count(self.streams, "stream")
            );
        } else if is_requested {
            self.repeats = 0;
            self.on_requested_chunk(chunk, goodput);
            self.is_warm = true;
        } else if !matches!(self.phase, ProbePhase::Settled { .. }) {
            // The chunk belongs to an earlier phase: it ended after the next one was requested.
            self.note(used, goodput);
        }
        self.bytes = self.next_size(chunk.streams, chunk.bytes, goodput);
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
        let before = fewer
            .max_by(|a, b| a.goodput.total_cmp(&b.goodput))
            .copied();
        let is_worth_it = before.is_none_or(|before| goodput >= MIN_GAIN * before.goodput);
        let now = format!(
            "{} with {}",
            show::bits(whole_rate(goodput * 8.0)),
            show::count(self.streams, "stream")
        );
        if is_worth_it && self.streams < self.max_streams {
            self.streams = self.streams.saturating_mul(2).min(self.max_streams);
            self.reason = format!("{now}: next {}", show::count(self.streams, "stream"));
            return;
        }
        self.finding = before.map(|before| {
            let (more, fewer) = (show::count(self.streams, "stream"), before.streams);
            match is_worth_it {
                true => format!(
                    "{more}, the most that are allowed, were faster than {fewer}: windows or losses limit each"
                ),
                false => format!("{more} were hardly faster than {fewer}: something else limits"),
            }
        });
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
            show::count(self.streams, "stream")
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
        self.reason = format!("{why}; trying {}", show::count(half, "stream"));
    }

    fn settle(&mut self, n: u32, why: &str) {
        let goodput = self.goodput_of(n).unwrap_or_default();
        if let Some((cause, before)) = self.cause {
            let failed_searches = match cause {
                ReprobeCause::Change => &mut self.failed_searches_after_change,
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
        self.reason = format!("{why}; settled at {}", show::count(n, "stream"));
    }

    /// Takes a chunk with the settled number of streams; `settled` is its average goodput, bytes per second.
    fn continue_settled(&mut self, chunk: &ChunkResult, goodput: f64, settled: f64) {
        self.settled_for = self.settled_for.saturating_add(chunk.time);
        self.settled_chunks = self.settled_chunks.saturating_add(1);
        let now = show::bits(whole_rate(goodput * 8.0));
        // The search has measured its shorter chunks, of which slow start and commands took a larger part.
        let is_first = self.settled_chunks == 1;
        let has_changed =
            goodput < FALLEN_SHARE * settled || (goodput > RISEN_SHARE * settled && !is_first);
        if has_changed && self.may_follow_change(self.settled_chunks) {
            self.follow_change(goodput, settled);
        } else if self.settled_for >= NEW_SEARCH_AFTER * (1 << self.failed_searches) {
            self.reprobe(
                ReprobeCause::Age,
                goodput,
                &format!("{now}, unchanged for long"),
            );
        } else {
            if self.settled_chunks > 1 << MAX_DOUBLINGS {
                self.failed_searches_after_change = 0;
            }
            let goodput = match is_first && goodput > settled {
                true => goodput,
                // A slow average keeps the reference when single chunks are slow.
                false => settled + (goodput - settled) / 4.0,
            };
            self.phase = ProbePhase::Settled { goodput };
            self.reason = format!("{now} with {}", show::count(self.streams, "stream"));
        }
    }

    /// Whether a change in settled chunk number `chunk` begins a search: each failed one doubles the number of chunks
    /// before the next.
    fn may_follow_change(&self, chunk: u32) -> bool {
        chunk >= 1 << self.failed_searches_after_change
    }

    /// Begins a new search, as goodput is no longer that of the settled number.
    fn follow_change(&mut self, goodput: f64, settled: f64) {
        let [now, was] = [goodput, settled].map(|rate| show::bits(whole_rate(rate * 8.0)));
        let way = if goodput < settled { "down" } else { "up" };
        self.reprobe(
            ReprobeCause::Change,
            goodput,
            &format!("{now}, {way} from {was}"),
        );
    }

    /// Begins a new search, as the markers of the running chunk show another rate.
    fn follow_rate(&mut self) {
        let (ProbePhase::Settled { goodput: settled }, Some(share)) = (self.phase, self.changed_to)
        else {
            return;
        };
        let (streams, bytes) = (self.streams, self.bytes);
        // A server may stop for a moment, or report any number of bytes.
        let goodput = settled * share.clamp(1.0 / GROWTH, GROWTH);
        self.follow_change(goodput, settled);
        self.bytes = self.next_size(streams, bytes, goodput);
    }

    /// Begins a new search from the present number of streams.
    fn reprobe(&mut self, cause: ReprobeCause, goodput: f64, why: &str) {
        self.cause = Some((cause, goodput));
        self.trials.clear();
        self.note(self.streams, goodput);
        if self.streams < self.max_streams {
            self.phase = ProbePhase::Climb;
            self.streams = self.streams.saturating_mul(2).min(self.max_streams);
            self.reason = format!("{why}: trying {}", show::count(self.streams, "stream"));
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

    /// Size of the next chunk, by the streams, the size and the goodput of the last one.
    fn next_size(&self, streams: u32, bytes: u64, goodput: f64) -> u64 {
        // Doubled streams bring between nothing and twice the goodput.
        let more = if self.streams > streams { 1.5 } else { 1.0 };
        let wanted = goodput * more * self.intended_time().as_secs_f64();
        whole_bytes(wanted.min(bytes as f64 * GROWTH))
    }
}

impl ChunkTuner for ProbeTuner {
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
        if self.ends_chunk() && last.is_none() {
            self.follow_rate();
        } else if let Some(chunk) = last {
            self.on_chunk(chunk);
        }
        self.changed_to = None;
        Chunk {
            streams: self.streams,
            bytes: self.bytes,
        }
    }

    fn on_rate(&mut self, rate: RelativeRate) {
        // The last rate that is clear, until another one shows that it is over: while a session waits for a command, or
        // is in slow start, little is known.
        if rate.at_most < FALLEN_SHARE {
            self.changed_to = Some(rate.at_most);
        } else if rate.at_least > RISEN_SHARE {
            self.changed_to = Some(rate.at_least);
        } else if self.changed_to.is_some_and(|share| match share < 1.0 {
            true => rate.at_least >= FALLEN_SHARE,
            false => rate.at_most <= RISEN_SHARE,
        }) {
            self.changed_to = None;
        }
    }

    fn ends_chunk(&self) -> bool {
        // The chunks of a search end soon.
        self.changed_to.is_some()
            && self.is_settled()
            && self.may_follow_change(self.settled_chunks.saturating_add(1))
    }

    fn reason(&self) -> String {
        self.reason.clone()
    }

    fn finding(&self) -> Option<String> {
        self.finding.clone()
    }

    fn is_settled(&self) -> bool {
        matches!(self.phase, ProbePhase::Settled { .. })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goodput by the number of streams, bytes per second.
    type GoodputCurve = fn(u32) -> f64;

    /// A path of 100 Mbit/s on which the window of each stream allows 1 Mbit/s.
    fn windows(n: u32) -> f64 {
        (f64::from(n) * 125e3).min(12.5e6)
    }

    /// A path that one stream fills.
    fn full(_: u32) -> f64 {
        12.5e6
    }

    /// A path on which each further stream lowers the goodput.
    fn crowded(n: u32) -> f64 {
        12.5e6 / (1.0 + 0.02 * f64::from(n))
    }

    /// Runs a probe on paths that may change.
    struct ProbeDrive {
        probe: ProbeTuner,
        last: Option<ChunkResult>,
        /// Number of streams of every chunk.
        numbers: Vec<u32>,
        seconds: f64,
    }

    impl ProbeDrive {
        fn new(first: u32, max_streams: u32) -> Self {
            Self {
                probe: ProbeTuner::new(first, max_streams, Duration::from_millis(50)),
                last: None,
                numbers: Vec::new(),
                seconds: 0.0,
            }
        }

        fn chunk(&mut self, path: GoodputCurve) {
            let chunk = self.probe.next(self.last.as_ref());
            self.numbers.push(chunk.streams);
            let seconds = chunk.bytes as f64 / path(chunk.streams);
            self.seconds += seconds;
            self.last = Some(ChunkResult {
                streams: chunk.streams,
                bytes: chunk.bytes,
                time: Duration::from_secs_f64(seconds),
                window: 0,
                rtt: Duration::ZERO,
            });
        }

        /// Transfers chunks for this time.
        fn run(&mut self, seconds: f64, path: GoodputCurve) -> &mut Self {
            let end = self.seconds + seconds;
            while self.seconds < end {
                self.chunk(path);
            }
            self
        }

        fn last_number(&self) -> u32 {
            *self.numbers.last().unwrap()
        }
    }

    #[test]
    fn streams_double_while_goodput_rises() {
        let mut drive = ProbeDrive::new(1, 256);
        drive.run(60.0, windows);
        // 64 streams reach 64 Mbit/s, 128 reach all 100, and 256 no more.
        assert_eq!(drive.last_number(), 128);
        assert!(drive.probe.is_settled());
        let mut distinct = drive.numbers.clone();
        distinct.dedup();
        assert_eq!(distinct, [1, 2, 4, 8, 16, 32, 64, 128, 256, 128]);
        let finding = drive.probe.finding().unwrap();
        assert!(
            finding.starts_with("256 streams were hardly faster than 128"),
            "{finding}"
        );
    }

    #[test]
    fn streams_without_effect_are_dropped() {
        for (path, expected) in [(full as GoodputCurve, 1), (crowded as GoodputCurve, 1)] {
            let mut drive = ProbeDrive::new(8, 64);
            drive.run(40.0, path);
            assert_eq!(drive.last_number(), expected, "{:?}", drive.numbers);
            assert!(drive.probe.is_settled());
        }
    }

    #[test]
    fn the_search_ends_at_the_largest_number() {
        let mut drive = ProbeDrive::new(4, 24);
        drive.run(40.0, windows);
        assert_eq!(drive.last_number(), 24);
        assert!(drive.probe.is_settled());
        assert!(drive.numbers.iter().all(|n| *n <= 24));
        let finding = drive.probe.finding().unwrap();
        assert!(
            finding.contains("were faster than 16: windows"),
            "{finding}"
        );
        // A single number shows nothing.
        let mut single = ProbeDrive::new(4, 4);
        single.run(10.0, windows);
        assert!(
            single
                .probe
                .finding()
                .is_none_or(|f| f.starts_with("4 streams were hardly"))
        );
    }

    #[test]
    fn chunks_are_short_during_the_search_and_longer_afterwards() {
        let mut drive = ProbeDrive::new(1, 64);
        let mut times = Vec::new();
        for _ in 0..10 {
            drive.chunk(full);
            times.push((
                drive.last.unwrap().time.as_secs_f64(),
                drive.probe.is_settled(),
            ));
        }
        assert!(times[..3].iter().all(|(time, _)| *time < 2.0), "{times:?}");
        let settled = times.iter().skip_while(|(_, settled)| !settled).skip(1);
        assert!(settled.clone().count() > 5);
        for (time, _) in settled {
            assert!((4.9..=10.0).contains(time), "{times:?}");
        }
        // Ten round trips on a long path.
        let long = ProbeTuner::new(1, 64, Duration::from_millis(300));
        assert_eq!(long.search_chunk_time, Duration::from_secs(3));
    }

    #[test]
    fn a_fall_of_goodput_begins_a_new_search() {
        let mut drive = ProbeDrive::new(2, 256);
        drive.run(50.0, full);
        assert_eq!(drive.last_number(), 1);
        drive.run(80.0, |n| (f64::from(n) * 2e6).min(12.5e6));
        assert_eq!(drive.last_number(), 8, "{:?}", drive.numbers);
        drive.run(200.0, full);
        assert_eq!(drive.last_number(), 1, "{:?}", drive.numbers);
    }

    #[test]
    fn a_rise_of_goodput_begins_a_new_search() {
        let slow = |n| (f64::from(n) * 2e6).min(6e6);
        let mut drive = ProbeDrive::new(2, 256);
        drive.run(60.0, slow);
        assert_eq!(drive.last_number(), 4, "{:?}", drive.numbers);
        drive.run(40.0, |n| (f64::from(n) * 4e6).min(48e6));
        assert_eq!(drive.last_number(), 16, "{:?}", drive.numbers);
    }

    #[test]
    fn a_change_within_a_chunk_begins_a_new_search_with_the_next_one() {
        let rate = |share| RelativeRate {
            at_least: share,
            at_most: share,
        };
        let settled = || {
            let mut drive = ProbeDrive::new(1, 64);
            drive.run(20.0, full);
            drive.probe
        };
        let changes = [0.5, 0.0, 2.0, 1e300];
        for share in changes.into_iter().chain([0.8, 1.2]) {
            let mut probe = settled();
            probe.on_rate(rate(share));
            let begins = changes.contains(&share);
            assert_eq!(probe.ends_chunk(), begins, "{share}");
            let chunk = probe.next(None);
            assert_eq!(chunk.streams, if begins { 2 } else { 1 });
            assert!(chunk.bytes > 100_000 && !probe.ends_chunk());
        }
        // Between wide bounds a change may go on; it is over when the rate is known to be as before.
        let mut probe = settled();
        probe.on_rate(rate(0.5));
        probe.on_rate(RelativeRate {
            at_least: 0.1,
            at_most: 1.0,
        });
        assert!(probe.ends_chunk());
        probe.on_rate(rate(0.9));
        assert!(!probe.ends_chunk());
        // A search without gain makes the next one wait, as it does for whole chunks.
        probe.on_rate(rate(0.5));
        let mut drive = ProbeDrive::new(1, 64);
        drive.probe = probe;
        while drive.numbers.is_empty() || !drive.probe.is_settled() {
            drive.chunk(|_| 6e6);
        }
        drive.probe.on_rate(rate(0.5));
        assert!(!drive.probe.ends_chunk());
    }

    #[test]
    fn searches_without_gain_become_rarer() {
        let mut drive = ProbeDrive::new(1, 64);
        drive.run(30.0, full);
        let count = |drive: &ProbeDrive| drive.numbers.iter().filter(|n| **n != 1).count();
        let first = count(&drive);
        drive.run(3600.0, full);
        let searches = count(&drive) - first;
        assert!((2..=8).contains(&searches), "{searches}");
        assert_eq!(drive.last_number(), 1);
    }

    #[test]
    fn searches_after_repeated_slow_chunks_become_rarer() {
        let mut drive = ProbeDrive::new(1, 64);
        drive.run(30.0, full);
        let mut searches = 0;
        for round in 0..400 {
            let was = drive.probe.is_settled();
            drive.chunk(if round % 2 == 0 { |_| 2e6 } else { full });
            searches += u32::from(was && !drive.probe.is_settled());
        }
        assert!(searches < 60, "{searches}");
    }

    #[test]
    fn slow_start_of_the_first_chunk_does_not_count_against_one_stream() {
        let mut drive = ProbeDrive::new(1, 64);
        // Slow start lowers the goodput of the first chunk.
        drive.chunk(|_| 9e6);
        drive.run(40.0, full);
        assert_eq!(drive.last_number(), 1, "{:?}", drive.numbers);
    }

    #[test]
    fn chunks_that_overlap_are_attributed_to_their_own_number() {
        // The next chunk is requested when the one before it has begun.
        let mut probe = ProbeTuner::new(1, 64, Duration::from_millis(50));
        let mut ended: Option<ChunkResult> = None;
        let mut running = probe.next(None);
        let mut numbers = Vec::new();
        for _ in 0..60 {
            let next = probe.next(ended.as_ref());
            let goodput = (f64::from(running.streams) * 2e6).min(12.5e6);
            ended = Some(ChunkResult {
                streams: running.streams,
                bytes: running.bytes,
                time: Duration::from_secs_f64(running.bytes as f64 / goodput),
                window: 0,
                rtt: Duration::ZERO,
            });
            numbers.push(running.streams);
            running = next;
        }
        assert_eq!(numbers.last(), Some(&8), "{numbers:?}");
        assert!(probe.is_settled());
    }

    #[test]
    fn numbers_of_streams_that_were_refused_are_not_requested_again() {
        let mut probe = ProbeTuner::new(1, 64, Duration::from_millis(50));
        let mut last = None;
        for _ in 0..40 {
            let chunk = probe.next(last.as_ref());
            let n = chunk.streams.min(5);
            last = Some(ChunkResult {
                streams: n,
                bytes: chunk.bytes,
                time: Duration::from_secs_f64(chunk.bytes as f64 / windows(n)),
                window: 0,
                rtt: Duration::ZERO,
            });
        }
        assert_eq!(
            (probe.next(last.as_ref()).streams, probe.max_streams),
            (5, 5)
        );
        assert!(probe.is_settled());
    }

    #[test]
    fn the_first_chunk_is_small() {
        let bytes = |first, ms| {
            ProbeTuner::new(first, 64, Duration::from_millis(ms))
                .next(None)
                .bytes
        };
        assert_eq!(bytes(1, 0), 8 << 20);
        assert_eq!(bytes(1, 10), 8 << 20);
        assert_eq!(bytes(1, 100), 2_621_440);
        assert_eq!(bytes(1, 60_000), 1 << 20);
    }

    proptest! {
        #[test]
        fn the_probe_settles_at_no_more_streams_than_needed(
            enough in 1_u32..100, first in 1_u32..64, each in 1e5..1e8_f64, noise in 0.0..0.02_f64,
        ) {
            let mut probe = ProbeTuner::new(first, 256, Duration::from_millis(50));
            let mut last = None;
            for round in 0..60_u32 {
                let chunk = probe.next(last.as_ref());
                let luck = 1.0 + noise * f64::from(round * 7 % 5) / 2.0 - noise;
                let goodput = each * f64::from(chunk.streams.min(enough)) * luck;
                last = Some(ChunkResult {
                    streams: chunk.streams,
                    bytes: chunk.bytes,
                    time: Duration::from_secs_f64(chunk.bytes as f64 / goodput),
                    window: 0,
                    rtt: Duration::ZERO,
                });
                if round > 30 && probe.is_settled() {
                    // A quarter fewer streams lose more than a few per cent; half as many are too few.
                    let n = f64::from(probe.streams.min(enough)) / f64::from(enough);
                    prop_assert!(n > 0.83, "{} of {enough}", probe.streams);
                    prop_assert!(probe.streams < enough * 2 + 1, "{} of {enough}", probe.streams);
                }
            }
        }
    }

    #[test]
    fn the_number_never_falls_below_its_minimum() {
        let mut probe = ProbeTuner::new(1, 64, Duration::from_millis(50)).with_min_streams(2);
        let mut last = None;
        for _ in 0..50 {
            let chunk = probe.next(last.as_ref());
            assert!(chunk.streams >= 2, "{}", probe.reason());
            // One stream fills this path.
            last = Some(ChunkResult {
                streams: chunk.streams,
                bytes: chunk.bytes,
                time: Duration::from_secs_f64(chunk.bytes as f64 / 12.5e6),
                window: 0,
                rtt: Duration::from_millis(50),
            });
        }
        assert!(probe.is_settled());
        assert_eq!(probe.next(last.as_ref()).streams, 2);
    }
}
