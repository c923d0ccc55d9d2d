//! The bottleneck's rate.

use crate::harness::{LabScriptRun, LabTestGuard, TestLab};
use crate::statistics::{assert_close, median};

/// A full packet on the wire of the lab: 1472 bytes, 8 of UDP and 20 of IP.
const PACKET_BITS: f64 = 12_000.0;

/// Seconds between packets that leave the bottleneck back to back, as the receiver saw them. A
/// median over half the run: stalls of the machine do not move it.
fn spacing(run: &LabScriptRun) -> f64 {
    let arrivals = run.arrivals();
    let half = arrivals.len() / 2;
    let over_half = |i: usize| (arrivals[i + half].received - arrivals[i].received) as f64;
    median((0..half).map(over_half)) / half as f64 / 1e9
}

/// Datagrams sent all at once leave the bottleneck one after another, each in the time of its bits.
fn serialises(rate: &str, bits_per_second: f64, count: u64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script =
        format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 1472 0; wait $!");
    TestLab::new(&turn, &["--rate", rate, "--queue", "unlimited"]).check(&script, |run| {
        assert_eq!(run.arrivals().len() as u64, count);
        let direction = run.direction("a", "b");
        let all = (count, count * 1500);
        assert_eq!((direction.packets, direction.bytes), all);
        assert_eq!((direction.delivered, direction.delivered_bytes), all);
        let expected = PACKET_BITS / bits_per_second;
        assert_close("seconds a packet", spacing(run), expected, 0.005);
    });
}

#[test]
fn ten_megabits_are_serialised_exactly() {
    serialises("10mbit", 10e6, 800);
}

#[test]
fn a_hundred_megabits_are_serialised_exactly() {
    serialises("100mbit", 100e6, 6000);
}

/// TCP gets what the headers leave of the rate, and the report has all of it.
fn carries_tcp(rate: &str, bits_per_second: f64, bytes: u64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script = format!("probe b tcp-receive & probe a tcp-send $LAB_B {bytes}; wait $!");
    TestLab::new(&turn, &["--rate", rate, "--rtt", "10ms"]).check(&script, |run| {
        let received = run.received();
        assert_eq!((received.bytes, received.wrong), (bytes, 0));
        let goodput = bytes as f64 * 8.0 / received.seconds;
        // 1448 of 1500 bytes at most, and slow start takes some.
        assert!(
            (0.85..=0.97).contains(&(goodput / bits_per_second)),
            "{:.2} Mbit/s at {rate}",
            goodput / 1e6
        );
        let direction = run.direction("a", "b");
        assert!(direction.delivered_bytes >= bytes * 1500 / 1448);
        let sent_again = direction.queue_drops * 1500;
        assert!(
            direction.delivered_bytes <= bytes * 1500 / 1448 * 103 / 100 + sent_again,
            "{direction:?}"
        );
        // Packets, not what the host hands over at a time.
        assert!(direction.bytes <= direction.packets * 1500);
        assert!(direction.packets >= bytes / 1448);
    });
}

#[test]
fn tcp_gets_ten_megabits() {
    carries_tcp("10mbit", 10e6, 2_000_000);
}

#[test]
fn tcp_gets_a_hundred_megabits() {
    carries_tcp("100mbit", 100e6, 16_000_000);
}
