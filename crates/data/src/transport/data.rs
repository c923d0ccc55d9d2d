//! The way of a data connection's bytes.

use std::io::{self, IoSlice, Read};
use std::net::Shutdown;

use rustix::event::PollFlags;
use socket2::Socket;

use crate::settings::TransferSettings;

/// A connected data socket, and what its bytes go through. Nothing here blocks.
#[derive(Debug)]
pub(crate) struct DataTransport {
    socket: Socket,
    layer: TransportLayer,
}

/// Layer between the bytes and the socket.
#[derive(Debug)]
enum TransportLayer {
    /// Nothing: they go as they are.
    Clear,
    /// A fake whose handshake takes its time.
    #[cfg(test)]
    Slow(std::sync::Arc<HandshakeGate>),
}

impl DataTransport {
    /// For a connection of a transfer, as the transfer's settings have it. The handshake is still to come.
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

    /// Without security.
    pub(crate) fn clear(socket: Socket) -> Self {
        Self {
            socket,
            layer: TransportLayer::Clear,
        }
    }

    /// The socket: for options, for what the kernel tells of it, and for waits. Never for bytes.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The socket, where the kernel may move bytes by itself (sendfile, splice, MSG_ZEROCOPY).
    ///
    /// # Errors
    /// `Unsupported`: bytes must go through the transport.
    pub(crate) fn kernel_socket(&self) -> io::Result<&Socket> {
        match self.layer {
            TransportLayer::Clear => Ok(&self.socket),
            #[cfg(test)]
            TransportLayer::Slow(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Goes on with the handshake as far as it gets. `None`: it is over, or there is none; else to be
    /// called again when the socket is ready so. Bytes may pass when it is over.
    ///
    /// # Errors
    /// The connection broke, or the other end's part is not right.
    pub(crate) fn handshake(&self) -> io::Result<Option<PollFlags>> {
        match &self.layer {
            TransportLayer::Clear => Ok(None),
            #[cfg(test)]
            TransportLayer::Slow(gate) => {
                gate.pass();
                Ok(None)
            }
        }
    }

    /// Receives what is there; 0 is the other end's FIN.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there yet.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        // `Read` is implemented for `&Socket`, and takes initialised memory.
        (&self.socket).read(buf)
    }

    /// Sends as much of the parts as fits; with `more`, the kernel may wait for what follows.
    ///
    /// # Errors
    /// `WouldBlock`: nothing fits now.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        self.socket.send_vectored_with_flags(parts, flags)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

/// Where fake handshakes wait: the first of them until the gate is opened, others not at all.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct HandshakeGate {
    came: std::sync::atomic::AtomicUsize,
    open: std::sync::Mutex<bool>,
    opened: std::sync::Condvar,
}

#[cfg(test)]
impl HandshakeGate {
    fn pass(&self) {
        if self.came.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            return;
        }
        let open = crate::locks::lock(&self.open);
        // A test that has failed must end, too.
        let patience = std::time::Duration::from_secs(30);
        drop(
            self.opened
                .wait_timeout_while(open, patience, |open| !*open),
        );
    }

    /// Handshakes that have begun.
    pub(crate) fn came(&self) -> usize {
        self.came.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        *crate::locks::lock(&self.open) = true;
        self.opened.notify_all();
    }
}
