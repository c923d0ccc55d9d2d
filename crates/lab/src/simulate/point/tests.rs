use sim::link::{Loss, Queue};

use super::*;
use sim::tcp::CongestionAlgorithm;

fn fixed(request: &SimRequest, flows: u32) -> SimPoint {
    simulate(request, InitialStreams::Fixed(flows))
}

/// A few simulated seconds.
fn brief() -> SimRequest {
    SimRequest {
        warm_up: Duration::from_secs(2),
        duration: Duration::from_secs(3),
        ..SimRequest::default()
    }
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    let off = (value / expected - 1.0).abs();
    assert!(off <= tolerance, "{value} is not near {expected}");
}

#[test]
fn the_window_limits_a_single_connection() {
    let p = fixed(&brief(), 1);
    // 44 segments of 1 460 bytes a round trip; it takes 24 ms and the time to send.
    near(p.goodput_mbps, 44.0 * 1460.0 * 8.0 / 0.024_148 / 1e6, 0.002);
    near(p.mean_rtt_ms.unwrap(), 24.148, 0.002);
    assert_eq!((p.drops, p.retransmits, p.timeouts), (0, 0, 0));
    assert_eq!(p.limited_by, "receive window");
    assert_eq!(p.seconds, None);
}

#[test]
fn a_full_bottleneck_is_shared() {
    let p = fixed(&brief(), 8);
    near(p.goodput_mbps, 100.0 * 1460.0 / 1500.0, 0.001);
    // All windows are in flight: 8 * 44 packets of 0.12 ms.
    near(p.mean_rtt_ms.unwrap(), 8.0 * 44.0 * 0.12, 0.005);
    near(p.fairness, 1.0, 0.001);
}

#[test]
fn a_small_queue_drops_and_a_lossy_path_loses() {
    let queue = SimRequest {
        queue: Queue::Packets(20),
        window: 1 << 20,
        ..brief()
    };
    let p = fixed(&queue, 2);
    assert!(p.drops > 0 && p.losses == 0 && p.retransmits > 0, "{p:?}");
    assert_eq!(p.limited_by, "congestion window (loss)");
    let lossy = SimRequest {
        loss: Loss::Independent(0.01),
        ..brief()
    };
    let p = fixed(&lossy, 2);
    assert!(p.losses > 0 && p.drops == 0, "{p:?}");
    assert!(p.goodput_mbps < fixed(&brief(), 2).goodput_mbps, "{p:?}");
}

#[test]
fn cross_traffic_takes_its_part() {
    let crossed = SimRequest {
        cross_traffic: Some(Rate::bits_per_second(40_000_000)),
        ..brief()
    };
    near(
        fixed(&crossed, 8).goodput_mbps,
        60.0 * 1460.0 / 1500.0,
        0.02,
    );
}

#[test]
fn a_file_takes_its_time() {
    let file = SimRequest {
        bytes: Some(12_000_000),
        duration: Duration::from_secs(60),
        congestion: CongestionAlgorithm::Cubic,
        ..brief()
    };
    let p = fixed(&file, 4);
    let seconds = p.seconds.unwrap();
    near(p.goodput_mbps, 96.0 / seconds, 0.001);
    // 85 Mbit/s by windows, and a start that is slow for some round trips.
    assert_eq!(p.flows, 4);
    assert_eq!(p.limited_by, "receive window");
    assert!((1.13..1.6).contains(&seconds), "{seconds}");
    let hurried = SimRequest {
        duration: Duration::from_secs(1),
        ..file
    };
    let p = fixed(&hurried, 4);
    assert_eq!(p.seconds, None);
    assert!(p.goodput_mbps > 50.0, "{p:?}");
}

#[test]
fn the_production_rule_says_how_many() {
    let far = brief();
    assert_eq!(simulate(&far, InitialStreams::Automatic).flows, 4);
    let near = SimRequest {
        delay: Duration::from_millis(1),
        ..brief()
    };
    assert_eq!(simulate(&near, InitialStreams::Automatic).flows, 2);
    let two_blocks = SimRequest {
        bytes: Some(2 * BLOCK as u64),
        ..brief()
    };
    assert_eq!(simulate(&two_blocks, InitialStreams::Automatic).flows, 2);
}

#[test]
fn delayed_acks_and_jitter_change_little_below_the_rate() {
    let plain = fixed(&brief(), 2).goodput_mbps;
    let delayed = SimRequest {
        delayed_ack: true,
        ..brief()
    };
    near(fixed(&delayed, 2).goodput_mbps, plain, 0.02);
    let jittered = SimRequest {
        jitter: Duration::from_micros(120),
        ..brief()
    };
    let jittered = fixed(&jittered, 2).goodput_mbps;
    assert!(jittered < plain, "{jittered}");
    near(jittered, plain, 0.01);
}

#[test]
fn the_seed_decides() {
    let lossy = |seed| SimRequest {
        loss: Loss::Independent(0.01),
        seed,
        ..brief()
    };
    assert_eq!(fixed(&lossy(1), 3), fixed(&lossy(1), 3));
    assert_ne!(fixed(&lossy(1), 3), fixed(&lossy(2), 3));
}

#[test]
fn starts_are_spread() {
    let mut starts: Vec<f64> = (0..64).map(|n| phase(1, n)).collect();
    starts.sort_by(f64::total_cmp);
    assert!(starts[0] >= 0.0 && starts[63] < 1.0);
    let gaps = starts.windows(2).map(|w| w[1] - w[0]);
    let (least, most) = gaps.fold((1.0, 0.0), |(l, m), g| (g.min(l), g.max(m)));
    assert!(least > 0.005 && most < 0.03, "{least} {most}");
}

#[test]
fn a_path_that_lets_nothing_pass() {
    let dead = SimRequest {
        loss: Loss::Independent(1.0),
        bytes: Some(1_000_000),
        ..brief()
    };
    let p = fixed(&dead, 2);
    assert_eq!(
        (p.goodput_mbps, p.mean_rtt_ms, p.seconds),
        (0.0, None, None)
    );
    assert_eq!(p.limited_by, "unknown");
    let p = fixed(
        &SimRequest {
            bytes: None,
            ..dead
        },
        2,
    );
    assert_eq!((p.goodput_mbps, p.mean_rtt_ms), (0.0, None));
    assert!((p.fairness - 1.0).abs() < f64::EPSILON);
}
