//! One TCP connection of a DRS channel: what the protocol says, put through a transport that never
//! blocks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proto::drs::{DrsChannel, DrsEvent, DrsViolation};
use rustix::event::PollFlags;
use socket2::Socket;

use crate::os::wake;
use crate::transport::DataTransport;

/// Most bytes read at one time, so that a peer that sends without end does not hold the sizing
/// thread; what is left wakes it again.
const GULP: usize = 8 << 10;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrsCloseReason {
    /// The other end closed it.
    #[error("closed by the other end")]
    Closed,
    /// The system's reason.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// The other end broke the rules.
    #[error(transparent)]
    Violation(#[from] DrsViolation),
}

/// A connected socket and the protocol on it.
#[derive(Debug)]
pub(super) struct DrsConnection {
    transport: DataTransport,
    channel: DrsChannel,
    /// The handshake waits for this; `None`: it is over.
    handshake: Option<PollFlags>,
    /// A message came, and not only the greeting.
    heard: bool,
}

impl DrsConnection {
    /// Takes a connected socket.
    pub(super) fn new(socket: Socket, channel: DrsChannel) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // A message is a round trip's measure: it may not wait for the one before.
        socket.set_tcp_nodelay(true)?;
        let transport = DataTransport::clear(socket);
        let handshake = transport.handshake()?;
        Ok(Self {
            transport,
            channel,
            handshake,
            heard: false,
        })
    }

    /// Descriptor to wait for.
    pub(super) fn poll_fds(&self) -> (BorrowedFd<'_>, PollFlags) {
        let mut events = self.handshake.unwrap_or(PollFlags::IN);
        if self.handshake.is_none() && !self.channel.unsent().is_empty() {
            events |= PollFlags::OUT;
        }
        (self.transport.socket().as_fd(), events)
    }

    /// Whether the nonce was said, by this end or to it.
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Whether a message came, and not only the greeting.
    pub(super) fn has_message(&self) -> bool {
        self.heard
    }

    /// Whether the other end has closed already, though something may be left to read.
    pub(super) fn is_closed(&self) -> bool {
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        !matches!(
            wake::wait([(self.transport.socket().as_fd(), closed)], Duration::ZERO),
            Ok([false])
        )
    }

    /// Reads what is there and sends what waits.
    pub(super) fn exchange(&mut self, now: Duration) -> Result<Vec<DrsEvent>, DrsCloseReason> {
        let mut events = Vec::new();
        if self.handshake.is_some() {
            self.handshake = self.transport.handshake()?;
        }
        if self.handshake.is_some() {
            return Ok(events);
        }
        let mut gulp = [0; GULP];
        match self.transport.recv(&mut gulp) {
            Ok(0) => return Err(DrsCloseReason::Closed),
            Ok(count) => {
                let bytes = gulp.get(..count).unwrap_or_default();
                self.channel.on_bytes(now, bytes, &mut events)?;
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error.into()),
        }
        self.heard |= events.iter().any(|event| *event != DrsEvent::Authenticated);
        self.flush()?;
        Ok(events)
    }

    /// Sends a size, bytes, if the protocol's pace allows; `false`: later.
    pub(super) fn announce(&mut self, now: Duration, size: u64) -> bool {
        let announced = self.channel.announce(now, size);
        self.flush_gently();
        announced
    }

    /// Sends the echoes of the sizes that are set now.
    pub(super) fn applied(&mut self) {
        self.channel.release_echoes();
        self.flush_gently();
    }

    /// A failure shows again, and is judged, when the socket is read.
    fn flush_gently(&mut self) {
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "DRS channel does not send");
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.handshake.is_none() && !self.channel.unsent().is_empty() {
            // A peer that is gone is an error here and no signal.
            let unsent = self.channel.unsent();
            match self.transport.send(&[IoSlice::new(unsent)], false) {
                Ok(count) => self.channel.mark_sent(count),
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
