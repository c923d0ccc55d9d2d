//! The propagation delay.

use crate::harness::{Lab, Turn};
use crate::statistics::median;

/// Milliseconds that the programs and the kernel may take on their own in the median.
const OVERHEAD: f64 = 1.5;

fn round_trip(milliseconds: f64) {
    let Some(turn) = Turn::take() else { return };
    let rtt = format!("{milliseconds}ms");
    let script = "probe b udp-echo 20 & probe a udp-ping $LAB_B 20 2000; wait $!";
    Lab::new(&turn, &["--rtt", &rtt]).check(script, |run| {
        let text = run.text("round-trips");
        let found: Vec<f64> = text
            .lines()
            .map(|nanos| nanos.parse::<f64>().unwrap() / 1e6)
            .collect();
        assert_eq!(found.len(), 20);
        // Nothing comes early, whatever the machine does.
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= milliseconds, "{least} ms over {rtt}");
        let middle = median(found);
        assert!(
            middle <= milliseconds + OVERHEAD,
            "{middle} ms over {rtt} in the median"
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
