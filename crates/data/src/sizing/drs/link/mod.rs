//! One transfer's DRS channel, driven by the thread that sizes its buffers.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::drs::{End, Event as Heard};
use rustix::event::PollFlags;
use tune::limiter::Role;

use super::dial::Dial;
use super::reception::Reception;
use super::wire::{Gone, Wire};
use crate::drs::Endpoint;

/// News for the sizing thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Data receiver: a message came back after so long.
    Echo(Duration),
    /// Data sender: set the send buffers to this, bytes, then call [`Link::applied`]. The newest of
    /// those that came.
    Size(u64),
    /// The channel ended, or could not be made. Go on with the round trip that is known. A
    /// connecting end will not come back; a listening one may, should its peer connect again.
    Lost,
}

/// How this end gets its connection.
#[derive(Debug)]
enum Way {
    In(Reception),
    Out(Dial),
}

/// One transfer's DRS channel. Never blocks and never fails; it is either there or not. Dropping it
/// closes the connection, while the endpoint stays for the next transfer.
#[derive(Debug)]
pub(super) struct Link {
    endpoint: Arc<Endpoint>,
    way: Way,
    wire: Option<Wire>,
    /// The newest size that was to be announced.
    size: Option<u64>,
    /// It went out on this connection.
    told: bool,
    /// Nothing more will come.
    over: bool,
}

impl Link {
    /// For a transfer that begins. `role`: what this end does with the data.
    pub(super) fn new(endpoint: Arc<Endpoint>, role: Role) -> Self {
        let end = match role {
            Role::Sender => End::Sender,
            Role::Receiver => End::Receiver,
        };
        let way = match &*endpoint {
            Endpoint::Listening { address, .. } => Way::In(Reception::new(end, address.nonce)),
            Endpoint::Connecting { address, local } => Way::Out(Dial::new(*address, *local, end)),
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
    /// connected to, and what is late, changes with time alone), call [`Link::on_ready`].
    pub(super) fn watch(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let mut all = Vec::new();
        match (&self.way, &*self.endpoint) {
            _ if self.over => {}
            (Way::In(reception), Endpoint::Listening { listener, .. }) => {
                all.extend(reception.watch(listener));
            }
            (Way::Out(dial), _) => all.extend(dial.watch()),
            (Way::In(_), _) => {}
        }
        all.extend(self.wire.as_ref().map(Wire::watch));
        all.into_iter()
    }

    /// Does what can be done now. `now`: since the transfer began; `peers`: hosts of the data
    /// connections so far. Only with one of them is anything exchanged.
    pub(super) fn on_ready(&mut self, now: Duration, peers: &[IpAddr]) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.over {
            let came = self.connect(now, peers, &mut events);
            self.converse(now, came, &mut events);
            self.tell(now);
        }
        events
    }

    /// Tells the data sender of a size, bytes: at once, or, when there is no channel yet or the
    /// last message was sent just now, as soon as may be; of several the newest.
    pub(super) fn announce(&mut self, now: Duration, size: u64) {
        self.size = Some(size);
        self.told = false;
        self.tell(now);
    }

    /// The size of the last [`Event::Size`] is set: the echoes leave.
    pub(super) fn applied(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.applied();
        }
    }

    /// Makes or takes a connection. Returns what a new one has said already.
    fn connect(&mut self, now: Duration, peers: &[IpAddr], events: &mut Vec<Event>) -> Vec<Heard> {
        match (&mut self.way, &*self.endpoint) {
            (Way::In(reception), Endpoint::Listening { listener, .. }) => {
                let Some((wire, said)) = reception.advance(now, listener, peers) else {
                    return Vec::new();
                };
                self.wire = Some(wire);
                self.told = false;
                said
            }
            (Way::Out(dial), _) if self.wire.is_none() => {
                match dial.advance(now, peers) {
                    Ok(wire) => {
                        self.wire = wire;
                        self.told = false;
                    }
                    Err(error) => self.lose(now, &Gone::Broken(error), events),
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Hears what the peer says, after what it said already.
    fn converse(&mut self, now: Duration, came: Vec<Heard>, events: &mut Vec<Event>) {
        let Some(wire) = &mut self.wire else { return };
        match wire.exchange(now) {
            Ok(more) => events.extend(newest(came.into_iter().chain(more))),
            Err(gone) => self.lose(now, &gone, events),
        }
    }

    fn lose(&mut self, now: Duration, gone: &Gone, events: &mut Vec<Event>) {
        let heard = self.wire.take().is_some_and(|wire| wire.heard());
        let offence = matches!(gone, Gone::Violation(_));
        let hope = match &mut self.way {
            _ if offence => false,
            Way::In(_) => true,
            Way::Out(dial) => !heard && dial.try_again(now),
        };
        self.over = !hope;
        if offence {
            tracing::warn!(%gone, "DRS channel dropped");
        } else {
            tracing::debug!(%gone, hope, "DRS channel lost");
        }
        if heard || !hope {
            events.push(Event::Lost);
        }
    }

    fn tell(&mut self, now: Duration) {
        if let (Some(wire), Some(size), false) = (&mut self.wire, self.size, self.told) {
            self.told = wire.announce(now, size);
        }
    }
}

/// Every echo counts, but of several sizes only the newest.
fn newest(heard: impl Iterator<Item = Heard>) -> Vec<Event> {
    let (mut events, mut size) = (Vec::new(), None);
    for one in heard {
        match one {
            Heard::Echo(rtt) => events.push(Event::Echo(rtt)),
            Heard::Size(bytes) => size = Some(Event::Size(bytes)),
            Heard::Proven => {}
        }
    }
    events.extend(size);
    events
}

#[cfg(test)]
mod tests;
