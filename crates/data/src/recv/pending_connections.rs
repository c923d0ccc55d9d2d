//! Connections that were accepted and have sent nothing of use yet: anybody's, until shown
//! otherwise. They cost a descriptor each, no thread, no buffer and no stream's permit, and are
//! bounded: the one that was silent for longest gives way to a new one.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

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
use crate::stream::DataStream;

/// Connections of one transfer that may wait at a time: twice as many as any sender opens, so that
/// it takes a flood while the sender is silent to crowd one of its own out.
const MOST: usize = 512;

/// Connections that may wait for each transfer whatever waits for others; further ones need a place
/// among all.
const OWN: usize = 16;

/// Connections taken from the listener's queue in one go: whoever floods it must not keep this end
/// from looking at those that have something to say.
const AT_ONCE: usize = 128;

/// The connections of one transfer that wait.
pub(super) struct PendingConnections<'t> {
    task: &'t ReceiveTask<'t>,
    budget: Option<StreamBudget>,
    /// Bytes that are looked at, at most a header's.
    need: usize,
    /// As they came.
    candidates: VecDeque<PendingConnection>,
    ended: Option<PendingConnection>,
    broken: Option<DataError>,
    strangers: RejectedPeers,
    /// No room for another one.
    full: bool,
}

/// A connection that waits. Its handshake, if it is to have one, is for the thread that will read it: what
/// is looked at here are bytes as they came.
pub(super) struct PendingConnection {
    socket: Socket,
    peer: SocketAddr,
    /// It has shown that it is a sender's, and waits for its turn.
    is_ready: bool,
    _place: StreamPermit,
}

/// The outcome of a look at a candidate.
pub(super) enum PeekResult<'b> {
    /// It has sent less than is needed.
    Silence,
    /// It has sent what is needed: these bytes, which are still to be received.
    Bytes(&'b [u8]),
    /// It sent nothing and closed in order.
    End,
    /// It broke, or ended amidst what is needed.
    Broken(io::Error),
}

/// The decision about a candidate.
pub(super) enum PendingDecision {
    /// It goes on waiting to be looked at.
    Wait,
    /// It is a sender's.
    Accept,
    /// It has ended in order. The first such is kept, apart from those that wait.
    Closed,
    /// It is closed. If no sender comes, the first reason is the transfer's error.
    Reject(DataError),
}

impl<'t> PendingConnections<'t> {
    /// For connections of which `need` bytes, 1 to [`HEADER_LEN`], are looked at.
    pub(super) fn new(
        task: &'t ReceiveTask<'t>,
        budget: Option<StreamBudget>,
        need: usize,
    ) -> Self {
        Self {
            task,
            budget,
            need,
            candidates: VecDeque::new(),
            ended: None,
            broken: None,
            strangers: RejectedPeers::default(),
            full: false,
        }
    }

    /// Why nobody came in time: the first connection that broke, or nobody did come.
    pub(super) fn no_peer(&mut self) -> DataError {
        let seconds = self.task.settings.connect_timeout.as_secs();
        self.broken
            .take()
            .unwrap_or_else(|| self.strangers.no_peer(seconds))
    }

    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Takes what waits in the listener's queue, and looks at what the candidates have sent.
    pub(super) fn accept_and_inspect(
        &mut self,
        endpoint: &ChannelEndpoint,
        mut judge: impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) -> Result<(), DataError> {
        self.inspect_all(&mut judge);
        let ChannelEndpoint::Passive {
            listener,
            accept: policy,
            ..
        } = endpoint
        else {
            return Ok(());
        };
        let (transfer, settings) = (self.task.transfer, self.task.settings);
        for _ in 0..AT_ONCE {
            self.full = self.candidates.len() >= MOST && self.candidates.iter().all(|c| c.is_ready);
            if self.full {
                return Ok(());
            }
            match accept_allowed(transfer, listener, *policy, settings, &mut self.strangers)? {
                AcceptResult::Nothing => break,
                AcceptResult::Closed => {}
                AcceptResult::Connection(socket, peer) => {
                    transfer.note_connection();
                    if let Some(place) = self.make_room(&mut judge) {
                        self.admit(socket, peer, place);
                    }
                }
            }
        }
        self.inspect_all(&mut judge);
        Ok(())
    }

    fn admit(&mut self, socket: Socket, peer: SocketAddr, place: StreamPermit) {
        // A header that comes in pieces is looked at when it is whole.
        if let Err(error) = sockopt::set_receive_low_water(socket.as_fd(), self.need) {
            tracing::warn!(%peer, %error, "data connection dropped");
            return;
        }
        self.candidates.push_back(PendingConnection {
            socket,
            peer,
            is_ready: false,
            _place: place,
        });
    }

    /// A place for one more, if need be that of the one which was silent for longest.
    fn make_room(
        &mut self,
        judge: &mut impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) -> Option<StreamPermit> {
        for last_try in [false, true] {
            let room = self.candidates.len() < MOST;
            if let Some(place) = room.then(|| self.take_permit()).flatten() {
                return Some(place);
            }
            if last_try {
                break;
            }
            // They may have said something meanwhile.
            self.inspect_all(judge);
            if self.candidates.len() >= MOST || !self.has_permit() {
                let silent = self.candidates.iter().position(|c| !c.is_ready)?;
                self.candidates.remove(silent);
            }
        }
        None
    }

    fn has_permit(&self) -> bool {
        self.take_permit().is_some()
    }

    fn take_permit(&self) -> Option<StreamPermit> {
        match &self.budget {
            Some(budget) if self.candidates.len() >= OWN => budget.take_unidentified().ok(),
            _ => Some(StreamPermit::unlimited()),
        }
    }

    /// Looks at all that are not chosen yet.
    fn inspect_all(
        &mut self,
        judge: &mut impl FnMut(&PendingConnection, PeekResult<'_>) -> PendingDecision,
    ) {
        let mut at = 0;
        while let Some(candidate) = self.candidates.get_mut(at) {
            if candidate.is_ready {
                at += 1;
                continue;
            }
            match candidate.inspect(self.need, judge) {
                PendingDecision::Wait | PendingDecision::Accept => at += 1,
                PendingDecision::Reject(reason) => {
                    tracing::warn!(error = %reason, "data connection dropped");
                    self.broken.get_or_insert(reason);
                    self.candidates.remove(at);
                }
                PendingDecision::Closed => {
                    let candidate = self.candidates.remove(at);
                    self.ended = self.ended.take().or(candidate);
                }
            }
        }
    }

    /// Whether somebody is chosen and waits for its turn.
    pub(super) fn has_ready(&self) -> bool {
        self.candidates.iter().any(|c| c.is_ready)
    }

    /// Takes the one that was chosen and waits for longest. `None`, too, when it broke meanwhile.
    pub(super) fn take_ready(&mut self) -> Option<DataStream> {
        let at = self.candidates.iter().position(|c| c.is_ready)?;
        self.candidates.remove(at)?.into_stream(self.task)
    }

    /// Whether one has ended in order without a byte.
    pub(super) fn has_closed(&self) -> bool {
        self.ended.is_some()
    }

    /// Takes the one that has ended.
    pub(super) fn take_closed(&mut self) -> Option<DataStream> {
        self.ended.take()?.into_stream(self.task)
    }

    /// Adds the descriptors that end a wait when there is something to do.
    pub(super) fn add_poll_fds<'f>(
        &'f self,
        endpoint: &'f ChannelEndpoint,
        fds: &mut Vec<PollFd<'f>>,
    ) {
        let silent = self.candidates.iter().filter(|c| !c.is_ready);
        fds.extend(silent.map(|c| PollFd::new(&c.socket, PollFlags::IN)));
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

    /// Looks at it.
    fn inspect(
        &mut self,
        need: usize,
        judge: &mut impl FnMut(&Self, PeekResult<'_>) -> PendingDecision,
    ) -> PendingDecision {
        let mut room = [0; HEADER_LEN];
        let verdict = judge(self, self.peek(&mut room[..need.min(HEADER_LEN)]));
        self.is_ready = matches!(verdict, PendingDecision::Accept);
        verdict
    }

    /// The error of a connection that broke before it was of use.
    pub(super) fn broke(&self, source: io::Error) -> DataError {
        DataError::Wire {
            peer: self.peer.to_string(),
            source,
        }
    }

    /// Forgets the bytes that were just seen: they are of no use.
    pub(super) fn skip(&self, bytes: &mut [u8]) {
        // What cannot be read shows at the next look.
        let _ = recv(&self.socket, bytes, RecvFlags::DONTWAIT);
    }

    /// Shows the first bytes without receiving them.
    fn peek<'b>(&self, room: &'b mut [u8]) -> PeekResult<'b> {
        let need = room.len();
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut *room, flags) {
            Ok((n, _)) if n == need => PeekResult::Bytes(room),
            Ok((0, _)) => PeekResult::End,
            Ok(_) if has_hung_up(&self.socket) => {
                PeekResult::Broken(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => PeekResult::Silence,
            Err(error) => PeekResult::Broken(error.into()),
        }
    }

    fn into_stream(self, task: &ReceiveTask<'_>) -> Option<DataStream> {
        let Self { socket, peer, .. } = self;
        let made = sockopt::set_receive_low_water(socket.as_fd(), 1)
            .and_then(|()| DataStream::new(socket, peer, task.settings));
        made.inspect_err(|error| tracing::warn!(%peer, %error, "data connection dropped"))
            .ok()
    }
}
