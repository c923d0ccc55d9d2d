//! Sharing of measurements between clients (section 6.1 of the paper).
//!
//! A policy says which group a client belongs to. Members of a group share measurements, and of all members
//! only one at a time is tested again.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use ipnet::IpNet;
use smallfile::regular_file;

use crate::clock::Moment;
use crate::config::{AggregationConfig, AggregationName};

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

/// Each client is measured by itself: the most precise policy, and the default.
#[derive(Debug)]
pub struct Pairwise;

impl AggregationPolicy for Pairwise {
    fn group(&self, _: &ClientPath<'_>) -> Option<ClientGroup> {
        None
    }

    fn measures_each_once(&self) -> bool {
        true
    }
}

/// Clients behind one bottleneck router share (table 5 of the paper). Each is measured once, because two clients of one
/// subnet may have different bottlenecks.
#[derive(Debug)]
pub struct ByBottleneck;

impl AggregationPolicy for ByBottleneck {
    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        path.bottleneck.map(ClientGroup::Router)
    }

    fn measures_each_once(&self) -> bool {
        true
    }
}

/// Most routers that are remembered.
const MOST_ROUTERS: usize = 100_000;

/// Clients behind a router that is known as a slow bottleneck share, unmeasured but for their route: the slow link limits
/// all of them.
#[derive(Debug)]
pub struct BySlowBottleneck {
    slow_below_bps: u64,
    /// Routers before a slow bottleneck, with the bottleneck's rate in bits per second.
    slow: HashMap<IpAddr, u64>,
}

impl BySlowBottleneck {
    /// A bottleneck below this rate, bits per second, is slow.
    pub fn new(slow_below_bps: u64) -> Self {
        Self {
            slow_below_bps,
            slow: HashMap::new(),
        }
    }
}

impl AggregationPolicy for BySlowBottleneck {
    fn note(&mut self, path: &ClientPath<'_>) {
        let (Some(router), Some(rate)) = (path.bottleneck, path.bandwidth_bps) else {
            return;
        };
        if rate >= self.slow_below_bps {
            // The link was replaced by a faster one.
            self.slow.remove(&router);
        } else if self.slow.len() < MOST_ROUTERS || self.slow.contains_key(&router) {
            self.slow.insert(router, rate);
        }
    }

    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        let known = |router: &&IpAddr| self.slow.contains_key(*router);
        let routers = path.bottleneck.iter().filter(known);
        // Of several slow routers on the way, the slowest limits.
        routers
            .chain(path.hops.iter().filter(known))
            .min_by_key(|router| self.slow.get(*router))
            .map(|router| ClientGroup::Router(*router))
    }

    fn measures_each_once(&self) -> bool {
        false
    }
}

/// Largest prefix table, bytes. The table of the whole Internet has a million prefixes.
const MAX_TABLE: u64 = 64 << 20;

/// The reason why a prefix table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrefixTableError {
    /// It cannot be read.
    #[error("cannot read the prefix table {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A line is no prefix.
    #[error("prefix table {}, line {line}: {text:?} is not a prefix like 192.0.2.0/24", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The first word of the line.
        text: String,
    },
}

/// Clients of one address prefix share, unmeasured: the simplest policy and the least precise. The longest prefix of a table
/// that matches counts, else a fixed length.
#[derive(Debug)]
pub struct ByPrefix {
    v4: u8,
    v6: u8,
    /// The table.
    table: HashSet<IpNet>,
    /// Lengths in the table, longest first: IPv4, IPv6.
    lengths: [Vec<u8>; 2],
}

impl ByPrefix {
    /// The policy with the settings' lengths and table.
    ///
    /// # Errors
    /// The table cannot be read, or a line of it is no prefix.
    pub fn load(config: &AggregationConfig) -> Result<Self, PrefixTableError> {
        let Some(path) = &config.prefix_table else {
            return Ok(Self::new(config, std::iter::empty()));
        };
        let text = regular_file::read_to_string(path, MAX_TABLE).map_err(|cause| {
            PrefixTableError::Read {
                path: path.clone(),
                cause,
            }
        })?;
        let mut prefixes = Vec::new();
        for (n, line) in text.lines().enumerate() {
            // Routing tables have further columns; a # begins a comment.
            let line = line.split('#').next().unwrap_or_default();
            let Some(word) = line.split_whitespace().next() else {
                continue;
            };
            let prefix = word.parse().map_err(|_| PrefixTableError::Line {
                path: path.clone(),
                line: n + 1,
                text: word.chars().take(80).collect(),
            })?;
            prefixes.push(prefix);
        }
        Ok(Self::new(config, prefixes))
    }

    fn new(config: &AggregationConfig, prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        let table: HashSet<IpNet> = prefixes.into_iter().map(|prefix| prefix.trunc()).collect();
        let mut lengths = [Vec::new(), Vec::new()];
        for prefix in &table {
            let lengths = &mut lengths[usize::from(prefix.addr().is_ipv6())];
            if !lengths.contains(&prefix.prefix_len()) {
                lengths.push(prefix.prefix_len());
            }
        }
        for lengths in &mut lengths {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
        }
        Self {
            v4: config.prefix_v4,
            v6: config.prefix_v6,
            table,
            lengths,
        }
    }

    fn prefix_of(&self, client: IpAddr) -> Option<IpNet> {
        let of_length = |length: u8| IpNet::new(client, length).ok().map(|net| net.trunc());
        let longest = self.lengths[usize::from(client.is_ipv6())]
            .iter()
            .filter_map(|length| of_length(*length))
            .find(|prefix| self.table.contains(prefix));
        longest.or_else(|| of_length(if client.is_ipv6() { self.v6 } else { self.v4 }))
    }
}

impl AggregationPolicy for ByPrefix {
    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        self.prefix_of(path.client).map(ClientGroup::Prefix)
    }

    fn measures_each_once(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
