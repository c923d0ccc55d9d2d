//! Making data connections: out to addresses, and in from a listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::listener::AllowedPeers;
use crate::os::wake::{self, WakeEvent};
use crate::settings::TransferSettings;
use crate::stream::{DataStream, set_handshake_options};
use crate::transfer::ActiveTransfer;

/// Pause when the system has no descriptor or memory for another connection.
pub(crate) const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long connections may lag behind the slowest target's first one, beyond as long as that took: a
/// lost SYN is sent again only after a second.
const LAG: Duration = Duration::from_millis(5);

/// A connection attempt that is under way.
#[derive(Debug)]
pub(crate) struct ConnectAttempt {
    socket: Socket,
    to: SocketAddr,
    until: Instant,
    permit: StreamPermit,
}

/// Connections to several targets.
#[derive(Debug, Default)]
pub(crate) struct OpenedConnections {
    /// At least one a target.
    pub(crate) open: Vec<Arc<DataStream>>,
    /// Further ones that take longer.
    pub(crate) pending: Vec<ConnectAttempt>,
}

/// Opens as many connections as there are permits, spread evenly over the targets, of which each
/// must get one; all at once so that many streams cost one round trip. A target that takes some of them is served with those, and those that take much longer than
/// its first are not waited for; a target that takes none is an error.
pub(crate) fn connect_all(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    targets: &[SocketAddr],
    local: Option<IpAddr>,
    permits: Vec<StreamPermit>,
) -> Result<OpenedConnections, DataError> {
    let begun = Instant::now();
    let until = transfer.begin() + settings.connect_timeout;
    let mut made = OpenedConnections {
        open: Vec::new(),
        pending: dial_each(targets, permits, |to, permit| {
            start_attempt(settings, to, local, until, permit)
        })?,
    };
    let mut refused = None;
    let mut enough = None;
    while !made.pending.is_empty() {
        let now = Instant::now();
        if enough.is_none() && made.covers_all(targets) {
            enough = Some(now + now.duration_since(begun) + LAG);
        }
        let left = enough
            .unwrap_or(until)
            .min(until)
            .saturating_duration_since(now);
        if left.is_zero() {
            break;
        }
        await_any(transfer, &made.pending, left)?;
        refused = refused.or(made.take_decided(settings));
    }
    if made.covers_all(targets) {
        return Ok(made);
    }
    let late = made.pending.first().map(ConnectAttempt::timeout_error);
    Err(refused.or(late).unwrap_or(DataError::NoPeer { seconds: 0 }))
}

/// Begins a connection with each permit, with `dial`, spread evenly over the targets. A target gets
/// fewer when one cannot be begun (no descriptor or port is left), but none at all is an error.
fn dial_each<A>(
    targets: &[SocketAddr],
    permits: Vec<StreamPermit>,
    mut dial: impl FnMut(SocketAddr, StreamPermit) -> Result<A, DataError>,
) -> Result<Vec<A>, DataError> {
    let mut begun = Vec::new();
    let mut permits = permits.into_iter();
    for (to, left) in targets.iter().zip((1..=targets.len()).rev()) {
        let share = permits.len().div_ceil(left);
        let own: Vec<_> = permits.by_ref().take(share).collect();
        for (nth, permit) in own.into_iter().enumerate() {
            match dial(*to, permit) {
                Ok(attempt) => begun.push(attempt),
                Err(error) if nth > 0 => {
                    tracing::warn!(%error, "data connection not begun");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(begun)
}

impl OpenedConnections {
    /// Whether every target has a connection.
    fn covers_all(&self, targets: &[SocketAddr]) -> bool {
        let has = |to: &SocketAddr| self.open.iter().any(|s| s.peer() == *to);
        targets.iter().all(has)
    }

    /// Takes the attempts that are decided; returns the first refusal.
    fn take_decided(&mut self, settings: &TransferSettings) -> Option<DataError> {
        let (settled, waiting): (Vec<_>, _) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|a| is_connect_decided(&a.socket));
        self.pending = waiting;
        let mut refused = None;
        for attempt in settled {
            match attempt.finish(settings) {
                Ok(stream) => self.open.push(Arc::new(stream)),
                Err(error) => {
                    tracing::warn!(%error, "data connection not made");
                    refused.get_or_insert(error);
                }
            }
        }
        refused
    }
}

/// Begins to connect; the attempt is given up at `until`.
pub(crate) fn start_attempt(
    settings: &TransferSettings,
    to: SocketAddr,
    local: Option<IpAddr>,
    until: Instant,
    permit: StreamPermit,
) -> Result<ConnectAttempt, DataError> {
    let socket = start_connect(to, local, |socket| set_handshake_options(socket, settings))?;
    Ok(ConnectAttempt {
        socket,
        to,
        until,
        permit,
    })
}

impl ConnectAttempt {
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Waits for the connection; `None` if it was not there when `unless` rang.
    pub(crate) fn wait_connected(
        self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
        unless: &WakeEvent,
    ) -> Result<Option<DataStream>, DataError> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let fds = [
                (self.socket.as_fd(), PollFlags::OUT),
                (unless.as_fd(), PollFlags::IN),
                (transfer.stop_wake().as_fd(), PollFlags::IN),
            ];
            let [settled, called_off, _] =
                wake::wait(fds, left).map_err(|e| DataError::setup("a wait", e))?;
            transfer.check()?;
            if settled {
                return self.finish(settings).map(Some);
            }
            if called_off {
                return Ok(None);
            }
            if left.is_zero() {
                return Err(self.timeout_error());
            }
        }
    }

    fn finish(self, settings: &TransferSettings) -> Result<DataStream, DataError> {
        let Self {
            socket, to, permit, ..
        } = self;
        let outcome = socket
            .take_error()
            .and_then(|error| error.map_or(Ok(()), Err))
            .and_then(|()| DataStream::new(socket, to, settings));
        outcome
            .map(|stream| stream.with_permit(permit))
            .map_err(|source| DataError::Connect { to, source })
    }

    fn timeout_error(&self) -> DataError {
        DataError::Connect {
            to: self.to,
            source: io::ErrorKind::TimedOut.into(),
        }
    }
}

/// Begins to connect without waiting for it, from `local` where that is of the target's family, with
/// options that `prepare` sets before.
pub(crate) fn start_connect(
    to: SocketAddr,
    local: Option<IpAddr>,
    prepare: impl FnOnce(&Socket) -> Result<(), DataError>,
) -> Result<Socket, DataError> {
    let fail = |source| DataError::Connect { to, source };
    let socket =
        Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).map_err(fail)?;
    socket.set_nonblocking(true).map_err(fail)?;
    prepare(&socket)?;
    if let Some(ip) = local.filter(|ip| ip.is_ipv4() == to.is_ipv4()) {
        let from = SocketAddr::new(ip, 0);
        socket.bind(&from.into()).map_err(fail)?;
    }
    match socket.connect(&SockAddr::from(to)) {
        // A signal ends the call, not the attempt (connect(2)).
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

/// Waits until a connection attempt is decided or the time is up.
fn await_any(
    transfer: &ActiveTransfer,
    attempts: &[ConnectAttempt],
    left: Duration,
) -> Result<(), DataError> {
    let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
    let sockets = attempts.iter().map(|a| &a.socket);
    fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::OUT)));
    wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("a wait", e))?;
    transfer.check()
}

/// Whether a connection that was begun is there, or has failed.
pub(crate) fn is_connect_decided(socket: &Socket) -> bool {
    !matches!(
        wake::wait([(socket.as_fd(), PollFlags::OUT)], Duration::ZERO),
        Ok([false])
    )
}

/// Connections from hosts that may not connect, of one transfer: closed at once.
#[derive(Debug, Default)]
pub(crate) struct RejectedPeers {
    first: Option<IpAddr>,
    more: u64,
}

impl RejectedPeers {
    /// The first is logged now and the others are counted: a flood of them must not fill the log.
    fn note(&mut self, peer: SocketAddr) {
        if self.first.is_some() {
            self.more += 1;
            return;
        }
        self.first = Some(peer.ip().to_canonical());
        tracing::warn!(%peer, "data connection from a host that may not connect closed");
    }

    /// Why no connection came within `seconds`.
    pub(crate) fn no_peer(&self, seconds: u64) -> DataError {
        match self.first {
            Some(from) => DataError::HostNotAllowed { from, seconds },
            None => DataError::NoPeer { seconds },
        }
    }
}

impl Drop for RejectedPeers {
    fn drop(&mut self) {
        if self.more > 0 {
            tracing::warn!(
                more = self.more,
                "further data connections from hosts that may not connect were closed"
            );
        }
    }
}

/// Takes one connection from the listener's queue. `None`: there is none, or it was closed, being
/// that of a host which may not connect.
pub(crate) fn accept_allowed(
    transfer: &ActiveTransfer,
    listener: &Socket,
    policy: AllowedPeers,
    settings: &TransferSettings,
    strangers: &mut RejectedPeers,
) -> Result<AcceptResult, DataError> {
    let (socket, address) = match listener.accept() {
        Ok(accepted) => accepted,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(AcceptResult::Nothing),
        Err(e) => {
            on_accept_error(transfer, e)?;
            return Ok(AcceptResult::Closed);
        }
    };
    let Some(peer) = address.as_socket() else {
        return Ok(AcceptResult::Closed);
    };
    if !policy.admits(peer.ip()) {
        strangers.note(peer);
        return Ok(AcceptResult::Closed);
    }
    // What fails here is that connection's own trouble (it was reset already); a setting
    // that the system refuses is the transfer's.
    set_handshake_options(&socket, settings)?;
    match socket.set_nonblocking(true) {
        Ok(()) => Ok(AcceptResult::Connection(socket, peer)),
        Err(error) => {
            tracing::warn!(%peer, %error, "data connection dropped");
            Ok(AcceptResult::Closed)
        }
    }
}

/// The answer of a listener's queue.
#[derive(Debug)]
pub(crate) enum AcceptResult {
    /// Nothing waits there now.
    Nothing,
    /// A connection that is gone again.
    Closed,
    /// One from a host that may connect; its socket does not block, and nothing was exchanged over it.
    Connection(Socket, SocketAddr),
}

/// Decides what a failed accept means (accept(2): errors of the new connection are reported by
/// accept itself).
fn on_accept_error(transfer: &ActiveTransfer, error: io::Error) -> Result<(), DataError> {
    match Errno::from_io_error(&error) {
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
            Err(DataError::setup("the data listener", error))
        }
        _ if is_shortage(&error) => {
            tracing::warn!(%error, "no room for a data connection, trying again");
            let stop = transfer.stop_wake();
            wake::wait([(stop.as_fd(), PollFlags::IN)], SHORTAGE_PAUSE)
                .map_err(|e| DataError::setup("a wait", e))?;
            transfer.check()
        }
        _ => Ok(()),
    }
}

/// Whether the system has no descriptor or memory left, for a while.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

/// Waits for one connection from an allowed host.
pub(crate) fn accept_one(
    transfer: &ActiveTransfer,
    listener: &Socket,
    policy: AllowedPeers,
    settings: &TransferSettings,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    let mut strangers = RejectedPeers::default();
    loop {
        transfer.check()?;
        match accept_allowed(transfer, listener, policy, settings, &mut strangers)? {
            AcceptResult::Connection(socket, peer) => match DataStream::new(socket, peer, settings)
            {
                Ok(stream) => return Ok(Arc::new(stream.with_permit(permit))),
                Err(error) => tracing::warn!(%peer, %error, "data connection dropped"),
            },
            AcceptResult::Closed => {}
            AcceptResult::Nothing => {
                let left = settings
                    .connect_timeout
                    .saturating_sub(transfer.begin().elapsed());
                if left.is_zero() {
                    return Err(strangers.no_peer(settings.connect_timeout.as_secs()));
                }
                let fds = [
                    (listener.as_fd(), PollFlags::IN),
                    (transfer.stop_wake().as_fd(), PollFlags::IN),
                ];
                wake::wait(fds, left).map_err(|e| DataError::setup("a wait", e))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which connections are begun of `each` to each of two targets, if those in `fail` (counted over all) cannot.
    fn begun(each: usize, fail: &[usize]) -> Result<Vec<SocketAddr>, DataError> {
        let targets = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut nth = 0;
        let permits = (0..2 * each).map(|_| StreamPermit::unlimited()).collect();
        dial_each(&targets, permits, |to, _| {
            nth += 1;
            let source = io::Error::from(Errno::MFILE);
            let failed = fail.contains(&nth);
            (!failed)
                .then_some(to)
                .ok_or(DataError::Connect { to, source })
        })
    }

    #[test]
    fn a_target_makes_do_with_the_connections_that_can_be_begun() {
        let ports = |begun: Vec<SocketAddr>| begun.iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(ports(begun(2, &[]).unwrap()), [1, 1, 2, 2]);
        assert_eq!(ports(begun(3, &[2]).unwrap()), [1, 2, 2, 2]);
        assert_eq!(ports(begun(3, &[3, 5]).unwrap()), [1, 1, 2]);
    }

    #[test]
    fn a_target_without_any_is_an_error() {
        for first in [1, 3] {
            let error = begun(2, &[first]).unwrap_err();
            assert!(matches!(error, DataError::Connect { .. }), "{error}");
        }
    }
}
