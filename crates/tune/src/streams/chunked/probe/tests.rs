use proptest::prelude::*;

use super::*;

/// Goodput over the number of streams, bytes per second.
type GoodputCurve = fn(u32) -> f64;

/// 100 Mbit/s that windows of 1 Mbit/s each have to fill.
fn windows(n: u32) -> f64 {
    (f64::from(n) * 125e3).min(12.5e6)
}

/// One stream is enough.
fn full(_: u32) -> f64 {
    12.5e6
}

/// Each stream more takes some of the goodput away.
fn crowded(n: u32) -> f64 {
    12.5e6 / (1.0 + 0.02 * f64::from(n))
}

/// Drives a probe over paths that may change.
struct ProbeDrive {
    probe: ProbeTuner,
    last: Option<ChunkResult>,
    /// Streams of every chunk.
    numbers: Vec<u32>,
    seconds: f64,
}

impl ProbeDrive {
    fn new(first: u32, most: u32) -> Self {
        Self {
            probe: ProbeTuner::new(first, most, Duration::from_millis(50)),
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

    /// So many seconds.
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
fn doubles_while_it_is_worth_it() {
    let mut drive = ProbeDrive::new(1, 256);
    drive.run(60.0, windows);
    // 64 bring 64 Mbit/s and 128 all 100; 256 bring no more.
    assert_eq!(drive.last_number(), 128);
    assert!(drive.probe.is_settled());
    let mut distinct = drive.numbers.clone();
    distinct.dedup();
    assert_eq!(distinct, [1, 2, 4, 8, 16, 32, 64, 128, 256, 128]);
}

#[test]
fn gives_back_what_is_not_needed() {
    for (path, expected) in [(full as GoodputCurve, 1), (crowded as GoodputCurve, 1)] {
        let mut drive = ProbeDrive::new(8, 64);
        drive.run(40.0, path);
        assert_eq!(drive.last_number(), expected, "{:?}", drive.numbers);
        assert!(drive.probe.is_settled());
    }
}

#[test]
fn ends_at_the_most() {
    let mut drive = ProbeDrive::new(4, 24);
    drive.run(40.0, windows);
    assert_eq!(drive.last_number(), 24);
    assert!(drive.probe.is_settled());
    assert!(drive.numbers.iter().all(|n| *n <= 24));
}

#[test]
fn short_chunks_to_search_and_longer_ones_then() {
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
    // Ten round trips of a long path.
    let long = ProbeTuner::new(1, 64, Duration::from_millis(300));
    assert_eq!(long.short, Duration::from_secs(3));
}

#[test]
fn a_path_that_loses_its_goodput_is_looked_at_again() {
    let mut drive = ProbeDrive::new(2, 256);
    drive.run(50.0, full);
    assert_eq!(drive.last_number(), 1);
    drive.run(80.0, |n| (f64::from(n) * 2e6).min(12.5e6));
    assert_eq!(drive.last_number(), 8, "{:?}", drive.numbers);
    drive.run(200.0, full);
    assert_eq!(drive.last_number(), 1, "{:?}", drive.numbers);
}

#[test]
fn it_is_looked_at_less_and_less_often() {
    let mut drive = ProbeDrive::new(1, 64);
    drive.run(30.0, full);
    let count = |drive: &ProbeDrive| drive.numbers.iter().filter(|n| **n != 1).count();
    let first = count(&drive);
    drive.run(3600.0, full);
    let looks = count(&drive) - first;
    assert!((2..=8).contains(&looks), "{looks}");
    assert_eq!(drive.last_number(), 1);
}

#[test]
fn one_slow_chunk_after_another_does_not_shake_it_for_ever() {
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
fn a_cold_start_does_not_count_against_one_stream() {
    let mut drive = ProbeDrive::new(1, 64);
    // The first chunk is held back by slow start.
    drive.chunk(|_| 9e6);
    drive.run(40.0, full);
    assert_eq!(drive.last_number(), 1, "{:?}", drive.numbers);
}

#[test]
fn chunks_may_overlap() {
    // The next chunk is asked for when the one before it has begun.
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
fn streams_that_cannot_be_had_are_ruled_out() {
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
    assert_eq!((probe.next(last.as_ref()).streams, probe.most), (5, 5));
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
    fn settles_at_no_more_than_is_needed(
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
                // Fewer would lose more than a few percent; half as many would be too few.
                let n = f64::from(probe.streams.min(enough)) / f64::from(enough);
                prop_assert!(n > 0.83, "{} of {enough}", probe.streams);
                prop_assert!(probe.streams < enough * 2 + 1, "{} of {enough}", probe.streams);
            }
        }
    }
}

#[test]
fn never_fewer_than_the_least() {
    let mut probe = ProbeTuner::new(1, 64, Duration::from_millis(50)).with_min_streams(2);
    let mut last = None;
    for _ in 0..50 {
        let chunk = probe.next(last.as_ref());
        assert!(chunk.streams >= 2, "{}", probe.reason());
        // A path that one stream fills.
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
