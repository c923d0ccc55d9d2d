//! Who counts as one client, and how much each holds: the ground of every limit for each client.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

/// One client of a server: an IPv4 address (also if it is mapped into IPv6), or a /64 network of IPv6, because one host
/// can use every address of its /64. The loopback address of IPv6 is a client of its own, like those of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientKey(IpAddr);

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into()
            }
            other => other,
        })
    }
}

impl ClientKey {
    /// Whether the client is on this host: a proxy, or any number of programs.
    pub fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

/// How many of something each holder has. A holder of none takes no memory, so that the table is never larger than the
/// sum of what is held.
#[derive(Debug, Clone)]
pub struct HeldCounts<K>(HashMap<K, usize>);

impl<K> Default for HeldCounts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq> HeldCounts<K> {
    /// How many a holder has.
    pub fn of<Q: Hash + Eq + ?Sized>(&self, holder: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(holder).copied().unwrap_or(0)
    }

    /// Counts one more.
    pub fn add(&mut self, holder: K) {
        *self.0.entry(holder).or_default() += 1;
    }

    /// Counts one less.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, holder: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(count) = self.0.get_mut(holder) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(holder);
            }
        }
    }

    /// Whether nobody holds any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ClientKey {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_64_of_ipv6() {
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.2"), key("192.0.2.1"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:0:0:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    }

    #[test]
    fn this_host_is_a_client_of_its_own() {
        for local in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"] {
            assert!(key(local).is_loopback(), "{local}");
        }
        assert!(!key("::2").is_loopback() && key("::2") != key("::1"));
    }

    #[test]
    fn holders_of_none_are_forgotten() {
        let mut counts = HeldCounts::default();
        counts.add("ann".to_owned());
        counts.add("ann".to_owned());
        counts.remove("bob");
        counts.remove("ann");
        assert_eq!((counts.of("ann"), counts.of("bob")), (1, 0));
        counts.remove("ann");
        assert!(counts.is_empty());
    }
}
