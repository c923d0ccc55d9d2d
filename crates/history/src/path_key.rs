//! The key of a record: which path, in which direction.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tune::limiter::Role;

/// Prefix lengths, bits. Hosts of one site share the path, and a prefix says less of a person than an address.
const IPV4_PREFIX: u8 = 24;
const IPV6_PREFIX: u8 = 64;

/// A path as seen from this host: both ends as address prefixes (/24 or /64), and the direction of the data.
///
/// The own address stands for the interface: the system chooses it by the route, and another network
/// (a laptop that moved, a second link) has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathKey {
    peer: IpNet,
    local: IpNet,
    direction: Direction,
}

/// Direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Sent,
    Received,
}

impl PathKey {
    /// The path between `local` and `peer` for the data of an end with this role. An IPv4 address that is mapped
    /// to IPv6 counts as IPv4.
    pub fn new(local: IpAddr, peer: IpAddr, role: Role) -> Self {
        Self {
            peer: prefix(peer),
            local: prefix(local),
            direction: match role {
                Role::Sender => Direction::Sent,
                Role::Receiver => Direction::Received,
            },
        }
    }

    /// The role of this end.
    pub(crate) fn role(&self) -> Role {
        match self.direction {
            Direction::Sent => Role::Sender,
            Direction::Received => Role::Receiver,
        }
    }

    /// Whether both are prefixes as [`PathKey::new`] makes them. A file may hold others.
    pub(crate) fn is_canonical(&self) -> bool {
        [self.peer, self.local]
            .into_iter()
            .all(|net| net == prefix(net.addr()))
    }
}

fn prefix(address: IpAddr) -> IpNet {
    let address = address.to_canonical();
    let length = match address {
        IpAddr::V4(_) => IPV4_PREFIX,
        IpAddr::V6(_) => IPV6_PREFIX,
    };
    // The lengths are valid for their families.
    IpNet::new(address, length).map_or_else(|_| address.into(), |net| net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(local: &str, peer: &str) -> PathKey {
        PathKey::new(local.parse().unwrap(), peer.parse().unwrap(), Role::Sender)
    }

    #[test]
    fn hosts_of_one_prefix_share_a_path() {
        let one = key("10.1.2.3", "192.0.2.7");
        assert_eq!(one, key("10.1.2.99", "192.0.2.200"));
        assert_eq!(one, key("::ffff:10.1.2.3", "::ffff:192.0.2.7"));
        assert_ne!(one, key("10.1.2.3", "192.0.3.7"));
        assert_ne!(one, key("10.1.3.3", "192.0.2.7"));
        let six = key("2001:db8:1:2::3", "2001:db8:5:6:7::8");
        assert_eq!(six, key("2001:db8:1:2:9::", "2001:db8:5:6::"));
        assert_ne!(six, key("2001:db8:1:2::3", "2001:db8:5:7::8"));
    }

    #[test]
    fn directions_are_paths_of_their_own() {
        let ends = ["10.1.2.3".parse().unwrap(), "192.0.2.7".parse().unwrap()];
        let [sent, received] =
            [Role::Sender, Role::Receiver].map(|role| PathKey::new(ends[0], ends[1], role));
        assert_ne!(sent, received);
        assert_eq!(
            [sent.role(), received.role()],
            [Role::Sender, Role::Receiver]
        );
    }

    #[test]
    fn the_text_of_a_key_has_no_whole_address() {
        let text = serde_json::to_string(&key("10.1.2.3", "2001:db8:5:6:7::8")).unwrap();
        assert_eq!(
            text,
            r#"{"peer":"2001:db8:5:6::/64","local":"10.1.2.0/24","direction":"sent"}"#
        );
        let read: PathKey = serde_json::from_str(&text).unwrap();
        assert!(read.is_canonical());
        for other in ["2001:db8:5:6::1/128", "2001:db8::/32"] {
            let text = text.replace("2001:db8:5:6::/64", other);
            assert!(
                !serde_json::from_str::<PathKey>(&text)
                    .unwrap()
                    .is_canonical()
            );
        }
    }
}
