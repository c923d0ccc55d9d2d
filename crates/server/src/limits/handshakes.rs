//! Bounds on security handshakes that are not complete.
//!
//! Each costs memory and belongs to a client that is not known yet. A new handshake above a bound ends
//! the oldest one of the same address, or of the address that has the most: so an attacker who leaves
//! handshakes half open ends its own, and a client that completes its handshake at once is served.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tune::admission::ClientKey;

/// Most handshakes in progress. The engine of one takes some 60 kB.
const MAX_HANDSHAKES: usize = 1024;
/// Most handshakes in progress of one client address.
pub(crate) const MAX_HANDSHAKES_PER_ADDRESS: usize = 256;

/// The handshakes in progress of a server.
#[derive(Debug)]
pub(crate) struct HandshakeLimits {
    open: Mutex<OpenHandshakes>,
    max: usize,
    max_per_address: usize,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    /// Handshakes of each address by their numbers: the lowest is the oldest.
    addresses: HashMap<ClientKey, BTreeMap<u64, Arc<Notify>>>,
    count: usize,
    next_number: u64,
}

/// A handshake in progress; it is counted until it is dropped or displaced.
#[derive(Debug)]
pub(crate) struct HandshakeSlot {
    limits: Arc<HandshakeLimits>,
    address: ClientKey,
    number: u64,
    displaced: Arc<Notify>,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self::new(MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS)
    }
}

impl HandshakeLimits {
    fn new(max: usize, max_per_address: usize) -> Self {
        Self {
            open: Mutex::default(),
            max,
            max_per_address,
        }
    }

    /// Counts a handshake of the client at `peer`. Above a bound an older one is displaced.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr) -> HandshakeSlot {
        let address = ClientKey::from(peer);
        let mut open = self.open.lock();
        if open.of(address) >= self.max_per_address {
            open.displace_oldest(address);
        } else if open.count >= self.max
            && let Some(busiest) = open.busiest()
        {
            open.displace_oldest(busiest);
        }
        let number = open.next_number;
        open.next_number += 1;
        open.count += 1;
        let displaced = Arc::new(Notify::new());
        let of_address = open.addresses.entry(address).or_default();
        of_address.insert(number, Arc::clone(&displaced));
        HandshakeSlot {
            limits: Arc::clone(self),
            address,
            number,
            displaced,
        }
    }
}

impl OpenHandshakes {
    fn of(&self, address: ClientKey) -> usize {
        self.addresses.get(&address).map_or(0, BTreeMap::len)
    }

    /// The address with the most handshakes. It is searched only when the server is at its bound, among at
    /// most so many addresses.
    fn busiest(&self) -> Option<ClientKey> {
        let most = self.addresses.iter().max_by_key(|(_, open)| open.len());
        most.map(|(address, _)| *address)
    }

    fn displace_oldest(&mut self, address: ClientKey) {
        let oldest = self
            .addresses
            .get(&address)
            .and_then(|open| open.keys().next().copied());
        if let Some(displaced) = oldest.and_then(|number| self.remove(address, number)) {
            displaced.notify_one();
        }
    }

    fn remove(&mut self, address: ClientKey, number: u64) -> Option<Arc<Notify>> {
        let open = self.addresses.get_mut(&address)?;
        let removed = open.remove(&number)?;
        if open.is_empty() {
            self.addresses.remove(&address);
        }
        self.count -= 1;
        Some(removed)
    }
}

impl HandshakeSlot {
    /// Waits until a newer handshake has displaced this one, which must end then. Cancel-safe.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.limits.open.lock().remove(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn ip(host: u8) -> IpAddr {
        [192, 0, 2, host].into()
    }

    async fn is_displaced(slot: &HandshakeSlot) -> bool {
        timeout(Duration::ZERO, slot.displaced()).await.is_ok()
    }

    #[tokio::test]
    async fn a_handshake_above_the_bound_of_its_address_displaces_the_oldest_of_that_address() {
        let limits = Arc::new(HandshakeLimits::new(10, 2));
        let other = limits.begin(ip(9));
        let [first, second, third] = [(); 3].map(|()| limits.begin(ip(1)));
        assert!(is_displaced(&first).await);
        assert!(!is_displaced(&second).await);
        assert!(!is_displaced(&third).await);
        assert!(!is_displaced(&other).await);
    }

    #[tokio::test]
    async fn a_handshake_above_the_bound_of_the_server_displaces_one_of_the_busiest_address() {
        let limits = Arc::new(HandshakeLimits::new(3, 3));
        let quiet = limits.begin(ip(1));
        let [first, second] = [(); 2].map(|()| limits.begin(ip(2)));
        let new = limits.begin(ip(3));
        assert!(is_displaced(&first).await);
        for slot in [&quiet, &second, &new] {
            assert!(!is_displaced(slot).await);
        }
    }

    #[test]
    fn ended_handshakes_are_no_longer_counted() {
        let limits = Arc::new(HandshakeLimits::new(2, 1));
        for _ in 0..5 {
            let displaced = limits.begin(ip(1));
            drop(limits.begin(ip(1)));
            drop(displaced);
        }
        let open = limits.open.lock();
        assert_eq!((open.count, open.addresses.len()), (0, 0));
    }
}
