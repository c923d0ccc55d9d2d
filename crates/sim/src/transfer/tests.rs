use std::time::Duration;

use tune::limiter::Limiter;
use units::Rate;

use super::*;
use crate::tcp::TcpConfig;
use crate::world::TrafficSource;
use link::{Conditions, Loss, Queue};

const MSS: u64 = 1460;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn mbit(n: u64) -> Rate {
    Rate::bits_per_second(n * 1_000_000)
}

/// A path of `rate` with an RTT of `rtt` milliseconds and a queue of one bandwidth-delay product.
fn path(rate: Rate, rtt: u64) -> Scenario {
    let direction = Conditions {
        rate: Some(rate),
        delay: ms(rtt) / 2,
        queue: Queue::Bytes(rate.bytes_in(ms(rtt)).max(30_000)),
        ..Conditions::default()
    };
    Scenario {
        forward: direction.clone(),
        reverse: direction,
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        seed: 1,
    }
}

fn transfer(bytes: u64) -> SimTransfer {
    SimTransfer {
        bytes,
        block: 1 << 18,
        streams: InitialStreams::Automatic,
        stream: FlowSpec {
            tcp: TcpConfig {
                handshake: true,
                send_buffer: 4 << 20,
                receive_buffer: 4 << 20,
                ..TcpConfig::default()
            },
            ..FlowSpec::default()
        },
        tick: ms(100),
        deadline: Duration::from_secs(600),
    }
}

fn keep_settings(_: &SimTransferSample) -> Option<SimSettings> {
    None
}

#[test]
fn a_short_path_gets_four_streams_and_a_long_one_sixteen() {
    let short = transfer(20_000_000).run(&path(mbit(100), 2), keep_settings);
    assert_eq!((short.complete, short.streams_max), (true, 4));
    let long = transfer(20_000_000).run(&path(mbit(100), 50), keep_settings);
    assert_eq!((long.complete, long.streams_max), (true, 16));
    let rtt = long.control_rtt.unwrap();
    assert!(rtt >= ms(50) && rtt < ms(51), "{rtt:?}");
    let tiny = transfer((1 << 18) + 1).run(&path(mbit(100), 50), keep_settings);
    assert_eq!((tiny.streams_max, tiny.bytes), (2, (1 << 18) + 1));
}

#[test]
fn elapsed_time_begins_with_the_first_stream() {
    let outcome = transfer(MSS).run(&path(mbit(100), 100), keep_settings);
    // A handshake and half a round trip.
    let sending = outcome.elapsed.checked_sub(ms(150)).unwrap();
    assert!(sending < ms(1), "{sending:?}");
    assert!((outcome.goodput - MSS as f64 * 8.0 / outcome.elapsed.as_secs_f64()).abs() < 1.0);
}

#[test]
fn an_empty_file_is_complete_at_once() {
    let outcome = transfer(0).run(&path(mbit(100), 100), keep_settings);
    assert!(outcome.complete);
    assert_eq!(outcome.limited_by.limiter, Limiter::Unknown);
}

#[test]
fn small_windows_are_the_limiter_and_streams_add_them_up() {
    let mut one = transfer(50_000_000);
    one.stream.tcp.receive_buffer = 64 << 10;
    one.streams = InitialStreams::Fixed(1);
    let slow = one.run(&path(mbit(100), 100), keep_settings);
    assert_eq!(slow.limited_by.limiter, Limiter::ReceiveWindow);
    assert!(slow.limited_by.share > 0.9);
    let window = (65_536 / MSS * MSS * 8) as f64 / 0.1;
    assert!(
        (slow.goodput / window - 1.0).abs() < 0.03,
        "{}",
        slow.goodput
    );
    one.streams = InitialStreams::Fixed(8);
    let eight = one.run(&path(mbit(100), 100), keep_settings);
    assert!((eight.goodput / slow.goodput / 8.0 - 1.0).abs() < 0.05);
    one.stream.tcp.receive_buffer = 4 << 20;
    one.stream.tcp.send_buffer = 64 << 10;
    let sender = one.run(&path(mbit(100), 100), keep_settings);
    assert_eq!(sender.limited_by.limiter, Limiter::SendBuffer);
}

#[test]
fn losses_are_the_limiter() {
    let mut lossy = path(mbit(100), 50);
    lossy.forward.loss = Loss::Independent(0.005);
    let outcome = transfer(20_000_000).run(&lossy, keep_settings);
    assert!(outcome.complete && outcome.retransmits > 20);
    assert_eq!(outcome.limited_by.limiter, Limiter::Loss);
    let clean = transfer(2_000_000).run(&path(mbit(100), 50), keep_settings);
    assert_eq!(clean.limited_by.limiter, Limiter::CongestionWindow);
}

#[test]
fn a_policy_changes_streams_and_buffers_while_it_runs() {
    let mut setting = transfer(60_000_000);
    setting.streams = InitialStreams::Fixed(1);
    setting.stream.tcp.receive_buffer = 64 << 10;
    // With small blocks and little unsent data a closed stream finishes soon.
    setting.block = 64 << 10;
    setting.stream.tcp.not_sent_lowat = 64 << 10;
    let mut samples = Vec::new();
    let outcome = setting.run(&path(mbit(100), 100), |sample| {
        samples.push((sample.streams.len(), sample.goodput(), sample.settings));
        let streams = match samples.len() {
            20 => 4,
            40 => 2,
            _ => sample.settings.streams,
        };
        let receive_buffer = if samples.len() < 60 {
            64 << 10
        } else {
            4 << 20
        };
        Some(SimSettings {
            streams,
            receive_buffer,
            ..sample.settings
        })
    });
    assert!(outcome.complete);
    assert_eq!(outcome.bytes, 60_000_000);
    assert_eq!(outcome.streams_max, 4);
    let mean = |from: usize, to: usize| {
        let part = &samples[from..to];
        part.iter().map(|(_, goodput, _)| goodput).sum::<f64>() / part.len() as f64 / 1e6
    };
    let (one, four, two, wide) = (mean(8, 20), mean(28, 40), mean(50, 60), mean(68, 72));
    assert!((four / one - 4.0).abs() < 0.4, "{one} {four}");
    assert!((two / one - 2.0).abs() < 0.2, "{one} {two}");
    assert!(wide > 8.0 * one, "{one} {wide}");
    assert_eq!((samples[19].0, samples[20].0, samples[40].0), (1, 4, 2));
}

#[test]
fn interval_bytes_add_up_to_the_total() {
    let mut last = 0;
    let outcome = transfer(30_000_000).run(&path(mbit(50), 80), |sample| {
        last += sample.interval_bytes;
        assert_eq!(last, sample.delivered_bytes);
        let streams: u64 = sample.streams.iter().map(|s| s.delivered_bytes).sum();
        assert_eq!(streams, sample.interval_bytes);
        assert!(sample.streams.iter().all(|s| s.at == sample.interval));
        assert!(sample.unassigned_bytes + sample.delivered_bytes <= 30_000_000);
        None
    });
    assert!(last <= outcome.bytes);
}

#[test]
fn the_control_rtt_includes_the_queueing_delay() {
    let mut longest = Duration::ZERO;
    let mut heard = 0;
    let outcome = transfer(30_000_000).run(&path(mbit(20), 40), |sample| {
        longest = longest.max(sample.control_rtt.unwrap_or_default());
        heard += usize::from(sample.control_rtt.is_some());
        None
    });
    assert!(outcome.control_rtt.unwrap() < ms(42));
    assert!(longest > ms(60) && longest < ms(90), "{longest:?}");
    assert!(heard > 80, "{heard}");
}

#[test]
fn other_flows_slow_the_transfer_down() {
    let mut shared = path(mbit(20), 40);
    let alone = transfer(20_000_000).run(&shared, keep_settings);
    shared.flows = vec![
        FlowSpec {
            source: TrafficSource::Unlimited,
            ..FlowSpec::default()
        };
        4
    ];
    let beside = transfer(20_000_000).run(&shared, keep_settings);
    assert!(beside.complete);
    assert!(beside.goodput < 0.75 * alone.goodput);
}

#[test]
fn an_unfinished_transfer_ends_at_the_deadline() {
    let mut late = transfer(1 << 40);
    late.deadline = Duration::from_secs(5);
    let outcome = late.run(&path(mbit(20), 40), keep_settings);
    assert!(!outcome.complete);
    assert!(outcome.elapsed < Duration::from_secs(5) && outcome.elapsed > ms(4800));
    assert!(outcome.bytes > 10_000_000);
}

#[test]
fn the_pacing_rate_applies_to_all_streams_together() {
    let paced = SimTransfer {
        streams: InitialStreams::Fixed(4),
        ..transfer(20_000_000)
    };
    let outcome = paced.run(&path(mbit(100), 20), |sample| {
        Some(SimSettings {
            pace: Some(2_500_000),
            ..sample.settings
        })
    });
    let mbit = outcome.goodput / 1e6;
    assert!((19.5..21.0).contains(&mbit), "{mbit}");
}
