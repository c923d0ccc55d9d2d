//! The control port: binding it, accepting connections, and refusing those above the limits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use data::transport::ControlTransport;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// Length of the accept queue (listen(2)).
const BACKLOG: i32 = 1024;

/// Pause after accept failed because of missing descriptors or memory. Both become free again when
/// sessions end; without a pause the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Idle time before the first keepalive probe (`TCP_KEEPIDLE`, tcp(7)). Further probes follow every
/// [`KEEPALIVE_INTERVAL`]; after [`KEEPALIVE_PROBES`] of them without an answer the connection is
/// closed. A client that vanished is noticed after two minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_PROBES: u32 = 4;

/// Binds the control port. The IPv6 wildcard address accepts IPv4 connections, too, whatever
/// `net.ipv6.bindv6only` says.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // A restarted server can bind while connections of the old one are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// Uses a socket that the service manager listens on.
pub(crate) fn adopt(passed: &std::net::TcpListener) -> io::Result<TcpListener> {
    let listener = passed.try_clone()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Waits for the next control connection, before its security handshake: the session's own task
/// does that, so that a slow client does not keep others waiting.
pub(crate) async fn accept(listener: &TcpListener) -> (ControlTransport, SocketAddr) {
    loop {
        let (stream, peer) = accept_stream(listener).await;
        let transport = ControlTransport::accepted(stream);
        match set_socket_options(&transport) {
            Ok(()) => return (transport, peer),
            Err(error) => tracing::debug!(%peer, %error, "control connection dropped"),
        }
    }
}

/// Waits for the next connection. Errors of accept(2) do not end the loop: after errors of one connection (reset before
/// it was accepted) it goes on at once, after errors of the process (EMFILE, ENFILE, ENOMEM) after a pause.
pub(crate) async fn accept_stream(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
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

/// Sets the options of a control socket.
fn set_socket_options(transport: &ControlTransport) -> io::Result<()> {
    let socket = SockRef::from(transport);
    // Replies are small and each completes a request, so Nagle's algorithm would only delay them.
    socket.set_tcp_nodelay(true)?;
    // With SO_OOBINLINE (socket(7)) a client's Telnet Synch (IAC DM as urgent data, RFC 854) arrives
    // as bytes in order, which the line reader strips. The ABOR after it is not lost.
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )
}

/// Refuses a connection with a 421 instead of the greeting. One send into an empty socket buffer
/// cannot block, and a peer that has left needs no answer. The reply is sent in the clear, because a
/// handshake with a client that is not served would cost time.
pub(crate) fn refuse_with_421(transport: &ControlTransport, reason: &str) {
    let line = format!("421 Service not available: {reason}. Closing control connection.\r\n");
    let _ = SockRef::from(transport).send(line.as_bytes());
}

/// Raises the soft limit of open files to the hard limit (getrlimit(2)): each session and each
/// stream needs a descriptor.
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
