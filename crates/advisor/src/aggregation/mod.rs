//! Sharing of measurements between clients (section 6.1 of the paper).
//!
//! A policy says which group a client belongs to. Members of a group share measurements, and of all members
//! only one at a time is tested again.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::clock::Moment;
use crate::config::{AggregationConfig, AggregationName};

mod bottleneck;
mod pairwise;
mod prefix;
mod slow_bottleneck;
#[cfg(test)]
mod tests;

pub use bottleneck::ByBottleneck;
pub use pairwise::Pairwise;
pub use prefix::{ByPrefix, PrefixTableError};
pub use slow_bottleneck::BySlowBottleneck;

/// Clients whose paths count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientGroup {
    /// Those behind this bottleneck router.
    Router(IpAddr),
    /// Those in this prefix.
    Prefix(IpNet),
}

impl fmt::Display for ClientGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Router(router) => write!(f, "behind the bottleneck router {router}"),
            Self::Prefix(prefix) => write!(f, "in {prefix}"),
        }
    }
}

/// The path to a client, as far as policies use it.
#[derive(Debug, Clone, Copy)]
pub struct ClientPath<'p> {
    /// The client.
    pub client: IpAddr,
    /// The router before the bottleneck.
    pub bottleneck: Option<IpAddr>,
    /// The routers on the way, nearest first.
    pub hops: &'p [IpAddr],
    /// Bandwidth of its bottleneck, bits per second.
    pub bandwidth_bps: Option<u64>,
}

/// A policy of aggregation. A new one is a new file in this folder and a line in [`policy`].
pub trait AggregationPolicy: Send + Sync + fmt::Debug {
    /// Notes what was measured of a path.
    fn note(&mut self, _path: &ClientPath<'_>) {}

    /// The group of a client; `None`: it stands for itself.
    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup>;

    /// Whether each client is measured once before it shares.
    fn measures_each_once(&self) -> bool;
}

/// The policy of the settings.
///
/// # Errors
/// The prefix table cannot be read.
pub fn policy(config: &AggregationConfig) -> Result<Box<dyn AggregationPolicy>, PrefixTableError> {
    Ok(match config.policy {
        AggregationName::Pairwise => Box::new(Pairwise),
        AggregationName::Bottleneck => Box::new(ByBottleneck),
        AggregationName::SlowBottleneck => Box::new(BySlowBottleneck::new(config.slow_below)),
        AggregationName::Prefix => Box::new(ByPrefix::load(config)?),
    })
}

/// The groups of all clients, and when each was tested.
#[derive(Debug)]
pub struct GroupIndex {
    policy: Box<dyn AggregationPolicy>,
    of_client: HashMap<IpAddr, ClientGroup>,
    members: HashMap<ClientGroup, GroupState>,
}

#[derive(Debug, Default)]
struct GroupState {
    clients: usize,
    /// Member that was measured last, and when.
    measured: Option<(IpAddr, Moment)>,
    /// Last start of each test in the group, by the test's number, and its client.
    tested: HashMap<usize, (IpAddr, Moment)>,
}

impl GroupIndex {
    /// No clients yet.
    pub fn new(policy: Box<dyn AggregationPolicy>) -> Self {
        Self {
            policy,
            of_client: HashMap::new(),
            members: HashMap::new(),
        }
    }

    /// Puts a client into its group by what is known now.
    pub fn place(&mut self, path: &ClientPath<'_>) {
        self.policy.note(path);
        let group = self.policy.group(path);
        if self.of_client.get(&path.client).copied() == group {
            return;
        }
        self.remove(path.client);
        if let Some(group) = group {
            self.of_client.insert(path.client, group);
            self.members.entry(group).or_default().clients += 1;
        }
    }

    /// Notes that a client was measured.
    pub fn measured(&mut self, client: IpAddr, now: Moment) {
        if let Some(state) = self.state_mut(client) {
            state.measured = Some((client, now));
        }
    }

    /// Notes the start of a test.
    pub fn started(&mut self, client: IpAddr, test: usize, now: Moment) {
        if let Some(state) = self.state_mut(client) {
            state.tested.insert(test, (client, now));
        }
    }

    /// Notes that a test which had started did not run after all.
    pub fn put_off(&mut self, client: IpAddr, test: usize) {
        if let Some(state) = self.state_mut(client)
            && state
                .tested
                .get(&test)
                .is_some_and(|(member, _)| *member == client)
        {
            state.tested.remove(&test);
        }
    }

    /// When a periodic test of this client may start: not while the last one of another member is younger
    /// than `interval`. `is_measured`: the client has measurements of its own.
    pub fn not_before(
        &self,
        client: IpAddr,
        test: usize,
        interval: Duration,
        is_measured: bool,
    ) -> Option<Moment> {
        if self.policy.measures_each_once() && !is_measured {
            return None;
        }
        let state = self.members.get(self.of_client.get(&client)?)?;
        let (member, last) = state.tested.get(&test)?;
        // The member that was tested last keeps its own interval, which may be shorter.
        (*member != client).then(|| last.after(interval))
    }

    /// The member of the client's group that was measured last, if it is another one.
    pub fn stand_in(&self, client: IpAddr) -> Option<(IpAddr, ClientGroup)> {
        let group = *self.of_client.get(&client)?;
        let (member, _) = self.members.get(&group)?.measured?;
        (member != client).then_some((member, group))
    }

    /// The group of a client.
    pub fn group(&self, client: IpAddr) -> Option<ClientGroup> {
        self.of_client.get(&client).copied()
    }

    /// Forgets a client.
    pub fn remove(&mut self, client: IpAddr) {
        let Some(group) = self.of_client.remove(&client) else {
            return;
        };
        let Some(state) = self.members.get_mut(&group) else {
            return;
        };
        state.clients = state.clients.saturating_sub(1);
        if state.measured.is_some_and(|(member, _)| member == client) {
            state.measured = None;
        }
        if state.clients == 0 {
            self.members.remove(&group);
        }
    }

    fn state_mut(&mut self, client: IpAddr) -> Option<&mut GroupState> {
        self.members.get_mut(self.of_client.get(&client)?)
    }
}
