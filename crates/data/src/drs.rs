//! The DRS channel (2004 paper, §4): one TCP connection a transfer, beside the data connections
//! and between the same two hosts.
//!
//! An [`DrsEndpoint`] belongs to a session and is made when DPSV or DPRT is answered. A transfer makes
//! a connection with it, which its sizing thread drives (`sizing::drs::link`). Nothing that happens here fails a transfer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use proto::drs::{DrsAddress, Nonce};
use rustix::rand::{GetRandomFlags, getrandom};
use socket2::Socket;

use crate::error::DataError;
use crate::listener::{AllowedPeers, ListenOptions, bind_free_port};
use crate::os::sockopt;
use proto::sizing::SocketBuffers;

/// Socket buffers of a DRS channel, bytes: room for far more messages than are ever under way, and
/// little for somebody else to fill.
pub(crate) const BUFFER: u64 = 64 << 10;

/// The kernel keeps a connection to itself until its first bytes are there, up to so many seconds
/// (TCP_DEFER_ACCEPT, tcp(7)): who says nothing takes no place among those that wait to be heard.
const DEFER_SECONDS: i32 = 5;

/// This end of a session's DRS channel. It serves one transfer after the other: each makes a
/// connection of its own.
#[derive(Debug)]
pub enum DrsEndpoint {
    /// This end listens (DPSV).
    Listening {
        /// Not blocking.
        listener: Socket,
        /// Where, and what the other end must say.
        address: DrsAddress,
    },
    /// This end connects (DPRT, or a client).
    Connecting {
        /// Where, and what to say there.
        address: DrsAddress,
        /// Address to connect from, where it fits: the other end only takes the data connections'.
        local: Option<IpAddr>,
    },
}

impl DrsEndpoint {
    /// Listens on `ip`, on a port of `ports` if given, with a fresh nonce.
    ///
    /// # Errors
    /// [`DataError::Listen`]; [`DataError::Setup`] when the system gives no random bytes.
    pub fn listen(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<Self, DataError> {
        let nonce = fresh_nonce().map_err(|e| DataError::setup("a nonce", e))?;
        let listener = bind_free_port(&ListenOptions {
            ip,
            ports,
            // Who may speak is decided for each transfer, when its data connections are known.
            accept: AllowedPeers::Any,
            buffers: SocketBuffers::pinned(BUFFER),
        })?;
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
        if let Err(error) = sockopt::set_int(listener.as_fd(), level, name, DEFER_SECONDS) {
            tracing::debug!(%error, "TCP_DEFER_ACCEPT not set");
        }
        let fail = |source| DataError::Listen {
            at: SocketAddr::new(ip, 0),
            source,
        };
        let bound = listener.local_addr().map_err(fail)?.as_socket();
        let bound = bound.ok_or_else(|| fail(io::ErrorKind::Other.into()))?;
        let at = SocketAddr::new(ip.to_canonical(), bound.port());
        let address = DrsAddress { socket: at, nonce };
        Ok(Self::Listening { listener, address })
    }

    /// Will connect there when a transfer starts.
    pub fn connect(at: SocketAddr, nonce: Nonce) -> Self {
        let address = DrsAddress { socket: at, nonce };
        let local = None;
        Self::Connecting { address, local }
    }

    /// Connects from this address, which the data connections are made from (where it is of the
    /// family that is connected to). Changes nothing for a listening end.
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

    /// The address to tell the other end, or that was told.
    pub fn address(&self) -> DrsAddress {
        match self {
            Self::Listening { address, .. } | Self::Connecting { address, .. } => *address,
        }
    }
}

fn fresh_nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 16];
    // getrandom(2) gives up to 256 bytes whole.
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Nonce::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn every_endpoint_has_a_port_and_a_nonce_of_its_own() {
        let [one, other] = [(); 2].map(|()| DrsEndpoint::listen(HERE, None).unwrap().address());
        assert!(one.socket.ip() == HERE && one.socket.port() != 0);
        assert_ne!(one.nonce, other.nonce);
    }

    #[test]
    fn the_port_is_of_the_range() {
        // Whatever is free.
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
    fn buffers_are_small() {
        let DrsEndpoint::Listening { listener, .. } = DrsEndpoint::listen(HERE, None).unwrap()
        else {
            unreachable!()
        };
        assert_eq!(listener.recv_buffer_size().unwrap(), 128 << 10);
        assert_eq!(listener.send_buffer_size().unwrap(), 128 << 10);
    }
}
