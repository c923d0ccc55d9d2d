//! Who may connect and who may log in: lists of networks and of users.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// A network of clients: `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct ClientNetwork(IpNet);

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", nor an address")]
pub struct ClientNetworkError(String);

impl ClientNetwork {
    /// Whether the network has this address; an IPv4 address may be mapped into IPv6.
    pub(crate) fn contains(self, client: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 clients as mapped addresses.
        self.0.contains(&client.to_canonical())
    }
}

impl FromStr for ClientNetwork {
    type Err = ClientNetworkError;

    fn from_str(text: &str) -> Result<Self, ClientNetworkError> {
        let network = text.parse::<IpNet>();
        network
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map(|network| Self(unmapped(network)))
            .map_err(|_| ClientNetworkError(text.to_owned()))
    }
}

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        Self(unmapped(address.into()))
    }
}

/// A network of IPv4 addresses that are mapped into IPv6, as one of IPv4: clients are compared by their IPv4 addresses.
fn unmapped(network: IpNet) -> IpNet {
    /// Bits before the IPv4 address (RFC 4291 section 2.5.5.2).
    const MAPPED_PREFIX: u8 = 96;
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let prefix = mapped.prefix_len().checked_sub(MAPPED_PREFIX);
    let address = mapped.addr().to_ipv4_mapped();
    let unmapped = address.zip(prefix);
    unmapped
        .and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(network, IpNet::V4)
}

impl TryFrom<String> for ClientNetwork {
    type Error = ClientNetworkError;

    fn try_from(text: String) -> Result<Self, ClientNetworkError> {
        text.parse()
    }
}

/// Lists of clients and users. What a deny list names is refused; if there is an allow list, so is everything that
/// it does not name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// Networks whose clients are served.
    pub allow_from: Vec<ClientNetwork>,
    /// Networks whose clients are not served.
    pub deny_from: Vec<ClientNetwork>,
    /// Users who may log in; `anonymous` means anonymous sessions.
    pub allow_users: Vec<String>,
    /// Users who may not log in.
    pub deny_users: Vec<String>,
}

impl AccessLists {
    /// Whether a client at this address is served.
    pub(crate) fn permits_address(&self, client: IpAddr) -> bool {
        permits(&self.allow_from, &self.deny_from, |network| {
            network.contains(client)
        })
    }

    /// Whether this user may log in.
    pub(crate) fn permits_user(&self, user: &str) -> bool {
        permits(&self.allow_users, &self.deny_users, |name| name == user)
    }
}

fn permits<T>(allow: &[T], deny: &[T], matches: impl Fn(&T) -> bool) -> bool {
    let allowed = allow.is_empty() || allow.iter().any(&matches);
    allowed && !deny.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<ClientNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn without_lists_everybody_is_permitted() {
        let lists = AccessLists::default();
        assert!(lists.permits_address([192, 0, 2, 1].into()) && lists.permits_user("ann"));
    }

    #[test]
    fn a_deny_list_wins_over_an_allow_list() {
        let lists = AccessLists {
            allow_from: networks(&["192.0.2.0/24", "2001:db8::/32"]),
            deny_from: networks(&["192.0.2.9", "2001:db8:bad::/48"]),
            allow_users: vec!["ann".into(), "bob".into()],
            deny_users: vec!["bob".into()],
        };
        for (address, permitted) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.9", false),
            ("::ffff:192.0.2.9", false),
            ("198.51.100.1", false),
            ("2001:db8::1", true),
            ("2001:db8:bad::1", false),
        ] {
            let client = address.parse().unwrap();
            assert_eq!(lists.permits_address(client), permitted, "{address}");
        }
        assert!(lists.permits_user("ann"));
        assert!(!lists.permits_user("bob") && !lists.permits_user("eve"));
    }

    #[test]
    fn a_network_of_mapped_addresses_is_one_of_ipv4() {
        for text in ["::ffff:192.0.2.0/120", "::ffff:c000:200/120"] {
            let [network] = networks(&[text])[..] else {
                panic!("{text}");
            };
            for client in ["192.0.2.9", "::ffff:192.0.2.9"] {
                assert!(network.contains(client.parse().unwrap()), "{text} {client}");
            }
            assert!(!network.contains("192.0.3.9".parse().unwrap()));
        }
        let [one] = networks(&["::ffff:192.0.2.9"])[..] else {
            panic!("one address");
        };
        assert!(one.contains([192, 0, 2, 9].into()) && !one.contains([192, 0, 2, 8].into()));
        let [all] = networks(&["::/0"])[..] else {
            panic!("all of IPv6");
        };
        assert!(!all.contains([192, 0, 2, 9].into()));
    }

    #[test]
    fn a_wrong_network_is_named() {
        for text in ["192.0.2.0/33", "example.org", ""] {
            let error = text.parse::<ClientNetwork>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{text}\"")), "{error}");
        }
    }
}
