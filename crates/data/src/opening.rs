//! One outgoing connection until its first byte may pass: connect(2), and the dialogue with a proxy, or with a program that carries it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use proto::tunnel::TunnelDialogue;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::error::DataError;
use crate::os::sockopt;
use crate::os::wake::{self, WakeEvent};
use crate::tunnel::{DataCarrier, Tunnel, TunnelFailure};

/// A connection that is being opened. All calls return at once.
#[derive(Debug)]
pub(crate) struct OpeningConnection {
    socket: Socket,
    to: SocketAddr,
    /// Most connections have none.
    tunnel: Option<Box<OpeningTunnel>>,
}

/// The dialogue with a proxy on a socket.
#[derive(Debug)]
struct OpeningTunnel {
    dialogue: TunnelDialogue,
    /// The name of the proxy, or of the program that carries the connection.
    by: String,
    is_carried: bool,
    /// The server's name.
    server: String,
    /// connect(2) is done.
    is_connected: bool,
}

impl OpeningConnection {
    /// Starts a connection as [`start_connect`] does.
    pub(crate) fn start(
        to: SocketAddr,
        local: Option<IpAddr>,
        prepare: impl FnOnce(&Socket) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        Ok(Self {
            socket: start_connect(to, local, prepare)?,
            to,
            tunnel: None,
        })
    }

    /// Starts a connection through a proxy with the address `at`.
    pub(crate) fn start_through(
        through: Tunnel<'_>,
        at: SocketAddr,
        local: Option<IpAddr>,
        prepare: impl FnOnce(&Socket) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        let Tunnel { proxy, target } = through;
        let tunnel = OpeningTunnel {
            dialogue: proxy.dialogue(target),
            by: proxy.name.clone(),
            is_carried: false,
            server: target.to_string(),
            is_connected: false,
        };
        match start_connect(at, local, prepare) {
            Ok(socket) => Ok(Self {
                socket,
                to: at,
                tunnel: Some(Box::new(tunnel)),
            }),
            Err(DataError::Connect { source, .. }) => {
                Err(tunnel.failure(TunnelFailure::NoProxy(source)))
            }
            Err(other) => Err(other),
        }
    }

    /// Starts a connection that a program carries to a port of the server.
    pub(crate) fn start_carried(
        carrier: &dyn DataCarrier,
        to: SocketAddr,
        prepare: impl FnOnce(&Socket) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        let tunnel = OpeningTunnel {
            dialogue: TunnelDialogue::carried(to.port()),
            by: carrier.name(),
            is_carried: true,
            server: to.to_string(),
            is_connected: false,
        };
        let started = carrier.start().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match started {
            Ok(socket) => {
                prepare(&socket)?;
                Ok(Self {
                    socket,
                    to,
                    tunnel: Some(Box::new(tunnel)),
                })
            }
            Err(error) => Err(tunnel.failure(TunnelFailure::NoProxy(error))),
        }
    }

    /// The events that [`OpeningConnection::advance`] waits for.
    pub(crate) fn interest(&self) -> PollFlags {
        match &self.tunnel {
            Some(tunnel) if tunnel.is_connected && tunnel.dialogue.output().is_empty() => {
                PollFlags::IN
            }
            _ => PollFlags::OUT,
        }
    }

    /// Goes as far as it can without waiting. `None`: the end is still to come.
    pub(crate) fn advance(&mut self) -> Option<Result<(), DataError>> {
        let is_connected = self.tunnel.as_ref().is_some_and(|t| t.is_connected);
        if !is_connected {
            if !is_connect_decided(&self.socket) {
                return None;
            }
            // SO_ERROR has the result of a non-blocking connect (connect(2), EINPROGRESS).
            let error = self.socket.take_error().unwrap_or_else(Some);
            if let Some(source) = error {
                return Some(Err(self.connect_failure(source)));
            }
        }
        let Some(tunnel) = &mut self.tunnel else {
            return Some(Ok(()));
        };
        tunnel.is_connected = true;
        match tunnel.converse(&self.socket) {
            Ok(()) => Some(Ok(())),
            Err(TunnelFailure::Lost(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(failure) => Some(Err(tunnel.failure(failure))),
        }
    }

    /// Waits until the connection is open, at most until `until`, and while `stop` is not woken.
    pub(crate) fn complete(
        mut self,
        until: Instant,
        stop: &WakeEvent,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Socket, DataError> {
        loop {
            if let Some(opened) = self.advance() {
                return opened.map(|()| self.socket);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout_error());
            }
            let fds = [
                (self.as_fd(), self.interest()),
                (stop.as_fd(), PollFlags::IN),
            ];
            let [_, stopped] = wake::wait(fds, left).map_err(|e| DataError::setup("poll(2)", e))?;
            if stopped || is_stopped() {
                return Err(DataError::Aborted);
            }
        }
    }

    /// The error of a connection that took too long.
    pub(crate) fn timeout_error(&self) -> DataError {
        match &self.tunnel {
            Some(tunnel) if tunnel.is_connected => tunnel.failure(TunnelFailure::TimedOut),
            _ => self.connect_failure(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Whether it goes through a proxy.
    pub(crate) fn is_tunnelled(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Whether the peer may have accepted it, although it is not known to be open: the proxy was asked.
    pub(crate) fn may_be_accepted(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|t| t.is_connected)
    }

    /// The socket, once [`OpeningConnection::advance`] has returned success.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    fn connect_failure(&self, source: io::Error) -> DataError {
        match &self.tunnel {
            Some(tunnel) => tunnel.failure(TunnelFailure::NoProxy(source)),
            None => DataError::Connect {
                to: self.to,
                source,
            },
        }
    }
}

impl AsFd for OpeningConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl OpeningTunnel {
    /// Sends and receives until the tunnel is open; `WouldBlock` inside [`TunnelFailure::Lost`]: later.
    fn converse(&mut self, socket: &Socket) -> Result<(), TunnelFailure> {
        let lost = |error: Errno| TunnelFailure::Lost(error.into());
        // At least what every dialogue but one with a long name takes at once.
        let mut buffer = [0; 64];
        while !self.dialogue.is_open() {
            let output = self.dialogue.output();
            if !output.is_empty() {
                let sent = socket.send_with_flags(output, sockopt::NO_SIGNAL);
                let count = sent.map_err(TunnelFailure::Lost)?;
                self.dialogue.sent(count);
                continue;
            }
            let wanted = self.dialogue.wanted().min(buffer.len());
            let into = buffer.get_mut(..wanted).unwrap_or_default();
            let (count, _) = recv(socket, into, RecvFlags::empty()).map_err(lost)?;
            if count == 0 {
                return Err(TunnelFailure::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
            self.dialogue
                .receive(buffer.get(..count).unwrap_or_default())?;
        }
        Ok(())
    }

    fn failure(&self, source: TunnelFailure) -> DataError {
        let (by, to) = (self.by.clone(), self.server.clone());
        match self.is_carried {
            true => DataError::Carrier {
                program: by,
                to,
                source,
            },
            false => DataError::Tunnel {
                proxy: by,
                to,
                source,
            },
        }
    }
}

/// Starts a connection without waiting for it, from `local` where that has the target's address
/// family. `prepare` sets options before connect(2).
pub(crate) fn start_connect(
    to: SocketAddr,
    local: Option<IpAddr>,
    prepare: impl FnOnce(&Socket) -> Result<(), DataError>,
) -> Result<Socket, DataError> {
    let fail = |source| DataError::Connect { to, source };
    let socket =
        Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).map_err(fail)?;
    // A blocking connect could not be cancelled and would take one round trip per stream.
    socket.set_nonblocking(true).map_err(fail)?;
    prepare(&socket)?;
    if let Some(ip) = local.filter(|ip| ip.is_ipv4() == to.is_ipv4()) {
        let from = SocketAddr::new(ip, 0);
        socket.bind(&from.into()).map_err(fail)?;
    }
    match socket.connect(&SockAddr::from(to)) {
        // A signal ends the call, but the attempt continues (connect(2), EINTR).
        Err(e)
            if !matches!(
                Errno::from_io_error(&e),
                Some(Errno::INPROGRESS | Errno::INTR)
            ) =>
        {
            Err(fail(e))
        }
        _ => Ok(socket),
    }
}

/// Whether a connection attempt has succeeded or failed.
pub(crate) fn is_connect_decided(socket: &Socket) -> bool {
    // An error of poll(2) counts as decided: `take_error` then reports it.
    !matches!(
        wake::wait([(socket.as_fd(), PollFlags::OUT)], Duration::ZERO),
        Ok([false])
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use proto::tunnel::{ProxyLogin, TunnelError, TunnelProtocol, TunnelTarget};

    use super::*;
    use crate::tunnel::ProxyService;

    /// Longest wait of a test.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn proxy(protocol: TunnelProtocol) -> ProxyService {
        ProxyService {
            name: "socks5://ann@proxy.example:1080".to_owned(),
            protocol,
            login: Some(ProxyLogin::new(b"ann", b"hush").unwrap()),
        }
    }

    /// Opens a connection through a proxy that sends `replies`, one byte at a time, and then closes.
    fn open_through(protocol: TunnelProtocol, replies: &'static [u8]) -> Result<Socket, DataError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.set_nodelay(true).unwrap();
            // At a refusal the client closes before the last byte.
            let sent = replies.iter().try_for_each(|byte| peer.write_all(&[*byte]));
            let _ = sent.and_then(|()| peer.shutdown(std::net::Shutdown::Write));
            // A close with unread input would be a reset, which may overtake the replies.
            let _ = peer.read_to_end(&mut Vec::new());
        });
        let target = TunnelTarget::new("host.example", 2811).unwrap();
        let opened = open(&proxy(protocol), at, &target);
        let done = opened.and_then(|(outcome, socket)| outcome.map(|()| socket));
        if done.is_err() {
            serving.join().unwrap();
        }
        done
    }

    fn open(
        proxy: &ProxyService,
        at: SocketAddr,
        target: &TunnelTarget,
    ) -> Result<(Result<(), DataError>, Socket), DataError> {
        let mut connection =
            OpeningConnection::start_through(Tunnel { proxy, target }, at, None, |_| Ok(()))?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(outcome) = connection.advance() {
                return Ok((outcome, connection.into_socket()));
            }
            assert!(Instant::now() < until, "neither open nor failed");
            wake::wait([(connection.as_fd(), connection.interest())], PATIENCE).unwrap();
        }
    }

    fn text_of(socket: Socket) -> String {
        socket.set_nonblocking(false).unwrap();
        let mut stream = std::net::TcpStream::from(socket);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_first_byte_after_the_reply_is_the_servers() {
        let connect = b"HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\n220 ready\r\n";
        let socks = b"\x05\x02\x01\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x0a\xfb220 ready\r\n";
        for (protocol, replies) in [
            (TunnelProtocol::HttpConnect, &connect[..]),
            (TunnelProtocol::Socks5, &socks[..]),
        ] {
            let socket = open_through(protocol, replies).unwrap();
            assert_eq!(text_of(socket), "220 ready\r\n");
        }
    }

    #[test]
    fn a_refusal_and_an_early_end_name_the_proxy_without_its_password() {
        let error = |replies| open_through(TunnelProtocol::Socks5, replies).unwrap_err();
        let refused = error(b"\x05\x02\x01\x00\x05\x02\x00\x01");
        assert!(matches!(
            &refused,
            DataError::Tunnel {
                source: TunnelFailure::Refused(TunnelError::Forbidden(_)),
                ..
            }
        ));
        let ended = error(b"\x05");
        assert!(matches!(
            &ended,
            DataError::Tunnel { source: TunnelFailure::Lost(error), .. }
                if error.kind() == io::ErrorKind::UnexpectedEof
        ));
        for failed in [refused, ended] {
            let text = failed.to_string();
            assert!(text.contains("ann@proxy.example:1080"), "{text}");
            assert!(
                text.contains("host.example:2811") && !text.contains("hush"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_proxy_that_does_not_listen_is_named_and_not_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let target = TunnelTarget::new("host.example", 2811).unwrap();
        let opened = open(&proxy(TunnelProtocol::HttpConnect), at, &target);
        let failed = opened.and_then(|(outcome, _)| outcome).unwrap_err();
        assert!(matches!(
            &failed,
            DataError::Tunnel { source: TunnelFailure::NoProxy(error), .. }
                if error.kind() == io::ErrorKind::ConnectionRefused
        ));
    }

    #[test]
    fn a_silent_proxy_is_told_from_one_that_cannot_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let target = TunnelTarget::new("host.example", 2811).unwrap();
        let proxy = proxy(TunnelProtocol::HttpConnect);
        let tunnel = Tunnel {
            proxy: &proxy,
            target: &target,
        };
        let mut connection =
            OpeningConnection::start_through(tunnel, at, None, |_| Ok(())).unwrap();
        let until = Instant::now() + PATIENCE;
        while connection.interest() == PollFlags::OUT {
            assert!(Instant::now() < until && connection.advance().is_none());
        }
        assert!(matches!(
            connection.timeout_error(),
            DataError::Tunnel {
                source: TunnelFailure::TimedOut,
                ..
            }
        ));
    }
}
