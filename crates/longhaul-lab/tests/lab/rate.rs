//! The bottleneck's rate.

use crate::arrivals::DatagramArrival;
use crate::harness::{LabTestGuard, TestLab};
use crate::statistics::{assert_close, median};

/// Bits of a full packet: 1472 bytes of payload, 8 of UDP and 20 of IP.
const PACKET_BITS: f64 = 12_000.0;

/// Nanoseconds by which a packet must have been sent before the one ahead of it arrived, so that it waited for it at the
/// bottleneck.
const WAITED: u64 = 1_000_000;

/// Seconds between packets that leave the bottleneck back to back, measured at the receiver. Where the sender fell behind, the
/// bottleneck was idle, and the time does not count. It is the median over half the packets, which stalls of the machine hardly
/// affect.
fn spacing(arrivals: &[DatagramArrival]) -> f64 {
    let mut busy = vec![0];
    for pair in arrivals.windows(2) {
        if pair[1].sent + WAITED < pair[0].received {
            busy.push(busy[busy.len() - 1] + pair[1].received - pair[0].received);
        }
    }
    assert!(
        busy.len() > arrivals.len() / 2,
        "only {} of {} packets waited at the bottleneck",
        busy.len(),
        arrivals.len()
    );
    let half = busy.len() / 2;
    let over_half = |i: usize| (busy[i + half] - busy[i]) as f64;
    median((0..half).map(over_half)) / half as f64 / 1e9
}

#[test]
fn the_time_for_which_the_sender_paused_does_not_count() {
    let gap = 120_000;
    let arrival = |sequence: u64| {
        // Longer than the packets ahead take, in the middle.
        let paused = if sequence < 3000 { 0 } else { 20_000_000 };
        DatagramArrival {
            sequence,
            sent: sequence * 1000 + 3000 * gap * u64::from(paused > 0) + paused,
            received: 10_000_000 + sequence * gap + paused,
        }
    };
    let arrivals: Vec<_> = (0..6000).map(arrival).collect();
    assert_close("seconds a packet", spacing(&arrivals), 120e-6, 1e-3);
}

/// Sends datagrams in one burst and checks that the bottleneck serialises them at its rate.
fn check_serialisation(rate: &str, bits_per_second: f64, count: u64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script =
        format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 1472 0; wait $!");
    TestLab::new(&turn, &["--rate", rate, "--queue", "unlimited"]).check(&script, |run| {
        let arrivals = run.arrivals();
        assert_eq!(arrivals.len() as u64, count);
        let direction = run.direction("a", "b");
        let all = (count, count * 1500);
        assert_eq!((direction.packets, direction.bytes), all);
        assert_eq!((direction.delivered, direction.delivered_bytes), all);
        let expected = PACKET_BITS / bits_per_second;
        assert_close("seconds a packet", spacing(&arrivals), expected, 0.01);
    });
}

#[test]
fn packets_are_serialised_at_10_mbit() {
    check_serialisation("10mbit", 10e6, 800);
}

#[test]
fn packets_are_serialised_at_100_mbit() {
    check_serialisation("100mbit", 100e6, 6000);
}

/// Checks the goodput of TCP over this rate, and the report.
fn check_tcp_goodput(rate: &str, bits_per_second: f64, bytes: u64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script = format!("probe b tcp-receive & probe a tcp-send $LAB_B {bytes}; wait $!");
    TestLab::new(&turn, &["--rate", rate, "--rtt", "10ms"]).check(&script, |run| {
        let received = run.received();
        assert_eq!((received.bytes, received.wrong), (bytes, 0));
        let goodput = bytes as f64 * 8.0 / received.seconds;
        // At most 1448 of 1500 bytes are payload, and slow start takes some time.
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
        // The report counts segments, not super-packets.
        assert!(direction.bytes <= direction.packets * 1500);
        assert!(direction.packets >= bytes / 1448);
    });
}

#[test]
fn tcp_uses_a_rate_of_10_mbit() {
    check_tcp_goodput("10mbit", 10e6, 2_000_000);
}

#[test]
fn tcp_uses_a_rate_of_100_mbit() {
    check_tcp_goodput("100mbit", 100e6, 16_000_000);
}
