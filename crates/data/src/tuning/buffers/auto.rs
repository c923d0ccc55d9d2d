//! Buffer policy `auto`: each stream is sized on its own, independently at each end.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tune::limiter::{Limiter, Role};
use tune::sample::StreamId;
use tune::sizing::auto::BufferTuner;
use tune::sizing::host_limits::HostBufferLimits;
use tune::sizing::{BufferDecision, BufferSetting};

use super::BufferPolicy;
use super::socket_options::{BufferLimit, apply_decision, revert_change};
use crate::os::caps::host_limits;
use crate::os::sockopt::{self, SocketBuffer};
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;
use crate::tuning_sample::{SampledStream, TuningSample};

/// Watches the kernel's autotuning on every stream, and corrects it.
pub(in crate::tuning) struct AutoBufferPolicy {
    role: Role,
    /// Read at the first sample, in this thread: the stream threads must not wait for it.
    caps: Option<HostBufferLimits>,
    streams: BTreeMap<StreamId, AutoSizedStream>,
    /// Another policy has pinned the send buffers of streams that join; this one unlocks them.
    unlocks: bool,
    remark: Option<String>,
    /// A send buffer size known to be right, bytes as reported.
    known_buffer: Option<u64>,
}

/// One stream. Its connection may be closed, or serve another transfer.
struct AutoSizedStream {
    auto: BufferTuner,
    stream: Weak<DataStream>,
}

impl AutoBufferPolicy {
    pub(in crate::tuning) fn new(role: Role) -> Self {
        Self {
            role,
            caps: None,
            streams: BTreeMap::new(),
            unlocks: false,
            remark: None,
            known_buffer: None,
        }
    }

    /// Begins with a send buffer size that is known to be right, bytes as reported.
    pub(in crate::tuning) fn with_known_buffer(mut self, buffer: Option<u64>) -> Self {
        self.known_buffer = buffer;
        self
    }

    /// For a sender whose buffers were pinned to the initial size because the peer was to size
    /// them.
    pub(super) fn without_peer() -> Self {
        Self {
            unlocks: true,
            ..Self::new(Role::Sender)
        }
    }

    fn remove_streams(&mut self, ended: impl Fn(StreamId) -> bool) {
        let remark = &mut self.remark;
        self.streams.retain(|id, watched| {
            let ended = ended(*id);
            if ended {
                // A connection may serve another transfer with another policy.
                watched.revert();
                *remark = remark.take().or_else(|| watched.auto.remark());
            }
            !ended
        });
    }
}

impl AutoSizedStream {
    fn revert(&mut self) {
        if let (Some(change), Some(stream)) = (self.auto.release(), self.stream.upgrade()) {
            revert_change(&stream, change);
        }
    }
}

impl BufferPolicy for AutoBufferPolicy {
    fn on_sample(&mut self, sample: &TuningSample<'_>) {
        self.remove_streams(|id| !sample.has(id));
        let (role, unlocks, known_buffer) = (self.role, self.unlocks, self.known_buffer);
        let caps = *self.caps.get_or_insert_with(host_limits);
        for sampled in &sample.streams {
            let watched = self
                .streams
                .entry(sampled.sample.stream)
                .or_insert_with(|| {
                    if unlocks {
                        unlock_send_buffer(sample.notices, sampled, &caps);
                    }
                    AutoSizedStream {
                        auto: BufferTuner::new(role, caps).with_known_buffer(known_buffer),
                        stream: Arc::downgrade(&sampled.stream),
                    }
                });
            if let Some(decision) = watched.auto.on_sample(&sampled.sample) {
                apply_decision(
                    sample.notices,
                    &sampled.stream,
                    decision,
                    BufferLimit::Forced,
                );
            }
        }
        // Slower streams may be limited by their path instead.
        let host_limits = self.streams.values().filter_map(|w| w.auto.host_bound());
        let host_limit = host_limits.max_by_key(|host_limit| host_limit.stream_bps);
        sample.notices.set_host_limit(host_limit);
    }

    fn next_due(&self) -> Duration {
        let next_due = self.streams.values().map(|w| w.auto.next_sample_in()).min();
        next_due.unwrap_or(Duration::ZERO)
    }

    fn finish(&mut self) -> Option<String> {
        self.remove_streams(|_| true);
        self.remark.take()
    }
}

/// Returns a send buffer to autotuning, unless that would shrink it. A kernel that cannot unlock it
/// gets the largest allowed size at once.
fn unlock_send_buffer(notices: &TuningNotices, sampled: &SampledStream, caps: &HostBufferLimits) {
    let size = sampled.sample.send_buffer;
    if size >= caps.max_autotuned_send {
        return;
    }
    let Err(error) = sockopt::unlock_buffer(sampled.stream.as_fd(), SocketBuffer::Send) else {
        return;
    };
    let decision = BufferDecision {
        stream: sampled.sample.stream,
        at: sampled.sample.at,
        setting: Some(BufferSetting::SendBuffer(
            size.max(caps.max_settable_send) / 2,
        )),
        limiter: Limiter::Unknown,
        reason: format!(
            "the peer sends no size, and the kernel cannot return the buffer to autotuning: {error}"
        ),
        measured: None,
    };
    apply_decision(notices, &sampled.stream, decision, BufferLimit::Forced);
}

#[cfg(test)]
mod tests {
    use proto::sizing::BufferSizing;
    use tune::sample::TcpSample;

    use super::*;
    use crate::control::TransferControl;
    use crate::os::sockopt::set_window_clamp;
    use crate::tuning::fixtures::{connected, tuning_sample};

    const MB: u64 = 1 << 20;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A receiver on a host that allows no size to be set.
    fn receiver() -> AutoBufferPolicy {
        AutoBufferPolicy {
            caps: Some(HostBufferLimits::default()),
            ..AutoBufferPolicy::new(Role::Receiver)
        }
    }

    #[test]
    fn a_known_send_buffer_is_set_at_the_first_sample() {
        let caps = HostBufferLimits {
            max_autotuned_send: 40_000,
            max_settable_send: 2 * MB,
            ..HostBufferLimits::default()
        };
        let (stream, _far) = connected(BufferSizing::Auto);
        // A size that every process may set on today's hosts.
        let size = 400_000;
        let notices = TuningNotices::default();
        let mut policy = AutoBufferPolicy {
            caps: Some(caps),
            ..AutoBufferPolicy::new(Role::Sender)
        }
        .with_known_buffer(Some(size));
        let tcp_sample = TcpSample {
            send_buffer: 30_000,
            ..TcpSample::default()
        };
        policy.on_sample(&tuning_sample(ms(1), &stream, tcp_sample, &notices));
        let now = sockopt::buffer_size(stream.as_fd(), SocketBuffer::Send).unwrap();
        assert_eq!(now, size);
    }

    /// A window of 4 MB that is filled every 100 ms.
    fn full_window(at: Duration) -> TcpSample {
        TcpSample {
            bytes_received: 40_000 * u64::try_from(at.as_millis()).unwrap(),
            receiver_rtt: ms(100),
            min_rtt: ms(100),
            receive_buffer: 6 * MB,
            receive_window: 4_000_000,
            max_receive_window: 65_535 << 7,
            ..TcpSample::default()
        }
    }

    #[test]
    fn a_host_limit_is_reported_while_it_applies() {
        let (stream, _far) = connected(BufferSizing::Auto);
        let control = TransferControl::new();
        let mut policy = receiver();
        let mut observe = |n: u64, tcp_sample: TcpSample| {
            let at = ms(25 * n);
            policy.on_sample(&tuning_sample(at, &stream, tcp_sample, control.notices()));
            control.host_limit()
        };
        assert_eq!(observe(0, full_window(ms(0))), None);
        let mut host_limit = None;
        for n in 1..=40 {
            host_limit = observe(n, full_window(ms(25 * n)));
        }
        let host_limit = host_limit.unwrap();
        assert_eq!(host_limit.limiter, Limiter::ReceiveWindow);
        assert_eq!(host_limit.max_in_flight, 4_000_000);
        assert!((310_000_000..330_000_000).contains(&host_limit.stream_bps));
        // The path becomes slower.
        let slow = |n: u64| TcpSample {
            bytes_received: full_window(ms(1000)).bytes_received + 1000 * n,
            ..full_window(ms(0))
        };
        let mut host_limit = Some(host_limit);
        for n in 41..=80 {
            host_limit = observe(n, slow(n));
        }
        assert_eq!(host_limit, None);
    }

    fn clamp(stream: &DataStream) -> i32 {
        let mut out = [0; 4];
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
        sockopt::get(stream.as_fd(), level, name, &mut out).unwrap();
        i32::from_ne_bytes(out)
    }

    #[test]
    fn a_small_window_is_reverted_at_the_end_of_the_transfer() {
        let (stream, _far) = connected(BufferSizing::Auto);
        set_window_clamp(stream.as_fd(), 1 << 30).unwrap();
        let notices = TuningNotices::default();
        let mut policy = receiver();
        for n in 0..200 {
            let at = ms(25 * n);
            // The application reads 1 MB/s.
            let tcp_sample = TcpSample {
                bytes_received: 1000 * 25 * n,
                receive_queue_memory: 5 * MB,
                readable: 4 * MB,
                ..full_window(at)
            };
            policy.on_sample(&tuning_sample(at, &stream, tcp_sample, &notices));
        }
        assert!(clamp(&stream) < 1 << 20, "{}", clamp(&stream));
        policy.finish();
        assert!(clamp(&stream) > 4 << 20, "{}", clamp(&stream));
    }
}
