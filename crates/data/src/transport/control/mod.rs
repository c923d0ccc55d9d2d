//! The transport of a control connection's bytes.

mod socket;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use proto::tunnel::TunnelDialogue;
use security::tls::{TlsConfig, TlsEngine, TlsError, TlsSession};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::os::tls_session::permit_resumption;
use crate::tunnel::TunnelFailure;
use socket::TransportSocket;
use tls::ControlTls;

/// Longest wait of [`ControlTransport::shutdown`] for a peer that does not read. In the clear it never
/// waits either.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A control connection and the layer of its bytes. As a descriptor it is for options and the
/// kernel's state, never for bytes.
///
/// Waiting is separate from reading and writing, so that a waiting task holds no buffer.
///
/// TLS begins in place ([`ControlTransport::start_tls`]) and ends in place
/// ([`ControlTransport::end_tls`]). An error of TLS passes through [`io::Error`]; [`tls_error`]
/// finds it again.
#[derive(Debug)]
pub struct ControlTransport {
    stream: TransportSocket,
    tls: Option<Box<ControlTls>>,
}

/// The error of TLS inside an error of a [`ControlTransport`]; `None`: it is the system's.
pub fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

impl ControlTransport {
    /// Connects. The handshake, if any, is still to come.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).await.map(Self::accepted)
    }

    /// Connects through a proxy with the address `at`. Also returns the duration of the last request and its reply, which
    /// the proxy sends when it has connected: a round trip to the server, or more. The caller sets a time limit.
    ///
    /// # Errors
    /// [`TunnelFailure`], never [`TunnelFailure::TimedOut`].
    pub async fn connect_through(
        at: SocketAddr,
        mut dialogue: TunnelDialogue,
    ) -> Result<(Self, Duration), TunnelFailure> {
        let stream = TcpStream::connect(at).await;
        let mut this = Self::accepted(stream.map_err(TunnelFailure::NoProxy)?);
        let mut sent_at = Instant::now();
        // Room for all that most replies have at a time.
        let mut buffer = [0; 64];
        while !dialogue.is_open() {
            let output = dialogue.output();
            if !output.is_empty() {
                let length = output.len();
                this.write_all(output).await.map_err(TunnelFailure::Lost)?;
                dialogue.sent(length);
                sent_at = Instant::now();
            }
            let wanted = dialogue.wanted().min(buffer.len());
            let read = this.read(&mut buffer[..wanted]).await;
            match read.map_err(TunnelFailure::Lost)? {
                0 => {
                    let closed = io::ErrorKind::UnexpectedEof.into();
                    return Err(TunnelFailure::Lost(closed));
                }
                count => dialogue.receive(&buffer[..count])?,
            }
        }
        Ok((this, sent_at.elapsed()))
    }

    /// Wraps an accepted connection. Its handshake runs in the task that will serve it.
    pub fn accepted(stream: TcpStream) -> Self {
        Self {
            stream: TransportSocket::Network(stream),
            tls: None,
        }
    }

    /// A connection whose bytes a program carries, which protects them (ssh). It has no addresses.
    pub fn carried(stream: UnixStream) -> Self {
        Self {
            stream: TransportSocket::Carried(stream),
            tls: None,
        }
    }

    /// Whether a program carries the bytes, so that the socket has no options and no account of a network.
    pub fn is_carried(&self) -> bool {
        matches!(self.stream, TransportSocket::Carried(_))
    }

    /// Begins TLS, at this end's side of `config`. No byte passes before
    /// [`ControlTransport::complete_handshake`], which is next. Bytes in the clear that the caller
    /// has read before must not be used after it (command injection, CVE-2011-0411).
    ///
    /// # Errors
    /// [`TlsError::Config`]; also if TLS is in use already.
    pub fn start_tls(
        &mut self,
        config: &TlsConfig,
        resume: Option<&TlsSession>,
    ) -> Result<(), TlsError> {
        if self.tls.is_some() {
            let reason = "the control connection is protected already";
            return Err(TlsError::Config(reason.to_owned()));
        }
        permit_resumption();
        let engine = TlsEngine::new(config, resume)?;
        self.tls = Some(Box::new(ControlTls::new(engine)));
        Ok(())
    }

    /// Waits until the peer has sent a byte or has closed, and takes nothing. Unlike
    /// [`ControlTransport::readable`] it never returns for a false alarm, so that nothing need be
    /// prepared for a peer that stays silent. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn peer_has_begun(&self) -> io::Result<()> {
        self.stream.peek(&mut [0]).await.map(drop)
    }

    /// Completes the handshake that [`ControlTransport::start_tls`] began; returns at once if there
    /// is none, or if it is complete. The caller sets a time limit. Cancel-safe: a later call goes
    /// on.
    ///
    /// # Errors
    /// The connection broke, or a peer is refused ([`tls_error`]).
    pub async fn complete_handshake(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.complete_handshake(&self.stream).await,
            None => Ok(()),
        }
    }

    /// Completes the handshake that precedes the first byte, as
    /// [`ControlTransport::complete_handshake`] does: none in the clear.
    ///
    /// # Errors
    /// The connection broke, or the peer's handshake is invalid.
    pub async fn handshake(mut self) -> io::Result<Self> {
        self.complete_handshake().await?;
        Ok(self)
    }

    /// The TLS connection: who the peer is, the version and cipher suite, the session for later
    /// connections. `None` in the clear.
    pub fn tls(&self) -> Option<&TlsEngine> {
        self.tls.as_deref().map(ControlTls::engine)
    }

    /// Ends TLS and continues in the clear (CCC, RFC 4217 §12.3): sends close_notify and waits for
    /// the peer's, or for its first byte in the clear, since some clients send no close_notify. The
    /// caller sets a time limit; after a failure or a cancelled call the connection cannot be used.
    ///
    /// # Errors
    /// The connection broke; `InvalidData`: the peer has sent protected bytes after its last command
    /// or reply.
    pub async fn end_tls(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.end(&self.stream).await?;
            self.tls = None;
        }
        Ok(())
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection is closed, or carried by a program.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's, or the connection is carried by a program.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Waits until [`ControlTransport::try_read`] may return bytes. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn readable(&self) -> io::Result<()> {
        // A peer that never stops sending must not keep other tasks, and the caller's time limits, from their turn.
        consume_budget().await;
        match &self.tls {
            Some(tls) if tls.has_input() => Ok(()),
            // A reader sends what an earlier write left behind, so that a caller that never flushes
            // cannot wait for the answer to bytes that are still here.
            Some(tls) if tls.has_backlog() => {
                let either = Interest::READABLE | Interest::WRITABLE;
                self.stream.ready(either).await
            }
            _ => self.stream.readable().await,
        }
    }

    /// Takes the available bytes; 0 is the end: the peer's FIN, or its close_notify under TLS. A FIN
    /// without close_notify is an end, too, but the bytes of a TLS record that is cut off never
    /// appear.
    ///
    /// # Errors
    /// `WouldBlock`: none are available.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.try_read(&self.stream, buffer),
            None => self.stream.try_read(buffer),
        }
    }

    /// Waits for bytes and takes them; 0 is the end, as for [`ControlTransport::try_read`].
    /// Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                // `readable` may return for a false alarm.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Waits until [`ControlTransport::try_write`] may accept bytes. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn writable(&self) -> io::Result<()> {
        consume_budget().await;
        self.stream.writable().await
    }

    /// Accepts as many bytes as fit. Under TLS, accepted bytes are encrypted and count as written,
    /// although up to one record of them may wait here for room in the socket: after the last bytes
    /// call [`ControlTransport::flush`].
    ///
    /// # Errors
    /// `WouldBlock`: none fit now, and none were taken.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.try_write(&self.stream, bytes),
            None => self.stream.try_write(bytes),
        }
    }

    /// Hands accepted bytes to the socket; nothing to do in the clear.
    ///
    /// # Errors
    /// `WouldBlock`: some do not fit now; call it again when the socket is writable.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.send_backlog(&self.stream),
            None => Ok(()),
        }
    }

    /// Waits until all accepted bytes are handed to the socket. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                done => return done,
            }
        }
    }

    /// Sends all bytes. If it is cancelled, the number of sent bytes is unknown.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                // A socket that accepts nothing without WouldBlock would loop for ever.
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        self.flush().await
    }

    /// Sends FIN: no more bytes follow. Under TLS, close_notify precedes it, unless the peer reads
    /// nothing for two seconds.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.queue_close();
            // The FIN follows in any case: a peer that does not read must not keep this end.
            let _ = timeout(CLOSE_WAIT, self.flush()).await;
        }
        self.stream.shutdown().await
    }
}

impl AsFd for ControlTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
