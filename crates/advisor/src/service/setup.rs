//! The start: tests that can run here, and the clients of the settings.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use units::show;

use super::Core;
use crate::config::{AdvisorConfig, TestConfig};
use crate::hosts::HostSource;
use crate::path_test::external::ExternalCommand;
use crate::path_test::{PathTest, Target, Weight, all_tests};
use crate::scheduler::{ScheduledTest, most_at_once, share_of_one_test};

/// Longest wait for the address of a name.
const WAIT_FOR_NAME: Duration = Duration::from_secs(10);
/// Time between two attempts to find the addresses of names that have none.
const ASK_NAMES_AGAIN: Duration = Duration::from_secs(300);

/// Defaults of external tests: interval, bytes of a run, time of a run.
const EXTERNAL_INTERVAL: Duration = Duration::from_secs(4 * 3600);
const EXTERNAL_BYTES: u64 = 100_000;
const EXTERNAL_TIME: Duration = Duration::from_secs(60);

/// A client of which nothing is known.
fn unknown_client(bytes_per_hour: u64) -> Target {
    Target {
        most_bytes: share_of_one_test(bytes_per_hour),
        ..Target::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

/// The external tests of the settings.
pub(super) fn external_commands(config: &AdvisorConfig) -> Vec<ExternalCommand> {
    let external = |(name, test): (&String, &TestConfig)| {
        Some(ExternalCommand {
            name: name.clone(),
            command: test.command.clone()?,
            weight: test.weight.map_or(Weight::Light, Weight::from),
            concurrency: test.concurrency.unwrap_or(1),
            interval: test.interval.unwrap_or(EXTERNAL_INTERVAL),
            most_bytes: test.most_bytes.unwrap_or(EXTERNAL_BYTES),
            time_limit: test.timeout.unwrap_or(EXTERNAL_TIME),
        })
    };
    config.tests.iter().filter_map(external).collect()
}

/// Tests that can run here.
pub(super) struct ReadyTests {
    pub(super) tests: Vec<Arc<dyn PathTest>>,
    /// Their plans, in the same order.
    pub(super) plans: Vec<ScheduledTest>,
    /// Why a periodic test of the settings does not run, one sentence each.
    pub(super) problems: Vec<String>,
}

/// The reasons why periodic tests of the settings would not run on this machine, one sentence each.
pub async fn test_problems(config: &AdvisorConfig) -> Vec<String> {
    let tests = all_tests(external_commands(config));
    initialise(config, tests).await.problems
}

/// Prepares the tests; those that cannot run here are left out.
pub(super) async fn initialise(
    config: &AdvisorConfig,
    tests: Vec<Box<dyn PathTest>>,
) -> ReadyTests {
    let mut ready: Vec<Arc<dyn PathTest>> = Vec::new();
    let (mut plans, mut problems) = (Vec::new(), Vec::new());
    for mut test in tests {
        let setting = config.tests.get(test.name()).cloned().unwrap_or_default();
        let is_light = test.profile().weight == Weight::Light;
        let is_periodic = setting.enabled.unwrap_or(is_light);
        if let Err(unavailable) = test.init().await {
            // A test that nobody chose is no loss.
            if is_periodic {
                problems.push(unavailable.to_string());
            } else {
                tracing::debug!("{unavailable}");
            }
            continue;
        }
        let most_bytes = test.most_bytes(&unknown_client(config.bytes_per_hour));
        if is_periodic && most_bytes > most_at_once(config.bytes_per_hour) {
            problems.push(format!(
                "the test {} never runs: one run may send {}, so bytes-per-hour must be at least {}",
                test.name(),
                show::bytes(most_bytes),
                show::bytes(most_bytes.saturating_mul(2)),
            ));
        }
        let profile = test.profile();
        plans.push(ScheduledTest {
            name: profile.name.to_owned(),
            interval: setting.interval.unwrap_or(profile.interval),
            concurrency: setting.concurrency.unwrap_or(profile.concurrency),
            fills_path: profile.fills_path,
            is_periodic,
            measures: profile.measures,
        });
        ready.push(Arc::from(test));
    }
    ReadyTests {
        tests: ready,
        plans,
        problems,
    }
}

/// Adds clients of the settings. Names without an address are tried again.
pub(super) async fn add_configured_clients(core: Arc<Core>, mut names: Vec<String>) {
    let mut stop = core.stop.subscribe();
    loop {
        let mut unresolved = Vec::new();
        for name in names {
            match address_of(&name).await {
                Some(client) => {
                    if core.admit(client, HostSource::Config).is_none() {
                        tracing::warn!(name, "clients: this is no address of a host");
                    }
                }
                None => unresolved.push(name),
            }
        }
        if unresolved.is_empty() {
            return;
        }
        tracing::warn!(names = ?unresolved, "clients: these names have no address now");
        names = unresolved;
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(ASK_NAMES_AGAIN) => {}
        }
    }
}

async fn address_of(name: &str) -> Option<IpAddr> {
    if let Ok(address) = name.parse() {
        return Some(address);
    }
    let lookup = tokio::time::timeout(WAIT_FOR_NAME, tokio::net::lookup_host((name, 0))).await;
    lookup.ok()?.ok()?.next().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_runs_by_default_fits_the_default_budget() {
        let budget = AdvisorConfig::default().bytes_per_hour;
        let most = most_at_once(budget);
        let mut tests = all_tests(Vec::new());
        tests.retain(|test| test.profile().weight == Weight::Light || test.name() == "iperf3");
        assert!(tests.len() >= 4);
        for test in tests {
            let bytes = test.most_bytes(&unknown_client(budget));
            assert!(bytes <= most, "{}: {bytes}", test.name());
        }
    }
}
