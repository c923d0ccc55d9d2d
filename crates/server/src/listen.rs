//! The control port: binding it, accepting from it, turning away what is over the limits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use data::transport::ControlTransport;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Wait after accept failed for want of descriptors or memory: both come back when sessions end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A silent control connection is probed after this long, then every [`KEEPALIVE_INTERVAL`], and
/// given up after [`KEEPALIVE_PROBES`] probes: a half-open client is gone after two minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_PROBES: u32 = 4;

/// Binds the control port. An IPv6 wildcard takes IPv4 too, whatever the system's default.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// The next control connection, before its handshake: that is for the session's own task, so that nobody
/// who is slow about it keeps others out. Errors of accept are survived: those of one connection (reset
/// before it was taken) at once, those of the process (EMFILE, ENFILE, ENOMEM) after a pause.
pub(crate) async fn accept(listener: &TcpListener) -> (ControlTransport, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let transport = ControlTransport::accepted(stream);
                match set_socket_options(&transport) {
                    Ok(()) => return (transport, peer),
                    Err(error) => tracing::debug!(%peer, %error, "control connection dropped"),
                }
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Options of every control socket. Urgent data stays in line: a client's Telnet Synch (IAC DM,
/// RFC 854) then arrives as bytes that the line reader strips, and the ABOR after it is not lost.
fn set_socket_options(transport: &ControlTransport) -> io::Result<()> {
    let socket = SockRef::from(transport);
    socket.set_tcp_nodelay(true)?;
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )
}

/// Turns a connection away with a 421 in place of the greeting. One send into an empty socket
/// buffer: it cannot block, and a peer that is gone already needs no answer. In the clear: nobody waits
/// for a handshake with who is not to be served.
pub(crate) fn refuse_with_421(transport: &ControlTransport, reason: &str) {
    let line = format!("421 Service not available: {reason}. Closing control connection.\r\n");
    let _ = SockRef::from(transport).send(line.as_bytes());
}

/// Raises the limit of open files to the hard limit: each session and each stream needs one.
pub(crate) fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        } else {
            Ok(())
        }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
