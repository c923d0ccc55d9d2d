//! The DRS channel of one transfer, driven by its tuning thread.

mod acceptor;
mod connection;
mod dialer;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::drs::{DrsEvent, DrsRole};
use rustix::event::PollFlags;
use tune::limiter::Role;

use crate::drs::DrsEndpoint;
use crate::security::DataSecurity;
use acceptor::DrsAcceptor;
use connection::{DrsCloseReason, DrsConnection};
use dialer::DrsDialer;

/// An event for the tuning thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrsChannelEvent {
    /// Data receiver: an echo arrived after this time.
    Echo(Duration),
    /// Data sender: set the send buffers to this size, bytes, then call [`DrsLink::applied`]. Only
    /// the newest of several sizes is reported.
    Size(u64),
    /// The channel ended, or could not be made. Continue with the known round-trip time. A
    /// connecting end does not return; a listening one may, if its peer connects again.
    Lost,
}

/// How this end gets its connection.
#[derive(Debug)]
enum DrsConnector {
    In(DrsAcceptor),
    Out(DrsDialer),
}

/// The DRS channel of one transfer. It never blocks and never fails; it is either connected or not.
/// Dropping it closes the connection; the endpoint stays for the next transfer.
#[derive(Debug)]
pub(super) struct DrsLink {
    endpoint: Arc<DrsEndpoint>,
    connector: DrsConnector,
    connection: Option<DrsConnection>,
    /// The newest size to announce.
    size: Option<u64>,
    /// The size was sent on this connection.
    is_sent: bool,
    /// Nothing more will come.
    is_over: bool,
}

impl DrsLink {
    /// The link of a new transfer. `role` is this end's role for the data, `security` the protection of
    /// its connections.
    pub(super) fn new(
        endpoint: Arc<DrsEndpoint>,
        role: Role,
        security: Option<Arc<DataSecurity>>,
    ) -> Self {
        let end = match role {
            Role::Sender => DrsRole::Sender,
            Role::Receiver => DrsRole::Receiver,
        };
        let connector = match &*endpoint {
            DrsEndpoint::Listening { address, .. } => {
                DrsConnector::In(DrsAcceptor::new(end, address.nonce, security))
            }
            DrsEndpoint::Connecting { address, local } => {
                DrsConnector::Out(DrsDialer::new(*address, *local, end, security))
            }
        };
        Self {
            endpoint,
            connector,
            connection: None,
            size: None,
            is_sent: false,
            is_over: false,
        }
    }

    /// The descriptors to wait for. When one is ready, and at every other wake-up (allowed peers
    /// and deadlines change with time alone), call [`DrsLink::advance`].
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let mut all = Vec::new();
        match (&self.connector, &*self.endpoint) {
            _ if self.is_over => {}
            (DrsConnector::In(acceptor), DrsEndpoint::Listening { listener, .. }) => {
                all.extend(acceptor.poll_fds(listener));
            }
            (DrsConnector::Out(dialer), _) => all.extend(dialer.poll_fds()),
            (DrsConnector::In(_), _) => {}
        }
        all.extend(self.connection.as_ref().map(DrsConnection::poll_fds));
        all.into_iter()
    }

    /// Does what is possible now. `now` is the time since the transfer began, `peers` the hosts of
    /// the data connections so far. Messages are exchanged only with one of them.
    pub(super) fn advance(&mut self, now: Duration, peers: &[IpAddr]) -> Vec<DrsChannelEvent> {
        let mut events = Vec::new();
        if !self.is_over {
            let first_events = self.connect(now, peers, &mut events);
            self.exchange(now, first_events, &mut events);
            self.send_size(now);
        }
        events
    }

    /// Announces a size to the data sender, bytes: at once, or as soon as there is a channel and
    /// the protocol's message rate allows. Of several sizes only the newest is sent.
    pub(super) fn announce(&mut self, now: Duration, size: u64) {
        self.size = Some(size);
        self.is_sent = false;
        self.send_size(now);
    }

    /// Reports that the size of the last [`DrsChannelEvent::Size`] is set: the echoes are sent.
    pub(super) fn applied(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.applied();
        }
    }

    /// Makes or accepts a connection. Returns the messages that came with a new one.
    fn connect(
        &mut self,
        now: Duration,
        peers: &[IpAddr],
        events: &mut Vec<DrsChannelEvent>,
    ) -> Vec<DrsEvent> {
        match (&mut self.connector, &*self.endpoint) {
            (DrsConnector::In(acceptor), DrsEndpoint::Listening { listener, .. }) => {
                let Some((connection, first_events)) = acceptor.advance(now, listener, peers)
                else {
                    return Vec::new();
                };
                self.connection = Some(connection);
                self.is_sent = false;
                first_events
            }
            (DrsConnector::Out(dialer), _) if self.connection.is_none() => {
                match dialer.advance(now, peers) {
                    Ok(connection) => {
                        self.connection = connection;
                        self.is_sent = false;
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

    /// Processes the messages of the peer, after those that came with the connection.
    fn exchange(
        &mut self,
        now: Duration,
        first_events: Vec<DrsEvent>,
        events: &mut Vec<DrsChannelEvent>,
    ) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        match connection.exchange(now) {
            Ok(more) => events.extend(newest(first_events.into_iter().chain(more))),
            Err(reason) => self.on_connection_lost(now, &reason, events),
        }
    }

    fn on_connection_lost(
        &mut self,
        now: Duration,
        reason: &DrsCloseReason,
        events: &mut Vec<DrsChannelEvent>,
    ) {
        let has_message = self
            .connection
            .take()
            .is_some_and(|connection| connection.has_message());
        let is_violation = matches!(reason, DrsCloseReason::Violation(_));
        // A peer that violates the protocol is not tried again.
        let may_reconnect = match &mut self.connector {
            _ if is_violation => false,
            DrsConnector::In(_) => true,
            DrsConnector::Out(dialer) => !has_message && dialer.schedule_retry(now),
        };
        self.is_over = !may_reconnect;
        if is_violation {
            tracing::warn!(%reason, "closed the DRS channel after a protocol violation");
        } else {
            tracing::debug!(%reason, may_reconnect, "DRS channel lost");
        }
        // A connection without messages was perhaps only refused, so a retry is not reported.
        if has_message || !may_reconnect {
            events.push(DrsChannelEvent::Lost);
        }
    }

    fn send_size(&mut self, now: Duration) {
        if let (Some(connection), Some(size), false) =
            (&mut self.connection, self.size, self.is_sent)
        {
            self.is_sent = connection.announce(now, size);
        }
    }
}

/// Returns every echo, but only the newest of several sizes.
fn newest(received: impl Iterator<Item = DrsEvent>) -> Vec<DrsChannelEvent> {
    let (mut events, mut size) = (Vec::new(), None);
    for event in received {
        match event {
            DrsEvent::RoundTrip(rtt) => events.push(DrsChannelEvent::Echo(rtt)),
            DrsEvent::BufferSize(bytes) => size = Some(DrsChannelEvent::Size(bytes)),
            DrsEvent::Authenticated => {}
        }
    }
    events.extend(size);
    events
}

#[cfg(test)]
mod tests;
