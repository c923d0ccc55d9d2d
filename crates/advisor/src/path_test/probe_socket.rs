//! Sockets that test a path, and their messages: who answered which request, and when. The answers of routers come from the
//! error queue (`IP_RECVERR`, ip(7)), times from the kernel (`SO_TIMESTAMPNS`).

use std::io;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike as _, SockaddrStorage, TimestampingFlag, recvmsg,
    setsockopt, sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::icmp::{EchoMessage, IcmpVersion, after_ipv4_header};

/// Bytes read of a message: an IPv4 header with options, the ICMP header and the token. The rest is discarded.
const READ: usize = 128;
/// Bytes for control messages: timestamps, a hop limit and an extended error with its address.
const CONTROL: usize = 512;
/// Longest time that a message waits for this thread, unless the clock was set.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Both clocks are read again if that took longer: the thread lost its processor in between.
const CLOCKS_READ_WITHIN: Duration = Duration::from_micros(20);
/// Origin of an entry of the error queue that is the time of sending (linux/errqueue.h).
const ORIGIN_TIMESTAMPING: u8 = 4;

/// Who answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answerer {
    /// The client.
    Client,
    /// A router at which the hop limit was used up.
    Router(IpAddr),
    /// A router or the client, which says that there is no way on.
    Unreachable(Option<IpAddr>),
    /// The network driver of this host, which tells when the request left.
    OwnDevice,
}

/// An answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    /// Sequence number of the request.
    pub(super) sequence: u16,
    /// Who sent it.
    pub(super) from: Answerer,
    /// Arrival, as the kernel noted it.
    pub(super) at: Instant,
    /// Hop limit that the answer arrived with.
    pub(super) hop_limit: Option<u8>,
}

/// An ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IcmpError {
    /// Type of the message.
    pub(super) kind: u8,
    /// Its code.
    pub(super) code: u8,
    /// Its sender; `None`: this host, for example because a packet is too long.
    pub(super) router: Option<IpAddr>,
}

impl IcmpError {
    /// Who answered with it.
    fn answerer(self, version: IcmpVersion) -> Answerer {
        match self.router {
            Some(router) if version.is_time_exceeded(self.kind) => Answerer::Router(router),
            router => Answerer::Unreachable(router),
        }
    }
}

/// The outcome of one system call that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// There is no message.
    Nothing,
    /// A message that is no answer to this socket.
    Other,
    /// An answer.
    Answer(ProbeAnswer),
}

/// A message of the socket or of its error queue.
#[derive(Debug)]
struct SocketMessage {
    bytes: [u8; READ],
    length: usize,
    /// Arrival, as the kernel noted it.
    pub(super) at: Instant,
    noted: Option<Instant>,
    /// Hop limit that it arrived with.
    pub(super) hop_limit: Option<u8>,
    /// The error that it tells of.
    pub(super) error: Option<IcmpError>,
    /// Destination port of the packet that caused an error.
    pub(super) destination_port: Option<u16>,
    departed: Option<u32>,
}

impl SocketMessage {
    /// Reads one message, which `understand` turns into an answer.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn read(
        socket: &Socket,
        flags: MsgFlags,
        understand: impl FnOnce(&Self) -> Option<ProbeAnswer>,
    ) -> io::Result<Reading> {
        let mut bytes = [0; READ];
        let mut control = [0; CONTROL];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = socket.as_fd().as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(error) => {
                let error = io::Error::from(error);
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Reading::Nothing),
                    io::ErrorKind::Interrupted => Ok(Reading::Other),
                    _ if is_answer_of_router(&error) => Ok(Reading::Other),
                    _ => Err(error),
                };
            }
        };
        let clocks = ClockPair::read();
        let mut found = Self {
            bytes: [0; READ],
            length: message.bytes.min(READ),
            at: clocks.now,
            noted: None,
            hop_limit: None,
            error: None,
            destination_port: message.address.and_then(port_of),
            departed: None,
        };
        for control in message.cmsgs()? {
            found.take_in(&control, clocks);
        }
        found.at = found.noted.unwrap_or(found.at);
        found.bytes = bytes;
        Ok(understand(&found).map_or(Reading::Other, Reading::Answer))
    }

    fn take_in(&mut self, control: &ControlMessageOwned, clocks: ClockPair) {
        match control {
            ControlMessageOwned::ScmTimestampns(time) => {
                self.noted = clocks.moment_of(Duration::from(*time));
            }
            ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                self.hop_limit = u8::try_from(*hops).ok();
            }
            ControlMessageOwned::Ipv4RecvErr(error, router) => {
                let router = router.map(|a| Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)));
                self.take_in_error(error, router.map(IpAddr::V4));
            }
            ControlMessageOwned::Ipv6RecvErr(error, router) => {
                let router = router.map(|a| Ipv6Addr::from(a.sin6_addr.s6_addr));
                self.take_in_error(error, router.map(IpAddr::V6));
            }
            _ => {}
        }
    }

    fn take_in_error(&mut self, error: &nix::libc::sock_extended_err, router: Option<IpAddr>) {
        if error.ee_origin == ORIGIN_TIMESTAMPING {
            self.departed = Some(error.ee_data);
        } else {
            self.error = Some(IcmpError {
                kind: error.ee_type,
                code: error.ee_code,
                router,
            });
        }
    }

    /// If this is the time of sending: the number of the packet of this socket, and the time, unless the clock was set.
    pub(super) fn departure(&self) -> Option<(u32, Option<Instant>)> {
        self.departed.map(|number| (number, self.noted))
    }

    /// Its first bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn port_of(address: SockaddrStorage) -> Option<u16> {
    match address.family()? {
        nix::sys::socket::AddressFamily::Inet => Some(address.as_sockaddr_in()?.port()),
        nix::sys::socket::AddressFamily::Inet6 => Some(address.as_sockaddr_in6()?.port()),
        _ => None,
    }
}

/// Prepares a socket: it does not block, notes times and hop limits, and keeps the answers of routers.
///
/// # Errors
/// The kernel refuses.
fn listen_for_answers(socket: &Socket, version: IcmpVersion) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    match version {
        IcmpVersion::V4 => {
            setsockopt(socket, sockopt::Ipv4RecvErr, &true)?;
            setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
        }
        IcmpVersion::V6 => {
            setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
            setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        }
    }
    Ok(())
}

/// Limits the number of hops of the packets that follow.
///
/// # Errors
/// The kernel refuses.
pub(super) fn set_hop_limit(socket: &Socket, version: IcmpVersion, hops: u8) -> io::Result<()> {
    match version {
        IcmpVersion::V4 => socket.set_ttl_v4(u32::from(hops)),
        IcmpVersion::V6 => socket.set_unicast_hops_v6(u32::from(hops)),
    }
}

/// Waits for answers until `deadline` and adds those that are there to `answers`. Returns early as soon as there
/// are any.
///
/// # Errors
/// The socket fails.
fn receive_answers(
    socket: &Socket,
    deadline: Instant,
    answers: &mut Vec<ProbeAnswer>,
    read: impl Fn(MsgFlags) -> io::Result<Reading>,
) -> io::Result<()> {
    loop {
        let before = answers.len();
        for flags in [MsgFlags::empty(), MsgFlags::MSG_ERRQUEUE] {
            loop {
                match read(flags)? {
                    Reading::Nothing => break,
                    Reading::Other => {}
                    Reading::Answer(answer) => answers.push(answer),
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if answers.len() > before || left.is_zero() {
            return Ok(());
        }
        wait(socket, PollFlags::IN, left)?;
    }
}

/// Sends by `send`; returns when the packet was handed to the kernel. Waits at most until `deadline` for room.
///
/// # Errors
/// The kernel refuses, or there is no room in time.
fn send_until(
    socket: &Socket,
    deadline: Instant,
    send: impl Fn() -> io::Result<usize>,
) -> io::Result<Instant> {
    loop {
        let sent = Instant::now();
        match send() {
            Ok(_) => return Ok(sent),
            Err(error) if is_full(&error) => {
                if sent >= deadline {
                    return Err(error);
                }
                // A full device queue (ENOBUFS) does not make the socket unwritable, so the wait is short.
                wait(socket, PollFlags::OUT, Duration::from_millis(1))?;
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

fn wait(socket: &Socket, events: PollFlags, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, events)], Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The clock of this process and the clock of the day at the same time.
#[derive(Debug, Clone, Copy)]
struct ClockPair {
    now: Instant,
    day_time: SystemTime,
}

impl ClockPair {
    fn read() -> Self {
        let mut best: Option<(Duration, Self)> = None;
        for _ in 0..3 {
            let before = Instant::now();
            let day_time = SystemTime::now();
            let now = Instant::now();
            let took = now - before;
            if best.is_none_or(|(known, _)| took < known) {
                best = Some((took, Self { now, day_time }));
            }
            if took <= CLOCKS_READ_WITHIN {
                break;
            }
        }
        best.map_or_else(Self::read_once, |(_, pair)| pair)
    }

    fn read_once() -> Self {
        Self {
            day_time: SystemTime::now(),
            now: Instant::now(),
        }
    }

    /// The moment that the kernel noted by the clock of the day. `None`: that clock was set while the message
    /// waited, or the message waited for more than a second.
    fn moment_of(self, noted: Duration) -> Option<Instant> {
        let noted = UNIX_EPOCH.checked_add(noted)?;
        let waited = self.day_time.duration_since(noted).ok()?;
        (waited < LONGEST_WAIT)
            .then(|| self.now.checked_sub(waited))
            .flatten()
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

/// Receive buffer, bytes: replies that arrive while the thread waits for a processor. Without privilege the kernel gives
/// what `net.core.rmem_max` allows.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A socket for echo requests to one client: unprivileged where the system allows it (`SOCK_DGRAM`, icmp(7)), raw
/// otherwise. Answers to other programs are not seen.
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

/// First destination port, as traceroute.
const FIRST_PORT: u16 = 33_434;

/// A socket for UDP datagrams to unused ports of one client. Routers answer those whose hop limit is used up, and the
/// client says that the port is unreachable, as traceroute(1) expects. Each datagram has a port of its own, because
/// routers need not quote more of it than its header (RFC 792).
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
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_clock_that_was_set_does_not_move_an_arrival() {
        let clocks = ClockPair {
            now: Instant::now(),
            day_time: UNIX_EPOCH + Duration::from_secs(1000),
        };
        let noted = Duration::from_millis(999_990);
        let expected = clocks.now - Duration::from_millis(10);
        assert_eq!(clocks.moment_of(noted), Some(expected));
        assert_eq!(clocks.moment_of(Duration::from_secs(2000)), None);
        assert_eq!(clocks.moment_of(Duration::from_secs(10)), None);
        assert_eq!(clocks.moment_of(Duration::MAX), None);
    }

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
