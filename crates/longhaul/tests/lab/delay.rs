//! The propagation delay.

use crate::harness::{LabTestGuard, TestLab};

/// Milliseconds that the programs and the kernel may take on their own when they get a processor at once.
const OVERHEAD: f64 = 1.5;

fn round_trip(milliseconds: f64) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let rtt = format!("{milliseconds}ms");
    let script = "probe b udp-echo 20 & probe a udp-ping $LAB_B 20 2000; wait $!";
    TestLab::new(&turn, &["--rtt", &rtt]).check(script, |run| {
        let text = run.text("round-trips");
        let mut found: Vec<f64> = text
            .lines()
            .map(|nanos| nanos.parse::<f64>().unwrap() / 1e6)
            .collect();
        assert_eq!(found.len(), 20);
        // Nothing comes early, whatever the machine does.
        found.sort_by(f64::total_cmp);
        assert!(found[0] >= milliseconds, "{} ms over {rtt}", found[0]);
        // On a busy machine the programs at the ends wait for a processor in most of the others.
        let quarter = found[5];
        assert!(
            quarter <= milliseconds + OVERHEAD,
            "three of four take {quarter} ms and more over {rtt}"
        );
    });
}

#[test]
fn one_millisecond_is_one() {
    round_trip(1.0);
}

#[test]
fn ten_milliseconds_are_ten() {
    round_trip(10.0);
}

#[test]
fn a_hundred_milliseconds_are_a_hundred() {
    round_trip(100.0);
}
