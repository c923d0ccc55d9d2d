//! The DRS channel's endpoints (2004 paper, §4): one TCP connection beside the data connections,
//! between the same two hosts.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use proto::drs::{DrsAddress, Nonce};
use socket2::Socket;

use crate::error::DataError;

/// This end of a session's DRS channel. It serves one transfer after the other: each makes a
/// connection of its own.
#[derive(Debug)]
pub enum Endpoint {
    /// This end listens (DPSV).
    Listening {
        /// Not blocking.
        listener: Socket,
        /// Where, and what the other end must say.
        address: DrsAddress,
    },
    /// This end connects (DPRT, or a client).
    Connecting(DrsAddress),
}

impl Endpoint {
    /// Listens on `ip`, on a port of `ports` if given, with a fresh nonce.
    ///
    /// # Errors
    /// [`DataError::Listen`]; [`DataError::Setup`] when the system gives no random bytes.
    pub fn listen(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<Self, DataError> {
        let _ = (ip, ports);
        todo!("drs endpoint")
    }

    /// Will connect there when a transfer starts.
    pub fn connect(at: SocketAddr, nonce: Nonce) -> Self {
        Self::Connecting(DrsAddress { at, nonce })
    }

    /// The address to tell the other end, or that was told.
    pub fn address(&self) -> DrsAddress {
        match self {
            Self::Listening { address, .. } | Self::Connecting(address) => *address,
        }
    }
}
