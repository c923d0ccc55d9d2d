//! A socket for echo requests to one client: unprivileged where the system allows it (`SOCK_DGRAM`, icmp(7)), raw
//! otherwise. It receives replies, and from the error queue (`IP_RECVERR`, ip(7)) the answers of routers.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::icmp::{EchoMessage, IcmpVersion, after_ipv4_header};

/// Receive buffer, bytes: replies that arrive while the thread waits for a processor. Without privilege the kernel gives
/// what `net.core.rmem_max` allows.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Bytes read of a message: an IPv4 header with options, the ICMP header and the token. The rest is discarded.
const READ: usize = 128;
/// Bytes for control messages: a timestamp, a hop limit and an extended error with its address.
const CONTROL: usize = 512;

/// Who answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answerer {
    /// The client.
    Client,
    /// A router at which the hop limit was used up.
    Router(IpAddr),
    /// A router or the client, which says that there is no way on.
    Unreachable(Option<IpAddr>),
}

/// An answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EchoAnswer {
    /// Sequence number of the request.
    pub(super) sequence: u16,
    /// Who sent it.
    pub(super) from: Answerer,
    /// Arrival, as the kernel noted it.
    pub(super) at: Instant,
    /// Hop limit that the answer arrived with.
    pub(super) hop_limit: Option<u8>,
}

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
        socket.set_nonblocking(true)?;
        enlarge_receive_buffer(&socket);
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        match version {
            IcmpVersion::V4 => {
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
                setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
            }
            IcmpVersion::V6 => {
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
                setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
            }
        }
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

    /// Limits the number of hops of the requests that follow.
    pub(super) fn set_hop_limit(&self, hops: u8) -> io::Result<()> {
        match self.version {
            IcmpVersion::V4 => self.socket.set_ttl_v4(u32::from(hops)),
            IcmpVersion::V6 => self.socket.set_unicast_hops_v6(u32::from(hops)),
        }
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
        loop {
            let sent = Instant::now();
            match self.socket.send(request) {
                Ok(_) => return Ok(sent),
                Err(error) if is_full(&error) => {
                    if sent >= deadline {
                        return Err(error);
                    }
                    // A full device queue (ENOBUFS) does not make the socket unwritable, so the wait is short.
                    self.wait(PollFlags::OUT, Duration::from_millis(1))?;
                    if error.kind() != io::ErrorKind::WouldBlock {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                // An answer of a router is reported once by the next call, whichever it is (ip(7)).
                Err(error) if is_answer_of_router(&error) && sent < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for answers until `deadline` and adds those that are there to `answers`. Returns early as soon as there
    /// are any.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn receive(
        &self,
        deadline: Instant,
        answers: &mut Vec<EchoAnswer>,
    ) -> io::Result<()> {
        loop {
            let before = answers.len();
            while let Some(answer) = self.read(MsgFlags::empty())? {
                answers.extend(answer);
            }
            while let Some(answer) = self.read(MsgFlags::MSG_ERRQUEUE)? {
                answers.extend(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if answers.len() > before || left.is_zero() {
                return Ok(());
            }
            self.wait(PollFlags::IN, left)?;
        }
    }

    fn wait(&self, events: PollFlags, time: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.socket, events)];
        let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads one message. `None`: there is none. `Some(None)`: it is not an answer to this socket.
    fn read(&self, flags: MsgFlags) -> io::Result<Option<Option<EchoAnswer>>> {
        let mut bytes = [0; READ];
        let mut control = [0; CONTROL];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = self.socket.as_fd().as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(error) => {
                let error = io::Error::from(error);
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => Ok(Some(None)),
                    _ if is_answer_of_router(&error) => Ok(Some(None)),
                    _ => Err(error),
                };
            }
        };
        let now = (Instant::now(), SystemTime::now());
        let mut at = now.0;
        let mut hop_limit = None;
        let mut from = Answerer::Client;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(time) => {
                    at = arrival(Duration::from(time), now);
                }
                ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                    hop_limit = u8::try_from(hops).ok();
                }
                ControlMessageOwned::Ipv4RecvErr(error, router) => {
                    let router = router.map(|a| Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)));
                    from = self.answerer(error.ee_type, router.map(IpAddr::V4));
                }
                ControlMessageOwned::Ipv6RecvErr(error, router) => {
                    let router = router.map(|a| Ipv6Addr::from(a.sin6_addr.s6_addr));
                    from = self.answerer(error.ee_type, router.map(IpAddr::V6));
                }
                _ => {}
            }
        }
        let length = message.bytes;
        let bytes = bytes.get(..length.min(READ)).unwrap_or_default();
        Ok(Some(self.sequence(bytes, from).map(|sequence| {
            EchoAnswer {
                sequence,
                from,
                at,
                hop_limit,
            }
        })))
    }

    fn answerer(&self, kind: u8, router: Option<IpAddr>) -> Answerer {
        // An error without a router is of this host, such as a packet that is too long.
        match router {
            Some(router) if self.version.is_time_exceeded(kind) => Answerer::Router(router),
            router => Answerer::Unreachable(router),
        }
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

/// The kernel's time of arrival on this process' clock. The kernel uses the clock of the day, which may be set while
/// the message waits: then, the time of reading counts.
fn arrival(noted: Duration, (now, day_time): (Instant, SystemTime)) -> Instant {
    let noted = UNIX_EPOCH.checked_add(noted);
    let waited = noted.and_then(|noted| day_time.duration_since(noted).ok());
    waited
        .filter(|waited| *waited < LONGEST_WAIT)
        .and_then(|waited| now.checked_sub(waited))
        .unwrap_or(now)
}

/// Longest time that a message waits for this thread, unless the clock was set.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

fn enlarge_receive_buffer(socket: &Socket) {
    // Privileged first; without it the kernel gives what it allows, and a smaller buffer only loses answers.
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    }
}

fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == io::ErrorKind::WouldBlock
        || error.kind() == io::ErrorKind::Interrupted
        || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// Whether an error of the socket stands for a message in the error queue.
fn is_answer_of_router(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::CONNREFUSED
                | Errno::PROTO
                | Errno::ACCESS
                | Errno::MSGSIZE
                | Errno::OPNOTSUPP
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply from this machine; `None` if echo sockets are not permitted here.
    fn answer_of(client: IpAddr) -> Option<(Instant, EchoAnswer)> {
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

    #[test]
    fn a_clock_that_was_set_does_not_move_an_arrival() {
        let now = (Instant::now(), UNIX_EPOCH + Duration::from_secs(1000));
        let noted = Duration::from_millis(999_990);
        assert_eq!(arrival(noted, now), now.0 - Duration::from_millis(10));
        assert_eq!(arrival(Duration::from_secs(2000), now), now.0);
        assert_eq!(arrival(Duration::from_secs(10), now), now.0);
        assert_eq!(arrival(Duration::MAX, now), now.0);
    }
}
