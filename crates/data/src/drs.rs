//! The DRS channel (2004 paper, §4): one TCP connection per transfer, beside the data connections
//! and between the same two hosts.
//!
//! A [`DrsEndpoint`] belongs to a session and is made when DPSV or DPRT is answered. Each transfer
//! makes a connection with it, which its tuning thread drives (`tuning::buffers::drs::link`). No error of
//! this channel fails a transfer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use proto::drs::{DrsAddress, Nonce};
use socket2::Socket;

use crate::error::DataError;
use crate::listener::{AllowedPeers, ListenOptions, bind_free_port};
use crate::os::{random, sockopt};
use proto::sizing::SocketBuffers;

/// Socket buffers of a DRS channel, bytes: enough for far more messages than are ever in flight,
/// and little for a hostile peer to fill.
pub(crate) const SOCKET_BUFFER: u64 = 64 << 10;

/// Seconds for which the kernel may hold a connection back until its first bytes arrive. A silent connection then takes no place among those that may still
/// send the nonce.
const DEFER_SECONDS: i32 = 5;

/// This end of a session's DRS channel. It serves one transfer after the other; each makes its own
/// connection.
#[derive(Debug)]
pub enum DrsEndpoint {
    /// This end listens (DPSV).
    Listening {
        /// Non-blocking.
        listener: Socket,
        /// The address, and the nonce that the peer must send.
        address: DrsAddress,
    },
    /// This end connects (DPRT, or a client).
    Connecting {
        /// The address, and the nonce to send there.
        address: DrsAddress,
        /// Address to connect from, if it has the same family. The peer accepts only addresses of
        /// data connections.
        local: Option<IpAddr>,
    },
}

impl DrsEndpoint {
    /// Listens on `ip`, on a port of `ports` if given, with a new nonce.
    ///
    /// # Errors
    /// [`DataError::Listen`]; [`DataError::Setup`] when the system gives no random bytes.
    pub fn listen(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<Self, DataError> {
        let nonce = fresh_nonce().map_err(|e| DataError::setup("a nonce", e))?;
        let listener = bind_free_port(&ListenOptions {
            ip,
            ports,
            // Allowed peers are decided for each transfer, when its data connections are known.
            accept: AllowedPeers::Any,
            buffers: SocketBuffers::pinned(SOCKET_BUFFER),
        })?;
        // Without the option the connection is only accepted earlier.
        if let Err(error) = sockopt::defer_accept(&listener, DEFER_SECONDS) {
            tracing::debug!(%error, "TCP_DEFER_ACCEPT not set");
        }
        let fail = |source| DataError::Listen {
            at: SocketAddr::new(ip, 0),
            source,
        };
        let bound = listener.local_addr().map_err(fail)?.as_socket();
        let bound = bound.ok_or_else(|| fail(io::ErrorKind::Other.into()))?;
        // The peer learns the address as a text, where IPv4-mapped IPv6 would be unusable for IPv4
        // hosts.
        let at = SocketAddr::new(ip.to_canonical(), bound.port());
        let address = DrsAddress { socket: at, nonce };
        Ok(Self::Listening { listener, address })
    }

    /// An end that connects to `at` when a transfer starts.
    pub fn connect(at: SocketAddr, nonce: Nonce) -> Self {
        let address = DrsAddress { socket: at, nonce };
        let local = None;
        Self::Connecting { address, local }
    }

    /// Connects from `ip`, from which the data connections are made, if it has the family of the
    /// target. Changes nothing for a listening end.
    #[must_use]
    pub fn with_local_address(self, ip: IpAddr) -> Self {
        match self {
            Self::Connecting { address, .. } => Self::Connecting {
                address,
                local: Some(ip),
            },
            listening @ Self::Listening { .. } => listening,
        }
    }

    /// The address to announce to the peer, or the one that the peer announced.
    pub fn address(&self) -> DrsAddress {
        match self {
            Self::Listening { address, .. } | Self::Connecting { address, .. } => *address,
        }
    }
}

fn fresh_nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes)?;
    Ok(Nonce::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn every_endpoint_has_its_own_port_and_nonce() {
        let [one, other] = [(); 2].map(|()| DrsEndpoint::listen(HERE, None).unwrap().address());
        assert!(one.socket.ip() == HERE && one.socket.port() != 0);
        assert_ne!(one.nonce, other.nonce);
    }

    #[test]
    fn the_port_is_taken_from_the_range() {
        // Any free port.
        let port = {
            let free = TcpListener::bind((HERE, 0)).unwrap();
            free.local_addr().unwrap().port()
        };
        let endpoint = DrsEndpoint::listen(HERE, Some(port..=port)).unwrap();
        assert_eq!(endpoint.address().socket.port(), port);
        let taken = DrsEndpoint::listen(HERE, Some(port..=port)).unwrap_err();
        assert!(matches!(taken, DataError::Listen { .. }), "{taken}");
    }

    #[test]
    fn socket_buffers_are_small() {
        let DrsEndpoint::Listening { listener, .. } = DrsEndpoint::listen(HERE, None).unwrap()
        else {
            unreachable!()
        };
        assert_eq!(listener.recv_buffer_size().unwrap(), 128 << 10);
        assert_eq!(listener.send_buffer_size().unwrap(), 128 << 10);
    }
}
