//! Accepted connections that have sent nothing useful yet. Anybody at an allowed address may have
//! opened them. Each costs a descriptor, but no thread, buffer or stream permit. Their number is
//! bounded: the one that was silent for longest is closed for a new one.
//!
//! Under TLS, useful is a complete handshake: its peer is verified.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use proto::eblock::HEADER_LEN;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, recv};
use socket2::Socket;

use super::ReceiveTask;
use crate::budget::{StreamBudget, StreamPermit};
use crate::channel::ChannelEndpoint;
use crate::connect::{AcceptResult, RejectedPeers, accept_allowed};
use crate::error::DataError;
use crate::os::sockopt;
use crate::os::wake::has_hung_up;
use crate::security::ConnectionOpener;
use crate::stream::DataStream;
use crate::tls_handshake::{CHECK_INTERVAL, FailedHandshakes, HandshakingStream};

/// Most pending connections of one transfer: twice as many as any sender opens, so that only a
/// flood while the sender is silent can crowd out one of its own.
const MAX_PENDING: usize = 512;

/// Pending connections that each transfer may have in any case. Further ones need a permit from the
/// process-wide budget.
const MIN_PER_TRANSFER: usize = 16;

/// Connections accepted in one turn: a flood must not keep this end from the connections that have
/// sent something.
const MAX_ACCEPTS_PER_TURN: usize = 128;

/// The pending connections of one transfer.
pub(super) struct PendingConnections<'t> {
    task: &'t ReceiveTask<'t>,
    budget: Option<StreamBudget>,
    /// Number of bytes to inspect, at most the length of a header.
    needed: usize,
    /// In order of arrival.
    connections: VecDeque<PendingConnection>,
    closed: Option<PendingConnection>,
    first_error: Option<DataError>,
    failed_handshakes: FailedHandshakes,
    rejected: RejectedPeers,
    /// No room for another connection.
    full: bool,
}

/// A pending connection.
pub(super) struct PendingConnection {
    link: PendingLink,
    peer: SocketAddr,
    /// It has sent what a sender sends, and waits for a permit.
    is_ready: bool,
    _permit: StreamPermit,
}

/// How a pending connection shows that it belongs to the sender.
enum PendingLink {
    /// By its first bytes, which are inspected as they arrived.
    Bytes(Socket),
    /// By its handshake, which no other connection waits for.
    Handshake(Box<HandshakingStream>),
}

/// The result of an inspection.
pub(super) enum PeekResult<'b> {
    /// It has sent less than is needed.
    Silence,
    /// It has sent the needed bytes, which are still to be received.
    Bytes(&'b [u8]),
    /// It closed in order without a byte.
    End,
    /// It broke, or ended within the needed bytes.
    Broken(io::Error),
}

/// The decision about a pending connection.
pub(super) enum PendingDecision {
    /// It stays pending.
    Wait,
    /// It belongs to a sender.
    Accept,
    /// It has closed in order. The first such connection is kept separately.
    Closed,
    /// It is closed. If no sender comes, the first reason is the error of the transfer.
    Reject(DataError),
}

impl<'t> PendingConnections<'t> {
    /// For connections of which `needed` bytes, 1 to [`HEADER_LEN`], are inspected.
    pub(super) fn new(
        task: &'t ReceiveTask<'t>,
        budget: Option<StreamBudget>,
        needed: usize,
    ) -> Self {
        Self {
            task,
            budget,
            needed,
            connections: VecDeque::new(),
            closed: None,
            first_error: None,
            failed_handshakes: FailedHandshakes::default(),
            rejected: RejectedPeers::default(),
            full: false,
        }
    }

    /// The error when no sender came in time: that of the first connection that broke, or that none
    /// came.
    pub(super) fn no_peer(&mut self) -> DataError {
        let seconds = self.task.settings.connect_timeout.as_secs();
        self.first_error
            .take()
            .or_else(|| self.failed_handshakes.take_first())
            .unwrap_or_else(|| self.rejected.no_peer(seconds))
    }

    /// Whether no connection is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Accepts the connections in the listener's queue, and inspects what the pending ones have
    /// sent.
    pub(super) fn accept_and_inspect(
        &mut self,
        endpoint: &ChannelEndpoint,
        mut decide: impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) -> Result<(), DataError> {
        self.inspect_all(&mut decide);
        let ChannelEndpoint::Passive {
            listener,
            accept: policy,
            ..
        } = endpoint
        else {
            return Ok(());
        };
        let (transfer, settings) = (self.task.transfer, self.task.settings);
        for _ in 0..MAX_ACCEPTS_PER_TURN {
            self.full = self.connections.len() >= MAX_PENDING
                && self.connections.iter().all(|c| c.is_ready);
            // Ready connections are never closed for new ones.
            if self.full {
                return Ok(());
            }
            match accept_allowed(transfer, listener, policy, settings, &mut self.rejected)? {
                AcceptResult::Nothing => break,
                AcceptResult::Closed => {}
                AcceptResult::Connection(socket, peer) => {
                    // The first connection counts as progress for the stall clock.
                    transfer.note_connection();
                    if let Some(permit) = self.make_room(&mut decide) {
                        self.add_connection(socket, peer, permit);
                    }
                }
            }
        }
        // The new connections may have sent bytes already.
        self.inspect_all(&mut decide);
        Ok(())
    }

    fn add_connection(&mut self, socket: Socket, peer: SocketAddr, permit: StreamPermit) {
        let link = match self.task.settings.security.is_some() {
            true => DataStream::new(socket, peer, ConnectionOpener::Peer, self.task.settings)
                .map(|stream| PendingLink::Handshake(Box::new(HandshakingStream::new(stream)))),
            // The socket becomes readable only when a whole header has arrived (SO_RCVLOWAT,
            // socket(7)).
            false => sockopt::set_receive_low_water(socket.as_fd(), self.needed)
                .map(|()| PendingLink::Bytes(socket)),
        };
        match link {
            Ok(link) => self.connections.push_back(PendingConnection {
                link,
                peer,
                is_ready: false,
                _permit: permit,
            }),
            Err(error) => log_closed(peer, &error),
        }
    }

    /// Makes room for one more connection, if necessary by closing the one that was silent for
    /// longest.
    fn make_room(
        &mut self,
        decide: &mut impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) -> Option<StreamPermit> {
        for last_try in [false, true] {
            let has_room = self.connections.len() < MAX_PENDING;
            if let Some(permit) = has_room.then(|| self.take_permit()).flatten() {
                return Some(permit);
            }
            if last_try {
                break;
            }
            // They may have sent something meanwhile.
            self.inspect_all(decide);
            if self.connections.len() >= MAX_PENDING || !self.has_permit() {
                let unready = self.connections.iter().position(|c| !c.is_ready)?;
                self.connections.remove(unready);
            }
        }
        None
    }

    fn has_permit(&self) -> bool {
        self.take_permit().is_some()
    }

    fn take_permit(&self) -> Option<StreamPermit> {
        // The first few need no permit of the budget, so that strangers elsewhere cannot block this
        // transfer.
        match &self.budget {
            Some(budget) if self.connections.len() >= MIN_PER_TRANSFER => {
                budget.take_unidentified().ok()
            }
            _ => Some(StreamPermit::unlimited()),
        }
    }

    /// Inspects all connections without a decision.
    fn inspect_all(
        &mut self,
        decide: &mut impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) {
        let mut index = 0;
        while let Some(connection) = self.connections.get_mut(index) {
            if connection.is_ready {
                index += 1;
                continue;
            }
            match connection.inspect(self.needed, decide) {
                PendingDecision::Wait | PendingDecision::Accept => index += 1,
                PendingDecision::Reject(reason) if connection.is_handshaking() => {
                    self.failed_handshakes.note(reason);
                    self.connections.remove(index);
                }
                PendingDecision::Reject(reason) => {
                    tracing::warn!(error = %reason, "data connection failed and was closed");
                    self.first_error.get_or_insert(reason);
                    self.connections.remove(index);
                }
                PendingDecision::Closed => {
                    let connection = self.connections.remove(index);
                    // Only the first is needed: one empty file.
                    self.closed = self.closed.take().or(connection);
                }
            }
        }
    }

    /// Whether a connection waits to be taken.
    pub(super) fn has_ready(&self) -> bool {
        self.connections.iter().any(|c| c.is_ready)
    }

    /// Number of connections that wait to be taken.
    pub(super) fn ready_count(&self) -> usize {
        self.connections.iter().filter(|c| c.is_ready).count()
    }

    /// Takes the connection that waits for longest. `None` also if it broke meanwhile.
    pub(super) fn take_ready(&mut self) -> Option<DataStream> {
        let index = self.connections.iter().position(|c| c.is_ready)?;
        self.connections.remove(index)?.into_stream(self.task)
    }

    /// Whether a connection has closed in order without a byte.
    pub(super) fn has_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Longest wait until the next inspection: handshakes have a time limit.
    pub(super) fn max_wait(&self) -> Duration {
        let limited = |c: &PendingConnection| !c.is_ready && c.is_handshaking();
        match self.connections.iter().any(limited) {
            true => CHECK_INTERVAL,
            false => Duration::MAX,
        }
    }

    /// Time left for another connection, if the handshake of one has failed and none is pending; see
    /// [`FailedHandshakes::time_left`].
    pub(super) fn time_left(&self) -> Duration {
        match self.is_empty() {
            true => self.failed_handshakes.time_left(),
            false => Duration::MAX,
        }
    }

    /// Takes the connection that has closed.
    pub(super) fn take_closed(&mut self) -> Option<DataStream> {
        self.closed.take()?.into_stream(self.task)
    }

    /// Adds the descriptors that end a wait when there is something to do.
    pub(super) fn add_poll_fds<'f>(
        &'f self,
        endpoint: &'f ChannelEndpoint,
        fds: &mut Vec<PollFd<'f>>,
    ) {
        let unready = self.connections.iter().filter(|c| !c.is_ready);
        fds.extend(unready.map(|c| match &c.link {
            PendingLink::Bytes(socket) => PollFd::new(socket, PollFlags::IN),
            PendingLink::Handshake(stream) => stream.poll_fd(),
        }));
        if let ChannelEndpoint::Passive { listener, .. } = endpoint
            && !self.full
        {
            fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
    }
}

impl PendingConnection {
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Inspects the connection once.
    fn inspect(
        &mut self,
        needed: usize,
        decide: &mut impl FnMut(&Self, PeekResult<'_>) -> PendingDecision,
    ) -> PendingDecision {
        let mut buffer = [0; HEADER_LEN];
        let decision = match &mut self.link {
            PendingLink::Handshake(stream) => match stream.advance() {
                Ok(true) => PendingDecision::Accept,
                Ok(false) => PendingDecision::Wait,
                Err(reason) => PendingDecision::Reject(reason),
            },
            PendingLink::Bytes(socket) => {
                let peeked = peek(socket, &mut buffer[..needed.min(HEADER_LEN)]);
                decide(self, peeked)
            }
        };
        self.is_ready = matches!(decision, PendingDecision::Accept);
        decision
    }

    /// The error of a connection that broke before it was used.
    pub(super) fn broke(&self, source: io::Error) -> DataError {
        DataError::wire(self.peer, source)
    }

    /// Removes the inspected bytes from the socket.
    pub(super) fn skip(&self, bytes: &mut [u8]) {
        if let PendingLink::Bytes(socket) = &self.link {
            // An error shows again at the next inspection.
            let _ = recv(socket, bytes, RecvFlags::DONTWAIT);
        }
    }

    fn is_handshaking(&self) -> bool {
        matches!(self.link, PendingLink::Handshake(_))
    }

    fn into_stream(self, task: &ReceiveTask<'_>) -> Option<DataStream> {
        let Self { link, peer, .. } = self;
        let socket = match link {
            PendingLink::Bytes(socket) => socket,
            PendingLink::Handshake(stream) => return Some(stream.into_stream()),
        };
        // The low-water mark of one header would delay the end of a small file.
        let stream = sockopt::set_receive_low_water(socket.as_fd(), 1)
            .and_then(|()| DataStream::new(socket, peer, ConnectionOpener::Peer, task.settings));
        stream.inspect_err(|error| log_closed(peer, error)).ok()
    }
}

fn log_closed(peer: SocketAddr, error: &io::Error) {
    tracing::warn!(%peer, %error, "data connection failed and was closed");
}

/// Returns the first bytes without receiving them (MSG_PEEK).
fn peek<'b>(socket: &Socket, buffer: &'b mut [u8]) -> PeekResult<'b> {
    let needed = buffer.len();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(socket, &mut *buffer, flags) {
        Ok((n, _)) if n == needed => PeekResult::Bytes(buffer),
        Ok((0, _)) => PeekResult::End,
        // Fewer bytes than needed from a peer that has closed: the rest will never come.
        Ok(_) if has_hung_up(socket) => PeekResult::Broken(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => PeekResult::Silence,
        Err(error) => PeekResult::Broken(error.into()),
    }
}
