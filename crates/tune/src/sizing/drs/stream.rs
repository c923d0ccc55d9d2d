//! One stream's receive buffer.

use std::time::Duration;

use super::bandwidth::Bandwidth;
use super::interval::Interval;
use crate::sizing::{Bounds, Look};

/// A buffer of which less than a quarter was needed for so long is halved.
const TOO_LARGE_FOR: Duration = Duration::from_secs(3);
/// Or for so many round trips, if that is longer.
const TOO_LARGE_ROUND_TRIPS: u32 = 8;
/// A raise by less than 1/n of the size is not worth a system call and a message.
const LEAST_RAISE: u64 = 8;

/// One stream of a transfer.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    bounds: Bounds,
    size: u64,
    /// The most that the kernel grants, as far as is known.
    ceiling: u64,
    bandwidth: Bandwidth,
    /// The window as the kernel shows it, bytes.
    window: u64,
    /// Since when the buffer has been too large.
    too_large: Option<Duration>,
    /// What the size was when a trial of a longer round trip began.
    before_trial: Option<u64>,
}

impl Stream {
    pub(super) fn new(bounds: Bounds, interval: Interval) -> Self {
        let initial = bounds.initial.min(bounds.largest);
        Self {
            bounds,
            size: initial,
            ceiling: bounds.largest,
            bandwidth: Bandwidth::new(interval),
            window: 0,
            too_large: None,
            before_trial: None,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    /// Takes a look.
    pub(super) fn note(&mut self, look: &Look, round_trip: Duration) {
        let granted = look.receive_buffer / 2;
        if granted > 0 && granted < self.size {
            self.size = granted;
            self.ceiling = granted;
        }
        self.window = look.window;
        self.bandwidth.note(look.at, look.bytes, round_trip);
    }

    /// Whether the window is what limits the stream, if its round trip is `round_trip` now.
    pub(super) fn fills_window(&self, round_trip: Duration) -> bool {
        let window = self.size.max(self.window);
        self.bandwidth.latest(round_trip) >= window - window / 4
    }

    /// A longer round trip is tried from now on.
    pub(super) fn begin_trial(&mut self) {
        self.before_trial = Some(self.size);
        self.bandwidth.start_over();
    }

    /// The trial is over; the new size if it won nothing and grew the buffer.
    pub(super) fn end_trial(&mut self, won: bool) -> Option<u64> {
        let before = self.before_trial.take()?;
        if won {
            return None;
        }
        self.bandwidth.start_over();
        if before >= self.size {
            return None;
        }
        self.size = before;
        Some(before)
    }

    /// The new size, if there is to be one.
    pub(super) fn resize(&mut self, at: Duration, round_trip: Duration) -> Option<u64> {
        let need = self.within(self.bandwidth.outlook(round_trip).saturating_mul(2));
        let size = if need > self.size.saturating_add(self.size / LEAST_RAISE) {
            need
        } else {
            self.shrunk(at, need, round_trip)?
        };
        self.too_large = None;
        (std::mem::replace(&mut self.size, size) != size).then_some(size)
    }

    /// Half the size, if so much was not needed for long.
    fn shrunk(&mut self, at: Duration, need: u64, round_trip: Duration) -> Option<u64> {
        if need >= self.size / 4 {
            self.too_large = None;
            return None;
        }
        let since = *self.too_large.get_or_insert(at);
        let patience = TOO_LARGE_FOR.max(TOO_LARGE_ROUND_TRIPS * round_trip);
        (at.saturating_sub(since) >= patience).then(|| self.within((self.size / 2).max(need)))
    }

    fn within(&self, size: u64) -> u64 {
        size.max(self.bounds.initial)
            .min(self.bounds.largest)
            .min(self.ceiling)
    }
}
