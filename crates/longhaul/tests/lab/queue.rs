//! The drop-tail queue.

use crate::arrivals::missing;
use crate::harness::{Lab, Turn};

/// Datagrams sent all at once: what does not fit is dropped.
fn flood(turn: &Turn, options: &[&str], count: u64) -> crate::harness::Run {
    Lab::new(turn, options).counted().run(&format!(
        "probe b udp-receive {count} & probe a udp-send $LAB_B {count} 1472 0; wait $!"
    ))
}

#[test]
fn ten_packets_are_ten() {
    let Some(turn) = Turn::take() else { return };
    let run = flood(&turn, &["--rate", "10mbit", "--queue", "10"], 400);
    let direction = run.direction("a", "b");
    assert!(direction.queue_drops > 0);
    assert!(direction.peak_queue_packets <= 10, "{direction:?}");
    assert_eq!(direction.delivered + direction.queue_drops, 400);
    assert_eq!(direction.losses, 0);
    let arrivals = run.arrivals();
    assert_eq!(arrivals.len() as u64, direction.delivered);
    assert_eq!(missing(&arrivals, 400).len() as u64, direction.queue_drops);
    // The first ten found room.
    assert!((0..10).all(|n| arrivals.iter().any(|a| a.sequence == n)));
}

#[test]
fn one_product_of_bandwidth_and_delay() {
    let Some(turn) = Turn::take() else { return };
    // 20 Mbit/s over 48 ms: 120 000 bytes, 80 packets.
    let options = ["--rate", "20mbit", "--rtt", "48ms", "--queue", "1bdp"];
    let run = flood(&turn, &options, 600);
    let direction = run.direction("a", "b");
    assert!(direction.queue_drops > 0);
    assert!(direction.peak_queue_bytes <= 120_000, "{direction:?}");
    assert!(direction.peak_queue_packets >= 75, "{direction:?}");
    // A packet behind a full queue waits as long as the round trip, and no longer.
    let longest = run.arrivals().iter().map(|a| a.delay()).fold(0.0, f64::max);
    assert!(longest >= 24.0 + 45.0, "{longest} ms");
}

#[test]
fn a_size_is_bytes() {
    let Some(turn) = Turn::take() else { return };
    let run = flood(&turn, &["--rate", "10mbit", "--queue", "30000B"], 400);
    let direction = run.direction("a", "b");
    assert!(direction.queue_drops > 0);
    assert!(direction.peak_queue_bytes <= 30_000, "{direction:?}");
    assert!(direction.peak_queue_packets <= 20, "{direction:?}");
}
