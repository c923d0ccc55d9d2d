//! The drop-tail queue.

use crate::arrivals::{DatagramArrival, missing_numbers};
use crate::harness::{LabScriptRun, LabTestGuard, TestLab};

/// Sends datagrams in one burst; those that do not fit into the queue are dropped.
fn flood(options: &[&str], count: u64, check: impl Fn(&LabScriptRun)) {
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
        // The queue had room for the first ones.
        assert!((0..10).all(|n| arrivals.iter().any(|a| a.sequence == n)));
        check(run);
    });
}

#[test]
fn a_queue_of_10_packets_holds_10_packets() {
    flood(&["--rate", "10mbit", "--queue", "10"], 400, |run| {
        let direction = run.direction("a", "b");
        assert_eq!(direction.peak_queue_packets, 10);
    });
}

#[test]
fn a_queue_of_1bdp_holds_one_bandwidth_delay_product() {
    // 20 Mbit/s over 48 ms: 120 000 bytes, 80 packets.
    let options = ["--rate", "20mbit", "--rtt", "48ms", "--queue", "1bdp"];
    flood(&options, 600, |run| {
        let direction = run.direction("a", "b");
        assert!(direction.peak_queue_bytes <= 120_000, "{direction:?}");
        assert!(direction.peak_queue_packets >= 75, "{direction:?}");
        // A packet at the end of a full queue waits for one round-trip time.
        let longest = run
            .arrivals()
            .iter()
            .map(DatagramArrival::delay)
            .fold(0.0, f64::max);
        assert!(longest >= 24.0 + 45.0, "{longest} ms");
    });
}

#[test]
fn a_queue_with_a_size_is_limited_in_bytes() {
    flood(&["--rate", "10mbit", "--queue", "30000B"], 400, |run| {
        let direction = run.direction("a", "b");
        assert_eq!(direction.peak_queue_bytes, 30_000);
        assert_eq!(direction.peak_queue_packets, 20);
    });
}
