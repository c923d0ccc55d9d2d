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
