//! The transport of a data connection's bytes.

use std::io::{self, IoSlice, Read};
use std::net::Shutdown;

use rustix::event::PollFlags;
use socket2::Socket;

use crate::settings::TransferSettings;

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
    /// A simulated handshake that waits for a gate.
    #[cfg(test)]
    Slow(std::sync::Arc<HandshakeGate>),
}

impl DataTransport {
    /// The transport of a transfer's connection, by the transfer's settings. The handshake is still
    /// to come.
    #[cfg_attr(
        not(test),
        expect(unused_variables, reason = "data connections are clear")
    )]
    pub(crate) fn for_transfer(socket: Socket, settings: &TransferSettings) -> Self {
        #[cfg(test)]
        if let Some(gate) = &settings.gate {
            let layer = TransportLayer::Slow(std::sync::Arc::clone(gate));
            return Self { socket, layer };
        }
        Self::clear(socket)
    }

    /// A transport without security.
    pub(crate) fn clear(socket: Socket) -> Self {
        Self {
            socket,
            layer: TransportLayer::Clear,
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
        match self.layer {
            TransportLayer::Clear => Ok(&self.socket),
            #[cfg(test)]
            TransportLayer::Slow(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Continues the handshake as far as possible. `None`: it is complete, or there is none.
    /// Otherwise call again when the socket has the returned event. Bytes may pass once it is
    /// complete.
    ///
    /// # Errors
    /// The connection broke, or the peer's handshake is invalid.
    pub(crate) fn handshake(&self) -> io::Result<Option<PollFlags>> {
        match &self.layer {
            TransportLayer::Clear => Ok(None),
            #[cfg(test)]
            TransportLayer::Slow(gate) => {
                gate.wait_if_first();
                Ok(None)
            }
        }
    }

    /// Receives the available bytes; 0 is the peer's FIN.
    ///
    /// # Errors
    /// `WouldBlock`: none are available yet.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        // `Read` is implemented for `&Socket` and takes initialised memory.
        (&self.socket).read(buf)
    }

    /// Sends as many bytes of the parts as fit. With `more`, the kernel may wait for the bytes that
    /// follow (MSG_MORE).
    ///
    /// # Errors
    /// `WouldBlock`: none fit now.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        // A closed peer is an error and no SIGPIPE (send(2)).
        let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        self.socket.send_vectored_with_flags(parts, flags)
    }

    /// Sends FIN: no more bytes follow.
    ///
    /// # Errors
    /// The connection is closed.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

/// A gate for simulated handshakes: the first one waits until it is opened, others pass.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct HandshakeGate {
    started_count: std::sync::atomic::AtomicUsize,
    open: std::sync::Mutex<bool>,
    opened: std::sync::Condvar,
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
        let open = crate::locks::lock(&self.open);
        // A failed test must end, too.
        let patience = std::time::Duration::from_secs(30);
        drop(
            self.opened
                .wait_timeout_while(open, patience, |open| !*open),
        );
    }

    /// Number of handshakes that have begun.
    pub(crate) fn started_count(&self) -> usize {
        self.started_count.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        *crate::locks::lock(&self.open) = true;
        self.opened.notify_all();
    }
}
