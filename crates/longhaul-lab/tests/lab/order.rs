//! Reordering and duplication.

use crate::arrivals::{DatagramArrival, count_overtaken, missing_numbers};
use crate::harness::{LabTestGuard, TestLab};
use crate::statistics::assert_binomial;

const COUNT: u64 = 4000;

fn script(count: u64, gap: u32) -> String {
    format!("probe b udp-receive {count} & probe a udp-send $LAB_B {count} 200 {gap}; wait $!")
}

#[test]
fn packets_stay_in_order_by_default() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    TestLab::new(&turn, &["--rtt", "20ms", "--rate", "50mbit"]).check(&script(COUNT, 50), |run| {
        let arrivals = run.arrivals();
        assert_eq!(count_overtaken(&arrivals), 0);
        let direction = run.direction("a", "b");
        assert_eq!((direction.reordered, direction.duplicated), (0, 0));
        assert_eq!(arrivals.len() as u64, direction.delivered);
        // On a busy machine the sender's datagrams can reach the queue in bursts that it cannot hold.
        assert_eq!(direction.delivered + direction.queue_drops, COUNT);
        assert!(direction.delivered >= COUNT / 2, "{direction:?}");
    });
}

#[test]
fn packets_stay_in_order_if_the_delay_decreases() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let steps: String = (0..20)
        .map(|i| format!("{},{}ms\n", f64::from(i) * 0.2, [240, 20][i as usize % 2]))
        .collect();
    TestLab::new(&turn, &["--trace", "steps.csv"])
        .file("steps.csv", format!("seconds,rtt\n{steps}"))
        .check(&script(2000, 800), |run| {
            let arrivals = run.arrivals();
            assert_eq!(arrivals.len(), 2000);
            assert_eq!(count_overtaken(&arrivals), 0);
            // Both delays occurred.
            let near = |a: f64| arrivals.iter().filter(move |x| (x.delay() - a).abs() < 4.0);
            assert!(near(120.0).count() >= 200);
            assert!(near(10.0).count() >= 100);
            let least = arrivals
                .iter()
                .map(DatagramArrival::delay)
                .fold(1e9, f64::min);
            assert!(least >= 9.9, "{least} ms");
        });
}

#[test]
fn reorder_delays_the_configured_share_of_packets() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let topology =
        "[default]\nrtt = \"4ms\"\nreorder = { probability = \"5%\", extra = \"10ms\" }\n";
    TestLab::topology(&turn, topology).check(&script(COUNT, 100), |run| {
        let arrivals = run.arrivals();
        assert_eq!(arrivals.len() as u64, COUNT);
        let delayed = run.direction("a", "b").reordered;
        assert_binomial("reordered", delayed, COUNT, 0.05);
        let late = arrivals.iter().filter(|a| a.delay() >= 11.9).count() as u64;
        assert!(late >= delayed, "{late} of {delayed} came 10 ms later");
        // Not all are overtaken: the last ones, and those before a pause of the sender, have no later
        // packet close behind.
        let overtaken = count_overtaken(&arrivals) as u64;
        assert!(
            (delayed * 8 / 10..=delayed).contains(&overtaken),
            "{overtaken} of {delayed} were overtaken"
        );
    });
}

#[test]
fn duplicate_copies_the_configured_share_of_packets() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script =
        format!("probe b udp-receive 1000000 & probe a udp-send $LAB_B {COUNT} 200 100; wait $!");
    TestLab::topology(&turn, "[default]\nduplicate = \"5%\"\n").check(&script, |run| {
        let direction = run.direction("a", "b");
        assert_eq!(direction.packets, COUNT);
        assert_binomial("copies", direction.duplicated, COUNT, 0.05);
        let arrivals = run.arrivals();
        assert_eq!(arrivals.len() as u64, COUNT + direction.duplicated);
        assert!(missing_numbers(&arrivals, COUNT).is_empty());
    });
}
