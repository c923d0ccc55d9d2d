//! Data connections: outgoing to addresses, and incoming from a listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::Socket;

use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::listener::AllowedPeers;
use crate::opening::OpeningConnection;
use crate::os::wake::{self, WakeEvent};
use crate::security::ConnectionOpener;
use crate::settings::TransferSettings;
use crate::stream::{DataStream, set_handshake_options};
use crate::tls_handshake::{SenderCandidates, UNNEEDED_HANDSHAKE_WAIT};
use crate::transfer::ActiveTransfer;
use crate::tunnel::{DataRoute, Tunnel};

/// Pause when the system has no descriptor or memory for another connection.
pub(crate) const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Extra time for further connections after every target has one, in addition to the time that
/// took. A lost SYN is retransmitted only after one second (RFC 6298 §2.1), which is not worth
/// waiting for.
const STRAGGLER_WAIT: Duration = Duration::from_millis(5);

/// A connection attempt in progress.
#[derive(Debug)]
pub(crate) struct ConnectAttempt {
    connection: OpeningConnection,
    to: SocketAddr,
    until: Instant,
    permit: StreamPermit,
    is_carried: bool,
}

/// Where connections come from and how they reach their targets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingPath<'a> {
    /// The address to bind, for targets of its family.
    pub(crate) local: Option<IpAddr>,
    /// The way, if it is not direct.
    pub(crate) route: Option<&'a DataRoute>,
}

/// Connections to several targets.
#[derive(Debug, Default)]
pub(crate) struct OpenedConnections {
    /// Established connections, at least one for each target.
    pub(crate) open: Vec<Arc<DataStream>>,
    /// Attempts that take longer.
    pub(crate) pending: Vec<ConnectAttempt>,
}

/// Opens as many connections as there are permits, spread evenly over the targets. All attempts
/// start at once, so that many streams cost one round trip. Every target must get one connection.
/// Connections that take much longer than the first of each target are not waited for.
///
/// # Errors
/// A target accepts none; the transfer was stopped.
pub(crate) fn connect_all(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    targets: &[SocketAddr],
    path: OutgoingPath<'_>,
    permits: Vec<StreamPermit>,
) -> Result<OpenedConnections, DataError> {
    // All attempts share the deadline of the transfer's first connection.
    let until = transfer.begin() + settings.connect_timeout;
    let attempts = start_each(targets, permits, |to, permit| {
        start_attempt(settings, to, path, until, permit)
    })?;
    complete_all(transfer, settings, targets, attempts)
}

/// Waits for attempts at these targets, as [`connect_all`] describes.
fn complete_all(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    targets: &[SocketAddr],
    attempts: Vec<ConnectAttempt>,
) -> Result<OpenedConnections, DataError> {
    let started = Instant::now();
    let until = transfer.begin() + settings.connect_timeout;
    let mut opened = OpenedConnections {
        open: Vec::new(),
        pending: attempts,
    };
    let mut refused = None;
    let mut straggler_deadline = None;
    while !opened.pending.is_empty() {
        let now = Instant::now();
        if straggler_deadline.is_none() && opened.covers_all(targets) {
            // Further connections get as much time again as the first of every target took.
            straggler_deadline = Some(now + now.duration_since(started) + STRAGGLER_WAIT);
        }
        let left = straggler_deadline
            .unwrap_or(until)
            .min(until)
            .saturating_duration_since(now);
        if left.is_zero() {
            break;
        }
        wait_for_any(transfer, &opened.pending, left)?;
        // One refusal does not end the others: a target may accept fewer connections than
        // requested.
        refused = refused.or(opened.take_decided(settings));
    }
    if opened.covers_all(targets) {
        return Ok(opened);
    }
    // A refusal explains more than the timeout of another attempt.
    let timeout = opened.pending.first().map(ConnectAttempt::timeout_error);
    Err(refused
        .or(timeout)
        .unwrap_or(DataError::NoPeer { seconds: 0 }))
}

/// Starts a connection with each permit by `dial`, spread evenly over the targets. A target gets
/// fewer when an attempt cannot be started (no descriptor or port left).
///
/// # Errors
/// A target gets none.
fn start_each<A>(
    targets: &[SocketAddr],
    permits: Vec<StreamPermit>,
    mut dial: impl FnMut(SocketAddr, StreamPermit) -> Result<A, DataError>,
) -> Result<Vec<A>, DataError> {
    let mut started = Vec::new();
    let mut permits = permits.into_iter();
    // The remaining permits are divided by the remaining targets, so that shares differ by at most
    // one.
    for (to, left) in targets.iter().zip((1..=targets.len()).rev()) {
        let share = permits.len().div_ceil(left);
        let target_permits: Vec<_> = permits.by_ref().take(share).collect();
        for (nth, permit) in target_permits.into_iter().enumerate() {
            match dial(*to, permit) {
                Ok(attempt) => started.push(attempt),
                // The first attempt at a target must succeed, further ones only add streams.
                Err(error) if nth > 0 => {
                    tracing::warn!(%error, "cannot start a data connection, continuing with fewer");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(started)
}

impl OpenedConnections {
    /// Whether every target has a connection.
    fn covers_all(&self, targets: &[SocketAddr]) -> bool {
        let has = |to: &SocketAddr| self.open.iter().any(|s| s.peer() == *to);
        targets.iter().all(has)
    }

    /// Takes the attempts that have succeeded or failed. Returns the first error.
    fn take_decided(&mut self, settings: &TransferSettings) -> Option<DataError> {
        let mut refused = None;
        for mut attempt in std::mem::take(&mut self.pending) {
            let finished = match attempt.connection.advance() {
                None => {
                    self.pending.push(attempt);
                    continue;
                }
                Some(opened) => opened.and_then(|()| attempt.finish(settings)),
            };
            match finished {
                Ok(stream) => self.open.push(Arc::new(stream)),
                Err(error) => {
                    tracing::warn!(%error, "data connection failed");
                    refused.get_or_insert(error);
                }
            }
        }
        refused
    }
}

/// Starts a connection. The attempt ends at `until`.
pub(crate) fn start_attempt(
    settings: &TransferSettings,
    to: SocketAddr,
    path: OutgoingPath<'_>,
    until: Instant,
    permit: StreamPermit,
) -> Result<ConnectAttempt, DataError> {
    let prepare = |socket: &Socket| set_handshake_options(socket, settings);
    let connection = match path.route {
        Some(DataRoute::Carried(carrier)) => {
            OpeningConnection::start_carried(carrier.as_ref(), to, prepare)?
        }
        Some(DataRoute::Proxy(route)) => {
            let tunnel = Tunnel {
                proxy: &route.proxy,
                target: &route.target(to),
            };
            OpeningConnection::start_through(tunnel, route.at, path.local, prepare)?
        }
        None => OpeningConnection::start(to, path.local, prepare)?,
    };
    Ok(ConnectAttempt {
        connection,
        to,
        until,
        permit,
        is_carried: matches!(path.route, Some(DataRoute::Carried(_))),
    })
}

impl ConnectAttempt {
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Waits for the only connection of a transfer.
    pub(crate) fn complete(
        self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
    ) -> Result<Arc<DataStream>, DataError> {
        let targets = [self.to];
        let opened = complete_all(transfer, settings, &targets, vec![self])?;
        let seconds = settings.connect_timeout.as_secs();
        let mut open = opened.open.into_iter();
        open.next().ok_or(DataError::NoPeer { seconds })
    }

    /// Waits for the connection. Returns `None` if `unless` was woken first, or soon afterwards where the
    /// peer may wait for a handshake already (see [`UNNEEDED_HANDSHAKE_WAIT`]).
    pub(crate) fn wait_connected(
        mut self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
        unless: &WakeEvent,
    ) -> Result<Option<DataStream>, DataError> {
        let mut unless = Some(unless);
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            // Three reasons end the wait: the socket is ready, the connection is not needed, or the
            // transfer stops.
            let fds = [
                (self.connection.as_fd(), self.connection.interest()),
                (transfer.stop_wake().as_fd(), PollFlags::IN),
                // Once it was woken, the stop event stands in.
                (
                    unless.unwrap_or(transfer.stop_wake()).as_fd(),
                    PollFlags::IN,
                ),
            ];
            let [ready, _, not_needed] =
                wake::wait(fds, left).map_err(|e| DataError::setup("poll(2)", e))?;
            transfer.check()?;
            if ready && let Some(opened) = self.connection.advance() {
                return opened.and_then(|()| self.finish(settings)).map(Some);
            }
            if not_needed && unless.take().is_some() {
                if settings.security.is_none() || !self.connection.may_be_accepted() {
                    return Ok(None);
                }
                self.until = self.until.min(Instant::now() + UNNEEDED_HANDSHAKE_WAIT);
            } else if left.is_zero() {
                return match unless {
                    Some(_) => Err(self.timeout_error()),
                    None => Ok(None),
                };
            }
        }
    }

    fn finish(self, settings: &TransferSettings) -> Result<DataStream, DataError> {
        let to = self.to;
        let (is_tunnelled, is_carried) = (self.connection.is_tunnelled(), self.is_carried);
        let socket = self.connection.into_socket();
        let stream = DataStream::new(socket, to, ConnectionOpener::ThisEnd, settings);
        stream
            .map(|stream| {
                stream
                    .with_permit(self.permit)
                    .with_tunnel(is_tunnelled, is_carried)
            })
            .map_err(|source| DataError::Connect { to, source })
    }

    fn timeout_error(&self) -> DataError {
        self.connection.timeout_error()
    }
}

/// Waits until an attempt has succeeded or failed, or the time is up.
fn wait_for_any(
    transfer: &ActiveTransfer,
    attempts: &[ConnectAttempt],
    left: Duration,
) -> Result<(), DataError> {
    // The stop event is first, so that a cancel ends the wait, too.
    let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
    let connections = attempts.iter().map(|attempt| &attempt.connection);
    fds.extend(connections.map(|connection| PollFd::new(connection, connection.interest())));
    wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("poll(2)", e))?;
    transfer.check()
}

/// Connections of one transfer from hosts that are not allowed. They are closed at once.
#[derive(Debug, Default)]
pub(crate) struct RejectedPeers {
    first: Option<IpAddr>,
    more: u64,
}

impl RejectedPeers {
    /// Logs the first one and counts the others: a flood of them must not fill the log.
    fn note(&mut self, peer: SocketAddr) {
        if self.first.is_some() {
            self.more += 1;
            return;
        }
        self.first = Some(peer.ip().to_canonical());
        tracing::warn!(%peer, "closed a data connection from a host that is not allowed");
    }

    /// The error of a transfer to which no connection came within `seconds`.
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
                "closed further data connections from hosts that are not allowed"
            );
        }
    }
}

/// Takes one connection from the listener's queue, and closes it if its host is not allowed.
pub(crate) fn accept_allowed(
    transfer: &ActiveTransfer,
    listener: &Socket,
    allowed: &AllowedPeers,
    settings: &TransferSettings,
    rejected: &mut RejectedPeers,
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
    if !allowed.admits(peer.ip()) {
        rejected.note(peer);
        return Ok(AcceptResult::Closed);
    }
    // Accepted sockets inherit the options of the listener, which may have been made before the
    // transfer's settings were known. A setting that the system refuses fails the transfer.
    set_handshake_options(&socket, settings)?;
    match socket.set_nonblocking(true) {
        Ok(()) => Ok(AcceptResult::Connection(socket, peer)),
        Err(error) => {
            tracing::warn!(%peer, %error, "data connection failed and was closed");
            Ok(AcceptResult::Closed)
        }
    }
}

/// The result of accept(2) on a listener.
#[derive(Debug)]
pub(crate) enum AcceptResult {
    /// The queue is empty.
    Nothing,
    /// The connection was closed at once, or has already failed.
    Closed,
    /// A connection from an allowed host. Its socket is non-blocking, and nothing was exchanged
    /// over it.
    Connection(Socket, SocketAddr),
}

/// Classifies an accept error. accept(2) also reports errors of the new connection; those are
/// ignored.
fn on_accept_error(transfer: &ActiveTransfer, error: io::Error) -> Result<(), DataError> {
    match Errno::from_io_error(&error) {
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
            Err(DataError::setup("the data listener", error))
        }
        // accept(2) would fail again at once, so this waits instead of spinning.
        _ if is_shortage(&error) => {
            tracing::warn!(%error, "out of descriptors or memory for a data connection, retrying");
            let stop = transfer.stop_wake();
            wake::wait([(stop.as_fd(), PollFlags::IN)], SHORTAGE_PAUSE)
                .map_err(|e| DataError::setup("poll(2)", e))?;
            transfer.check()
        }
        _ => Ok(()),
    }
}

/// Whether the system has temporarily no descriptor or memory left.
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
    allowed: &AllowedPeers,
    settings: &TransferSettings,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    let mut rejected = RejectedPeers::default();
    let mut candidates = SenderCandidates::default();
    loop {
        transfer.check()?;
        if let Some(stream) = candidates.advance() {
            return Ok(Arc::new(stream.with_permit(permit)));
        }
        match accept_allowed(transfer, listener, allowed, settings, &mut rejected)? {
            AcceptResult::Connection(socket, peer) => {
                let opener = ConnectionOpener::Peer;
                match DataStream::new(socket, peer, opener, settings) {
                    Ok(stream) if settings.security.is_some() => candidates.add(stream),
                    Ok(stream) => return Ok(Arc::new(stream.with_permit(permit))),
                    Err(error) => {
                        tracing::warn!(%peer, %error, "data connection failed and was closed");
                    }
                }
            }
            AcceptResult::Closed => {}
            AcceptResult::Nothing => {
                let left = settings
                    .connect_timeout
                    .saturating_sub(transfer.begin().elapsed())
                    .min(candidates.time_left());
                // The limit counts from the start of the transfer, not from the last rejected
                // connection.
                if left.is_zero() {
                    let limit = settings.connect_timeout;
                    let no_peer = rejected.no_peer(limit.as_secs());
                    return Err(candidates.take_failure(limit).unwrap_or(no_peer));
                }
                let mut fds = vec![
                    PollFd::new(listener, PollFlags::IN),
                    PollFd::new(transfer.stop_wake(), PollFlags::IN),
                ];
                fds.extend(candidates.poll_fds());
                let left = left.min(candidates.max_wait());
                wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("poll(2)", e))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts `per_target` connections to each of two targets; the attempts numbered in `fail`
    /// fail. Returns the targets of the others.
    fn start_with_failures(
        per_target: usize,
        fail: &[usize],
    ) -> Result<Vec<SocketAddr>, DataError> {
        let targets = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut nth = 0;
        let permits = (0..2 * per_target)
            .map(|_| StreamPermit::unlimited())
            .collect();
        start_each(&targets, permits, |to, _| {
            nth += 1;
            let source = io::Error::from(Errno::MFILE);
            let failed = fail.contains(&nth);
            (!failed)
                .then_some(to)
                .ok_or(DataError::Connect { to, source })
        })
    }

    #[test]
    fn a_target_uses_the_connections_that_can_be_started() {
        let ports =
            |targets: Vec<SocketAddr>| targets.iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(ports(start_with_failures(2, &[]).unwrap()), [1, 1, 2, 2]);
        assert_eq!(ports(start_with_failures(3, &[2]).unwrap()), [1, 2, 2, 2]);
        assert_eq!(ports(start_with_failures(3, &[3, 5]).unwrap()), [1, 1, 2]);
    }

    #[test]
    fn a_target_without_a_connection_is_an_error() {
        for first in [1, 3] {
            let error = start_with_failures(2, &[first]).unwrap_err();
            assert!(matches!(error, DataError::Connect { .. }), "{error}");
        }
    }
}
