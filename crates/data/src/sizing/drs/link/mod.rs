//! One transfer's DRS channel, driven by the thread that sizes its buffers.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::drs::{DrsEvent as Heard, DrsRole};
use rustix::event::PollFlags;
use tune::limiter::Role;

use super::acceptor::DrsAcceptor;
use super::connection::{DrsCloseReason, DrsConnection};
use super::dialer::DrsDialer;
use crate::drs::DrsEndpoint;

/// News for the sizing thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrsChannelEvent {
    /// Data receiver: a message came back after so long.
    Echo(Duration),
    /// Data sender: set the send buffers to this, bytes, then call [`DrsLink::applied`]. The newest of
    /// those that came.
    Size(u64),
    /// The channel ended, or could not be made. Go on with the round trip that is known. A
    /// connecting end will not come back; a listening one may, should its peer connect again.
    Lost,
}

/// How this end gets its connection.
#[derive(Debug)]
enum DrsConnector {
    In(DrsAcceptor),
    Out(DrsDialer),
}

/// One transfer's DRS channel. Never blocks and never fails; it is either there or not. Dropping it
/// closes the connection, while the endpoint stays for the next transfer.
#[derive(Debug)]
pub(super) struct DrsLink {
    endpoint: Arc<DrsEndpoint>,
    way: DrsConnector,
    wire: Option<DrsConnection>,
    /// The newest size that was to be announced.
    size: Option<u64>,
    /// It went out on this connection.
    told: bool,
    /// Nothing more will come.
    over: bool,
}

impl DrsLink {
    /// For a transfer that begins. `role`: what this end does with the data.
    pub(super) fn new(endpoint: Arc<DrsEndpoint>, role: Role) -> Self {
        let end = match role {
            Role::Sender => DrsRole::Sender,
            Role::Receiver => DrsRole::Receiver,
        };
        let way = match &*endpoint {
            DrsEndpoint::Listening { address, .. } => {
                DrsConnector::In(DrsAcceptor::new(end, address.nonce))
            }
            DrsEndpoint::Connecting { address, local } => {
                DrsConnector::Out(DrsDialer::new(*address, *local, end))
            }
        };
        Self {
            endpoint,
            way,
            wire: None,
            size: None,
            told: false,
            over: false,
        }
    }

    /// Descriptors to wait for. When one of these is ready, and at every other wake too (what may be
    /// connected to, and what is late, changes with time alone), call [`DrsLink::advance`].
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let mut all = Vec::new();
        match (&self.way, &*self.endpoint) {
            _ if self.over => {}
            (DrsConnector::In(reception), DrsEndpoint::Listening { listener, .. }) => {
                all.extend(reception.poll_fds(listener));
            }
            (DrsConnector::Out(dial), _) => all.extend(dial.poll_fds()),
            (DrsConnector::In(_), _) => {}
        }
        all.extend(self.wire.as_ref().map(DrsConnection::poll_fds));
        all.into_iter()
    }

    /// Does what can be done now. `now`: since the transfer began; `peers`: hosts of the data
    /// connections so far. Only with one of them is anything exchanged.
    pub(super) fn advance(&mut self, now: Duration, peers: &[IpAddr]) -> Vec<DrsChannelEvent> {
        let mut events = Vec::new();
        if !self.over {
            let came = self.connect(now, peers, &mut events);
            self.exchange(now, came, &mut events);
            self.send_size(now);
        }
        events
    }

    /// Tells the data sender of a size, bytes: at once, or, when there is no channel yet or the
    /// last message was sent just now, as soon as may be; of several the newest.
    pub(super) fn announce(&mut self, now: Duration, size: u64) {
        self.size = Some(size);
        self.told = false;
        self.send_size(now);
    }

    /// The size of the last [`Event::BufferSize`] is set: the echoes leave.
    pub(super) fn applied(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.applied();
        }
    }

    /// Makes or takes a connection. Returns what a new one has said already.
    fn connect(
        &mut self,
        now: Duration,
        peers: &[IpAddr],
        events: &mut Vec<DrsChannelEvent>,
    ) -> Vec<Heard> {
        match (&mut self.way, &*self.endpoint) {
            (DrsConnector::In(reception), DrsEndpoint::Listening { listener, .. }) => {
                let Some((wire, said)) = reception.advance(now, listener, peers) else {
                    return Vec::new();
                };
                self.wire = Some(wire);
                self.told = false;
                said
            }
            (DrsConnector::Out(dial), _) if self.wire.is_none() => {
                match dial.advance(now, peers) {
                    Ok(wire) => {
                        self.wire = wire;
                        self.told = false;
                    }
                    Err(error) => {
                        self.on_connection_lost(now, &DrsCloseReason::Broken(error), events);
                    }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Hears what the peer says, after what it said already.
    fn exchange(&mut self, now: Duration, came: Vec<Heard>, events: &mut Vec<DrsChannelEvent>) {
        let Some(wire) = &mut self.wire else { return };
        match wire.exchange(now) {
            Ok(more) => events.extend(newest(came.into_iter().chain(more))),
            Err(gone) => self.on_connection_lost(now, &gone, events),
        }
    }

    fn on_connection_lost(
        &mut self,
        now: Duration,
        gone: &DrsCloseReason,
        events: &mut Vec<DrsChannelEvent>,
    ) {
        let heard = self.wire.take().is_some_and(|wire| wire.has_message());
        let offence = matches!(gone, DrsCloseReason::Violation(_));
        let hope = match &mut self.way {
            _ if offence => false,
            DrsConnector::In(_) => true,
            DrsConnector::Out(dial) => !heard && dial.schedule_retry(now),
        };
        self.over = !hope;
        if offence {
            tracing::warn!(%gone, "DRS channel dropped");
        } else {
            tracing::debug!(%gone, hope, "DRS channel lost");
        }
        if heard || !hope {
            events.push(DrsChannelEvent::Lost);
        }
    }

    fn send_size(&mut self, now: Duration) {
        if let (Some(wire), Some(size), false) = (&mut self.wire, self.size, self.told) {
            self.told = wire.announce(now, size);
        }
    }
}

/// Every echo counts, but of several sizes only the newest.
fn newest(heard: impl Iterator<Item = Heard>) -> Vec<DrsChannelEvent> {
    let (mut events, mut size) = (Vec::new(), None);
    for one in heard {
        match one {
            Heard::RoundTrip(rtt) => events.push(DrsChannelEvent::Echo(rtt)),
            Heard::BufferSize(bytes) => size = Some(DrsChannelEvent::Size(bytes)),
            Heard::Authenticated => {}
        }
    }
    events.extend(size);
    events
}

#[cfg(test)]
mod tests;
