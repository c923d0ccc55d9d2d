use tune::streams::chunked::{self, Chunk, ChunkParameters, ChunkResult, ChunkTuningMode};
use units::Rate;

use super::*;
use crate::tcp::{CongestionAlgorithm, TcpConfig};
use crate::world::AccessLink;
use link::{Conditions, Queue};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The network of the paper (section 4) as in its ns-2 simulation.
fn network() -> Scenario {
    let direction = Conditions {
        rate: Some(Rate::bits_per_second(100_000_000)),
        delay: ms(10),
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
        seed: 1,
    }
}

fn transfer(bytes: u64) -> ChunkedSpec {
    let access = AccessLink {
        rate: Some(Rate::bits_per_second(1_000_000_000)),
        delay: ms(1),
        shared: false,
    };
    ChunkedSpec {
        bytes,
        block: 64 << 10,
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
        round_trips: RttCommands::DuringChunks,
        tick: ms(100),
        rho: 0.1,
        deadline: Duration::from_secs(3600),
    }
}

/// A tuner that always returns the same number of streams and chunk size.
struct FixedTuner(Chunk);

impl ChunkTuner for FixedTuner {
    fn next(&mut self, _: Option<&ChunkResult>) -> Chunk {
        self.0
    }

    fn reason(&self) -> String {
        "always".to_owned()
    }

    fn is_settled(&self) -> bool {
        true
    }
}

fn fixed_tuner(streams: u32, bytes: u64) -> impl FnOnce(InitialPath) -> Box<dyn ChunkTuner> {
    move |_| Box::new(FixedTuner(Chunk { streams, bytes }))
}

#[test]
fn a_chunk_costs_a_round_trip_more_than_its_bytes() {
    let outcome = transfer(3_000_000).run(&network(), fixed_tuner(1, 1_000_000));
    assert!(outcome.complete);
    assert_eq!(outcome.bytes, 3_000_000);
    let sizes: Vec<u64> = outcome.chunks.iter().map(|p| p.bytes).collect();
    assert_eq!(sizes, [1_000_000; 3]);
    // To the server and back, 15 whole windows of 44 segments a round trip of 24.15 ms each, and the
    // 24 segments that are left.
    let third = outcome.chunks[2].time.as_secs_f64();
    let expected = 0.024 + 15.0 * 0.024_15 + 24.0 * 0.000_12;
    assert!((third - expected).abs() < 0.002, "{third} {expected}");
    // Slow start happens only once, because the connections are kept.
    assert!(outcome.chunks[0].time > outcome.chunks[1].time + ms(50));
    assert!(outcome.chunks[2].time.abs_diff(outcome.chunks[1].time) < ms(2));
    let sum: Duration = outcome.chunks.iter().map(|p| p.time).sum();
    assert_eq!(sum, outcome.elapsed);
}

#[test]
fn the_tuner_gets_the_window_and_the_rtt() {
    let mut initial = None;
    transfer(1).run(&network(), |start| {
        initial = Some(start);
        fixed_tuner(1, 1)(start)
    });
    let start = initial.unwrap();
    assert_eq!(start.window, 64 << 10);
    assert!((ms(24)..ms(25)).contains(&start.rtt), "{start:?}");
}

#[test]
fn rtt_samples_include_the_queue_only_while_data_flows() {
    let rtt = |round_trips| {
        let chunked = ChunkedSpec {
            round_trips,
            ..transfer(30_000_000)
        };
        let outcome = chunked.run(&network(), fixed_tuner(16, 15_000_000));
        outcome.chunks[1].rtt
    };
    // 16 windows of 44 packets of 0.12 ms.
    let flowing = rtt(RttCommands::DuringChunks).as_secs_f64();
    assert!((flowing - 0.0845).abs() < 0.008, "{flowing}");
    let between = rtt(RttCommands::BetweenChunks).as_secs_f64();
    assert!((between - 0.0241).abs() < 0.001, "{between}");
}

#[test]
fn the_tuner_can_change_the_number_of_streams() {
    struct ScriptedTuner(u32);
    impl ChunkTuner for ScriptedTuner {
        fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
            self.0 = [1, 4, 2][last.map_or(0, |l| match l.streams {
                1 => 1,
                _ => 2,
            })];
            Chunk {
                streams: self.0,
                bytes: 2_000_000,
            }
        }
        fn reason(&self) -> String {
            self.0.to_string()
        }
        fn is_settled(&self) -> bool {
            false
        }
    }
    let outcome = transfer(10_000_000).run(&network(), |_| Box::new(ScriptedTuner(1)));
    let streams: Vec<u32> = outcome.chunks.iter().map(|p| p.streams).collect();
    assert_eq!(streams, [1, 4, 2, 2, 2]);
    assert_eq!(outcome.flows.len(), 4);
    let delivered: u64 = outcome.flows.iter().map(|f| f.delivered_bytes).sum();
    assert_eq!(delivered, 10_000_000);
    assert_eq!(outcome.chunks[1].reason, "4");
    assert!(outcome.chunks[2].goodput() > 1.5 * outcome.chunks[0].goodput());
}

#[test]
fn mi_fills_the_path() {
    let outcome = transfer(300_000_000).run(&network(), |start| {
        let parameters = ChunkParameters {
            delta: Duration::from_secs(2),
            ..ChunkParameters::default()
        };
        chunked::mode_tuner(ChunkTuningMode::Mi, parameters, start.window, start.rtt)
    });
    assert!(outcome.complete);
    let end = outcome.full_chunks().last().unwrap();
    assert!(end.settled && end.streams >= 16, "{end:?}");
    assert!(end.goodput() > 93e6, "{end:?}");
    // The cost that the paper reports: a standing queue.
    assert!(end.wait > ms(50), "{end:?}");
}

#[test]
fn an_unfinished_transfer_ends_at_the_deadline() {
    let late = ChunkedSpec {
        deadline: Duration::from_secs(5),
        ..transfer(1 << 40)
    };
    let outcome = late.run(&network(), fixed_tuner(4, 20_000_000));
    assert!(!outcome.complete);
    assert!((Duration::from_secs(4)..=Duration::from_secs(5)).contains(&outcome.elapsed));
    assert_eq!(outcome.full_chunks().len(), outcome.chunks.len());
}

#[test]
fn an_empty_file_is_complete_at_once() {
    let outcome = transfer(0).run(&network(), fixed_tuner(1, 1));
    assert!(outcome.complete && outcome.chunks.is_empty());
    assert_eq!(outcome.goodput, 0.0);
}
