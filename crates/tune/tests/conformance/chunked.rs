//! Tuners that measure chunks: MI, MI+, AIMD, and the probe of `auto`.

use std::time::Duration;

use proptest::prelude::*;
use tune::streams::chunked::{
    Chunk, ChunkParameters, ChunkResult, ChunkTuner, ChunkTuningMode, Optimum, RelativeRate,
    RttCommands, mode_tuner, probe_tuner,
};

/// A tuner under test.
#[derive(Debug, Clone, Copy)]
enum ChunkPolicy {
    Mode(ChunkTuningMode),
    Probe,
}

const ALL: [ChunkPolicy; 4] = [
    ChunkPolicy::Mode(ChunkTuningMode::Mi),
    ChunkPolicy::Mode(ChunkTuningMode::MiPlus),
    ChunkPolicy::Mode(ChunkTuningMode::Aimd),
    ChunkPolicy::Probe,
];

impl ChunkPolicy {
    fn start(self, parameters: ChunkParameters, window: u64, rtt: Duration) -> Box<dyn ChunkTuner> {
        match self {
            Self::Mode(mode) => mode_tuner(mode, parameters, window, rtt),
            Self::Probe => probe_tuner(parameters.initial_streams, parameters.max_streams, rtt),
        }
    }
}

#[track_caller]
fn is_sound(chunk: Chunk, most: u32, tuner: &dyn ChunkTuner) {
    let most = most.max(1);
    assert!((1..=most).contains(&chunk.streams), "{chunk:?} of {most}");
    // The chunk is not empty, and not larger than any file.
    assert!((1..=1 << 40).contains(&chunk.bytes), "{chunk:?}");
    assert!(!tuner.reason().is_empty());
}

fn any_time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(Duration::MAX),
        any::<u64>().prop_map(Duration::from_nanos),
        (1_u64..100_000).prop_map(Duration::from_millis),
    ]
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 1_u64..1 << 32]
}

prop_compose! {
    fn any_chunk()(
        streams in prop_oneof![Just(0_u32), Just(u32::MAX), 1_u32..300],
        bytes in any_bytes(), time in any_time(), window in any_bytes(), rtt in any_time(),
    ) -> ChunkResult {
        ChunkResult { streams, bytes, time, window, rtt }
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(f64::NAN),
        Just(f64::INFINITY),
        0.0..3.0_f64
    ]
}

prop_compose! {
    fn any_parameters()(
        initial_streams: u32, max_streams: u32, delta in any_time(), between: bool, second: bool,
        eta in any_number(), gamma in any_number(), alpha in any_number(), beta in any_number(),
        rho in any_number(),
    ) -> ChunkParameters {
        let rtt_commands = if between { RttCommands::BetweenChunks } else { RttCommands::DuringChunks };
        let optimum = if second { Optimum::SecondTerm } else { Optimum::BothTerms };
        ChunkParameters { initial_streams, eta, gamma, alpha, beta, delta, rho, max_streams, rtt_commands, optimum }
    }
}

/// A path with a queue.
#[derive(Debug, Clone, Copy)]
struct QueuedPath {
    /// Bytes per second.
    bandwidth: f64,
    /// Window of each stream, bytes.
    window: f64,
    rtt: f64,
    /// Capacity of the queue, bytes.
    queue: f64,
}

impl QueuedPath {
    fn transfer(&self, chunk: Chunk) -> ChunkResult {
        let windows = f64::from(chunk.streams) * self.window;
        let full = (self.bandwidth * self.rtt + self.queue).min(windows);
        let rtt = (full / self.bandwidth).max(self.rtt);
        let goodput = (windows / rtt).min(self.bandwidth);
        ChunkResult {
            streams: chunk.streams,
            bytes: chunk.bytes,
            time: Duration::from_secs_f64(chunk.bytes as f64 / goodput + self.rtt),
            window: self.window as u64,
            rtt: Duration::from_secs_f64(rtt),
        }
    }
}

prop_compose! {
    fn any_path()(
        bandwidth in 1e5..1.25e9_f64, window in 8e3..8e6_f64, rtt in 0.0005..0.3_f64,
        queue in 1e4..1e7_f64,
    ) -> QueuedPath {
        QueuedPath { bandwidth, window, rtt, queue }
    }
}

/// Runs a tuner for `rounds` chunks; returns the measurements of all chunks.
fn drive(
    tuner: &mut dyn ChunkTuner,
    most: u32,
    rounds: usize,
    mut path: impl FnMut(usize, Chunk) -> ChunkResult,
) -> Vec<ChunkResult> {
    let mut done: Vec<ChunkResult> = Vec::new();
    for round in 0..rounds {
        let chunk = tuner.next(done.last());
        is_sound(chunk, most, tuner);
        done.push(path(round, chunk));
    }
    done
}

fn changes(done: &[ChunkResult]) -> usize {
    done.windows(2)
        .filter(|pair| pair[0].streams != pair[1].streams)
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_measurements_are_survived(
        parameters in any_parameters(), window in any_bytes(), rtt in any_time(),
        chunks in prop::collection::vec(prop::option::of(any_chunk()), 0..60),
        at_least in 0.0..1e300_f64, at_most in 0.0..1e300_f64,
    ) {
        for policy in ALL {
            let mut tuner = policy.start(parameters, window, rtt);
            for chunk in &chunks {
                is_sound(tuner.next(chunk.as_ref()), parameters.max_streams, tuner.as_ref());
                tuner.on_rate(RelativeRate { at_least, at_most });
                let _ = tuner.ends_chunk();
            }
        }
    }

    #[test]
    fn stale_and_repeated_measurements_are_survived(
        path in any_path(), most in 1_u32..300, order in prop::collection::vec(0_usize..8, 1..60),
    ) {
        for policy in ALL {
            let parameters = ChunkParameters { max_streams: most, ..ChunkParameters::default() };
            let mut tuner = policy.start(parameters, path.window as u64, Duration::from_millis(20));
            let mut done = vec![path.transfer(tuner.next(None))];
            for back in &order {
                // One of the last eight chunks, repeated and in any order.
                let place = done.len().saturating_sub(1 + back);
                let chunk = tuner.next(done.get(place));
                is_sound(chunk, most, tuner.as_ref());
                done.push(path.transfer(chunk));
            }
        }
    }

    #[test]
    fn a_mode_that_has_settled_stays_unchanged(
        path in any_path(), gamma in 1.2..4.0_f64, eta in 0.1..1.0_f64, most in 1_u32..300,
    ) {
        for mode in [ChunkTuningMode::Mi, ChunkTuningMode::MiPlus] {
            let parameters = ChunkParameters { gamma, eta, max_streams: most, ..ChunkParameters::default() };
            let rtt = Duration::from_secs_f64(path.rtt);
            let mut tuner = mode_tuner(mode, parameters, path.window as u64, rtt);
            // Enough chunks for the slowest growth from 1 to 300 streams.
            let search = drive(tuner.as_mut(), most, 60, |_, chunk| path.transfer(chunk));
            prop_assert!(tuner.is_settled(), "{mode:?} {:?}", search.last());
            let after = drive(tuner.as_mut(), most, 20, |_, chunk| path.transfer(chunk));
            prop_assert_eq!(changes(&after), 0);
        }
    }

    #[test]
    fn aimd_only_adds_two_or_halves(path in any_path()) {
        let parameters = ChunkParameters { max_streams: 64, ..ChunkParameters::default() };
        let rtt = Duration::from_secs_f64(path.rtt);
        let mut tuner = mode_tuner(ChunkTuningMode::Aimd, parameters, path.window as u64, rtt);
        let done = drive(tuner.as_mut(), 64, 300, |_, chunk| path.transfer(chunk));
        for pair in done.windows(2) {
            let (from, to) = (pair[0].streams, pair[1].streams);
            let legal = to == (from + 2).min(64) || to == (from / 2).max(1);
            prop_assert!(legal, "{from} to {to}");
        }
    }

    #[test]
    fn changes_of_the_probe_become_rare_on_a_stable_path(
        path in any_path(), first in 1_u32..64, noise in 0.0..0.03_f64,
    ) {
        let most = 256;
        let mut tuner = probe_tuner(first, most, Duration::from_secs_f64(path.rtt));
        let done = drive(tuner.as_mut(), most, 900, |round, chunk| {
            let exact = path.transfer(chunk);
            let luck = 1.0 + noise * (f64::from((round * 7 % 5) as u32) / 2.0 - 1.0);
            ChunkResult { time: exact.time.mul_f64(luck), ..exact }
        });
        let (early, late) = (&done[..300], &done[600..]);
        prop_assert!(changes(early) <= 60, "{}", changes(early));
        prop_assert!(changes(late) <= 20, "{}", changes(late));
    }

    #[test]
    fn chunks_last_long_enough_to_be_worth_their_round_trip(path in any_path()) {
        for policy in ALL {
            let rtt = Duration::from_secs_f64(path.rtt);
            let mut tuner = policy.start(ChunkParameters::default(), path.window as u64, rtt);
            let done = drive(tuner.as_mut(), 256, 200, |_, chunk| path.transfer(chunk));
            let time: Duration = done.iter().map(|chunk| chunk.time).sum();
            // Each chunk costs a round trip.
            prop_assert!(time > Duration::from_millis(500) * 180, "{policy:?}: {time:?}");
        }
    }

    #[test]
    fn streams_that_were_refused_are_not_requested_again(path in any_path(), open in 1_u32..20) {
        for policy in ALL {
            let rtt = Duration::from_secs_f64(path.rtt);
            let mut tuner = policy.start(ChunkParameters::default(), path.window as u64, rtt);
            let mut last = None;
            let mut refused = 0;
            for _ in 0..200 {
                let mut chunk = tuner.next(last.as_ref());
                refused += u32::from(chunk.streams > open);
                chunk.streams = chunk.streams.min(open);
                last = Some(path.transfer(chunk));
            }
            prop_assert!(refused <= 4, "{policy:?}: {refused} refusals");
        }
    }

    #[test]
    fn a_number_that_cannot_be_reduced_is_accepted(path in any_path(), open in 2_u32..20) {
        let mut tuner = probe_tuner(1, 256, Duration::from_secs_f64(path.rtt));
        let mut last = None;
        for _ in 0..100 {
            let mut chunk = tuner.next(last.as_ref());
            chunk.streams = chunk.streams.max(open);
            last = Some(path.transfer(chunk));
        }
        let asked: Vec<u32> = (0..10)
            .map(|_| {
                let mut chunk = tuner.next(last.as_ref());
                let asked = chunk.streams;
                chunk.streams = asked.max(open);
                last = Some(path.transfer(chunk));
                asked
            })
            .collect();
        prop_assert!(asked.iter().filter(|n| **n < open).count() <= 3, "{asked:?} of {open}");
    }
}
