//! Making data connections: out to addresses, and in from a listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::error::DataError;
use crate::job::Settings;
use crate::listen::Accept;
use crate::os::wake::{self, Wake};
use crate::stream::{Stream, same_host, tune};
use crate::transfer::Transfer;

/// Pause when the system has no descriptor or memory for another connection.
pub(crate) const SHORTAGE: Duration = Duration::from_millis(100);

/// How long connections may lag behind the slowest target's first one, beyond as long as that took: a
/// lost SYN is sent again only after a second.
const LAG: Duration = Duration::from_millis(5);

/// A connection attempt that is under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    socket: Socket,
    to: SocketAddr,
    until: Instant,
}

/// Connections to several targets.
#[derive(Debug, Default)]
pub(crate) struct Connected {
    /// At least one a target.
    pub(crate) open: Vec<Arc<Stream>>,
    /// Further ones that take longer.
    pub(crate) waiting: Vec<Attempt>,
}

/// Opens `each` connections to every target, all at once so that many streams cost one round
/// trip. A target that takes some of them is served with those, and those that take much longer than
/// its first are not waited for; a target that takes none is an error.
pub(crate) fn connect_all(
    transfer: &Transfer,
    settings: &Settings,
    targets: &[SocketAddr],
    local: Option<IpAddr>,
    each: usize,
) -> Result<Connected, DataError> {
    let begun = Instant::now();
    let until = transfer.begin() + settings.connect;
    let mut made = Connected {
        open: Vec::new(),
        waiting: dial_each(targets, each, |to| dial_until(settings, to, local, until))?,
    };
    let mut refused = None;
    let mut enough = None;
    while !made.waiting.is_empty() {
        let now = Instant::now();
        if enough.is_none() && made.serve(targets) {
            enough = Some(now + now.duration_since(begun) + LAG);
        }
        let left = enough
            .unwrap_or(until)
            .min(until)
            .saturating_duration_since(now);
        if left.is_zero() {
            break;
        }
        await_any(transfer, &made.waiting, left)?;
        refused = refused.or(made.settle(settings));
    }
    if made.serve(targets) {
        return Ok(made);
    }
    let late = made.waiting.first().map(Attempt::timed_out);
    Err(refused.or(late).unwrap_or(DataError::NoPeer { seconds: 0 }))
}

/// Begins up to `each` connections to every target, with `dial`. A target gets fewer when one cannot be
/// begun (no descriptor or port is left), but none at all is an error.
fn dial_each<A>(
    targets: &[SocketAddr],
    each: usize,
    mut dial: impl FnMut(SocketAddr) -> Result<A, DataError>,
) -> Result<Vec<A>, DataError> {
    let mut begun = Vec::new();
    for to in targets {
        for nth in 0..each {
            match dial(*to) {
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

impl Connected {
    /// Whether every target has a connection.
    fn serve(&self, targets: &[SocketAddr]) -> bool {
        let has = |to: &SocketAddr| self.open.iter().any(|s| s.peer() == *to);
        targets.iter().all(has)
    }

    /// Takes the attempts that are decided; returns the first refusal.
    fn settle(&mut self, settings: &Settings) -> Option<DataError> {
        let (settled, waiting): (Vec<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|a| is_settled(&a.socket));
        self.waiting = waiting;
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
pub(crate) fn dial_until(
    settings: &Settings,
    to: SocketAddr,
    local: Option<IpAddr>,
    until: Instant,
) -> Result<Attempt, DataError> {
    let socket = dial(to, local, |socket| tune(socket, settings))?;
    Ok(Attempt { socket, to, until })
}

impl Attempt {
    pub(crate) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Waits for the connection; `None` if it was not there when `unless` rang.
    pub(crate) fn settle(
        self,
        transfer: &Transfer,
        settings: &Settings,
        unless: &Wake,
    ) -> Result<Option<Stream>, DataError> {
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
                return Err(self.timed_out());
            }
        }
    }

    fn finish(self, settings: &Settings) -> Result<Stream, DataError> {
        let Self { socket, to, .. } = self;
        let outcome = socket
            .take_error()
            .and_then(|error| error.map_or(Ok(()), Err))
            .and_then(|()| Stream::new(socket, to, settings));
        outcome.map_err(|source| DataError::Connect { to, source })
    }

    fn timed_out(&self) -> DataError {
        DataError::Connect {
            to: self.to,
            source: io::ErrorKind::TimedOut.into(),
        }
    }
}

/// Begins to connect without waiting for it, from `local` where that is of the target's family, with
/// options that `prepare` sets before.
pub(crate) fn dial(
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
        Err(e) if Errno::from_io_error(&e) != Some(Errno::INPROGRESS) => Err(fail(e)),
        _ => Ok(socket),
    }
}

/// Waits until a connection attempt is decided or the time is up.
fn await_any(transfer: &Transfer, attempts: &[Attempt], left: Duration) -> Result<(), DataError> {
    let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
    let sockets = attempts.iter().map(|a| &a.socket);
    fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::OUT)));
    wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("a wait", e))?;
    transfer.check()
}

/// Whether a connection that was begun is there, or has failed.
pub(crate) fn is_settled(socket: &Socket) -> bool {
    !matches!(
        wake::wait([(socket.as_fd(), PollFlags::OUT)], Duration::ZERO),
        Ok([false])
    )
}

/// Takes one waiting connection from an allowed host; closes those of others. `None` when none is
/// waiting now.
pub(crate) fn accept(
    transfer: &Transfer,
    listener: &Socket,
    policy: Accept,
    settings: &Settings,
) -> Result<Option<Arc<Stream>>, DataError> {
    loop {
        let (socket, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) => {
                after_refusal(transfer, e)?;
                continue;
            }
        };
        let Some(peer) = address.as_socket() else {
            continue;
        };
        if let Accept::Only(host) = policy
            && !same_host(peer.ip(), host)
        {
            tracing::warn!(%peer, %host, "data connection from another host closed");
            continue;
        }
        // What fails here is that connection's own trouble (it was reset already); a setting
        // that the system refuses is the transfer's.
        tune(&socket, settings)?;
        match Stream::new(socket, peer, settings) {
            Ok(stream) => return Ok(Some(Arc::new(stream))),
            Err(error) => tracing::warn!(%peer, %error, "data connection dropped"),
        }
    }
}

/// Decides what a failed accept means (accept(2): errors of the new connection are reported by
/// accept itself).
fn after_refusal(transfer: &Transfer, error: io::Error) -> Result<(), DataError> {
    match Errno::from_io_error(&error) {
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
            Err(DataError::setup("the data listener", error))
        }
        _ if is_shortage(&error) => {
            tracing::warn!(%error, "no room for a data connection, trying again");
            let stop = transfer.stop_wake();
            wake::wait([(stop.as_fd(), PollFlags::IN)], SHORTAGE)
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
    transfer: &Transfer,
    listener: &Socket,
    policy: Accept,
    settings: &Settings,
) -> Result<Arc<Stream>, DataError> {
    loop {
        if let Some(stream) = accept(transfer, listener, policy, settings)? {
            return Ok(stream);
        }
        let left = settings.connect.saturating_sub(transfer.begin().elapsed());
        if left.is_zero() {
            let seconds = settings.connect.as_secs();
            return Err(DataError::NoPeer { seconds });
        }
        let fds = [
            (listener.as_fd(), PollFlags::IN),
            (transfer.stop_wake().as_fd(), PollFlags::IN),
        ];
        wake::wait(fds, left).map_err(|e| DataError::setup("a wait", e))?;
        transfer.check()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which connections are begun of `each` to two targets, if those in `fail` (counted over all) cannot.
    fn begun(each: usize, fail: &[usize]) -> Result<Vec<SocketAddr>, DataError> {
        let targets = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut nth = 0;
        dial_each(&targets, each, |to| {
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
