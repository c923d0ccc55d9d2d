//! Buffer policy `drs1` at both ends: the receiver has one control loop per stream, and sends its sizes to the
//! sender on the control channel.

use std::collections::HashMap;
use std::time::Duration;

use tune::limiter::Limiter;
use tune::sample::{StreamId, TcpSample};
use tune::sizing::drs1::{Drs1Reads, Drs1ReceiverTuner};
use tune::sizing::{BufferBounds, BufferDecision, BufferSetting};

use super::followed_size::FollowedSize;
use super::socket_options::{BufferLimit, apply_decision};
use super::{BufferInput, BufferPolicy, SAMPLE_INTERVAL};
use crate::tuning_notices::TuningNotices;
use crate::tuning_sample::TuningSample;

/// The receiving end of the first drsFTP (2003 paper, §4.1 and §4.2).
#[derive(Default)]
pub(in crate::tuning) struct Drs1Receiver {
    streams: HashMap<StreamId, Drs1ReceiverTuner>,
    /// The receive buffer is pinned: its size is announced but not set.
    pinned: bool,
    /// The largest size announced to the sender.
    announced: u64,
    reads: Drs1Reads,
}

impl Drs1Receiver {
    pub(in crate::tuning) fn new(pinned: bool, reads: Drs1Reads) -> Self {
        Self {
            pinned,
            reads,
            ..Self::default()
        }
    }

    /// Announces a size to the sender, bytes, unless it knows a larger one.
    fn announce(&mut self, notices: &TuningNotices, size: u64) {
        if size > self.announced {
            self.announced = size;
            notices.report_resize(size);
        }
    }
}

impl BufferPolicy for Drs1Receiver {
    fn on_sample(&mut self, sample: &TuningSample<'_>) {
        self.streams.retain(|id, _| sample.has(*id));
        for sampled in &sample.streams {
            let (id, tcp_sample) = (sampled.sample.stream, &sampled.sample);
            // The kernel reports twice the size that was set (socket(7), SO_RCVBUF).
            let size = tcp_sample.receive_buffer / 2;
            if self.pinned {
                self.announce(sample.notices, size);
                continue;
            }
            if !self.streams.contains_key(&id) && size > BufferBounds::default().initial {
                // A buffer of an earlier transfer, whose last size the sender may not know.
                self.announce(sample.notices, size);
            }
            let controller = self.streams.entry(id).or_insert_with(|| {
                Drs1ReceiverTuner::new(bounds_from_current(tcp_sample), self.reads)
            });
            let Some(size) = controller.on_sample(tcp_sample) else {
                continue;
            };
            let decision = BufferDecision {
                stream: id,
                at: sample.at,
                setting: Some(BufferSetting::ReceiveBuffer(size)),
                limiter: Limiter::ReceiveWindow,
                reason: match self.reads {
                    Drs1Reads::Published => "one read had more than half of the buffer",
                    _ => "more than half of the buffer arrived within one round trip",
                }
                .to_owned(),
                measured: None,
            };
            let reported = apply_decision(
                sample.notices,
                &sampled.stream,
                decision,
                BufferLimit::Allowed,
            );
            // The kernel may grant less; the sender must not exceed the receiver's buffer.
            let granted = reported.map_or(size, |reported| reported / 2);
            self.announce(sample.notices, granted);
        }
    }

    fn next_due(&self) -> Duration {
        let due = self
            .streams
            .values()
            .map(Drs1ReceiverTuner::next_sample_in)
            .min();
        due.unwrap_or(SAMPLE_INTERVAL)
    }
}

/// Buffer policy `drs1` at the sender: sizes arrive on the control channel (2003 paper, §4.2).
pub(in crate::tuning) struct Drs1Sender(FollowedSize);

impl Drs1Sender {
    pub(in crate::tuning) fn new(pinned: bool) -> Self {
        Self(FollowedSize::new(pinned))
    }
}

impl BufferPolicy for Drs1Sender {
    fn on_sample(&mut self, sample: &TuningSample<'_>) {
        self.0.apply(sample.at, sample.notices, &sample.streams());
    }

    fn next_due(&self) -> Duration {
        SAMPLE_INTERVAL
    }

    fn on_input(&mut self, input: &BufferInput<'_>) {
        if let Some(size) = input.notices().peer_size() {
            self.0.set(size);
            self.0.apply(input.at, input.notices(), &input.streams());
        }
    }
}

/// A connection of an earlier transfer continues with its present size.
fn bounds_from_current(tcp_sample: &TcpSample) -> BufferBounds {
    let bounds = BufferBounds::default();
    let size = tcp_sample.receive_buffer / 2;
    BufferBounds {
        initial: size.clamp(bounds.initial, bounds.largest),
        ..bounds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use proto::sizing::BufferSizing;

    use super::*;
    use crate::tuning::fixtures::{connected, tuning_sample};

    /// The sizes announced for a stream that begins with this buffer, bytes, while `arrive` bytes
    /// arrive every round trip.
    fn announced(pinned: bool, buffer: u64, arrive: u64) -> Vec<u64> {
        let (stream, _far) = connected(BufferSizing::Drs1);
        let notices = TuningNotices::default();
        let announced = Arc::new(Mutex::new(Vec::new()));
        let recorder = Arc::clone(&announced);
        notices.on_resize(move |size| recorder.lock().push(size));
        let mut policy = Drs1Receiver::new(pinned, Drs1Reads::default());
        for n in 0..8 {
            let tcp_sample = TcpSample {
                bytes_received: n * arrive,
                min_rtt: Duration::from_millis(100),
                receive_buffer: 2 * buffer,
                ..TcpSample::default()
            };
            let at = Duration::from_millis(100) * u32::try_from(n).unwrap();
            policy.on_sample(&tuning_sample(at, &stream, tcp_sample, &notices));
        }
        let announced = announced.lock();
        announced.clone()
    }

    #[test]
    fn the_size_of_an_earlier_transfer_is_announced_again() {
        assert!(announced(false, 64 << 10, 1000).is_empty());
        assert_eq!(announced(false, 1 << 20, 1000), [1 << 20]);
    }

    #[test]
    fn a_pinned_size_is_announced_once() {
        assert_eq!(announced(true, 100_000, 1000), [100_000]);
        assert_eq!(announced(true, 100_000, 10 << 20), [100_000]);
    }
}
