//! The data channel of a session: where connections come from, and the ones kept for reuse.
//!
//! A channel is passive (it has a listener) or active (it has addresses). MODE E keeps
//! connections whose end mark had no CLOSE bit for the next transfer in the same direction
//! (GFD.20 §3.4.3); a new PASV or PORT makes a new channel and drops the old one.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::DataError;

/// One data TCP connection.
#[derive(Debug)]
pub struct Stream {
    // private: socket, peer
}

/// From which hosts a passive channel takes connections; others are closed at once and the
/// transfer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Only this host (the control connection's peer).
    Only(IpAddr),
    /// Any host (third-party transfers by users who may).
    Any,
}

/// How a listener is made.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Local address to bind (the control connection's local address).
    pub ip: IpAddr,
    /// Ports to choose from, in random order; `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Who may connect.
    pub accept: Accept,
    /// Set before listen, bytes.
    pub send_buffer: Option<u64>,
    /// Set before listen, bytes.
    pub receive_buffer: Option<u64>,
}

/// A session's data channel.
#[derive(Debug)]
pub struct Channel {
    // private: endpoint, cached streams (with the direction they were used in)
}

impl Channel {
    /// Listens.
    pub fn listen(options: &ListenOptions) -> Result<Self, DataError> {
        let _ = options;
        todo!()
    }

    /// Will connect to these addresses when a transfer starts. `local`: address to bind.
    pub fn connect_to(targets: Vec<SocketAddr>, local: Option<IpAddr>) -> Self {
        let _ = (targets, local);
        todo!()
    }

    /// The listener's address; `None` for an active channel.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        todo!()
    }

    /// Whether a transfer in this direction would use cached connections (reply 125).
    pub fn has_cached(&self, sending: bool) -> bool {
        let _ = sending;
        todo!()
    }

    /// Whether a transfer can run at all (an address was given, or connections are cached);
    /// MODE S uses a channel once.
    pub fn usable(&self) -> bool {
        todo!()
    }

    #[allow(dead_code, reason = "sketch of the seam between channel and send/recv")]
    pub(crate) fn cached(&mut self) -> Vec<Arc<Stream>> {
        todo!()
    }
}
