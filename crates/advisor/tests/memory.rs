//! The promise of the documentation: 100 000 clients in less than 300 MB.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use advisor::aggregation::{ClientPath, GroupIndex, Pairwise};
use advisor::clock::Moment;
use advisor::hosts::{HostRegistry, HostSource};
use advisor::measurement::{Measurement, Quantity};
use advisor::path_table::MeasuredPaths;
use advisor::scheduler::{ScheduledTest, TestSchedule};
use jiff::Timestamp;

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn a_hundred_thousand_clients_take_less_than_300_mb() {
    let before = resident();
    let test = |name: &str| ScheduledTest {
        measures: &[],
        name: name.to_owned(),
        interval: Duration::from_secs(4 * 3600),
        concurrency: 1,
        fills_path: false,
        is_periodic: true,
    };
    let tests = ["ping", "bottleneck", "route"].map(test).to_vec();
    let mut schedule = TestSchedule::new(tests, 8, 60_000_000, 1);
    let mut hosts = HostRegistry::new(100_000);
    let mut table = MeasuredPaths::new(10);
    let mut groups = GroupIndex::new(Box::new(Pairwise));
    let now = Moment::default();
    for n in 0..100_000 {
        let client = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        hosts.insert(client, HostSource::Log, now, Timestamp::UNIX_EPOCH);
        for turn in 0..10 {
            let part = f64::from(turn) / 1000.0;
            let measurement = Measurement {
                client,
                test: "ping".to_owned(),
                at: Timestamp::UNIX_EPOCH,
                values: vec![
                    (Quantity::Rtt, 0.1 + part),
                    (Quantity::Loss, 0.0),
                    (Quantity::Bandwidth, 1e8 + part),
                ],
                detail: None,
                cost_bytes: 0,
            };
            table.record(&measurement, now);
        }
        groups.place(&ClientPath {
            client,
            bottleneck: None,
            hops: &[],
            bandwidth_bps: Some(100_000_000),
        });
        schedule.set_client(client, None, &|_| Some(now), now);
    }
    let taken = resident() - before;
    assert_eq!((hosts.len(), table.len()), (100_000, 100_000));
    eprintln!("{} MB", taken / 1_000_000);
    assert!(taken < 300_000_000, "{taken} bytes");
}
