//! Listeners for the data connections of a session: address, port, and allowed peers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use proto::address::is_same_host;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::DataError;
use crate::handshake;
use proto::sizing::SocketBuffers;

/// Backlog of a listener, as far as the system allows it (net.core.somaxconn): more than any client
/// opens at once, so that foreign connections before the transfer begins do not crowd out the peer.
const BACKLOG: i32 = 4096;

/// Options of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Local address to bind (the local address of the control connection).
    pub ip: IpAddr,
    /// Ports to choose from, in random order; `None`: any port.
    pub ports: Option<RangeInclusive<u16>>,
    /// Hosts that may connect.
    pub accept: AllowedPeers,
    /// Buffers of the connections. Pinned ones are set before listen(2): the receive buffer fixes
    /// the window scale of every connection (RFC 7323 §2.2).
    pub buffers: SocketBuffers,
}

/// Hosts from which a passive channel accepts connections. Others are closed at once, and the
/// transfer continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedPeers {
    /// Only this host (the control connection's peer). IPv4-mapped IPv6 addresses count as IPv4,
    /// and 127.0.0.1 and ::1 are one host.
    Only(IpAddr),
    /// These two hosts: the control connection's peer, and the one that it named.
    Either(IpAddr, IpAddr),
    /// These hosts: the nodes of a striped server.
    Among(Arc<[IpAddr]>),
    /// Any host (third-party transfers, if the administrator allows them).
    Any,
}

impl AllowedPeers {
    /// Whether a host may connect.
    pub fn admits(&self, host: IpAddr) -> bool {
        match self {
            Self::Only(one) => is_same_host(host, *one),
            Self::Either(one, other) => is_same_host(host, *one) || is_same_host(host, *other),
            Self::Among(hosts) => hosts.iter().any(|one| is_same_host(host, *one)),
            Self::Any => true,
        }
    }
}

pub(crate) fn bind_free_port(options: &ListenOptions) -> Result<Socket, DataError> {
    let Some(range) = &options.ports else {
        return bind(options, 0);
    };
    // Sorting by a hash with a random key is a shuffle: each port is tried once.
    // The list is at most 65 536 ports, and a passive command is rare.
    let mut ports: Vec<u16> = range.clone().collect();
    let hasher = RandomState::new();
    ports.sort_by_cached_key(|port| hasher.hash_one(port));
    for port in ports {
        match bind(options, port) {
            // Another listener may use this port; the next one is tried.
            Err(DataError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    Err(DataError::Listen {
        at: SocketAddr::new(options.ip, 0),
        source: io::ErrorKind::AddrInUse.into(),
    })
}

fn bind(options: &ListenOptions, port: u16) -> Result<Socket, DataError> {
    let at = SocketAddr::new(options.ip, port);
    let fail = |source| DataError::Listen { at, source };
    let socket =
        Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP)).map_err(fail)?;
    // SO_REUSEADDR: a port whose last connection is in TIME_WAIT is free for a new listener.
    socket.set_reuse_address(true).map_err(fail)?;
    handshake::before(&socket, options.buffers)?;
    // accept(2) must not block when the peer resets a connection between poll(2) and accept(2).
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&at.into()).map_err(fail)?;
    socket.listen(BACKLOG).map_err(fail)?;
    Ok(socket)
}
