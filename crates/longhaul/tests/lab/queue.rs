//! The drop-tail queue.

use crate::arrivals::{DatagramArrival, missing_numbers};
use crate::harness::{LabScriptRun, LabTestGuard, TestLab};

/// Datagrams sent all at once: what does not fit is dropped.
fn flood(options: &[&str], count: u64, look: impl Fn(&LabScriptRun)) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script =
        format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 1472 0; wait $!");
    TestLab::new(&turn, options).check(&script, |run| {
        let direction = run.direction("a", "b");
        let arrivals = run.arrivals();
        assert!(direction.queue_drops > 0);
        assert_eq!(direction.delivered + direction.queue_drops, count);
        assert_eq!(direction.losses, 0);
        assert_eq!(arrivals.len() as u64, direction.delivered);
        assert_eq!(
            missing_numbers(&arrivals, count).len() as u64,
            direction.queue_drops
        );
        // The first ones found room.
        assert!((0..10).all(|n| arrivals.iter().any(|a| a.sequence == n)));
        look(run);
    });
}

#[test]
fn ten_packets_are_ten() {
    flood(&["--rate", "10mbit", "--queue", "10"], 400, |run| {
        let direction = run.direction("a", "b");
        assert_eq!(direction.peak_queue_packets, 10);
    });
}

#[test]
fn one_product_of_bandwidth_and_delay() {
    // 20 Mbit/s over 48 ms: 120 000 bytes, 80 packets.
    let options = ["--rate", "20mbit", "--rtt", "48ms", "--queue", "1bdp"];
    flood(&options, 600, |run| {
        let direction = run.direction("a", "b");
        assert!(direction.peak_queue_bytes <= 120_000, "{direction:?}");
        assert!(direction.peak_queue_packets >= 75, "{direction:?}");
        // The last packet that finds room waits as long as the round trip.
        let longest = run
            .arrivals()
            .iter()
            .map(DatagramArrival::delay)
            .fold(0.0, f64::max);
        assert!(longest >= 24.0 + 45.0, "{longest} ms");
    });
}

#[test]
fn a_size_is_bytes() {
    flood(&["--rate", "10mbit", "--queue", "30000B"], 400, |run| {
        let direction = run.direction("a", "b");
        assert_eq!(direction.peak_queue_bytes, 30_000);
        assert_eq!(direction.peak_queue_packets, 20);
    });
}
