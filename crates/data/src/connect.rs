//! Making data connections: out to addresses, and in from a listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::error::DataError;
use crate::job::Settings;
use crate::listen::Accept;
use crate::os::wake;
use crate::stream::{Stream, same_host, tune};
use crate::transfer::Transfer;

/// Pause when the system has no descriptor or memory for another connection.
pub(crate) const SHORTAGE: Duration = Duration::from_millis(100);

/// A connection attempt that is under way.
struct Attempt {
    socket: Socket,
    to: SocketAddr,
}

/// Opens `each` connections to every target, all at once so that many streams cost one round
/// trip. A target that takes some of them is served with those; one that takes none is an error.
pub(crate) fn connect_all(
    transfer: &Transfer,
    settings: &Settings,
    targets: &[SocketAddr],
    local: Option<IpAddr>,
    each: usize,
) -> Result<Vec<Arc<Stream>>, DataError> {
    let mut open = Vec::new();
    let mut under_way = Vec::new();
    for to in targets {
        for _ in 0..each {
            under_way.push(start(settings, *to, local)?);
        }
    }
    let mut refused = None;
    while let Some(first) = under_way.first() {
        let left = settings.connect.saturating_sub(transfer.begin().elapsed());
        if left.is_zero() {
            let source = io::ErrorKind::TimedOut.into();
            refused.get_or_insert(DataError::Connect {
                to: first.to,
                source,
            });
            break;
        }
        await_any(transfer, &under_way, left)?;
        let (settled, waiting) = under_way
            .into_iter()
            .partition::<Vec<_>, _>(|a| is_settled(&a.socket));
        under_way = waiting;
        for attempt in settled {
            match finish(attempt, settings) {
                Ok(stream) => open.push(Arc::new(stream)),
                Err(error) => {
                    tracing::warn!(%error, "data connection not made");
                    refused.get_or_insert(error);
                }
            }
        }
    }
    let all_served = targets
        .iter()
        .all(|to| open.iter().any(|s| s.peer() == *to));
    match refused {
        Some(error) if !all_served => Err(error),
        _ => Ok(open),
    }
}

fn start(settings: &Settings, to: SocketAddr, local: Option<IpAddr>) -> Result<Attempt, DataError> {
    let socket = dial(to, local, |socket| tune(socket, settings))?;
    Ok(Attempt { socket, to })
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

fn finish(attempt: Attempt, settings: &Settings) -> Result<Stream, DataError> {
    let Attempt { socket, to } = attempt;
    let outcome = socket
        .take_error()
        .and_then(|error| error.map_or(Ok(()), Err))
        .and_then(|()| Stream::new(socket, to, settings));
    outcome.map_err(|source| DataError::Connect { to, source })
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
