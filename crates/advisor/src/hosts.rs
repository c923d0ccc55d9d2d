//! The clients whose paths are monitored: how they became known, when they were last seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use crate::chosen_tests::ChosenTests;
use crate::clock::Moment;

/// How a client became known. A later one in this order outlives an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostSource {
    /// It asked, or somebody asked about it.
    Asked,
    /// It was in the log of a data server.
    Log,
    /// It was added by API or command line.
    Api,
    /// It is in the settings; it is never forgotten.
    Config,
}

impl HostSource {
    /// Its name in the database and the protocols.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Log => "log",
            Self::Api => "api",
            Self::Config => "config",
        }
    }

    /// The source of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Asked, Self::Log, Self::Api, Self::Config]
            .into_iter()
            .find(|source| source.name() == name)
    }
}

/// A client.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitoredHost {
    /// How it became known.
    pub source: HostSource,
    /// When it became known.
    pub added: Timestamp,
    /// When it was last seen: it asked, was asked about, or transferred.
    pub seen: Moment,
    /// When it, or somebody for it, last asked.
    pub asked: Option<Moment>,
    /// Bytes of all transfers that it asked about.
    pub asked_bytes: u64,
    /// Tests chosen for it; `None`: those of the configuration.
    pub tests: Option<Box<ChosenTests>>,
}

/// Outcome of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostInsertion {
    /// It was known.
    Known,
    /// It is new.
    New {
        /// The client that was forgotten to make room.
        evicted: Option<IpAddr>,
    },
    /// There is no room, because all others outlive such a client; or no path leads to such an address.
    Refused,
}

/// The registry; it is bounded.
#[derive(Debug)]
pub struct HostRegistry {
    most: usize,
    hosts: HashMap<IpAddr, MonitoredHost>,
    /// Those that may be forgotten, by source and by the time they were last seen.
    by_age: HostAges,
}

/// The address under which a client is known: an IPv4-mapped IPv6 address is the IPv4 address.
pub fn canonical(client: IpAddr) -> IpAddr {
    client.to_canonical()
}

/// Whether a path leads to this address.
fn is_host(client: IpAddr) -> bool {
    let broadcast = matches!(client, IpAddr::V4(v4) if v4.is_broadcast());
    !(client.is_unspecified() || client.is_multicast() || broadcast)
}

impl HostRegistry {
    /// An empty registry of at most `most` clients.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            hosts: HashMap::new(),
            by_age: BTreeMap::new(),
        }
    }

    /// Adds a client, or notes that it was seen. In a full registry the one that was not seen for the longest time makes room,
    /// of those whose source outlives no more than the new one's: a question displaces nobody but others who have asked.
    pub fn insert(
        &mut self,
        client: IpAddr,
        source: HostSource,
        now: Moment,
        wall: Timestamp,
    ) -> HostInsertion {
        let host = MonitoredHost {
            source,
            added: wall,
            seen: now,
            asked: None,
            asked_bytes: 0,
            tests: None,
        };
        self.restore(client, host)
    }

    /// Adds a client of an earlier run. One that is known keeps the later time and the stronger source.
    pub fn restore(&mut self, client: IpAddr, host: MonitoredHost) -> HostInsertion {
        let client = canonical(client);
        if !is_host(client) {
            return HostInsertion::Refused;
        }
        if let Some(known) = self.hosts.get_mut(&client) {
            forget_age(&mut self.by_age, client, known);
            known.seen = known.seen.max(host.seen);
            known.added = known.added.min(host.added);
            known.source = known.source.max(host.source);
            known.asked = known.asked.max(host.asked);
            known.asked_bytes = known.asked_bytes.max(host.asked_bytes);
            known.tests = known.tests.take().or(host.tests);
            note_age(&mut self.by_age, client, known);
            return HostInsertion::Known;
        }
        let mut evicted = None;
        if self.hosts.len() >= self.most {
            let mut weaker = self.by_age.range_mut(..=host.source);
            let Some((_, oldest)) = weaker.find_map(|(_, ages)| ages.pop_first()) else {
                return HostInsertion::Refused;
            };
            self.hosts.remove(&oldest);
            evicted = Some(oldest);
        }
        note_age(&mut self.by_age, client, &host);
        self.hosts.insert(client, host);
        HostInsertion::New { evicted }
    }

    /// Notes a question about a known client.
    pub fn asked(&mut self, client: IpAddr, now: Moment, bytes: Option<u64>) {
        self.seen(client, now);
        if let Some(host) = self.hosts.get_mut(&canonical(client)) {
            host.asked = Some(now);
            host.asked_bytes = host.asked_bytes.saturating_add(bytes.unwrap_or(0));
        }
    }

    /// Notes that a known client was seen.
    pub fn seen(&mut self, client: IpAddr, now: Moment) {
        let client = canonical(client);
        let Some(host) = self.hosts.get_mut(&client) else {
            return;
        };
        forget_age(&mut self.by_age, client, host);
        host.seen = now;
        note_age(&mut self.by_age, client, host);
    }

    /// Chooses the tests of a known client; `None` leaves them to the configuration. `false`: it is unknown.
    pub fn set_tests(&mut self, client: IpAddr, tests: Option<ChosenTests>) -> bool {
        let host = self.hosts.get_mut(&canonical(client));
        host.map(|host| host.tests = tests.map(Box::new)).is_some()
    }

    /// Forgets a client; `false` if it is unknown.
    pub fn remove(&mut self, client: IpAddr) -> bool {
        let client = canonical(client);
        let removed = self.hosts.remove(&client);
        removed.is_some_and(|host| {
            forget_age(&mut self.by_age, client, &host);
            true
        })
    }

    /// Forgets those that were not seen for `time`, and returns them.
    pub fn purge(&mut self, now: Moment, time: Duration) -> Vec<IpAddr> {
        let mut purged = Vec::new();
        for ages in self.by_age.values_mut() {
            while let Some((_, client)) = ages.first().filter(|(seen, _)| now.since(*seen) > time) {
                purged.push(*client);
                ages.pop_first();
            }
        }
        for client in &purged {
            self.hosts.remove(client);
        }
        purged
    }

    /// A client.
    pub fn get(&self, client: IpAddr) -> Option<&MonitoredHost> {
        self.hosts.get(&canonical(client))
    }

    /// All clients, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &MonitoredHost)> {
        self.hosts.iter().map(|(client, host)| (*client, host))
    }

    /// At most `most` clients: those of the settings, then those seen last.
    pub fn recently_seen(&self, most: usize) -> Vec<IpAddr> {
        let is_configured =
            |(_, host): &(&IpAddr, &MonitoredHost)| host.source == HostSource::Config;
        let configured = self.hosts.iter().filter(is_configured);
        let configured = configured.map(|(client, _)| *client);
        let ages = self.by_age.values();
        let mut others: Vec<_> = ages.flat_map(|ages| ages.iter().rev().take(most)).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        let others = others.into_iter().map(|(_, client)| *client);
        configured.chain(others).take(most).collect()
    }

    /// Number of clients.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

type HostAges = BTreeMap<HostSource, BTreeSet<(Moment, IpAddr)>>;

/// Notes when a client was last seen, if it may be forgotten.
fn note_age(ages: &mut HostAges, client: IpAddr, host: &MonitoredHost) {
    if host.source != HostSource::Config {
        let ages = ages.entry(host.source).or_default();
        ages.insert((host.seen, client));
    }
}

fn forget_age(ages: &mut HostAges, client: IpAddr, host: &MonitoredHost) {
    if let Some(ages) = ages.get_mut(&host.source) {
        ages.remove(&(host.seen, client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: HostInsertion = HostInsertion::New { evicted: None };

    fn at(seconds: i64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn registry(most: usize, sources: &[HostSource]) -> HostRegistry {
        let mut hosts = HostRegistry::new(most);
        for (n, source) in (1_u8..).zip(sources) {
            let inserted = hosts.insert(client(n), *source, at(n.into()), Timestamp::UNIX_EPOCH);
            assert_eq!(inserted, NEW);
        }
        hosts
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        let mut hosts = registry(9, &[HostSource::Log]);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        let wall = Timestamp::UNIX_EPOCH;
        assert_eq!(
            hosts.insert(mapped, HostSource::Asked, at(5), wall),
            HostInsertion::Known
        );
        assert_eq!((hosts.len(), hosts.get(mapped).unwrap().seen), (1, at(5)));
        assert_eq!(hosts.get(client(1)).unwrap().source, HostSource::Log);
        assert!(hosts.remove(mapped) && hosts.is_empty());
    }

    #[test]
    fn a_full_registry_forgets_the_one_not_seen_for_the_longest_time() {
        let mut hosts = registry(3, &[HostSource::Config, HostSource::Api, HostSource::Asked]);
        hosts.asked(client(2), at(10), Some(7));
        let inserted = hosts.insert(client(4), HostSource::Asked, at(11), Timestamp::UNIX_EPOCH);
        let evicted = Some(client(3));
        assert_eq!(inserted, HostInsertion::New { evicted });
        assert_eq!(hosts.len(), 3);
        assert_eq!(hosts.get(client(2)).unwrap().asked_bytes, 7);
        let mut full = registry(1, &[HostSource::Config]);
        let inserted = full.insert(client(9), HostSource::Api, at(11), Timestamp::UNIX_EPOCH);
        assert_eq!(inserted, HostInsertion::Refused);
    }

    #[test]
    fn a_question_never_displaces_a_client_that_was_added() {
        use HostSource::{Api, Asked, Config, Log};
        let mut hosts = registry(4, &[Config, Api, Log, Asked]);
        for last in 10..100 {
            let source = Asked;
            let inserted = hosts.insert(client(last), source, at(200), Timestamp::UNIX_EPOCH);
            let evicted = Some(client(if last == 10 { 4 } else { last - 1 }));
            assert_eq!(inserted, HostInsertion::New { evicted });
        }
        let mut insert =
            |last, source| hosts.insert(client(last), source, at(1), Timestamp::UNIX_EPOCH);
        let displaced = |last| HostInsertion::New {
            evicted: Some(client(last)),
        };
        // The weakest goes first, whenever it was seen.
        assert_eq!(insert(101, Log), displaced(99));
        assert_eq!(insert(102, Asked), HostInsertion::Refused);
        assert_eq!(insert(103, Api), displaced(101));
        assert_eq!(insert(104, Api), displaced(3));
        assert_eq!(insert(105, Log), HostInsertion::Refused);
        assert_eq!(insert(106, Api), displaced(103));
    }

    #[test]
    fn clients_not_seen_for_long_are_purged_unless_they_are_configured() {
        let mut hosts = registry(9, &[HostSource::Config, HostSource::Log, HostSource::Asked]);
        hosts.seen(client(3), at(90));
        assert_eq!(hosts.purge(at(100), Duration::from_secs(50)), [client(2)]);
        assert_eq!(hosts.len(), 2);
        assert_eq!(
            hosts.purge(at(10_000), Duration::from_secs(50)),
            [client(3)]
        );
        assert!(hosts.get(client(1)).is_some());
    }

    #[test]
    fn configured_clients_go_before_those_seen_last() {
        let mut hosts = registry(9, &[HostSource::Log, HostSource::Config, HostSource::Asked]);
        hosts.seen(client(1), at(90));
        let expected = [client(2), client(1), client(3)];
        assert_eq!(hosts.recently_seen(9), expected);
        assert_eq!(hosts.recently_seen(2), expected[..2]);
    }

    #[test]
    fn addresses_that_are_no_host_are_refused() {
        let mut hosts = registry(9, &[]);
        for text in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1"] {
            let address = text.parse().unwrap();
            let inserted = hosts.insert(address, HostSource::Api, at(1), Timestamp::UNIX_EPOCH);
            assert_eq!(inserted, HostInsertion::Refused, "{text}");
        }
    }
}
