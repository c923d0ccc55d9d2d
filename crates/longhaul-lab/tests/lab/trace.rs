//! Paths that vary in time.

use crate::arrivals::{DatagramArrival, missing_numbers, run_lengths};
use crate::harness::{LabTestGuard, TestLab, lab, stderr, stdout};
use crate::statistics::assert_close;

const STEPS: &str = "seconds,rate\n0,20mbit\n2,5mbit\n4,20mbit\n600,20mbit\n";
const PACKET_BITS: f64 = 12_000.0;
/// Number of packets per rate measurement.
const WINDOW: usize = 40;

/// Rate at the receiver in Mbit/s for each window, and the time when the window ended, seconds.
fn rates(arrivals: &[DatagramArrival]) -> Vec<(f64, f64)> {
    let rate = |window: &[DatagramArrival]| {
        let (first, last) = (window[0].received, window[WINDOW].received);
        let seconds = (last - first) as f64 / 1e9;
        (
            WINDOW as f64 * PACKET_BITS / seconds / 1e6,
            last as f64 / 1e9,
        )
    };
    arrivals
        .windows(WINDOW + 1)
        .step_by(WINDOW)
        .map(rate)
        .collect()
}

#[test]
fn the_rate_follows_the_trace() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    // The packets keep the bottleneck busy for about 4.5 s.
    let count = 5000;
    let script =
        format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 1472 0; wait $!");
    TestLab::new(&turn, &["--trace", "steps.csv", "--queue", "unlimited"])
        .file("steps.csv", STEPS)
        .check(&script, |run| assert_steps(&rates(&run.arrivals())));
}

/// Checks that the rate is high, low for two seconds, and high again.
fn assert_steps(rates: &[(f64, f64)]) {
    let near = |rate: f64, wanted: f64| (rate - wanted).abs() < wanted * 0.1;
    let slow: Vec<usize> = (0..rates.len())
        .filter(|i| near(rates[*i].0, 5.0))
        .collect();
    let fast = rates.iter().filter(|(rate, _)| near(*rate, 20.0)).count();
    assert!(slow.len() >= 10, "{rates:?}");
    // All windows except the two with a change and some with stalls of the machine.
    assert!(slow.len() + fast >= rates.len() * 9 / 10, "{rates:?}");
    let (first, last) = (slow[0], slow[slow.len() - 1]);
    let (before, after) = (&rates[..first], &rates[last + 1..]);
    for side in [before, after] {
        assert!(side.iter().any(|(rate, _)| near(*rate, 20.0)), "{rates:?}");
    }
    let seconds = rates[last].1 - rates[first].1;
    assert_close("seconds of the slow part", seconds, 2.0, 0.1);
}

#[test]
fn the_loss_follows_the_trace() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let count = 3000;
    let script =
        format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 100 700; wait $!");
    TestLab::new(&turn, &["--trace", "loss.csv"])
        .file("loss.csv", "seconds,loss\n0,0\n1,100%\n1.5,0\n600,0\n")
        .check(&script, |run| {
            let lost = missing_numbers(&run.arrivals(), count);
            assert_eq!(run.direction("a", "b").losses, lost.len() as u64);
            let gaps = run_lengths(&lost);
            assert_eq!(gaps.len(), 1, "{gaps:?}");
            // Half a second with a packet every 0.7 ms, if the sender was not delayed.
            assert!((300..=800).contains(&gaps[0]), "{gaps:?}");
        });
}

#[test]
fn a_printed_built_in_trace_can_be_used_as_a_file() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    for name in ["drsftp-path", "drsftp-wan"] {
        let printed = lab(&["trace", name]);
        assert!(printed.status.success(), "{}", stderr(&printed));
        let text = stdout(&printed);
        assert!(text.starts_with("seconds,rate,rtt"), "{text:.60}");
        assert!(text.lines().count() > 20);
        assert_eq!(text, stdout(&lab(&["trace", name])));
        assert_ne!(text, stdout(&lab(&["trace", name, "--seed", "2"])));
        TestLab::new(&turn, &["--trace", "printed.csv"])
            .file("printed.csv", text)
            .check("true", |_| {});
    }
}

#[test]
fn an_unknown_trace_is_refused() {
    let output = lab(&["trace", "mars"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("drsftp-path"));
}
