//! A socket for echo requests to one client: unprivileged where the system allows it (`SOCK_DGRAM`, icmp(7)), raw
//! otherwise. It receives replies, and from the error queue (`IP_RECVERR`, ip(7)) the answers of routers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use nix::sys::socket::{MsgFlags, TimestampingFlag, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::icmp::{EchoMessage, IcmpVersion, after_ipv4_header};
use super::socket_message::{
    Answerer, ProbeAnswer, Reading, SocketMessage, listen_for_answers, receive_answers, send_until,
    set_hop_limit,
};

/// Receive buffer, bytes: replies that arrive while the thread waits for a processor. Without privilege the kernel gives
/// what `net.core.rmem_max` allows.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The socket. Answers to other programs are not seen.
#[derive(Debug)]
pub(super) struct EchoSocket {
    socket: Socket,
    client: IpAddr,
    version: IcmpVersion,
    is_raw: bool,
    identifier: u16,
    token: u64,
}

impl EchoSocket {
    /// A socket for requests to `client`.
    ///
    /// # Errors
    /// Neither kind of socket is permitted, or there is no route.
    pub(super) fn open(client: IpAddr) -> io::Result<Self> {
        let version = IcmpVersion::of(client);
        let (domain, protocol) = match version {
            IcmpVersion::V4 => (Domain::IPV4, Protocol::ICMPV4),
            IcmpVersion::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let (socket, is_raw) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(refused) => match Socket::new(domain, Type::RAW, Some(protocol)) {
                Ok(socket) => (socket, true),
                // The error of the unprivileged socket says what to allow.
                Err(_) => return Err(refused),
            },
        };
        enlarge_receive_buffer(&socket);
        listen_for_answers(&socket, version)?;
        // Only the client's messages are received, and the route's errors.
        socket.connect(&SocketAddr::new(client, 0).into())?;
        Ok(Self {
            socket,
            client,
            version,
            is_raw,
            identifier: rand::random(),
            token: rand::random(),
        })
    }

    /// Has the kernel note when each request leaves, where the network driver can: for the first requests of a
    /// socket, in the order of their numbers from 0.
    pub(super) fn note_departures(&self) {
        let wanted = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        // Without it, the time of the system call counts.
        let _ = setsockopt(&self.socket, sockopt::Timestamping, &wanted);
    }

    /// Limits the number of hops of the requests that follow.
    pub(super) fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        set_hop_limit(&self.socket, self.version, hops)
    }

    /// The request with this number, as a packet of `bytes` with its IP header, for [`send`](Self::send).
    pub(super) fn request(&self, sequence: u16, bytes: usize) -> Vec<u8> {
        let message = EchoMessage {
            identifier: self.identifier,
            sequence,
            token: self.token,
        };
        let ip_header = self.version.headers() - super::icmp::ICMP_HEADER;
        message.request(self.version, bytes.saturating_sub(ip_header))
    }

    /// Sends a request; returns when it was handed to the kernel. Waits at most until `deadline` for room.
    ///
    /// # Errors
    /// The kernel refuses, or there is no room in time.
    pub(super) fn send(&self, request: &[u8], deadline: Instant) -> io::Result<Instant> {
        send_until(&self.socket, deadline, || self.socket.send(request))
    }

    /// Waits for answers until `deadline` and adds those that are there to `answers`. Returns early as soon as there
    /// are any.
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
            if let Some((number, at)) = message.departure() {
                return Some(ProbeAnswer {
                    sequence: u16::try_from(number).ok()?,
                    from: Answerer::OwnDevice,
                    at: at?,
                    hop_limit: None,
                });
            }
            let from = match message.error {
                None => Answerer::Client,
                Some(error) => error.answerer(self.version),
            };
            Some(ProbeAnswer {
                sequence: self.sequence(message.bytes(), from)?,
                from,
                at: message.at,
                hop_limit: message.hop_limit,
            })
        })
    }

    /// The number of the request that a message answers; `None` if it answers none of ours.
    fn sequence(&self, bytes: &[u8], from: Answerer) -> Option<u16> {
        let echo = match from {
            Answerer::Client if self.is_raw && self.version == IcmpVersion::V4 => {
                EchoMessage::of_reply(self.version, after_ipv4_header(bytes)?)?
            }
            Answerer::Client => EchoMessage::of_reply(self.version, bytes)?,
            _ => EchoMessage::of_quoted_request(self.version, bytes)?,
        };
        // The kernel matches identifiers for unprivileged sockets only, and changes them there.
        let is_identified = !self.is_raw || echo.identifier == self.identifier;
        let is_quoted_without = from != Answerer::Client && echo.token == 0;
        let is_ours = echo.token == self.token || is_quoted_without;
        (is_identified && is_ours).then_some(echo.sequence)
    }

    /// The client.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }
}

fn enlarge_receive_buffer(socket: &Socket) {
    // Privileged first; without it the kernel gives what it allows, and a smaller buffer only loses answers.
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A reply from this machine; `None` if echo sockets are not permitted here.
    fn answer_of(client: IpAddr) -> Option<(Instant, ProbeAnswer)> {
        let socket = match EchoSocket::open(client) {
            Ok(socket) => socket,
            Err(error) => {
                eprintln!("SKIPPED: {client}: {error}");
                return None;
            }
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        let sent = socket.send(&socket.request(77, 1500), deadline).unwrap();
        let mut answers = Vec::new();
        socket.receive(deadline, &mut answers).unwrap();
        Some((sent, answers[0]))
    }

    #[test]
    fn this_machine_answers_an_echo_request() {
        for client in ["127.0.0.1", "::1"] {
            let Some((sent, answer)) = answer_of(client.parse().unwrap()) else {
                continue;
            };
            assert_eq!((answer.sequence, answer.from), (77, Answerer::Client));
            assert!(answer.at >= sent && answer.at <= Instant::now());
            assert_eq!(answer.hop_limit, Some(64));
        }
    }
}
