//! Bounds of the HTTP server, and the share of each client in it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tune::admission::{ClientKey, HeldCounts};
use units::message_rate::MessageRateLimiter;

/// Time after which a connection without a whole request is slow: it gives its place to a new one.
const SLOW: Duration = Duration::from_millis(250);
/// Most clients whose requests are counted.
const MAX_PEERS: usize = 16_384;

/// Bounds of the HTTP server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerLimits {
    /// Connections at one time.
    pub connections: usize,
    /// Those of one address. IPv6 addresses of one /64 count as one address.
    pub connections_per_address: usize,
    /// Those of one loopback address: a proxy, or several programs of this host.
    pub connections_per_loopback: usize,
    /// Requests of one address per second; twice as many may come at once.
    pub requests_per_second: u32,
    /// Those of one loopback address.
    pub requests_per_second_loopback: u32,
    /// Longest wait for the header of a request, and for the next request on a connection.
    pub header_time: Duration,
    /// Longest wait for the body of a request.
    pub body_time: Duration,
    /// Listeners to live updates at one time.
    pub subscribers: usize,
    /// Longest wait for the address of a name.
    pub name_time: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_address: 64,
            connections_per_loopback: 384,
            requests_per_second: 100,
            requests_per_second_loopback: 10_000,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            subscribers: 64,
            name_time: Duration::from_secs(3),
        }
    }
}

/// Use of the server by all clients.
#[derive(Debug)]
pub(super) struct PeerShares {
    limits: ServerLimits,
    begin: Instant,
    used: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    held: HeldCounts<ClientKey>,
    requests: HashMap<ClientKey, MessageRateLimiter>,
    connections: HashMap<u64, HeldPlace>,
    /// Number of the next connection.
    next: u64,
}

/// A connection in the table.
#[derive(Debug)]
struct HeldPlace {
    peer: ClientKey,
    /// Since when the client is to send a request or to read an answer; `None`: the server is to answer.
    waits_since: Option<Instant>,
    displaced: Arc<Notify>,
}

/// The place of one connection; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    shares: Arc<PeerShares>,
    number: u64,
    displaced: Arc<Notify>,
}

impl ConnectionPlace {
    /// Waits until the place goes to another connection.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// Notes that a whole request has arrived, so that the server is to answer it.
    pub(super) fn begin_answer(&self) {
        self.note(None);
    }

    /// Notes that the next step is the client's.
    pub(super) fn wait_for_client(&self) {
        self.note(Some(Instant::now()));
    }

    fn note(&self, waits_since: Option<Instant>) {
        if let Some(held) = self.shares.used.lock().connections.get_mut(&self.number) {
            held.waits_since = waits_since;
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.shares.used.lock().free(self.number);
    }
}

impl PeerShares {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Self {
            limits,
            begin: Instant::now(),
            used: Mutex::default(),
        }
    }

    /// Connections now.
    pub(super) fn connections(&self) -> usize {
        self.used.lock().connections.len()
    }

    /// Takes a place for a connection; `None`: there is none for this peer. If all are taken, the one that has waited for its
    /// client for the longest time goes, if that is slow; the flag says so.
    pub(super) fn connect(
        self: &Arc<Self>,
        peer: IpAddr,
        now: Instant,
    ) -> Option<(ConnectionPlace, bool)> {
        let peer = ClientKey::from(peer);
        let most = match peer.is_loopback() {
            true => self.limits.connections_per_loopback,
            false => self.limits.connections_per_address,
        };
        let mut used = self.used.lock();
        let is_full = used.connections.len() >= self.limits.connections;
        let has_most = used.held.of(&peer) >= most;
        if has_most {
            used.displace(Some(peer), now)?;
        } else if is_full {
            used.displace(None, now)?;
        }
        used.held.add(peer);
        let (number, displaced) = (used.next, Arc::default());
        used.next += 1;
        let held = HeldPlace {
            peer,
            waits_since: Some(now),
            displaced: Arc::clone(&displaced),
        };
        used.connections.insert(number, held);
        drop(used);
        let place = ConnectionPlace {
            shares: Arc::clone(self),
            number,
            displaced,
        };
        Some((place, has_most || is_full))
    }

    /// Counts a request; `false`: too many came from this peer.
    pub(super) fn request(&self, peer: IpAddr, now: Instant) -> bool {
        let peer = ClientKey::from(peer);
        let per_second = match peer.is_loopback() {
            true => self.limits.requests_per_second_loopback,
            false => self.limits.requests_per_second,
        };
        let now = now.saturating_duration_since(self.begin);
        let mut used = self.used.lock();
        if used.requests.len() >= MAX_PEERS && !used.requests.contains_key(&peer) {
            // A full bucket says as much as a new one.
            used.requests.retain(|_, bucket| !bucket.is_full(now));
            if used.requests.len() >= MAX_PEERS {
                return false;
            }
        }
        let per_second = per_second.max(1);
        let bucket = used.requests.entry(peer).or_insert_with(|| {
            MessageRateLimiter::new(
                Duration::from_secs(1) / per_second,
                per_second.saturating_mul(2),
            )
        });
        bucket.try_take(now)
    }
}

impl Shares {
    /// Frees a place, unless that is done.
    fn free(&mut self, number: u64) -> Option<HeldPlace> {
        let place = self.connections.remove(&number)?;
        self.held.remove(&place.peer);
        Some(place)
    }

    /// Frees the place of the slowest client, of one address or of all; `None`: none is slow.
    fn displace(&mut self, of: Option<ClientKey>, now: Instant) -> Option<()> {
        let connections = self.connections.iter();
        let connections = connections.filter(|(_, held)| of.is_none_or(|peer| held.peer == peer));
        let waiting = connections.filter_map(|(number, held)| Some((held.waits_since?, *number)));
        let (since, number) = waiting.min()?;
        if now.saturating_duration_since(since) < SLOW {
            return None;
        }
        self.free(number)?.displaced.notify_one();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Arc<PeerShares> {
        Arc::new(PeerShares::new(ServerLimits {
            connections: 5,
            connections_per_address: 2,
            connections_per_loopback: 4,
            requests_per_second: 10,
            ..ServerLimits::default()
        }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_leaves_places_for_others() {
        let (shares, now) = (shares(), Instant::now());
        let first = shares.connect(ip("192.0.2.1"), now).unwrap();
        let _second = shares.connect(ip("::ffff:192.0.2.1"), now).unwrap();
        assert!(shares.connect(ip("192.0.2.1"), now).is_none());
        let _other = shares.connect(ip("192.0.2.2"), now).unwrap();
        drop(first);
        let _third = shares.connect(ip("192.0.2.1"), now).unwrap();
        let _loopback = [0; 2].map(|_| shares.connect(ip("127.0.0.1"), now).unwrap());
        assert_eq!(shares.connections(), 5);
        assert!(shares.connect(ip("192.0.2.3"), now).is_none());
    }

    async fn is_displaced(place: &ConnectionPlace) -> bool {
        let displaced = tokio::time::timeout(Duration::ZERO, place.displaced());
        displaced.await.is_ok()
    }

    #[tokio::test]
    async fn a_slow_client_gives_its_place_to_a_new_one() {
        let (shares, start) = (shares(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let take = |address, at| shares.connect(ip(address), at);
        let answered = take("192.0.2.1", at(0)).unwrap().0;
        answered.begin_answer();
        let slow = take("192.0.2.1", at(1)).unwrap().0;
        assert!(take("192.0.2.1", at(200)).is_none(), "not slow yet");
        let (third, has_displaced) = take("192.0.2.1", at(300)).unwrap();
        assert!(has_displaced && shares.connections() == 2);
        assert!(is_displaced(&slow).await && !is_displaced(&answered).await);
        // Its end frees no place again.
        drop(slow);
        assert!(take("192.0.2.1", at(400)).is_none());
        // All places are taken: the slowest of any address goes.
        let _others = ["192.0.2.2", "192.0.2.3", "127.0.0.1"].map(|a| take(a, at(400)).unwrap());
        assert!(take("192.0.2.4", at(500)).is_none());
        let _fourth = take("192.0.2.4", at(600)).unwrap();
        assert!(is_displaced(&third).await);
        drop((answered, third));
        assert_eq!(shares.connections(), 4);
    }

    #[test]
    fn addresses_of_one_64_count_as_one() {
        let (shares, now) = (shares(), Instant::now());
        let _first = shares.connect(ip("2001:db8::1"), now).unwrap();
        let _second = shares.connect(ip("2001:db8::2"), now).unwrap();
        assert!(shares.connect(ip("2001:db8::3"), now).is_none());
        assert!(shares.connect(ip("2001:db8:0:1::3"), now).is_some());
    }

    #[test]
    fn requests_beyond_the_rate_are_refused_until_time_passes() {
        let (shares, now) = (shares(), Instant::now());
        let asked = |now| {
            (0..100)
                .filter(|_| shares.request(ip("192.0.2.1"), now))
                .count()
        };
        assert_eq!(asked(now), 20);
        assert_eq!(asked(now + Duration::from_millis(510)), 5);
        assert_eq!(asked(now + Duration::from_secs(60)), 20);
    }

    #[test]
    fn the_memory_of_addresses_is_bounded() {
        let (shares, now) = (shares(), Instant::now());
        let place = shares.connect(ip("192.0.2.1"), now);
        for number in 0..40_000_u32 {
            let later = now + Duration::from_millis(u64::from(number));
            shares.request(IpAddr::V4((0x0a00_0000 + number).into()), later);
        }
        let used = shares.used.lock();
        assert!(used.requests.len() <= MAX_PEERS);
        assert!(place.is_some() && used.held.of(&ip("192.0.2.1").into()) == 1);
    }
}
