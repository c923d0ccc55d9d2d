//! Random loss.

use crate::arrivals::{missing, runs};
use crate::harness::{Lab, Run, Turn};
use crate::statistics::assert_binomial;

const COUNT: u64 = 8000;

/// Small datagrams, not faster than a slow machine takes them.
fn datagrams(lab: Lab<'_>) -> Run {
    lab.counted().run(&format!(
        "probe b udp-receive {COUNT} & probe a udp-send $LAB_B {COUNT} 100 50; wait $!"
    ))
}

fn loses(share: &str, probability: f64) {
    let Some(turn) = Turn::take() else { return };
    let run = datagrams(Lab::new(&turn, &["--loss", share]));
    let direction = run.direction("a", "b");
    assert_eq!(direction.packets, COUNT);
    assert_eq!(direction.delivered + direction.losses, COUNT);
    assert_eq!(direction.delivered, run.arrivals().len() as u64);
    assert_binomial("lost", direction.losses, COUNT, probability);
    // Independent: a loss follows a loss as often as anything else does.
    let lost = missing(&run.arrivals(), COUNT);
    let pairs = lost.windows(2).filter(|w| w[0] + 1 == w[1]).count();
    let allowed = crate::statistics::binomial(lost.len() as u64, probability);
    assert!(
        (pairs as f64) <= allowed.end() + 3.0,
        "{pairs} pairs in {} losses",
        lost.len()
    );
}

#[test]
fn one_in_a_hundred() {
    loses("1%", 0.01);
}

#[test]
fn one_in_ten() {
    loses("10%", 0.1);
}

#[test]
fn the_seed_decides_which() {
    let Some(turn) = Turn::take() else { return };
    let lost = |seed: &str| {
        let run = datagrams(Lab::new(&turn, &["--loss", "2%", "--seed", seed]));
        missing(&run.arrivals(), COUNT)
    };
    let first = lost("11");
    assert!(!first.is_empty());
    assert_eq!(first, lost("11"));
    assert_ne!(first, lost("12"));
}

#[test]
fn each_segment_of_a_super_packet_has_its_own_luck() {
    let Some(turn) = Turn::take() else { return };
    let bytes = 16_000_000;
    let run = Lab::new(&turn, &["--loss", "1%", "--rtt", "2ms", "--rate", "80mbit"])
        .counted()
        .run(&format!(
            "probe b tcp-receive & probe a tcp-send $LAB_B {bytes}; wait $!"
        ));
    let received = run.received();
    assert_eq!((received.bytes, received.wrong), (bytes, 0));
    let direction = run.direction("a", "b");
    assert!(direction.packets >= bytes / 1448, "{direction:?}");
    assert!(direction.bytes <= direction.packets * 1500);
    assert_eq!(
        direction.packets,
        direction.delivered + direction.losses + direction.queue_drops
    );
    // What the queue drops has no luck to try.
    let tried = direction.packets - direction.queue_drops;
    assert_binomial("lost", direction.losses, tried, 0.01);
}

#[test]
fn bursts_have_their_length() {
    let Some(turn) = Turn::take() else { return };
    let run = datagrams(Lab::topology(
        &turn,
        "[default]\nburst_loss = { to_bad = 0.01, to_good = 0.2, in_good = 0, in_bad = \"100%\" }\n",
    ));
    let lost = missing(&run.arrivals(), COUNT);
    assert_eq!(lost.len() as u64, run.direction("a", "b").losses);
    let bursts = runs(&lost);
    // A burst begins in one of a hundred packets of the good state and has five packets in the mean,
    // with a standard deviation of 4.5: about 76 bursts.
    let mean = lost.len() as f64 / bursts.len() as f64;
    assert!((3.0..7.0).contains(&mean), "bursts of {mean}");
    let good = COUNT - lost.len() as u64;
    assert_binomial("bursts", bursts.len() as u64, good, 0.01);
}
