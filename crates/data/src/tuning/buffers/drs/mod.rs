//! Buffer policies `drs` and `drs2004` at both ends, over the channel between them. They differ in the
//! receiver's loop alone.

mod link;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use tune::limiter::{Limiter, Role};
use tune::sample::StreamId;
use tune::sizing::drs::{DrsInterval, DrsReceiverLoop, DrsReceiverTuner, PublishedDrsTuner};
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting, DrsMeasurement};
use units::show;

use super::auto::AutoBufferPolicy;
use super::followed_size::FollowedSize;
use super::socket_options::{BufferLimit, apply_decision};
use super::{BufferInput, BufferPolicy, SAMPLE_INTERVAL};
use crate::drs::DrsEndpoint;
use crate::security::DataSecurity;
use crate::tuning_sample::TuningSample;
use link::{DrsChannelEvent, DrsLink};

/// How long a sender keeps its initial buffer without a size from the peer: a few round trips of a
/// very long path, for the channel and the first message.
const SIZE_TIMEOUT: Duration = Duration::from_secs(3);

/// The receiving end of the re-architected drsFTP (2004 paper, §3). Without a channel, or after it
/// was lost, it uses the round-trip time that it knows.
pub(in crate::tuning) struct DrsReceiver {
    drs: Box<dyn DrsReceiverLoop>,
    /// The loop that continues without the channel, if `drs` cannot.
    without_echoes: Option<DrsReceiverTuner>,
    link: Option<DrsLink>,
    /// The receive buffer is pinned: its size is announced but not set.
    pinned: bool,
    /// An echo has arrived.
    echoed: bool,
}

impl DrsReceiver {
    pub(in crate::tuning) fn new(
        endpoint: Option<&Arc<DrsEndpoint>>,
        pinned: bool,
        interval: DrsInterval,
        security: Option<&Arc<DataSecurity>>,
    ) -> Self {
        Self {
            drs: Box::new(DrsReceiverTuner::new(BufferBounds::default(), interval)),
            without_echoes: None,
            link: endpoint.map(|e| DrsLink::new(Arc::clone(e), Role::Receiver, security.cloned())),
            pinned,
            echoed: false,
        }
    }

    /// The same with the loop as published, as long as there is a channel: it measures by echoes alone.
    pub(in crate::tuning) fn with_published_estimates(mut self) -> Self {
        if self.link.is_some() {
            let bounds = BufferBounds::default();
            self.drs = Box::new(PublishedDrsTuner::new(bounds));
            let interval = DrsInterval::default();
            self.without_echoes = Some(DrsReceiverTuner::new(bounds, interval));
        }
        self
    }

    fn size_without_echoes(&mut self) {
        if let Some(own) = self.without_echoes.take() {
            self.drs = Box::new(own);
        }
    }

    fn reason(&self) -> String {
        match self.drs.round_trip() {
            Some(rtt) => format!(
                "for the data of this stream in a round trip of {}{}",
                show::time(rtt),
                if self.echoed { ", by echo" } else { "" }
            ),
            None => {
                "for the data of this stream in a round trip whose time is still unknown".into()
            }
        }
    }

    /// Sets a stream's new size, if there is one, and records what it rests on.
    fn decide(
        &self,
        sample: &TuningSample<'_>,
        id: StreamId,
        size: Option<u64>,
        measured: Option<DrsMeasurement>,
    ) {
        let Some(sampled) = sample
            .streams
            .iter()
            .find(|sampled| sampled.sample.stream == id)
        else {
            return;
        };
        let decision = BufferDecision {
            stream: id,
            at: sample.at,
            setting: size
                .filter(|_| !self.pinned)
                .map(BufferSetting::ReceiveBuffer),
            limiter: Limiter::Unknown,
            reason: self.reason(),
            measured,
        };
        apply_decision(
            sample.notices,
            &sampled.stream,
            decision,
            BufferLimit::Allowed,
        );
    }
}

impl BufferPolicy for DrsReceiver {
    fn on_sample(&mut self, sample: &TuningSample<'_>) {
        let samples: Vec<_> = sample
            .streams
            .iter()
            .map(|sampled| sampled.sample)
            .collect();
        let step = self.drs.on_samples(sample.at, &samples);
        // This end is resized first, without waiting for the sender (2004 paper, §4).
        let mut measured: BTreeMap<StreamId, DrsMeasurement> = step.measured.into_iter().collect();
        for (id, size) in step.resize {
            self.decide(sample, id, Some(size), measured.remove(&id));
        }
        for (id, measured) in measured {
            self.decide(sample, id, None, Some(measured));
        }
        if let (Some(link), Some(size)) = (&mut self.link, step.announce) {
            let pinned = samples
                .iter()
                .map(|tcp_sample| tcp_sample.receive_buffer / 2)
                .max();
            let size = pinned.filter(|_| self.pinned).unwrap_or(size);
            link.announce(sample.at, size);
        }
    }

    fn next_due(&self) -> Duration {
        self.drs.next_sample_in()
    }

    fn needs_sample(&self) -> bool {
        self.drs.needs_sample()
    }

    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(DrsLink::poll_fds).collect()
    }

    fn on_input(&mut self, input: &BufferInput<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut lost = false;
        for event in link.advance(input.at, &input.peers()) {
            match event {
                DrsChannelEvent::Echo(rtt) => {
                    self.echoed = true;
                    self.drs.on_echo(rtt);
                }
                DrsChannelEvent::Lost => lost = true,
                // A receiver gets no sizes.
                DrsChannelEvent::Size(_) => {}
            }
        }
        if lost {
            self.size_without_echoes();
        }
    }
}

/// The sending end: sets the size that it receives, and then echoes it. Without a peer that sends
/// sizes, it sizes its buffers itself, as `auto`.
pub(in crate::tuning) struct DrsSender {
    link: Option<DrsLink>,
    peer_size: FollowedSize,
    own_policy: Option<AutoBufferPolicy>,
    /// Time of the first sample of a stream.
    since: Option<Duration>,
}

impl DrsSender {
    pub(in crate::tuning) fn new(
        endpoint: Option<&Arc<DrsEndpoint>>,
        pinned: bool,
        security: Option<&Arc<DataSecurity>>,
    ) -> Self {
        let mut sender = Self {
            link: endpoint.map(|e| DrsLink::new(Arc::clone(e), Role::Sender, security.cloned())),
            peer_size: FollowedSize::new(pinned),
            own_policy: None,
            since: None,
        };
        if sender.link.is_none() {
            sender.size_alone();
        }
        sender
    }

    fn size_alone(&mut self) {
        // The size of a lost peer may not fit the path any more.
        self.peer_size.forget();
        if !self.peer_size.pinned() {
            self.own_policy
                .get_or_insert_with(AutoBufferPolicy::without_peer);
        }
    }
}

impl BufferPolicy for DrsSender {
    fn on_sample(&mut self, sample: &TuningSample<'_>) {
        let since = *self.since.get_or_insert(sample.at);
        if !self.peer_size.has_size() && sample.at.saturating_sub(since) > SIZE_TIMEOUT {
            self.size_alone();
        }
        match &mut self.own_policy {
            Some(auto) => auto.on_sample(sample),
            None => {
                let streams = sample.streams();
                self.peer_size.apply(sample.at, sample.notices, &streams);
            }
        }
    }

    fn next_due(&self) -> Duration {
        self.own_policy
            .as_ref()
            .map_or(SAMPLE_INTERVAL, AutoBufferPolicy::next_due)
    }

    fn poll_fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.link.iter().flat_map(DrsLink::poll_fds).collect()
    }

    fn on_input(&mut self, input: &BufferInput<'_>) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut lost = false;
        for event in link.advance(input.at, &input.peers()) {
            match event {
                DrsChannelEvent::Size(size) => {
                    // From now on the peer decides; two policies would undo each other.
                    self.own_policy = None;
                    self.peer_size.set(size);
                    let streams = input.streams();
                    self.peer_size.apply(input.at, input.notices(), &streams);
                    link.applied();
                }
                DrsChannelEvent::Lost => lost = true,
                // A sender requests no echoes.
                DrsChannelEvent::Echo(_) => {}
            }
        }
        if lost {
            self.size_alone();
        }
    }

    fn finish(&mut self) -> Option<String> {
        self.own_policy.as_mut()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proto::sizing::BufferSizing;
    use tune::sample::TcpSample;

    use super::*;
    use crate::os::sockopt::{self, SocketBuffer};
    use crate::tuning::fixtures::{connected, tuning_sample};
    use crate::tuning_notices::TuningNotices;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_sender_without_sizes_returns_its_buffers_to_autotuning() {
        let endpoint = Arc::new(DrsEndpoint::listen([127, 0, 0, 1].into(), None).unwrap());
        let (stream, _far) = connected(BufferSizing::Drs);
        let notices = TuningNotices::default();
        let is_locked = || sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap();
        let mut sender = DrsSender::new(Some(&endpoint), false, None);
        for (at, locked) in [(0, true), (3, true), (4, false)] {
            sender.on_sample(&tuning_sample(
                seconds(at),
                &stream,
                TcpSample::default(),
                &notices,
            ));
            assert_eq!(is_locked(), locked, "after {at} s");
        }
    }

    #[test]
    fn the_published_loop_waits_for_echoes_only_while_there_is_a_channel() {
        let endpoint = Arc::new(DrsEndpoint::listen([127, 0, 0, 1].into(), None).unwrap());
        let (stream, _far) = connected(BufferSizing::Drs2004);
        // The data of each second fills the initial buffer many times.
        let grows = |receiver: &mut DrsReceiver| {
            let notices = TuningNotices::default();
            for at in 0..4 {
                let tcp_sample = TcpSample {
                    at: seconds(at),
                    bytes_received: at << 20,
                    min_rtt: Duration::from_millis(100),
                    receive_buffer: 2 * BufferBounds::default().initial,
                    ..TcpSample::default()
                };
                receiver.on_sample(&tuning_sample(seconds(at), &stream, tcp_sample, &notices));
            }
            !notices.take_decisions().is_empty()
        };
        let receiver = |endpoint| {
            DrsReceiver::new(endpoint, false, DrsInterval::default(), None)
                .with_published_estimates()
        };
        assert!(grows(&mut receiver(None)));
        let mut with_channel = receiver(Some(&endpoint));
        assert!(!grows(&mut with_channel));
        with_channel.size_without_echoes();
        assert!(grows(&mut with_channel));
    }

    /// Unlocked, it would shrink to the size that autotuning gives.
    #[test]
    fn a_send_buffer_larger_than_autotuning_gives_is_kept() {
        let (stream, _far) = connected(BufferSizing::Drs);
        let notices = TuningNotices::default();
        let tcp_sample = TcpSample {
            send_buffer: 1 << 40,
            ..TcpSample::default()
        };
        DrsSender::new(None, false, None).on_sample(&tuning_sample(
            seconds(9),
            &stream,
            tcp_sample,
            &notices,
        ));
        assert!(sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap());
    }

    #[test]
    fn a_pinned_send_buffer_stays_pinned_without_a_channel() {
        let (stream, _far) = connected(BufferSizing::Drs);
        let notices = TuningNotices::default();
        let mut sender = DrsSender::new(None, true, None);
        sender.on_sample(&tuning_sample(
            seconds(9),
            &stream,
            TcpSample::default(),
            &notices,
        ));
        assert!(sockopt::is_locked(stream.as_fd(), SocketBuffer::Send).unwrap());
        assert!(notices.take_decisions().is_empty());
    }
}
