//! `auto`: each stream by itself, each end by itself.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tune::limiter::{Limiter, Role};
use tune::sample::StreamId;
use tune::sizing::auto::BufferTuner;
use tune::sizing::host_limits::HostBufferLimits;
use tune::sizing::{BufferDecision, BufferSetting};

use super::change_options::{BufferLimit, apply_decision, revert_change};
use super::policy::{BufferPolicy, SampledStream, SizingSample};
use crate::os::caps::host_limits;
use crate::os::sockopt::{self, SocketBuffer};
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// The kernel's autotuning, watched on every stream.
pub(super) struct AutoBufferPolicy {
    role: Role,
    /// Read at the first look: this thread has the time, the streams have not.
    caps: Option<HostBufferLimits>,
    streams: BTreeMap<StreamId, AutoSizedStream>,
    /// Another policy has pinned the send buffers of streams that join.
    unlocks: bool,
    remark: Option<String>,
    /// A send buffer that is known to be right, bytes as reported.
    known: Option<u64>,
}

/// One stream. Its connection may be closed, or go on in another transfer.
struct AutoSizedStream {
    auto: BufferTuner,
    stream: Weak<DataStream>,
}

impl AutoBufferPolicy {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            caps: None,
            streams: BTreeMap::new(),
            unlocks: false,
            remark: None,
            known: None,
        }
    }

    /// Streams whose send buffers are known to be right at this size, bytes as reported.
    pub(super) fn with_known_buffer(mut self, buffer: Option<u64>) -> Self {
        self.known = buffer;
        self
    }

    /// For a sender whose buffers begin small and pinned because the peer was to size them.
    pub(super) fn without_peer() -> Self {
        Self {
            unlocks: true,
            ..Self::new(Role::Sender)
        }
    }

    fn forget(&mut self, gone: impl Fn(StreamId) -> bool) {
        let remark = &mut self.remark;
        self.streams.retain(|id, watched| {
            let gone = gone(*id);
            if gone {
                watched.leave();
                *remark = remark.take().or_else(|| watched.auto.remark());
            }
            !gone
        });
    }
}

impl AutoSizedStream {
    fn leave(&mut self) {
        if let (Some(change), Some(stream)) = (self.auto.release(), self.stream.upgrade()) {
            revert_change(&stream, change);
        }
    }
}

impl BufferPolicy for AutoBufferPolicy {
    fn on_sample(&mut self, scene: &SizingSample<'_>) {
        self.forget(|id| !scene.has(id));
        let (role, unlocks, known) = (self.role, self.unlocks, self.known);
        let caps = *self.caps.get_or_insert_with(host_limits);
        for seen in &scene.streams {
            let watched = self.streams.entry(seen.sample.stream).or_insert_with(|| {
                if unlocks {
                    give_back(scene.board, seen, &caps);
                }
                AutoSizedStream {
                    auto: BufferTuner::new(role, caps).with_known_buffer(known),
                    stream: Arc::downgrade(&seen.stream),
                }
            });
            if let Some(decision) = watched.auto.on_sample(&seen.sample) {
                apply_decision(scene.board, &seen.stream, decision, BufferLimit::Forced);
            }
        }
        let bounds = self.streams.values().filter_map(|w| w.auto.host_bound());
        let bound = bounds.max_by_key(|bound| bound.stream_bps);
        scene.board.set_host_limit(bound);
    }

    fn next_due(&self) -> Duration {
        let due = self.streams.values().map(|w| w.auto.next_sample_in()).min();
        due.unwrap_or(Duration::ZERO)
    }

    fn finish(&mut self) -> Option<String> {
        self.forget(|_| true);
        self.remark.take()
    }
}

/// Gives a send buffer back to autotuning, unless that would shrink it. A kernel that knows no way
/// back gives all that it allows, at once.
fn give_back(board: &TuningNotices, seen: &SampledStream, caps: &HostBufferLimits) {
    let has = seen.sample.send_buffer;
    if has >= caps.max_autotuned_send {
        return;
    }
    let Err(error) = sockopt::unlock_buffer(seen.stream.as_fd(), SocketBuffer::Send) else {
        return;
    };
    let decision = BufferDecision {
        stream: seen.sample.stream,
        at: seen.sample.at,
        setting: Some(BufferSetting::SendBuffer(
            has.max(caps.max_settable_send) / 2,
        )),
        limiter: Limiter::Unknown,
        reason: format!("nobody tells a size, and autotuning does not take it back: {error}"),
    };
    apply_decision(board, &seen.stream, decision, BufferLimit::Forced);
}

#[cfg(test)]
mod tests {
    use proto::sizing::BufferSizing;
    use tune::sample::TcpSample;

    use super::*;
    use crate::control::TransferControl;
    use crate::os::sockopt::set_window_clamp;
    use crate::sizing::fixtures::{connected, scene};

    const MB: u64 = 1 << 20;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A receiver of a host that lets nothing be set.
    fn receiver() -> AutoBufferPolicy {
        AutoBufferPolicy {
            caps: Some(HostBufferLimits::default()),
            ..AutoBufferPolicy::new(Role::Receiver)
        }
    }

    #[test]
    fn a_send_buffer_that_is_known_to_be_right_is_set_at_the_first_look() {
        let caps = HostBufferLimits {
            max_autotuned_send: 40_000,
            max_settable_send: 2 * MB,
            ..HostBufferLimits::default()
        };
        let (stream, _far) = connected(BufferSizing::Auto);
        // What a host of today lets everybody set.
        let size = 400_000;
        let board = TuningNotices::default();
        let mut policy = AutoBufferPolicy {
            caps: Some(caps),
            ..AutoBufferPolicy::new(Role::Sender)
        }
        .with_known_buffer(Some(size));
        let look = TcpSample {
            send_buffer: 30_000,
            ..TcpSample::default()
        };
        policy.on_sample(&scene(ms(1), &stream, look, &board));
        let now = sockopt::buffer_size(stream.as_fd(), SocketBuffer::Send).unwrap();
        assert_eq!(now, size);
    }

    /// A window of 4 MB that comes in every 100 ms.
    fn full(at: Duration) -> TcpSample {
        TcpSample {
            bytes: 40_000 * u64::try_from(at.as_millis()).unwrap(),
            smoothed_rtt: ms(100),
            min_rtt: ms(100),
            receive_buffer: 6 * MB,
            receive_window: 4_000_000,
            max_receive_window: 65_535 << 7,
            ..TcpSample::default()
        }
    }

    #[test]
    fn a_limit_of_this_host_is_told_while_it_holds() {
        let (stream, _far) = connected(BufferSizing::Auto);
        let control = TransferControl::new();
        let mut policy = receiver();
        let mut look = |n: u64, look: TcpSample| {
            let at = ms(25 * n);
            policy.on_sample(&scene(at, &stream, look, control.notices()));
            control.host_limit()
        };
        assert_eq!(look(0, full(ms(0))), None);
        let mut bound = None;
        for n in 1..=40 {
            bound = look(n, full(ms(25 * n)));
        }
        let bound = bound.unwrap();
        assert_eq!(bound.limiter, Limiter::ReceiveWindow);
        assert_eq!(bound.max_in_flight, 4_000_000);
        assert!((310_000_000..330_000_000).contains(&bound.stream_bps));
        // The path becomes slower.
        let slow = |n: u64| TcpSample {
            bytes: full(ms(1000)).bytes + 1000 * n,
            ..full(ms(0))
        };
        let mut bound = Some(bound);
        for n in 41..=80 {
            bound = look(n, slow(n));
        }
        assert_eq!(bound, None);
    }

    fn clamp(stream: &DataStream) -> i32 {
        let mut out = [0; 4];
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
        sockopt::get(stream.as_fd(), level, name, &mut out).unwrap();
        i32::from_ne_bytes(out)
    }

    #[test]
    fn a_small_window_does_not_outlive_its_transfer() {
        let (stream, _far) = connected(BufferSizing::Auto);
        set_window_clamp(stream.as_fd(), 1 << 30).unwrap();
        let board = TuningNotices::default();
        let mut policy = receiver();
        for n in 0..200 {
            let at = ms(25 * n);
            // A program that reads 1 MB/s.
            let look = TcpSample {
                bytes: 1000 * 25 * n,
                receive_queue_memory: 5 * MB,
                readable: 4 * MB,
                ..full(at)
            };
            policy.on_sample(&scene(at, &stream, look, &board));
        }
        assert!(clamp(&stream) < 1 << 20, "{}", clamp(&stream));
        policy.finish();
        assert!(clamp(&stream) > 4 << 20, "{}", clamp(&stream));
    }
}
