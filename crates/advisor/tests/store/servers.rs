//! Several servers on one database.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use advisor::config::{AdvisorConfig, StoreUrl};
use advisor::hosts::HostSource;
use advisor::measurement::{Measurement, Quantity};
use advisor::path_test::{
    HeldBackBy, PathTest, Target, TestFailure, TestProfile, Unavailable, Weight,
};
use advisor::service::Advisor;
use async_trait::async_trait;
use enable::advice::Question;
use jiff::Timestamp;

/// Runs of a test by all servers together, behind each router.
#[derive(Debug, Default)]
struct BottleneckUse {
    now: HashMap<IpAddr, usize>,
    most: HashMap<IpAddr, usize>,
    runs: usize,
}

/// A test that fills the path. Its detail tells the bottleneck.
#[derive(Clone, Default)]
struct FillingTest(Arc<Mutex<BottleneckUse>>);

/// The router before the bottleneck: clients with even addresses are behind another one.
fn router(client: IpAddr) -> IpAddr {
    let last = match client {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    IpAddr::from([10, 0, 0, last % 2])
}

#[async_trait]
impl PathTest for FillingTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: "bottleneck",
            weight: Weight::Light,
            concurrency: 1,
            fills_path: true,
            interval: Duration::from_secs(4 * 3600),
            held_back_by: HeldBackBy::Nothing,
            measures: &[],
        }
    }

    fn most_bytes(&self, _: &Target) -> u64 {
        1000
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        Ok(())
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let router = router(target.client);
        {
            let mut used = self.0.lock().unwrap();
            used.runs += 1;
            let now = used.now.entry(router).or_default();
            *now += 1;
            let now = *now;
            let most = used.most.entry(router).or_default();
            *most = now.max(*most);
        }
        // The others get the chance to run at the same time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        *self.0.lock().unwrap().now.entry(router).or_default() -= 1;
        Ok(Measurement {
            client: target.client,
            test: self.name().to_owned(),
            at: Timestamp::now(),
            values: vec![(Quantity::Rtt, 0.1), (Quantity::Bandwidth, 1e8)],
            detail: Some(serde_json::json!({ "bottleneck_router": router.to_string() })),
            cost_bytes: 1000,
        })
    }
}

async fn server(url: &StoreUrl, name: &str, tests: &[&FillingTest]) -> Advisor {
    let config = AdvisorConfig {
        store: url.clone(),
        server_name: name.to_owned(),
        ..AdvisorConfig::default()
    };
    let boxed = |test: &&FillingTest| Box::new((*test).clone()) as Box<dyn PathTest>;
    let tests = tests.iter().map(boxed).collect();
    Advisor::start_with_tests(config, tests).await.unwrap()
}

/// Waits for a state that must come, and tries to bring it about.
async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(90), wait).await;
    assert!(waited.is_ok(), "never: {what}");
}

/// The first server finds the bottlenecks. Then all four test every client, in turn behind each bottleneck.
pub(crate) async fn four_servers_share_measurements_and_take_turns(url: &StoreUrl) {
    let clients = [1, 2, 3, 4].map(|last| IpAddr::from([192, 0, 2, last]));
    let test = FillingTest::default();
    let first = server(url, "data1", &[&test]).await;
    for client in clients {
        first.add_host(client, HostSource::Api).unwrap();
    }
    // Each client, and the result of its test.
    until("stored", || first.counters().store_written >= 8).await;
    let reader = server(url, "reader", &[]).await;
    let advice = || reader.advise(clients[0], &Question::default());
    assert!(advice().confidence == 0.0, "an answer does not wait");
    until("the measurement of another server", || {
        advice().bdp_bytes == Some(1_250_000)
    })
    .await;
    assert!(
        advice().why.contains("by the server data1"),
        "{:?}",
        advice()
    );
    assert_eq!(reader.net_info(clients[0]).len(), 2);
    assert!(reader.measured(clients[0]).is_empty());

    let mut servers = vec![first];
    for name in ["data2", "data3", "data4"] {
        servers.push(server(url, name, &[&test]).await);
    }
    for server in &servers {
        for client in clients {
            server.add_host(client, HostSource::Api).unwrap();
        }
    }
    let is_done = |server: &Advisor| {
        clients.iter().all(|client| {
            let is_measured = !server.measured(*client).is_empty();
            // One that was put off would come again after some seconds.
            is_measured || server.request_test(*client, "bottleneck").is_err()
        })
    };
    until("every server measured every client", || {
        servers.iter().filter(|server| !is_done(server)).count() == 0
    })
    .await;
    let put_off: u64 = servers
        .iter()
        .map(|server| server.counters().schedule.put_off)
        .sum();
    {
        let used = test.0.lock().unwrap();
        assert!(used.runs >= 16, "{used:?}");
        assert!(used.most.values().all(|most| *most == 1), "{used:?}");
    }
    eprintln!("{put_off} tests waited for another server");
    servers.push(reader);
    for server in servers {
        server.shutdown().await;
    }
}
