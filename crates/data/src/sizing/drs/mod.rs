//! `drs` at both ends, over the channel between them.

mod acceptor;
mod connection;
mod dialer;
mod link;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::limiter::{Limiter, Role};
use tune::sample::StreamId;
use tune::sizing::drs::{DrsInterval, DrsReceiverTuner};
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};
use units::show;

use super::auto::AutoBufferPolicy;
use super::change_options::{BufferLimit, apply_decision};
use super::followed_size::FollowedSize;
use super::policy::{BufferPolicy, SAMPLE_INTERVAL, SizingInput, SizingSample};
use crate::drs::DrsEndpoint;
use link::{DrsChannelEvent, DrsLink};

/// How long a sender stays with its first buffer while nobody tells it another: a few round trips
/// of a very long path, for the channel and the first message.
const PATIENCE: Duration = Duration::from_secs(3);

/// The re-architected drsFTP's receiving end (2004 paper, §3). Without a channel, or once it is
/// lost, it reckons with the round trip that it knows.
pub(super) struct DrsReceiver {
    drs: DrsReceiverTuner,
    link: Option<DrsLink>,
    /// The receive buffer is pinned: its size is told and not set.
    pinned: bool,
    /// An echo has come.
    echoed: bool,
}

impl DrsReceiver {
    pub(super) fn new(
        endpoint: Option<&Arc<DrsEndpoint>>,
        pinned: bool,
        interval: DrsInterval,
    ) -> Self {
        Self {
            drs: DrsReceiverTuner::new(BufferBounds::default(), interval),
            link: endpoint.map(|e| DrsLink::new(Arc::clone(e), Role::Receiver)),
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

    fn resize(&self, scene: &SizingSample<'_>, id: StreamId, size: u64) {
        let Some(seen) = scene.streams.iter().find(|seen| seen.sample.stream == id) else {
            return;
        };
        let decision = BufferDecision {
            stream: id,
            at: scene.at,
            setting: (!self.pinned).then_some(BufferSetting::ReceiveBuffer(size)),
            limiter: Limiter::Unknown,
            reason: self.reason(),
        };
        apply_decision(scene.board, &seen.stream, decision, BufferLimit::Allowed);
    }
}

impl BufferPolicy for DrsReceiver {
    fn on_sample(&mut self, scene: &SizingSample<'_>) {
        let looks: Vec<_> = scene.streams.iter().map(|seen| seen.sample).collect();
        let step = self.drs.on_samples(scene.at, &looks);
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

    fn next_due(&self) -> Duration {
        self.drs.next_sample_in()
    }

    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(DrsLink::poll_fds).collect()
    }

    fn on_input(&mut self, news: &SizingInput<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        for event in link.advance(news.at, &news.peers()) {
            match event {
                DrsChannelEvent::Echo(rtt) => {
                    self.echoed = true;
                    self.drs.on_echo(rtt);
                }
                DrsChannelEvent::Lost => {}
                // A receiver is told no sizes.
                DrsChannelEvent::Size(_) => {}
            }
        }
    }
}

/// The sending end: sets what it is told, and only then echoes. While there is nobody to tell it
/// anything, it sizes its buffers itself, as `auto`.
pub(super) struct DrsSender {
    link: Option<DrsLink>,
    followed: FollowedSize,
    alone: Option<AutoBufferPolicy>,
    /// The first look at a stream.
    since: Option<Duration>,
}

impl DrsSender {
    pub(super) fn new(endpoint: Option<&Arc<DrsEndpoint>>, pinned: bool) -> Self {
        let mut sender = Self {
            link: endpoint.map(|e| DrsLink::new(Arc::clone(e), Role::Sender)),
            followed: FollowedSize::new(pinned),
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
            self.alone
                .get_or_insert_with(AutoBufferPolicy::without_peer);
        }
    }
}

impl BufferPolicy for DrsSender {
    fn on_sample(&mut self, scene: &SizingSample<'_>) {
        let since = *self.since.get_or_insert(scene.at);
        if !self.followed.has_size() && scene.at.saturating_sub(since) > PATIENCE {
            self.go_alone();
        }
        match &mut self.alone {
            Some(auto) => auto.on_sample(scene),
            None => {
                let streams = scene.streams();
                self.followed.apply(scene.at, scene.board, &streams);
            }
        }
    }

    fn next_due(&self) -> Duration {
        self.alone
            .as_ref()
            .map_or(SAMPLE_INTERVAL, AutoBufferPolicy::next_due)
    }

    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(DrsLink::poll_fds).collect()
    }

    fn on_input(&mut self, news: &SizingInput<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut lost = false;
        for event in link.advance(news.at, &news.peers()) {
            match event {
                DrsChannelEvent::Size(size) => {
                    self.alone = None;
                    self.followed.set(size);
                    let streams = news.streams();
                    self.followed.apply(news.at, news.board(), &streams);
                    link.applied();
                }
                DrsChannelEvent::Lost => lost = true,
                // A sender asks for no echoes.
                DrsChannelEvent::Echo(_) => {}
            }
        }
        if lost {
            self.go_alone();
        }
    }

    fn finish(&mut self) -> Option<String> {
        self.alone.as_mut()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proto::sizing::BufferSizing;
    use tune::sample::TcpSample;

    use super::*;
    use crate::os::sockopt::{self, SocketBuffer};
    use crate::sizing::fixtures::{connected, scene};
    use crate::tuning_notices::TuningNotices;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_sender_waits_a_while_to_be_told_and_then_gives_its_buffers_back() {
        let endpoint = Arc::new(DrsEndpoint::listen([127, 0, 0, 1].into(), None).unwrap());
        let (stream, _far) = connected(BufferSizing::Drs);
        let board = TuningNotices::default();
        let is_locked = || sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap();
        let mut sender = DrsSender::new(Some(&endpoint), false);
        for (at, locked) in [(0, true), (3, true), (4, false)] {
            sender.on_sample(&scene(seconds(at), &stream, TcpSample::default(), &board));
            assert_eq!(is_locked(), locked, "after {at} s");
        }
    }

    /// Unlocked, it would shrink to what autotuning gives.
    #[test]
    fn a_send_buffer_that_is_larger_than_the_kernel_would_make_it_is_kept() {
        let (stream, _far) = connected(BufferSizing::Drs);
        let board = TuningNotices::default();
        let look = TcpSample {
            send_buffer: 1 << 40,
            ..TcpSample::default()
        };
        DrsSender::new(None, false).on_sample(&scene(seconds(9), &stream, look, &board));
        assert!(sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap());
    }

    #[test]
    fn a_pinned_send_buffer_stays_pinned_without_a_channel() {
        let (stream, _far) = connected(BufferSizing::Drs);
        let board = TuningNotices::default();
        let mut sender = DrsSender::new(None, true);
        sender.on_sample(&scene(seconds(9), &stream, TcpSample::default(), &board));
        assert!(sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap());
        assert!(board.take_decisions().is_empty());
    }
}
