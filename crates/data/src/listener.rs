//! Listening for connections of a session: where, on which port, and for whom.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use proto::address::is_same_host;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::DataError;
use crate::handshake;
use proto::sizing::SocketBuffers;

/// Connections that may wait to be accepted, as far as the system allows (net.core.somaxconn): more
/// than any client opens at once, so that strangers who connect before the transfer begins do not
/// crowd out the peer.
const BACKLOG: i32 = 4096;

/// How a listener is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Local address to bind (the control connection's local address).
    pub ip: IpAddr,
    /// Ports to choose from, in random order; `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Who may connect.
    pub accept: AllowedPeers,
    /// The connections' buffers. Pinned ones are set before listen: the receive buffer fixes the window
    /// scale of every connection for life. Otherwise who will size them decides what is asked for.
    pub buffers: SocketBuffers,
}

/// From which hosts a passive channel takes connections; others are closed at once and the
/// transfer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedPeers {
    /// Only this host (the control connection's peer). IPv4-mapped IPv6 addresses count as IPv4,
    /// and 127.0.0.1 and ::1 are one host.
    Only(IpAddr),
    /// These two hosts: the control connection's peer, and the one that it named.
    Either(IpAddr, IpAddr),
    /// Any host (third-party transfers, where the administrator allows it).
    Any,
}

impl AllowedPeers {
    /// Whether a host may connect.
    pub fn admits(self, host: IpAddr) -> bool {
        match self {
            Self::Only(one) => is_same_host(host, one),
            Self::Either(one, other) => is_same_host(host, one) || is_same_host(host, other),
            Self::Any => true,
        }
    }
}

pub(crate) fn bind_free_port(options: &ListenOptions) -> Result<Socket, DataError> {
    let Some(range) = &options.ports else {
        return bind(options, 0);
    };
    // A random start and an odd-stepped walk would repeat on small ranges; a shuffle does not.
    let mut ports: Vec<u16> = range.clone().collect();
    let hasher = RandomState::new();
    ports.sort_by_cached_key(|port| hasher.hash_one(port));
    for port in ports {
        match bind(options, port) {
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
    // A port whose last connection is still in TIME_WAIT is free for a new listener.
    socket.set_reuse_address(true).map_err(fail)?;
    handshake::before(&socket, options.buffers)?;
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&at.into()).map_err(fail)?;
    socket.listen(BACKLOG).map_err(fail)?;
    Ok(socket)
}
