//! Requests with a limited number of hops: ICMP echo where it is permitted, UDP otherwise.

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::echo_socket::EchoSocket;
use super::socket_message::ProbeAnswer;
use super::udp_socket::UdpSocket;

/// A socket for requests to the hops of one route.
#[derive(Debug)]
pub(super) enum HopProbe {
    /// Echo requests.
    Echo(EchoSocket),
    /// UDP datagrams, which any process may send.
    Udp(UdpSocket),
}

impl HopProbe {
    /// A socket for requests to `client` and the routers before it.
    ///
    /// # Errors
    /// There is no route to the client, or the kernel refuses.
    pub(super) fn open(client: IpAddr) -> io::Result<Self> {
        match EchoSocket::open(client) {
            Ok(socket) => Ok(Self::Echo(socket)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                UdpSocket::open(client).map(Self::Udp)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the request with this number, a packet of `bytes` with its IP header, to the hop; returns when it was
    /// handed to the kernel.
    ///
    /// # Errors
    /// The kernel refuses, or there is no room until `deadline`.
    pub(super) fn ask(
        &self,
        hop: u8,
        sequence: u16,
        bytes: usize,
        deadline: Instant,
    ) -> io::Result<Instant> {
        match self {
            Self::Echo(socket) => {
                socket.set_hop_limit(hop)?;
                socket.send(&socket.request(sequence, bytes), deadline)
            }
            Self::Udp(socket) => {
                socket.set_hop_limit(hop)?;
                socket.send(sequence, bytes, deadline)
            }
        }
    }

    /// Waits for answers until `deadline` and adds them to `answers`. Returns early as soon as there are any.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn receive(
        &self,
        deadline: Instant,
        answers: &mut Vec<ProbeAnswer>,
    ) -> io::Result<()> {
        match self {
            Self::Echo(socket) => socket.receive(deadline, answers),
            Self::Udp(socket) => socket.receive(deadline, answers),
        }
    }

    /// The client.
    pub(super) fn client(&self) -> IpAddr {
        match self {
            Self::Echo(socket) => socket.client(),
            Self::Udp(socket) => socket.client(),
        }
    }

    /// The socket for echo requests, if they are permitted.
    pub(super) fn echo(&self) -> Option<&EchoSocket> {
        match self {
            Self::Echo(socket) => Some(socket),
            Self::Udp(_) => None,
        }
    }

    /// Name of the protocol.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Echo(_) => "icmp",
            Self::Udp(_) => "udp",
        }
    }
}
