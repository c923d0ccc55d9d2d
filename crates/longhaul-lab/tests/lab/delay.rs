//! The propagation delay.

use crate::harness::{LabTestGuard, TestLab};

/// Milliseconds that programs and kernel may add on an idle machine.
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
        // No packet may arrive early, even on a busy machine.
        found.sort_by(f64::total_cmp);
        assert!(found[0] >= milliseconds, "{} ms over {rtt}", found[0]);
        // On a busy machine most round trips include waits for a processor, so the lower quartile counts.
        let quarter = found[5];
        assert!(
            quarter <= milliseconds + OVERHEAD,
            "the lower quartile is {quarter} ms over {rtt}"
        );
    });
}

#[test]
fn a_round_trip_of_1_ms_takes_1_ms() {
    round_trip(1.0);
}

#[test]
fn a_round_trip_of_10_ms_takes_10_ms() {
    round_trip(10.0);
}

#[test]
fn a_round_trip_of_100_ms_takes_100_ms() {
    round_trip(100.0);
}
