//! Messages of the sockets that test a path: who answered which request, and when. The answers of routers come from the
//! error queue (`IP_RECVERR`, ip(7)), times from the kernel (`SO_TIMESTAMPNS`).

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike as _, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::icmp::IcmpVersion;

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
pub(super) struct IcmpError {
    /// Type of the message.
    pub(super) kind: u8,
    /// Its code.
    pub(super) code: u8,
    /// Its sender; `None`: this host, for example because a packet is too long.
    pub(super) router: Option<IpAddr>,
}

impl IcmpError {
    /// Who answered with it.
    pub(super) fn answerer(self, version: IcmpVersion) -> Answerer {
        match self.router {
            Some(router) if version.is_time_exceeded(self.kind) => Answerer::Router(router),
            router => Answerer::Unreachable(router),
        }
    }
}

/// The outcome of one system call that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// There is no message.
    Nothing,
    /// A message that is no answer to this socket.
    Other,
    /// An answer.
    Answer(ProbeAnswer),
}

/// A message of the socket or of its error queue.
#[derive(Debug)]
pub(super) struct SocketMessage {
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
pub(super) fn listen_for_answers(socket: &Socket, version: IcmpVersion) -> io::Result<()> {
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
pub(super) fn receive_answers(
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
pub(super) fn send_until(
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
