//! TLS on a data connection: every byte of a protected one, or only the handshake.
//!
//! One thread serves a connection, so the lock is never contended; a connection without protection
//! has none.

use std::io::{self, IoSlice, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::PollFlags;
use security::gsi::{DataHandshake, DataHandshakeMode};
use security::tls::{Handshake, ReadResult, TlsEngine, TlsError};
use socket2::Socket;

use crate::os::sockopt;
use crate::os::tls_session::permit_resumption;
use crate::security::{ConnectionOpener, DataSecurity, ProtectedEnd, ProtectionError};

/// Most plain bytes that one call encrypts before it sends. Large enough that a system call costs
/// little per byte, small enough that the encrypted bytes are still in a processor cache when the
/// kernel copies them.
const MAX_PART: usize = 256 << 10;

/// The protection of one connection.
#[derive(Debug)]
pub(super) struct DataProtection {
    state: Mutex<ConnectionProtection>,
    /// The handshake is complete and the bytes pass unchanged.
    is_raw: AtomicBool,
    /// This end sends close_notify before FIN.
    sends_close_notify: bool,
    /// A FIN without close_notify is an error.
    requires_close_notify: bool,
}

#[derive(Debug)]
enum ConnectionProtection {
    Handshaking(Box<HandshakeInProgress>),
    Protected(Box<TlsEngine>),
    /// The first bytes of data, received with the handshake.
    Raw(Vec<u8>),
    Failed,
}

/// A handshake before the first byte of data.
#[derive(Debug)]
struct HandshakeInProgress {
    handshake: HandshakeForm,
    is_complete: bool,
    /// Server: a handshake that does not resume a session ends before it is answered. Its end would give
    /// the peer a session, with which its next connection passes.
    require_resumption: bool,
}

/// The form of a handshake.
#[derive(Debug)]
enum HandshakeForm {
    /// TLS, in which the bytes stay.
    Tls(TlsEngine),
    /// GSI's, before raw bytes.
    Gsi {
        handshake: DataHandshake,
        /// Never more than one record is received: the bytes behind the last are data, which the kernel may
        /// move. The TLS client may receive more: the server waits for its last record, and may send several
        /// of its own at once.
        by_record: bool,
    },
}

impl DataProtection {
    /// Before the handshake. `ends_file`: the end of the connection is the end of the file (MODE S).
    ///
    /// # Errors
    /// [`ProtectionError::Tls`]: the configuration has no TLS for this end's side, or it is unusable.
    pub(super) fn new(
        security: &DataSecurity,
        opener: ConnectionOpener,
        ends_file: bool,
    ) -> Result<Self, ProtectionError> {
        let (config, is_client) = security.config_for(opener)?;
        let resume = security.resume.as_ref().filter(|_| is_client);
        permit_resumption();
        let handshake = match security.mode {
            DataHandshakeMode::Protected => HandshakeForm::Tls(TlsEngine::new(config, resume)?),
            mode @ DataHandshakeMode::AuthenticateOnly => HandshakeForm::Gsi {
                handshake: DataHandshake::new(config, mode, resume)?,
                by_record: !is_client,
            },
        };
        let handshake = HandshakeInProgress {
            handshake,
            is_complete: false,
            require_resumption: security.require_resumption && !is_client,
        };
        Ok(Self {
            state: Mutex::new(ConnectionProtection::Handshaking(Box::new(handshake))),
            is_raw: AtomicBool::new(false),
            sends_close_notify: security.stream_end != ProtectedEnd::Fin,
            requires_close_notify: security.stream_end == ProtectedEnd::Proved && ends_file,
        })
    }

    /// Whether the bytes pass unchanged now.
    pub(super) fn is_raw(&self) -> bool {
        self.is_raw.load(Ordering::Acquire)
    }

    /// See [`super::DataTransport::handshake`].
    pub(super) fn handshake(&self, socket: &Socket) -> io::Result<Option<PollFlags>> {
        let mut state = self.state.lock();
        let ConnectionProtection::Handshaking(progress) = &mut *state else {
            return match *state {
                ConnectionProtection::Failed => Err(io::ErrorKind::NotConnected.into()),
                _ => Ok(None),
            };
        };
        match progress.advance(socket) {
            Ok(Some(ready)) => Ok(Some(ready)),
            Ok(None) if progress.require_resumption && !progress.engine().is_resumed() => {
                *state = ConnectionProtection::Failed;
                Err(ProtectionError::NotResumed.into())
            }
            Ok(None) => {
                let before = std::mem::replace(&mut *state, ConnectionProtection::Failed);
                *state = self.after_handshake(before);
                Ok(None)
            }
            Err(error) => {
                *state = ConnectionProtection::Failed;
                Err(error)
            }
        }
    }

    fn after_handshake(&self, state: ConnectionProtection) -> ConnectionProtection {
        let ConnectionProtection::Handshaking(progress) = state else {
            return state;
        };
        match progress.handshake {
            HandshakeForm::Tls(engine) => ConnectionProtection::Protected(Box::new(engine)),
            HandshakeForm::Gsi { mut handshake, .. } => {
                let first = handshake.take_raw_input();
                self.is_raw.store(first.is_empty(), Ordering::Release);
                ConnectionProtection::Raw(first)
            }
        }
    }

    /// See [`super::DataTransport::recv`].
    pub(super) fn recv(&self, mut socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
        if self.is_raw() {
            return socket.read(buf);
        }
        match &mut *self.state.lock() {
            ConnectionProtection::Protected(engine) => self.recv_protected(engine, socket, buf),
            ConnectionProtection::Raw(first) => {
                let count = first.len().min(buf.len());
                buf[..count].copy_from_slice(&first[..count]);
                first.drain(..count);
                self.is_raw.store(first.is_empty(), Ordering::Release);
                Ok(count)
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Decrypts what has arrived, as much as fits into `buf`.
    fn recv_protected(
        &self,
        engine: &mut TlsEngine,
        mut socket: &Socket,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            while filled < buf.len() {
                match engine.read(&mut buf[filled..]) {
                    Ok(ReadResult::Bytes(count)) => filled += count,
                    Ok(ReadResult::NeedsInput) => break,
                    Ok(ReadResult::Closed) => {
                        // Some peers wait for the answer; none is lost with it.
                        let _ = self.close_engine(engine, socket);
                        return Ok(filled);
                    }
                    // The error shows again at the next call.
                    Err(_) if filled > 0 => return Ok(filled),
                    Err(error) => return Err(ProtectionError::from(error).into()),
                }
            }
            if !engine.outgoing().is_empty() {
                // The answer to a change of keys; an error shows again at the next send.
                let _ = send_outgoing(engine, socket);
            }
            if filled == buf.len() {
                return Ok(filled);
            }
            match engine.receive_with(|space| socket.read(space)) {
                Ok(0) if filled > 0 => return Ok(filled),
                Ok(0) if self.requires_close_notify => {
                    return Err(ProtectionError::NoCloseNotify.into());
                }
                Ok(0) => return Ok(0),
                Ok(_) => {}
                Err(error) if filled > 0 && is_transient(&error) => return Ok(filled),
                Err(error) => return Err(error),
            }
        }
    }

    /// See [`super::DataTransport::send`]. At most [`MAX_PART`] plain bytes wait encrypted.
    pub(super) fn send(&self, socket: &Socket, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.is_raw() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let engine = match &mut *state {
            ConnectionProtection::Protected(engine) => engine,
            // Bytes that arrived first do not concern this direction.
            ConnectionProtection::Raw(_) => return Ok(None),
            _ => return Err(io::ErrorKind::NotConnected.into()),
        };
        // Nothing is taken before the last part has left.
        send_outgoing(engine, socket).map_err(|e| explain(engine, socket, e))?;
        let mut taken = 0;
        for part in parts {
            let part = &part[..part.len().min(MAX_PART - taken)];
            if !part.is_empty() {
                engine.write(part).map_err(ProtectionError::from)?;
                taken += part.len();
            }
        }
        match send_outgoing(engine, socket) {
            Err(error) if !is_transient(&error) => Err(explain(engine, socket, error)),
            _ => Ok(Some(taken)),
        }
    }

    /// Whether encrypted bytes wait for room in the socket.
    pub(super) fn has_backlog(&self) -> bool {
        !self.is_raw()
            && match &*self.state.lock() {
                ConnectionProtection::Protected(engine) => !engine.outgoing().is_empty(),
                _ => false,
            }
    }

    /// See [`super::DataTransport::flush`].
    pub(super) fn flush(&self, socket: &Socket) -> io::Result<()> {
        match &mut *self.state.lock() {
            ConnectionProtection::Protected(engine) => {
                send_outgoing(engine, socket).map_err(|e| explain(engine, socket, e))
            }
            _ => Ok(()),
        }
    }

    /// Sends close_notify, where peers expect it: GSI peers never send it. Returns whether this one
    /// does.
    ///
    /// # Errors
    /// `WouldBlock`: it does not fit now.
    pub(super) fn close(&self, socket: &Socket) -> io::Result<bool> {
        match &mut *self.state.lock() {
            ConnectionProtection::Protected(engine) => {
                self.close_engine(engine, socket)?;
                Ok(self.sends_close_notify)
            }
            _ => Ok(false),
        }
    }

    fn close_engine(&self, engine: &mut TlsEngine, socket: &Socket) -> io::Result<()> {
        if self.sends_close_notify {
            // The second call sends none.
            engine.close().map_err(ProtectionError::from)?;
        }
        send_outgoing(engine, socket)
    }
}

impl HandshakeInProgress {
    fn engine(&mut self) -> &mut TlsEngine {
        match &mut self.handshake {
            HandshakeForm::Tls(engine) => engine,
            HandshakeForm::Gsi { handshake, .. } => handshake.engine(),
        }
    }

    /// Continues as far as possible. Returns the event to wait for; `None`: complete.
    fn advance(&mut self, socket: &Socket) -> io::Result<Option<PollFlags>> {
        loop {
            let progress = match &mut self.handshake {
                _ if self.is_complete => Ok(Handshake::Complete),
                HandshakeForm::Tls(engine) => engine.handshake(),
                HandshakeForm::Gsi { handshake, .. } => handshake.advance(),
            };
            let is_full = self.require_resumption && self.engine().is_full_handshake();
            if is_full && progress.is_ok() && !self.engine().outgoing().is_empty() {
                return Err(ProtectionError::NotResumed.into());
            }
            // Also after an error: the alert tells the peer.
            let sent = send_outgoing(self.engine(), socket);
            self.is_complete = progress.map_err(ProtectionError::from)? == Handshake::Complete;
            match sent {
                Err(error) if is_transient(&error) => return Ok(Some(PollFlags::OUT)),
                sent => sent?,
            }
            if self.is_complete {
                return Ok(None);
            }
            match self.receive(socket) {
                Ok(0) => return Err(ProtectionError::ClosedInHandshake.into()),
                Ok(_) => {}
                Err(error) if is_transient(&error) => return Ok(Some(PollFlags::IN)),
                Err(error) => return Err(error),
            }
        }
    }

    fn receive(&mut self, mut socket: &Socket) -> io::Result<usize> {
        match &mut self.handshake {
            HandshakeForm::Tls(engine) => engine.receive_with(|space| socket.read(space)),
            HandshakeForm::Gsi {
                handshake,
                by_record,
            } => {
                let most = match by_record {
                    true => handshake.missing_of_record(),
                    false => usize::MAX,
                };
                handshake.engine().receive_with(|space| {
                    let count = space.len().min(most);
                    socket.read(&mut space[..count])
                })
            }
        }
    }
}

/// Sends the encrypted bytes.
///
/// # Errors
/// `WouldBlock`: some do not fit now.
fn send_outgoing(engine: &mut TlsEngine, socket: &Socket) -> io::Result<()> {
    loop {
        let outgoing = engine.outgoing();
        if outgoing.is_empty() {
            return Ok(());
        }
        // A closed peer is an error and no SIGPIPE (send(2)).
        let sent = socket.send_with_flags(outgoing, sockopt::NO_SIGNAL)?;
        engine.mark_sent(sent);
    }
}

/// The alert with which the peer has ended the connection, if one has arrived: with TLS 1.3 a client's
/// certificate is refused after its handshake, and its next send meets a closed connection.
fn explain(engine: &mut TlsEngine, mut socket: &Socket, error: io::Error) -> io::Error {
    if is_transient(&error) {
        return error;
    }
    loop {
        match engine.read(&mut [0; 512]) {
            Err(alert @ TlsError::Alert(_)) => return ProtectionError::from(alert).into(),
            Ok(ReadResult::NeedsInput) => {
                if !matches!(engine.receive_with(|space| socket.read(space)), Ok(1..)) {
                    return error;
                }
            }
            Ok(ReadResult::Bytes(_)) => {}
            _ => return error,
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
