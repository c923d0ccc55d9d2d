//! One TCP connection of a DRS channel: passes the messages of the protocol through a transport
//! that never blocks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proto::drs::{DrsChannel, DrsEvent, DrsViolation};
use rustix::event::PollFlags;
use socket2::Socket;

use crate::os::wake;
use crate::security::{ConnectionOpener, DataSecurity};
use crate::transport::DataTransport;

/// Most bytes read in one call, so that a peer that sends without end does not occupy the tuning
/// thread. The rest wakes it again.
const READ_SIZE: usize = 8 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrsCloseReason {
    /// The peer closed it.
    #[error("closed by the other end")]
    Closed,
    /// The system's reason.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// The peer violated the protocol.
    #[error(transparent)]
    Violation(#[from] DrsViolation),
}

/// A connected socket and the state of the protocol on it.
#[derive(Debug)]
pub(super) struct DrsConnection {
    transport: DataTransport,
    channel: DrsChannel,
    /// The event that the handshake waits for; `None`: it is complete.
    handshake: Option<PollFlags>,
    /// A message arrived, not only the greeting.
    has_message: bool,
}

impl DrsConnection {
    /// Takes a connected socket. The protection is that of the transfer's data connections.
    pub(super) fn new(
        socket: Socket,
        opener: ConnectionOpener,
        security: Option<&DataSecurity>,
        channel: DrsChannel,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // A message measures the round trip, so it must not wait for an acknowledgement (Nagle's
        // algorithm, RFC 1122 §4.2.3.4).
        socket.set_tcp_nodelay(true)?;
        let transport = match security {
            None => DataTransport::clear(socket),
            Some(security) => DataTransport::protected(socket, opener, security, false)?,
        };
        let handshake = transport.handshake()?;
        Ok(Self {
            transport,
            channel,
            handshake,
            has_message: false,
        })
    }

    /// The descriptor to wait for.
    pub(super) fn poll_fds(&self) -> (BorrowedFd<'_>, PollFlags) {
        let mut events = self.handshake.unwrap_or(PollFlags::IN);
        let has_unsent = !self.channel.unsent().is_empty() || self.transport.has_backlog();
        if self.handshake.is_none() && has_unsent {
            events |= PollFlags::OUT;
        }
        (self.transport.socket().as_fd(), events)
    }

    /// Whether the nonce was sent, by this end or the peer.
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Whether a message arrived, not only the greeting.
    pub(super) fn has_message(&self) -> bool {
        self.has_message
    }

    /// Whether the peer has closed, although something may be left to read.
    pub(super) fn is_closed(&self) -> bool {
        let socket = self.transport.socket().as_fd();
        !matches!(
            wake::wait([(socket, wake::PEER_CLOSED)], Duration::ZERO),
            Ok([false])
        )
    }

    /// Receives available messages and sends queued ones.
    pub(super) fn exchange(&mut self, now: Duration) -> Result<Vec<DrsEvent>, DrsCloseReason> {
        let mut events = Vec::new();
        if self.handshake.is_some() {
            self.handshake = self.transport.handshake()?;
        }
        if self.handshake.is_some() {
            return Ok(events);
        }
        let mut buffer = [0; READ_SIZE];
        match self.transport.recv(&mut buffer) {
            Ok(0) => return Err(DrsCloseReason::Closed),
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                self.channel.on_bytes(now, bytes, &mut events)?;
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
        self.has_message |= events.iter().any(|event| *event != DrsEvent::Authenticated);
        self.flush()?;
        Ok(events)
    }

    /// Announces a size, bytes, if the message rate of the protocol allows it. Returns `false` if
    /// not.
    pub(super) fn announce(&mut self, now: Duration, size: u64) -> bool {
        let announced = self.channel.announce(now, size);
        self.try_flush();
        announced
    }

    /// Sends the echoes of the sizes that are set now.
    pub(super) fn applied(&mut self) {
        self.channel.release_echoes();
        self.try_flush();
    }

    /// Sends queued messages. An error shows again, and is handled, at the next receive.
    fn try_flush(&mut self) {
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "cannot send on the DRS channel");
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.handshake.is_none() && !self.channel.unsent().is_empty() {
            // MSG_NOSIGNAL: a closed peer is an error here and no SIGPIPE.
            let unsent = self.channel.unsent();
            match self.transport.send(&[IoSlice::new(unsent)], false) {
                Ok(count) => self.channel.mark_sent(count),
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        match self.transport.flush() {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
