//! A database full of hosts.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use advisor::config::StoreUrl;
use advisor::measurement::{Measurement, Quantity};
use advisor::store::{Store, StoreEntry, StoredClient};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::AnyError;
use crate::measured_service::host;

/// Hosts of one transaction.
const AT_ONCE: u32 = 200;
/// Measurements of each quantity of a host.
const VALUES: u32 = 10;

/// Writes so many hosts, each with ten pings, ten bandwidths and a route, as the service itself would.
pub(crate) fn fill(file: &Path, server: &str, hosts: u32) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let now = Timestamp::now();
        let store = Store::open(&StoreUrl::Sqlite(file.to_owned()), server, now).await?;
        let numbers: Vec<u32> = (0..hosts).collect();
        for numbers in numbers.chunks(AT_ONCE as usize) {
            let entries: Vec<StoreEntry> = numbers.iter().flat_map(|n| entries(*n, now)).collect();
            store.write(&entries).await?;
        }
        store.close().await;
        Ok(())
    })
}

fn entries(n: u32, now: Timestamp) -> Vec<StoreEntry> {
    let client = IpAddr::V4(host(n));
    let rtt = 0.001 + f64::from(n % 200) / 1000.0;
    let bandwidth = 1e7 * f64::from(1 + n % 100);
    let mut entries = vec![StoreEntry::Client(StoredClient {
        client,
        source: "log".to_owned(),
        added: now,
        seen: now,
        asked: None,
        asked_bytes: 0,
        tests: None,
    })];
    let measured = |test: &str, turn: u32, values: &[(Quantity, f64)]| {
        let ago = SignedDuration::from_mins(i64::from(VALUES - turn));
        StoreEntry::Measured(Measurement {
            client,
            test: test.to_owned(),
            at: now - ago,
            values: values.to_vec(),
            detail: None,
            cost_bytes: 0,
        })
    };
    for turn in 0..VALUES {
        let part = 1.0 + f64::from(turn) / 1000.0;
        let ping = [(Quantity::Rtt, rtt * part), (Quantity::Loss, 0.0)];
        entries.push(measured("ping", turn, &ping));
        let rate = [(Quantity::Bandwidth, bandwidth * part)];
        entries.push(measured("bottleneck", turn, &rate));
    }
    let [_, _, group, last] = host(n).octets();
    let hops: Vec<String> = [1, last, group, 2, 3, 4]
        .into_iter()
        .map(|router| Ipv4Addr::new(10, 0, group, router).to_string())
        .collect();
    if let StoreEntry::Measured(route) = measured("route", VALUES, &[(Quantity::Hops, 6.0)]) {
        entries.push(StoreEntry::Measured(Measurement {
            detail: Some(json!({ "bottleneck_router": hops[3], "hops": hops })),
            ..route
        }));
    }
    entries
}
