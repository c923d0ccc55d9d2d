//! Random loss.

use crate::arrivals::{missing_numbers, run_lengths};
use crate::harness::{LabTestGuard, TestLab};
use crate::statistics::{assert_binomial, binomial};

/// Number of datagrams: enough to detect a deviation of a fifth from 1 % loss.
const COUNT: u64 = 20_000;

/// Sends small datagrams at a rate that a slow machine can handle; returns the numbers of those lost.
fn lost(lab: &TestLab<'_>) -> Vec<u64> {
    let script =
        format!("probe b udp-receive {COUNT} & probe a udp-send $LAB_B {COUNT} 100 25; wait $!");
    lab.check(&script, |run| {
        let direction = run.direction("a", "b");
        let arrivals = run.arrivals();
        assert_eq!(direction.packets, COUNT);
        assert_eq!(direction.delivered + direction.losses, COUNT);
        assert_eq!(direction.delivered, arrivals.len() as u64);
        missing_numbers(&arrivals, COUNT)
    })
}

fn check_loss(share: &str, probability: f64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let lost = lost(&TestLab::new(&turn, &["--loss", share]));
    assert_binomial("lost", lost.len() as u64, COUNT, probability);
    // Losses are independent: a loss follows a loss as often as it follows another packet. The 3 is for
    // 1 % loss, where too few pairs are expected for the normal approximation.
    let pairs = lost.windows(2).filter(|w| w[0] + 1 == w[1]).count();
    let most = binomial(lost.len() as u64, probability).end() + 3.0;
    assert!(pairs as f64 <= most, "{pairs} pairs in {}", lost.len());
}

#[test]
fn loss_of_1_percent_is_binomial_and_independent() {
    check_loss("1%", 0.01);
}

#[test]
fn loss_of_10_percent_is_binomial_and_independent() {
    check_loss("10%", 0.1);
}

#[test]
fn the_seed_determines_which_packets_are_lost() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let of_seed = |seed| lost(&TestLab::new(&turn, &["--loss", "2%", "--seed", seed]));
    let first = of_seed("11");
    assert!(!first.is_empty());
    assert_eq!(first, of_seed("11"));
    assert_ne!(first, of_seed("12"));
}

#[test]
fn segments_of_a_super_packet_are_lost_independently() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let bytes = 12_000_000;
    let options = ["--loss", "1%", "--rtt", "2ms", "--rate", "80mbit"];
    let script = format!("probe b tcp-receive & probe a tcp-send $LAB_B {bytes}; wait $!");
    TestLab::new(&turn, &options).check(&script, |run| {
        let received = run.received();
        assert_eq!((received.bytes, received.wrong), (bytes, 0));
        let direction = run.direction("a", "b");
        assert!(direction.packets >= bytes / 1448, "{direction:?}");
        assert!(direction.bytes <= direction.packets * 1500);
        // Packets dropped by the queue do not reach the loss process.
        let tried = direction.packets - direction.queue_drops;
        // The last packets may have been in flight when the lab ended.
        let ended = direction.delivered + direction.losses;
        assert!((tried - 5..=tried).contains(&ended), "{direction:?}");
        assert_binomial("lost", direction.losses, tried, 0.01);
    });
}

#[test]
fn loss_bursts_have_the_configured_mean_length() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let topology = "[default]\nburst_loss = { to_bad = 0.01, to_good = 0.2, in_good = 0, in_bad = \"100%\" }\n";
    let lost = lost(&TestLab::topology(&turn, topology));
    let bursts = run_lengths(&lost);
    // A burst starts at one in a hundred packets of the good state. Its mean length is 5 packets with a
    // standard deviation of 4.5. About 190 bursts are expected.
    let mean = lost.len() as f64 / bursts.len() as f64;
    assert!((3.7..6.3).contains(&mean), "bursts of {mean}");
    let good = COUNT - lost.len() as u64;
    assert_binomial("bursts", bursts.len() as u64, good, 0.01);
}
