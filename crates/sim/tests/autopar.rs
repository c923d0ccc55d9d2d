//! The modes of Ito, Ohsaki and Imase (2008) on the simulated network of their section 4: the final
//! number of streams, the time to settle and the goodput, and the effect of points that the paper
//! leaves open.

use std::time::Duration;

use link::{Conditions, Queue};
use sim::chunked::{ChunkedOutcome, ChunkedSpec};
use sim::tcp::{CongestionAlgorithm, TcpConfig};
use sim::world::{AccessLink, FlowSpec, Scenario};
use tune::streams::chunked::{
    self, ChunkParameters, ChunkTuner, ChunkTuningMode, Optimum, RttCommands,
};
use units::Rate;

/// B = 100 Mbit/s, τ = 10 ms, a drop-tail queue of 1 000 packets, and access links of 1 ms.
fn network(seed: u64) -> Scenario {
    let direction = Conditions {
        rate: Some(Rate::bits_per_second(100_000_000)),
        delay: Duration::from_millis(10),
        ..Conditions::default()
    };
    Scenario {
        forward: Conditions {
            queue: Queue::Packets(1000),
            ..direction.clone()
        },
        reverse: direction,
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        seed,
    }
}

/// W = 64 KB, and TCP as in ns-2.
fn transfer(bytes: u64, parameters: &ChunkParameters) -> ChunkedSpec {
    let access = AccessLink {
        rate: Some(Rate::bits_per_second(1_000_000_000)),
        delay: Duration::from_millis(1),
        shared: false,
    };
    ChunkedSpec {
        bytes,
        block: 16 << 10,
        stream: FlowSpec {
            tcp: TcpConfig {
                congestion: CongestionAlgorithm::NewReno,
                initial_window: 2,
                receive_buffer: 64 << 10,
                not_sent_lowat: 1460,
                ..TcpConfig::default()
            },
            sender_access: access,
            receiver_access: access,
            jitter: Duration::from_micros(120),
            ..FlowSpec::default()
        },
        round_trips: parameters.rtt_commands,
        tick: Duration::from_millis(100),
        rho: parameters.rho,
        deadline: Duration::from_secs(3600),
    }
}

fn run(
    mode: ChunkTuningMode,
    seed: u64,
    megabytes: u64,
    parameters: ChunkParameters,
) -> ChunkedOutcome {
    let outcome = transfer(megabytes * 1_000_000, &parameters).run(&network(seed), |start| {
        chunked::mode_tuner(mode, parameters, start.window, start.rtt)
    });
    assert!(outcome.complete);
    outcome
}

/// The number of streams N of each chunk.
fn numbers(outcome: &ChunkedOutcome) -> Vec<u32> {
    outcome.chunks.iter().map(|part| part.streams).collect()
}

/// Time at which the mode had settled, seconds.
fn settled(outcome: &ChunkedOutcome) -> f64 {
    let searching = outcome.chunks.iter().take_while(|part| !part.settled);
    searching
        .map(|part| part.at.as_secs_f64())
        .fold(0.0, f64::max)
}

#[test]
fn mi_settles_as_in_the_paper() {
    for seed in [1, 2] {
        let outcome = run(ChunkTuningMode::Mi, seed, 900, ChunkParameters::default());
        let numbers = numbers(&outcome);
        assert_eq!(numbers[..7], [1, 2, 4, 8, 16, 32, 32], "seed {seed}");
        assert!(
            (65.0..75.0).contains(&settled(&outcome)),
            "{}",
            settled(&outcome)
        );
        let end = outcome.full_chunks().last().unwrap();
        assert!((96.0..98.0).contains(&(end.goodput() / 1e6)), "{end:?}");
    }
}

#[test]
fn mi_plus_settles_as_in_the_paper() {
    for seed in [1, 2] {
        let outcome = run(
            ChunkTuningMode::MiPlus,
            seed,
            900,
            ChunkParameters::default(),
        );
        let end = outcome.full_chunks().last().unwrap();
        assert!((24..=26).contains(&end.streams), "seed {seed}: {end:?}");
        assert!(
            (65.0..75.0).contains(&settled(&outcome)),
            "{}",
            settled(&outcome)
        );
        assert!((96.0..98.0).contains(&(end.goodput() / 1e6)), "{end:?}");
    }
}

#[test]
fn aimd_increases_slowly_and_halves() {
    let outcome = run(ChunkTuningMode::Aimd, 1, 2500, ChunkParameters::default());
    let numbers = numbers(&outcome);
    let up: Vec<u32> = (1..=25).step_by(2).collect();
    assert_eq!(numbers[..up.len()], up);
    let falls: Vec<_> = numbers
        .windows(2)
        .filter(|pair| pair[1] < pair[0])
        .collect();
    assert!(!falls.is_empty());
    assert!(
        falls
            .iter()
            .all(|pair| pair[1] == pair[0] / 2 && pair[0] > 25),
        "{falls:?}"
    );
}

/// Commands that are sent only between chunks measure an idle path: R does not grow, and the modes
/// stop early.
#[test]
fn round_trips_between_chunks_stop_the_modes_early() {
    let between = ChunkParameters {
        rtt_commands: RttCommands::BetweenChunks,
        ..ChunkParameters::default()
    };
    let mi = run(ChunkTuningMode::Mi, 1, 700, between);
    let end = mi.full_chunks().last().unwrap();
    assert_eq!(end.streams, 8);
    assert!((96.0..98.0).contains(&(end.goodput() / 1e6)), "{end:?}");
    let plus = run(ChunkTuningMode::MiPlus, 1, 700, between);
    assert_eq!(plus.full_chunks().last().unwrap().streams, 5);
}

/// The same with the replies to the session's own commands alone, which come while no data flows.
#[test]
fn a_passive_measurement_stops_the_modes_as_early() {
    let replies = ChunkParameters {
        rtt_commands: RttCommands::OwnReplies,
        ..ChunkParameters::default()
    };
    let mi = run(ChunkTuningMode::Mi, 1, 700, replies);
    let end = mi.full_chunks().last().unwrap();
    assert_eq!(end.streams, 8);
    assert!(end.rtt < Duration::from_millis(25), "{end:?}");
    // A chunk that keeps its number has no command of its own.
    let aimd = run(ChunkTuningMode::Aimd, 1, 700, replies);
    let rtts = aimd.chunks.iter().map(|part| part.rtt);
    assert!(rtts.max().unwrap() < Duration::from_millis(25));
}

/// The second term of equation (1) alone has its maximum at one stream, with 21 Mbit/s.
#[test]
fn the_literal_reading_of_mi_plus_settles_on_one_stream() {
    let literal = ChunkParameters {
        optimum: Optimum::SecondTerm,
        ..ChunkParameters::default()
    };
    let outcome = run(ChunkTuningMode::MiPlus, 1, 1000, literal);
    let end = outcome.full_chunks().last().unwrap();
    assert_eq!(end.streams, 1);
    assert!(end.goodput() < 22e6);
}

/// Figure 7: the goodput hardly depends on η, but N does.
#[test]
fn eta_determines_the_number_of_streams_but_not_the_goodput() {
    let final_chunk = |eta: f64| {
        let parameters = ChunkParameters {
            eta,
            ..ChunkParameters::default()
        };
        let outcome = run(ChunkTuningMode::Mi, 1, 1200, parameters);
        let end = outcome.full_chunks().last().cloned().unwrap();
        (end.streams, end.goodput())
    };
    let (low, high) = (final_chunk(0.6), final_chunk(0.95));
    assert!(low.0 > high.0, "{low:?} {high:?}");
    assert!((low.1 / high.1 - 1.0).abs() < 0.01, "{low:?} {high:?}");
}

/// The mode of `auto` that can measure only chunks: as much goodput as MI, with a shorter queue.
#[test]
fn the_probe_needs_less_than_a_quarter_of_the_queue() {
    let parameters = ChunkParameters::default();
    let probe = |start: sim::chunked::InitialPath| -> Box<dyn ChunkTuner> {
        chunked::probe_tuner(1, 64, start.rtt)
    };
    let outcome = transfer(900_000_000, &parameters).run(&network(1), probe);
    let mi = run(ChunkTuningMode::Mi, 1, 900, ChunkParameters::default());
    let mi_end = mi.full_chunks().last().unwrap();
    let end = outcome.chunks.iter().rfind(|part| part.settled).unwrap();
    assert!(end.streams <= 8, "{end:?}");
    assert!(
        end.goodput() > 0.985 * mi_end.goodput(),
        "{end:?} {mi_end:?}"
    );
    assert!(end.wait < mi_end.wait / 4, "{end:?} {mi_end:?}");
    assert!(
        outcome.goodput > mi.goodput,
        "{} {}",
        outcome.goodput,
        mi.goodput
    );
}
