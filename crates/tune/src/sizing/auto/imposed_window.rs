//! A window that this end imposes on a stream by TCP_WINDOW_CLAMP, which neither locks nor shrinks the
//! buffer. It is set while there is a reason for it.

use std::time::Duration;

use super::super::BufferSetting;
use crate::observation::Rtt;
use crate::sample::TcpSample;

/// Shortest time between two settings of the clamp.
const MIN_REPEAT_TIME: Duration = Duration::from_millis(250);
/// Largest number of doublings of the wait before a clamp that was lifted is set again.
const MAX_DOUBLINGS: u32 = 6;

/// A clamp in force.
#[derive(Debug, Clone, Copy)]
struct ClampSetting {
    window: u64,
    /// Sample at which it was set. When the kernel enlarges the buffer afterwards, it drops the clamp.
    sample: TcpSample,
}

/// Window clamp of one stream, in force or not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ImposedWindow {
    set: Option<ClampSetting>,
    /// Time since which there has been a reason to set or to lift the clamp.
    since: Option<Duration>,
    lifted: u32,
}

impl ImposedWindow {
    /// The clamp in force, bytes.
    pub(super) fn window(&self) -> Option<u64> {
        self.set.map(|set| set.window)
    }

    /// Time for which a reason must hold before the clamp is set: `first`, doubled for every time that the
    /// clamp was lifted.
    pub(super) fn patience(&self, first: Duration) -> Duration {
        first * (1 << self.lifted.min(MAX_DOUBLINGS))
    }

    /// Notes a reason to set or to lift the clamp; true if it has held for `time`.
    pub(super) fn holds_for(&mut self, sample: &TcpSample, time: Duration) -> bool {
        let since = *self.since.get_or_insert(sample.at);
        sample.at.saturating_sub(since) >= time
    }

    /// Notes that there is no reason.
    pub(super) fn clear_reason(&mut self) {
        self.since = None;
    }

    /// Whether the kernel has dropped the clamp.
    pub(super) fn was_dropped_by_kernel(&self, sample: &TcpSample) -> bool {
        self.set.is_some_and(|set| {
            sample.receive_buffer > set.sample.receive_buffer
                || sample.receive_window > set.window / 4 * 5
        })
    }

    /// Whether the clamp was set long enough ago to be set again.
    pub(super) fn may_repeat(&self, sample: &TcpSample, rtt: Rtt) -> bool {
        self.set.is_some_and(|set| {
            sample.at.saturating_sub(set.sample.at) >= MIN_REPEAT_TIME.max(rtt.smoothed)
        })
    }

    pub(super) fn impose(&mut self, sample: &TcpSample, window: u64) -> BufferSetting {
        self.since = None;
        self.set = Some(ClampSetting {
            window,
            sample: *sample,
        });
        BufferSetting::WindowClamp(window)
    }

    /// Lifts the clamp, if it is in force.
    pub(super) fn lift(&mut self, sample: &TcpSample) -> Option<BufferSetting> {
        self.set.take()?;
        self.since = None;
        self.lifted += 1;
        Some(BufferSetting::WindowClamp(
            sample.max_receive_window.max(sample.receive_buffer),
        ))
    }
}
