//! A window that this end imposes on a stream with TCP_WINDOW_CLAMP, which neither locks nor lowers
//! the buffer. It comes and goes with its reason.

use std::time::Duration;

use super::super::BufferSetting;
use crate::observation::Rtt;
use crate::sample::TcpSample;

/// Between two settings.
const REPEAT: Duration = Duration::from_millis(250);
/// A window that comes and goes waits twice as long each time, up to this many times.
const DOUBLINGS: u32 = 6;

/// A window in force.
#[derive(Debug, Clone, Copy)]
struct ClampSetting {
    window: u64,
    at: Duration,
    /// The buffer then: when it grows, the kernel forgets the clamp.
    buffer: u64,
}

/// One stream's window, in force or not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ImposedWindow {
    set: Option<ClampSetting>,
    /// Reason to set or to lift has been seen since then.
    since: Option<Duration>,
    lifted: u32,
}

impl ImposedWindow {
    /// The window in force, bytes.
    pub(super) fn window(&self) -> Option<u64> {
        self.set.map(|set| set.window)
    }

    /// How long a reason must hold before the window is set: `first`, and longer with every time
    /// that it was lifted.
    pub(super) fn patience(&self, first: Duration) -> Duration {
        first * (1 << self.lifted.min(DOUBLINGS))
    }

    /// There is a reason to set or to lift; whether there has been for so long.
    pub(super) fn holds_for(&mut self, look: &TcpSample, time: Duration) -> bool {
        let since = *self.since.get_or_insert(look.at);
        look.at.saturating_sub(since) >= time
    }

    /// There is none.
    pub(super) fn no_reason(&mut self) {
        self.since = None;
    }

    /// The kernel has forgotten the window.
    pub(super) fn is_forgotten(&self, look: &TcpSample) -> bool {
        self.set.is_some_and(|set| {
            look.receive_buffer > set.buffer || look.receive_window > set.window / 4 * 5
        })
    }

    /// It was set long enough ago to be set again.
    pub(super) fn may_repeat(&self, look: &TcpSample, trip: Rtt) -> bool {
        self.set
            .is_some_and(|set| look.at.saturating_sub(set.at) >= REPEAT.max(trip.smoothed))
    }

    pub(super) fn impose(&mut self, look: &TcpSample, window: u64) -> BufferSetting {
        self.since = None;
        self.set = Some(ClampSetting {
            window,
            at: look.at,
            buffer: look.receive_buffer,
        });
        BufferSetting::WindowClamp(window)
    }

    /// Takes the window back, if it is in force.
    pub(super) fn lift(&mut self, look: &TcpSample) -> Option<BufferSetting> {
        self.set.take()?;
        self.since = None;
        self.lifted += 1;
        Some(BufferSetting::WindowClamp(
            look.max_receive_window.max(look.receive_buffer),
        ))
    }
}
