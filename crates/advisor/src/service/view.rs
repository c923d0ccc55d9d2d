//! Views of the service for its page, its lists and its metrics: nothing is noted, and nothing scheduled.

use std::net::IpAddr;
use std::time::Duration;

use enable::advice::{Advice, Question};

use super::Advisor;
use super::answer;
use crate::hosts::{MonitoredHost, canonical};
use crate::path_table::QuantitySummary;

/// A monitored client and its path.
#[derive(Debug, Clone)]
pub struct PathView {
    /// The client.
    pub host: MonitoredHost,
    /// Time since it was last seen.
    pub seen_ago: Duration,
    /// Transfers of the data server with it that run now.
    pub transfers: u32,
    /// Advice for a transfer of unknown size.
    pub advice: Advice,
}

impl Advisor {
    /// A client and its path; `None` if it is not monitored.
    pub fn view(&self, client: IpAddr) -> Option<PathView> {
        let client = canonical(client);
        let now = self.core.clock.moment();
        let state = self.core.state();
        let host = state.hosts.get(client)?.clone();
        let transfers = state.transfers.get(&client).copied().unwrap_or(0);
        let mut found = state.facts(client, now);
        drop(state);
        found.remedy = "no test has had a result yet";
        Some(PathView {
            seen_ago: now.since(host.seen),
            host,
            transfers,
            advice: answer::answer(client, &Question::default(), found, &self.core.sender),
        })
    }

    /// Statistics of everything that was measured of the path to this client itself.
    pub fn measured(&self, client: IpAddr) -> Vec<QuantitySummary> {
        let now = self.core.clock.moment();
        self.core.state().table.summary(canonical(client), now)
    }

    /// Addresses of all clients, in order.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut clients: Vec<_> = {
            let state = self.core.state();
            state.hosts.iter().map(|(client, _)| client).collect()
        };
        clients.sort_unstable();
        clients
    }

    /// At most `most` clients: those of the settings, then those seen last.
    pub fn recently_seen(&self, most: usize) -> Vec<IpAddr> {
        self.core.state().hosts.recently_seen(most)
    }
}
