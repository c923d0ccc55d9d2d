//! `drs` at both ends, over the channel between them.

mod dial;
mod link;
mod reception;
mod wire;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::limiter::{Limiter, Role};
use tune::look::StreamId;
use tune::sizing::drs::{Drs, Interval};
use tune::sizing::{Bounds, Change, Decision};
use units::show;

use super::apply::{Reach, carry_out};
use super::auto::AutoPolicy;
use super::follow::Followed;
use super::policy::{LOOK, News, Policy, Scene};
use crate::drs::Endpoint;
use link::{Event, Link};

/// How long a sender stays with its first buffer while nobody tells it another: a few round trips
/// of a very long path, for the channel and the first message.
const PATIENCE: Duration = Duration::from_secs(3);

/// The re-architected drsFTP's receiving end (2004 paper, §3). Without a channel, or once it is
/// lost, it reckons with the round trip that it knows.
pub(super) struct DrsReceiver {
    drs: Drs,
    link: Option<Link>,
    /// The receive buffer is pinned: its size is told and not set.
    pinned: bool,
    /// An echo has come.
    echoed: bool,
}

impl DrsReceiver {
    pub(super) fn new(endpoint: Option<&Arc<Endpoint>>, pinned: bool, interval: Interval) -> Self {
        Self {
            drs: Drs::new(Bounds::default(), interval),
            link: endpoint.map(|e| Link::new(Arc::clone(e), Role::Receiver)),
            pinned,
            echoed: false,
        }
    }

    fn reason(&self) -> String {
        match self.drs.round_trip() {
            Some(rtt) => format!(
                "for what this stream brings in a round trip of {}{}",
                show::time(rtt),
                if self.echoed { ", by echo" } else { "" }
            ),
            None => "for what this stream brings in a round trip that is not known yet".into(),
        }
    }

    fn resize(&self, scene: &Scene<'_>, id: StreamId, size: u64) {
        let Some(seen) = scene.seen.iter().find(|seen| seen.look.stream == id) else {
            return;
        };
        let decision = Decision {
            stream: id,
            at: scene.at,
            change: (!self.pinned).then_some(Change::ReceiveBuffer(size)),
            limiter: Limiter::Unknown,
            reason: self.reason(),
        };
        carry_out(scene.board, &seen.stream, decision, Reach::Allowed);
    }
}

impl Policy for DrsReceiver {
    fn on_look(&mut self, scene: &Scene<'_>) {
        let looks: Vec<_> = scene.seen.iter().map(|seen| seen.look).collect();
        let step = self.drs.on_look(scene.at, &looks);
        // This end first, and without waiting for the sender (2004 paper, §4).
        for (id, size) in step.resize {
            self.resize(scene, id, size);
        }
        if let (Some(link), Some(size)) = (&mut self.link, step.announce) {
            let pinned = looks.iter().map(|look| look.receive_buffer / 2).max();
            let size = pinned.filter(|_| self.pinned).unwrap_or(size);
            link.announce(scene.at, size);
        }
    }

    fn due(&self) -> Duration {
        self.drs.due()
    }

    fn watch(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(Link::watch).collect()
    }

    fn on_news(&mut self, news: &News<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        for event in link.on_ready(news.at, &news.peers()) {
            match event {
                Event::Echo(rtt) => {
                    self.echoed = true;
                    self.drs.on_echo(rtt);
                }
                Event::Lost => {}
                // A receiver is told no sizes.
                Event::Size(_) => {}
            }
        }
    }
}

/// The sending end: sets what it is told, and only then echoes. While there is nobody to tell it
/// anything, it sizes its buffers itself, as `auto`.
pub(super) struct DrsSender {
    link: Option<Link>,
    followed: Followed,
    alone: Option<AutoPolicy>,
    /// The first look at a stream.
    since: Option<Duration>,
}

impl DrsSender {
    pub(super) fn new(endpoint: Option<&Arc<Endpoint>>, pinned: bool) -> Self {
        let mut sender = Self {
            link: endpoint.map(|e| Link::new(Arc::clone(e), Role::Sender)),
            followed: Followed::new(pinned),
            alone: None,
            since: None,
        };
        if sender.link.is_none() {
            sender.go_alone();
        }
        sender
    }

    fn go_alone(&mut self) {
        self.followed.forget();
        if !self.followed.pinned() {
            self.alone.get_or_insert_with(AutoPolicy::instead_of_peer);
        }
    }
}

impl Policy for DrsSender {
    fn on_look(&mut self, scene: &Scene<'_>) {
        let since = *self.since.get_or_insert(scene.at);
        if !self.followed.has_size() && scene.at.saturating_sub(since) > PATIENCE {
            self.go_alone();
        }
        match &mut self.alone {
            Some(auto) => auto.on_look(scene),
            None => {
                let streams = scene.streams();
                self.followed.apply(scene.at, scene.board, &streams);
            }
        }
    }

    fn due(&self) -> Duration {
        self.alone.as_ref().map_or(LOOK, AutoPolicy::due)
    }

    fn watch(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(Link::watch).collect()
    }

    fn on_news(&mut self, news: &News<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut lost = false;
        for event in link.on_ready(news.at, &news.peers()) {
            match event {
                Event::Size(size) => {
                    self.alone = None;
                    self.followed.set(size);
                    let streams = news.streams();
                    self.followed.apply(news.at, news.board(), &streams);
                    link.applied();
                }
                Event::Lost => lost = true,
                // A sender asks for no echoes.
                Event::Echo(_) => {}
            }
        }
        if lost {
            self.go_alone();
        }
    }

    fn end(&mut self) -> Option<String> {
        self.alone.as_mut()?.end()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proto::sizing::Sizing;
    use tune::look::Look;

    use super::*;
    use crate::board::Board;
    use crate::os::sockopt::{self, Buffer};
    use crate::sizing::fixtures::{connected, scene};

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_sender_waits_a_while_to_be_told_and_then_gives_its_buffers_back() {
        let endpoint = Arc::new(Endpoint::listen([127, 0, 0, 1].into(), None).unwrap());
        let (stream, _far) = connected(Sizing::Drs);
        let board = Board::default();
        let is_locked = || sockopt::is_locked(stream.as_fd(), Buffer::Send).unwrap();
        let mut sender = DrsSender::new(Some(&endpoint), false);
        for (at, locked) in [(0, true), (3, true), (4, false)] {
            sender.on_look(&scene(seconds(at), &stream, Look::default(), &board));
            assert_eq!(is_locked(), locked, "after {at} s");
        }
    }

    /// Unlocked, it would shrink to what autotuning gives.
    #[test]
    fn a_send_buffer_that_is_larger_than_the_kernel_would_make_it_is_kept() {
        let (stream, _far) = connected(Sizing::Drs);
        let board = Board::default();
        let look = Look {
            send_buffer: 1 << 40,
            ..Look::default()
        };
        DrsSender::new(None, false).on_look(&scene(seconds(9), &stream, look, &board));
        assert!(sockopt::is_locked(stream.as_fd(), Buffer::Send).unwrap());
    }

    #[test]
    fn a_pinned_send_buffer_stays_pinned_without_a_channel() {
        let (stream, _far) = connected(Sizing::Drs);
        let board = Board::default();
        let mut sender = DrsSender::new(None, true);
        sender.on_look(&scene(seconds(9), &stream, Look::default(), &board));
        assert!(sockopt::is_locked(stream.as_fd(), Buffer::Send).unwrap());
        assert!(board.take_decisions().is_empty());
    }
}
