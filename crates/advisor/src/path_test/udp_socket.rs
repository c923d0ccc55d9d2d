//! A socket for UDP datagrams to unused ports of one client. Routers answer those whose hop limit is used up, and the
//! client says that the port is unreachable, as traceroute(1) expects. Each datagram has a port of its own, because
//! routers need not quote more of it than its header (RFC 792).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use nix::sys::socket::MsgFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::icmp::IcmpVersion;
use super::socket_message::{
    Answerer, ProbeAnswer, Reading, SocketMessage, listen_for_answers, receive_answers, send_until,
    set_hop_limit,
};

/// First destination port, as traceroute.
const FIRST_PORT: u16 = 33_434;

/// The socket.
#[derive(Debug)]
pub(super) struct UdpSocket {
    socket: Socket,
    client: IpAddr,
    version: IcmpVersion,
}

impl UdpSocket {
    /// A socket for datagrams to `client`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn open(client: IpAddr) -> io::Result<Self> {
        let version = IcmpVersion::of(client);
        let (domain, any) = match version {
            IcmpVersion::V4 => (Domain::IPV4, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            IcmpVersion::V6 => (Domain::IPV6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        listen_for_answers(&socket, version)?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        Ok(Self {
            socket,
            client,
            version,
        })
    }

    /// Limits the number of hops of the datagrams that follow.
    pub(super) fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        set_hop_limit(&self.socket, self.version, hops)
    }

    /// Sends the datagram with this number, a packet of `bytes` with its IP header; returns when it was handed to
    /// the kernel.
    ///
    /// # Errors
    /// The number has no port, the kernel refuses, or there is no room until `deadline`.
    pub(super) fn send(
        &self,
        sequence: u16,
        bytes: usize,
        deadline: Instant,
    ) -> io::Result<Instant> {
        let port = FIRST_PORT
            .checked_add(sequence)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // The header of UDP is as long as that of ICMP.
        let payload = vec![0; bytes.saturating_sub(self.version.headers())];
        let address = SocketAddr::new(self.client, port).into();
        send_until(&self.socket, deadline, || {
            self.socket.send_to(&payload, &address)
        })
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
        receive_answers(&self.socket, deadline, answers, |flags| self.read(flags))
    }

    fn read(&self, flags: MsgFlags) -> io::Result<Reading> {
        SocketMessage::read(&self.socket, flags, |message| {
            let error = message.error?;
            let from = match self.version.is_port_unreachable(error.kind, error.code) {
                true if error.router == Some(self.client) => Answerer::Client,
                _ => error.answerer(self.version),
            };
            Some(ProbeAnswer {
                sequence: message.destination_port?.checked_sub(FIRST_PORT)?,
                from,
                at: message.at,
                hop_limit: message.hop_limit,
            })
        })
    }

    /// The client.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn this_machine_says_that_the_port_is_unreachable() {
        for client in ["127.0.0.1", "::1"] {
            let client: IpAddr = client.parse().unwrap();
            let socket = UdpSocket::open(client).unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            let sent = match socket.send(7, 64, deadline) {
                Ok(sent) => sent,
                Err(error) => {
                    eprintln!("SKIPPED: {client}: {error}");
                    continue;
                }
            };
            let mut answers = Vec::new();
            socket.receive(deadline, &mut answers).unwrap();
            let answer = answers[0];
            assert_eq!((answer.sequence, answer.from), (7, Answerer::Client));
            assert!(answer.at >= sent && answer.at <= Instant::now());
        }
    }

    #[test]
    fn a_number_without_a_port_is_refused() {
        let socket = UdpSocket::open(IpAddr::from([127, 0, 0, 1])).unwrap();
        assert!(socket.send(u16::MAX, 64, Instant::now()).is_err());
    }
}
