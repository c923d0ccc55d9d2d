//! The addresses of data connections, derived from the two addresses of the control connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use data::channel::{AllowedPeers, ListenOptions};
use proto::address::AddressFamily;
use proto::address::is_same_host;
use proto::server::{FileError, FileErrorKind, ListenRequest};

use crate::config::ServerConfig;

/// Both addresses of a control connection; IPv4 addresses are never v4-mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlAddresses {
    /// The server's address.
    pub(crate) local: SocketAddr,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// A proxy forwards the connection: the ends are not those of the client's connection.
    is_proxied: bool,
}

impl ControlAddresses {
    /// Takes a socket's two addresses. A socket of an IPv6 listener reports IPv4 clients as v4-mapped
    /// addresses (ipv6(7)), but PASV must answer them with an IPv4 address.
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            local: without_v4_mapping(local),
            peer: without_v4_mapping(peer),
            is_proxied: false,
        }
    }

    /// The same addresses of a connection that a proxy forwards.
    #[must_use]
    pub(crate) fn through_proxy(self) -> Self {
        Self {
            is_proxied: true,
            ..self
        }
    }

    /// The other end of the connection itself; `None` for one that a proxy forwards.
    pub(crate) fn direct_peer(&self) -> Option<IpAddr> {
        (!self.is_proxied).then(|| self.peer.ip())
    }

    /// Whether both ends are on the loopback interface of this host. They never are for a connection of a
    /// proxy, whose client is anywhere.
    pub(crate) fn are_loopback(&self) -> bool {
        !self.is_proxied && self.local.ip().is_loopback() && self.peer.ip().is_loopback()
    }

    /// How to listen for data connections: on the address that the client's control connection reached,
    /// because the client has a route to it.
    pub(crate) fn listen_options(
        &self,
        request: &ListenRequest,
        config: &ServerConfig,
    ) -> Result<ListenOptions, FileError> {
        let ip = self.listen_address(request.family)?;
        Ok(ListenOptions {
            ip,
            ports: config.data_ports.map(|(low, high)| low..=high),
            // Without the third-party right only the client itself may connect (RFC 2577 section 8).
            accept: match (request.any_host, request.other_hosts.as_slice()) {
                (true, _) => AllowedPeers::Any,
                (false, []) => AllowedPeers::Only(self.accepted_peer(request.family)),
                (false, [other]) => {
                    AllowedPeers::Either(self.accepted_peer(request.family), *other)
                }
                (false, others) => {
                    let client = std::iter::once(self.accepted_peer(request.family));
                    AllowedPeers::Among(client.chain(others.iter().copied()).collect())
                }
            },
            buffers: request.buffers,
        })
    }

    /// The local address to listen on for a peer that uses `family`.
    pub(crate) fn listen_address(&self, family: AddressFamily) -> Result<IpAddr, FileError> {
        address_in_family(self.local.ip(), family).ok_or_else(wrong_family_error)
    }

    /// Local address of outgoing data connections.
    ///
    /// It is the server's control address if all targets are the client itself, or hosts that the client
    /// named: their server was told this address and accepts no other. `None` leaves the choice to the
    /// routing table: if any host may be a target (`foreign`), and from a loopback address to other hosts.
    pub(crate) fn bind_address(&self, targets: &[SocketAddr], foreign: bool) -> Option<IpAddr> {
        let local = self.local.ip();
        let to_client = |target: &SocketAddr| is_same_host(target.ip(), self.peer.ip());
        let named = |target: &SocketAddr| {
            let host = target.ip().to_canonical();
            !foreign && local.is_loopback() == host.is_loopback()
        };
        targets
            .iter()
            .all(|target| to_client(target) || named(target))
            .then_some(local)
    }

    fn accepted_peer(&self, family: AddressFamily) -> IpAddr {
        address_in_family(self.peer.ip(), family).unwrap_or(self.peer.ip())
    }
}

/// The address to tell the client: `public` (behind NAT) replaces a local address of its family.
pub(crate) fn advertised_address(listening: SocketAddr, public: Option<IpAddr>) -> SocketAddr {
    match public {
        Some(ip) if ip.is_ipv4() == listening.is_ipv4() => SocketAddr::new(ip, listening.port()),
        _ => listening,
    }
}

/// The host's address in `family`, if it is known: if `ip` is of that family, or loopback.
fn address_in_family(ip: IpAddr, family: AddressFamily) -> Option<IpAddr> {
    match (family, ip) {
        (AddressFamily::V4, IpAddr::V4(_)) => Some(ip),
        // A link-local address means nothing without its interface (RFC 4007), so listen on all;
        // EPSV replies name only the port.
        (AddressFamily::V6, IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            Some(Ipv6Addr::UNSPECIFIED.into())
        }
        (AddressFamily::V6, IpAddr::V6(_)) => Some(ip),
        (AddressFamily::V4, IpAddr::V6(v6)) if v6.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
        (AddressFamily::V6, IpAddr::V4(v4)) if v4.is_loopback() => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    }
}

fn without_v4_mapping(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn wrong_family_error() -> FileError {
    FileError::new(
        FileErrorKind::Other,
        "the control connection uses another address family; use EPSV",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn request(family: AddressFamily, any_host: bool) -> ListenRequest {
        ListenRequest {
            family,
            any_host,
            other_hosts: Vec::new(),
            striped: None,
            buffers: proto::sizing::SocketBuffers::default(),
        }
    }

    fn listen(
        ends: &ControlAddresses,
        family: AddressFamily,
        any_host: bool,
    ) -> Option<(IpAddr, AllowedPeers)> {
        ends.listen_options(&request(family, any_host), &ServerConfig::default())
            .ok()
            .map(|options| (options.ip, options.accept))
    }

    #[test]
    fn a_v4_mapped_control_connection_listens_on_ipv4() {
        let ends = ControlAddresses::new(at("[::ffff:10.0.0.1]:21"), at("[::ffff:10.0.0.9]:5000"));
        let peer = AllowedPeers::Only(at("10.0.0.9:0").ip());
        let expected = Some((at("10.0.0.1:0").ip(), peer));
        assert_eq!(listen(&ends, AddressFamily::V4, false), expected);
        assert_eq!(listen(&ends, AddressFamily::V6, false), None);
        assert!(matches!(
            listen(&ends, AddressFamily::V4, true),
            Some((_, AllowedPeers::Any))
        ));
    }

    #[test]
    fn the_named_host_and_the_client_may_connect() {
        let ends = ControlAddresses::new(at("10.0.0.1:21"), at("10.0.0.9:5000"));
        let other = at("10.0.0.7:0").ip();
        let request = ListenRequest {
            other_hosts: vec![other],
            ..request(AddressFamily::V4, false)
        };
        let options = ends.listen_options(&request, &ServerConfig::default());
        let expected = AllowedPeers::Either(at("10.0.0.9:0").ip(), other);
        assert_eq!(options.unwrap().accept, expected);
    }

    #[test]
    fn a_proxied_connection_is_never_on_the_loopback_interface() {
        let ends = ControlAddresses::new(at("127.0.0.1:21"), at("127.0.0.1:5000"));
        assert!(ends.are_loopback());
        assert!(!ends.through_proxy().are_loopback());
    }

    #[test]
    fn loopback_has_an_address_in_both_families() {
        let ends = ControlAddresses::new(at("[::1]:21"), at("[::1]:5000"));
        let v4 = at("127.0.0.1:0").ip();
        assert_eq!(
            listen(&ends, AddressFamily::V4, false),
            Some((v4, AllowedPeers::Only(v4)))
        );
    }

    #[test]
    fn the_public_address_replaces_only_addresses_of_its_family() {
        let public = Some(at("192.0.2.7:0").ip());
        assert_eq!(
            advertised_address(at("10.0.0.1:9"), public),
            at("192.0.2.7:9")
        );
        assert_eq!(advertised_address(at("[::1]:9"), public), at("[::1]:9"));
        assert_eq!(advertised_address(at("10.0.0.1:9"), None), at("10.0.0.1:9"));
    }

    #[test]
    fn connections_to_the_client_and_to_named_hosts_bind_to_the_control_address() {
        let ends = ControlAddresses::new(at("127.0.0.1:21"), at("127.0.0.1:5000"));
        let client = at("127.0.0.1:6000");
        let third = at("192.0.2.7:6000");
        assert_eq!(ends.bind_address(&[client], true), Some(ends.local.ip()));
        assert_eq!(ends.bind_address(&[client, third], true), None);
        let v6 = ControlAddresses::new(at("[::1]:21"), at("[::1]:5000"));
        assert_eq!(v6.bind_address(&[client], true), Some(v6.local.ip()));
        // No route leads from a loopback address to another host.
        assert_eq!(ends.bind_address(&[third], false), None);
        let ends = ControlAddresses::new(at("192.0.2.1:21"), at("192.0.2.9:5000"));
        assert_eq!(ends.bind_address(&[third], false), Some(ends.local.ip()));
        assert_eq!(ends.bind_address(&[third], true), None);
    }
}
