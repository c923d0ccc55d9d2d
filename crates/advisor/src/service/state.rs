//! Everything that the service knows, behind one lock. Nothing here waits or reads a clock.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::answer::{FoundFacts, StandIn};
use super::asked::AskedTests;
use super::shared_paths::SharedPaths;
use crate::aggregation::{ClientPath, GroupIndex};
use crate::clock::Moment;
use crate::hosts::{HostInsertion, HostRegistry, HostSource, MonitoredHost};
use crate::measurement::Measurement;
use crate::path_table::{MeasuredPaths, PathAnomaly};
use crate::path_test::{Load, PathTest, StartDecision, Target};
use crate::scheduler::{Gate, NextJob, ScheduledTest, TestSchedule, share_of_one_test};

/// Time after which a test that may not run now is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Ports of a client that may answer a TCP handshake: GridFTP, FTP, SSH, HTTP.
const TCP_PORTS: [u16; 5] = [2811, 21, 22, 80, 443];

#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) hosts: HostRegistry,
    pub(super) table: MeasuredPaths,
    pub(super) groups: GroupIndex,
    pub(super) shared: SharedPaths,
    pub(super) schedule: TestSchedule,
    /// Transfers of the data server that run now, by client.
    pub(super) transfers: HashMap<IpAddr, u32>,
    /// Clients whose entries in the database are out of date.
    pub(super) changed: HashSet<IpAddr>,
    pub(super) cpu: f64,
    /// Tests that somebody waits for.
    pub(super) asked: AskedTests,
}

/// A client that became known, and the one that made room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) is_new: bool,
    pub(super) evicted: Option<IpAddr>,
}

impl ServiceState {
    /// Adds a client and plans its tests; `None`: it is refused.
    pub(super) fn admit(
        &mut self,
        client: IpAddr,
        source: HostSource,
        now: Moment,
        wall: Timestamp,
    ) -> Option<Admission> {
        let evicted = match self.hosts.insert(client, source, now, wall) {
            HostInsertion::Refused => return None,
            HostInsertion::Known => {
                self.changed.insert(client);
                return Some(Admission {
                    is_new: false,
                    evicted: None,
                });
            }
            HostInsertion::New { evicted } => evicted,
        };
        if let Some(evicted) = evicted {
            self.forget_path(evicted);
        }
        self.place(client);
        self.plan_tests(client, now);
        Some(Admission {
            is_new: true,
            evicted,
        })
    }

    /// Takes in a client of an earlier run.
    pub(super) fn restore(&mut self, client: IpAddr, host: MonitoredHost) {
        if let HostInsertion::New {
            evicted: Some(evicted),
        } = self.hosts.restore(client, host)
        {
            self.forget_path(evicted);
        }
    }

    /// Plans the tests that the client's settings choose.
    pub(super) fn plan_tests(&mut self, client: IpAddr, now: Moment) {
        let Some(host) = self.hosts.get(client) else {
            return;
        };
        let chosen: Option<Vec<(usize, Option<Duration>)>> = host.tests.as_ref().map(|chosen| {
            let number = |(name, interval)| Some((self.schedule.test_number(name)?, interval));
            chosen.iter().filter_map(number).collect()
        });
        let table = &self.table;
        let measured = |test: &ScheduledTest| match test.measures {
            [] => table.newest(client),
            quantities => table.newest_of(client, quantities),
        };
        self.schedule
            .set_client(client, chosen.as_deref(), &measured, now);
    }

    /// Takes in a measurement.
    pub(super) fn record(&mut self, measurement: &Measurement, at: Moment) -> Vec<PathAnomaly> {
        let anomalies = self.table.record(measurement, at);
        self.place(measurement.client);
        if !measurement.values.is_empty() {
            self.groups.measured(measurement.client, at);
            self.shared.forget(measurement.client);
        }
        anomalies
    }

    /// Puts a client into the group that its path belongs to.
    pub(super) fn place(&mut self, client: IpAddr) {
        let route = self.table.route(client);
        self.groups.place(&ClientPath {
            client,
            bottleneck: route.and_then(|route| route.bottleneck),
            hops: route.map(|route| &*route.hops).unwrap_or_default(),
            bandwidth_bps: self.table.rtt_and_bandwidth(client).1,
        });
    }

    /// Facts about a client: its own, or those of the member of its group that was measured later.
    pub(super) fn facts(&self, client: IpAddr, now: Moment) -> FoundFacts {
        let own = self.table.facts(client, now);
        let own_at = self.table.newest(client);
        if let Some((member, group)) = self.groups.stand_in(client)
            && self.table.newest(member) > own_at
        {
            // Real transfers of the client itself tell more than another one's.
            let has_transfers = own
                .as_ref()
                .is_some_and(|facts| facts.goodput.or(facts.reverse_goodput).is_some());
            if !has_transfers {
                return FoundFacts {
                    facts: self.table.facts(member, now),
                    stand_in: Some(StandIn::Client(member, group)),
                    remedy: "",
                };
            }
        }
        let own = own.filter(|facts| facts.rtt.is_some() || facts.age.is_some());
        if own.is_none()
            && let Some((facts, server)) = self.shared.facts(client, now)
        {
            return FoundFacts {
                facts: Some(facts),
                stand_in: Some(StandIn::Server(server.to_owned())),
                remedy: "",
            };
        }
        FoundFacts {
            facts: own,
            stand_in: None,
            remedy: "",
        }
    }

    /// The router before the bottleneck of the path to a client, as this server or another one found it.
    pub(super) fn bottleneck(&self, client: IpAddr) -> Option<IpAddr> {
        let routes = [self.table.route(client), self.shared.route(client)];
        routes
            .into_iter()
            .flatten()
            .find_map(|route| route.bottleneck)
    }

    /// The next test to start, and its target.
    pub(super) fn next_job(
        &mut self,
        tests: &[Arc<dyn PathTest>],
        bytes_per_hour: u64,
        now: Moment,
    ) -> (NextJob, Option<Target>) {
        let Self {
            hosts,
            table,
            groups,
            schedule,
            transfers,
            asked,
            ..
        } = self;
        let plans: Vec<ScheduledTest> = schedule.tests().cloned().collect();
        let interval = |client: IpAddr, test: usize| {
            let plan = &plans[test];
            let chosen = hosts.get(client).and_then(|host| host.tests.as_ref());
            let own = chosen.and_then(|chosen| chosen.interval(&plan.name));
            own.unwrap_or(plan.interval)
        };
        let running: u32 = transfers.values().sum();
        let cpu = self.cpu;
        let mut gate = |client: IpAddr, test: usize, on_demand: bool| {
            let Some(path_test) = tests.get(test) else {
                return Gate::Until(now.after(ASK_AGAIN));
            };
            let is_measured = table.newest(client).is_some();
            let held = groups.not_before(client, test, interval(client, test), is_measured);
            if let Some(moment) = held.filter(|moment| *moment > now && !on_demand) {
                return Gate::Until(moment);
            }
            let target = target(table, client, bytes_per_hour);
            let load = Load {
                transfers: running,
                transfers_to_client: transfers.get(&client).copied().unwrap_or(0),
                cpu,
            };
            match path_test.can_run(&target, &load) {
                StartDecision::Run => Gate::Open(path_test.most_bytes(&target)),
                StartDecision::Wait(reason) => {
                    // At most twice a minute for each test of a client.
                    tracing::debug!(test = path_test.name(), %client, reason, "a test waits");
                    asked.waits(client, path_test.name(), &reason);
                    Gate::Until(now.after(ASK_AGAIN))
                }
            }
        };
        let next = schedule.next(now, &mut gate);
        let NextJob::Start(job) = next else {
            return (next, None);
        };
        self.groups.started(job.client, job.test, now);
        let target = target(&self.table, job.client, bytes_per_hour);
        (next, Some(target))
    }

    /// Most bytes that a run of a test of this client puts on the network.
    pub(super) fn most_bytes(
        &self,
        tests: &[Arc<dyn PathTest>],
        client: IpAddr,
        test: usize,
        bytes_per_hour: u64,
    ) -> u64 {
        let target = target(&self.table, client, bytes_per_hour);
        let test = tests.get(test);
        test.map_or(0, |test| test.most_bytes(&target))
    }

    /// Forgets a client; `false` if it is unknown.
    pub(super) fn forget(&mut self, client: IpAddr) -> bool {
        let known = self.hosts.remove(client);
        self.forget_path(client);
        known
    }

    pub(super) fn forget_path(&mut self, client: IpAddr) {
        self.table.forget(client);
        self.shared.forget(client);
        self.groups.remove(client);
        self.schedule.remove_client(client);
        self.asked.forget(client);
        self.changed.remove(&client);
    }
}

fn target(table: &MeasuredPaths, client: IpAddr, bytes_per_hour: u64) -> Target {
    let (rtt, bandwidth_bps) = table.rtt_and_bandwidth(client);
    Target {
        client,
        rtt,
        bandwidth_bps: bandwidth_bps.max(table.goodput(client)),
        tcp_ports: TCP_PORTS.to_vec(),
        most_bytes: share_of_one_test(bytes_per_hour),
    }
}
