//! The transport of a data connection's bytes.

use std::io::{self, IoSlice, Read};
use std::net::Shutdown;

use rustix::event::PollFlags;
use socket2::Socket;

use super::protection::DataProtection;
use crate::os::sockopt;
use crate::security::{ConnectionOpener, DataSecurity, ProtectionError};

/// A connected data socket and the layer of its bytes. Nothing here blocks.
#[derive(Debug)]
pub(crate) struct DataTransport {
    socket: Socket,
    layer: TransportLayer,
}

/// The layer between the bytes and the socket.
#[derive(Debug)]
enum TransportLayer {
    /// None: the bytes pass unchanged.
    Clear,
    /// TLS.
    Tls(DataProtection),
    /// A simulated handshake that waits for a gate.
    #[cfg(test)]
    Slow(std::sync::Arc<HandshakeGate>),
}

impl DataTransport {
    /// A transport with security; its handshake is still to come. `ends_file`: the end of the connection
    /// is the end of a file.
    ///
    /// # Errors
    /// [`ProtectionError::Tls`]: the protection is not configured for this end.
    pub(crate) fn protected(
        socket: Socket,
        opener: ConnectionOpener,
        security: &DataSecurity,
        ends_file: bool,
    ) -> Result<Self, ProtectionError> {
        let protection = DataProtection::new(security, opener, ends_file)?;
        Ok(Self {
            socket,
            layer: TransportLayer::Tls(protection),
        })
    }

    /// A transport without security.
    pub(crate) fn clear(socket: Socket) -> Self {
        Self {
            socket,
            layer: TransportLayer::Clear,
        }
    }

    /// A transport with a simulated handshake.
    #[cfg(test)]
    pub(crate) fn gated(socket: Socket, gate: std::sync::Arc<HandshakeGate>) -> Self {
        Self {
            socket,
            layer: TransportLayer::Slow(gate),
        }
    }

    /// The socket, for options, the kernel's state and waits. Never for bytes.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The socket, if the kernel may move bytes by itself (sendfile, splice, MSG_ZEROCOPY).
    ///
    /// # Errors
    /// `Unsupported`: bytes must pass through the layer.
    pub(crate) fn kernel_socket(&self) -> io::Result<&Socket> {
        match &self.layer {
            TransportLayer::Clear => Ok(&self.socket),
            TransportLayer::Tls(protection) if protection.is_raw() => Ok(&self.socket),
            TransportLayer::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            #[cfg(test)]
            TransportLayer::Slow(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Continues the handshake as far as possible. `None`: it is complete, or there is none.
    /// Otherwise call again when the socket has the returned event. Bytes may pass once it is
    /// complete.
    ///
    /// # Errors
    /// The connection broke, or the peer is refused ([`ProtectionError`]).
    pub(crate) fn handshake(&self) -> io::Result<Option<PollFlags>> {
        match &self.layer {
            TransportLayer::Clear => Ok(None),
            TransportLayer::Tls(protection) => protection.handshake(&self.socket),
            #[cfg(test)]
            TransportLayer::Slow(gate) => {
                gate.wait_if_first();
                Ok(None)
            }
        }
    }

    /// Receives the available bytes; 0 is the end: the peer's FIN, or its close_notify under TLS.
    ///
    /// # Errors
    /// `WouldBlock`: none are available yet. [`ProtectionError`]: they are no valid TLS, or the end
    /// may be a cut.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        if let TransportLayer::Tls(protection) = &self.layer {
            return protection.recv(&self.socket, buf);
        }
        // `Read` is implemented for `&Socket` and takes initialised memory.
        (&self.socket).read(buf)
    }

    /// Sends as many bytes of the parts as fit. With `more`, the kernel may wait for the bytes that
    /// follow (MSG_MORE). Under TLS, some of the bytes may wait here: see [`DataTransport::flush`].
    ///
    /// # Errors
    /// `WouldBlock`: none fit now.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        if let TransportLayer::Tls(protection) = &self.layer
            && let Some(taken) = protection.send(&self.socket, parts)?
        {
            return Ok(taken);
        }
        // A closed peer is an error and no SIGPIPE (send(2)).
        let more = if more { sockopt::MORE_FOLLOWS } else { 0 };
        self.socket
            .send_vectored_with_flags(parts, sockopt::NO_SIGNAL | more)
    }

    /// Whether bytes that were taken have not reached the kernel.
    pub(crate) fn has_backlog(&self) -> bool {
        match &self.layer {
            TransportLayer::Tls(protection) => protection.has_backlog(),
            _ => false,
        }
    }

    /// Hands bytes that were taken to the kernel.
    ///
    /// # Errors
    /// `WouldBlock`: some do not fit now.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match &self.layer {
            TransportLayer::Tls(protection) => protection.flush(&self.socket),
            _ => Ok(()),
        }
    }

    /// Sends close_notify where the peer expects it. Returns whether it does, and so ends its own
    /// side when that has come.
    ///
    /// # Errors
    /// The connection is closed. `WouldBlock`: it does not fit now.
    pub(crate) fn announce_end(&self) -> io::Result<bool> {
        match &self.layer {
            TransportLayer::Tls(protection) => protection.close(&self.socket),
            _ => Ok(false),
        }
    }

    /// Sends FIN, after close_notify where the peer expects it: no more bytes follow.
    ///
    /// # Errors
    /// The connection is closed. `WouldBlock`: something before the FIN does not fit now.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.announce_end()?;
        self.socket.shutdown(Shutdown::Write)
    }
}

/// A gate for simulated handshakes: the first one waits until it is opened, others pass.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct HandshakeGate {
    started_count: std::sync::atomic::AtomicUsize,
    open: parking_lot::Mutex<bool>,
    opened: parking_lot::Condvar,
}

#[cfg(test)]
impl HandshakeGate {
    fn wait_if_first(&self) {
        if self
            .started_count
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
            > 0
        {
            return;
        }
        let mut open = self.open.lock();
        // A failed test must end, too.
        let patience = std::time::Duration::from_secs(30);
        self.opened
            .wait_while_for(&mut open, |open| !*open, patience);
    }

    /// Number of handshakes that have begun.
    pub(crate) fn started_count(&self) -> usize {
        self.started_count.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}
