//! Which addresses data connections use: decided from the control connection's own two ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use data::channel::{Accept, ListenOptions};
use proto::address::Family;
use proto::server::{FileError, FileErrorKind, ListenRequest};

use crate::config::ServerConfig;

/// Both ends of a control connection, IPv4 written as IPv4 (not v4-mapped).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// This server's end.
    pub(crate) local: SocketAddr,
    /// The client's end.
    pub(crate) peer: SocketAddr,
}

impl Ends {
    /// Of a socket's addresses. A socket of an IPv6 listener shows IPv4 clients as v4-mapped;
    /// PASV must answer them in IPv4.
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            local: canonical(local),
            peer: canonical(peer),
        }
    }

    /// How to listen for data connections: on the address that the client reached, so that
    /// interface and route are ones it can use.
    pub(crate) fn listen_options(
        &self,
        request: &ListenRequest,
        config: &ServerConfig,
    ) -> Result<ListenOptions, FileError> {
        let ip = address_in_family(self.local.ip(), request.family).ok_or_else(no_such_family)?;
        Ok(ListenOptions {
            ip,
            ports: config.data_ports.map(|(low, high)| low..=high),
            accept: if request.any_host {
                Accept::Any
            } else {
                Accept::Only(self.accepted_peer(request.family))
            },
            send_buffer: request.send_buffer,
            receive_buffer: request.receive_buffer,
        })
    }

    /// Local address for outgoing data connections: the one the client knows, when they all go to
    /// the client itself; otherwise the route decides.
    pub(crate) fn connect_from(&self, targets: &[SocketAddr]) -> Option<IpAddr> {
        targets
            .iter()
            .all(|target| target.ip().to_canonical() == self.peer.ip())
            .then_some(self.local.ip())
    }

    fn accepted_peer(&self, family: Family) -> IpAddr {
        address_in_family(self.peer.ip(), family).unwrap_or(self.peer.ip())
    }
}

/// The address to tell the client: `public` (behind NAT) in place of a local one of its family.
pub(crate) fn told(listening: SocketAddr, public: Option<IpAddr>) -> SocketAddr {
    match public {
        Some(ip) if ip.is_ipv4() == listening.is_ipv4() => SocketAddr::new(ip, listening.port()),
        _ => listening,
    }
}

/// The given host's address in a family: known when it is of that family, and for loopback.
fn address_in_family(ip: IpAddr, family: Family) -> Option<IpAddr> {
    match (family, ip) {
        (Family::V4, IpAddr::V4(_)) => Some(ip),
        // A link-local address is no address without its interface; the client's route knows it.
        (Family::V6, IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            Some(Ipv6Addr::UNSPECIFIED.into())
        }
        (Family::V6, IpAddr::V6(_)) => Some(ip),
        (Family::V4, IpAddr::V6(v6)) if v6.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
        (Family::V6, IpAddr::V4(v4)) if v4.is_loopback() => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn no_such_family() -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: "the control connection uses another address family; use EPSV".to_owned(),
    }
}
