//! A slow path with a deep queue: a modem's line, on which a window larger than the path makes every
//! byte wait for seconds and gains nothing. TCP_WINDOW_CLAMP drains it.
//!
//! The window is twice the best rate that the path ever had times its round trip, so that the line
//! stays full. One from the present rate would spiral down between competing flows; for the same
//! reason faster paths are left alone.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::BufferAction;
use super::imposed_window::ImposedWindow;
use crate::observation::{Bottleneck, RateMeter, Rtt, fills_receive_window};
use crate::sample::TcpSample;

/// Paths below this rate, bytes per second (2 Mbit/s), are slow.
const SLOW: u64 = 250_000;
/// Their queues are long from here on.
const LONG_QUEUE: Duration = Duration::from_millis(400);
/// They are drained when they stay so for this time.
const SEEN: Duration = Duration::from_millis(500);
/// Fewer bytes in flight (ten segments, RFC 6928) leave loss recovery no duplicate ACKs.
const TEN_SEGMENTS: u64 = 10 * 1460;
/// A path that has been free of queues for so long has changed.
const FREE: Duration = Duration::from_secs(1);

/// One stream's clamp.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlowPathClamp(ImposedWindow);

impl SlowPathClamp {
    pub(super) fn in_force(&self) -> bool {
        self.0.window().is_some()
    }

    /// Takes it back, if it is in force.
    pub(super) fn release(&mut self, look: &TcpSample) -> Option<BufferSetting> {
        self.0.lift(look)
    }

    pub(super) fn on_sample(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        meter: &RateMeter,
    ) -> Option<BufferAction> {
        let Some(clamped) = self.0.window() else {
            return self.consider(look, trip, meter);
        };
        let free =
            trip.smoothed < trip.min * 5 / 4 && fills_receive_window(look, trip, meter.latest());
        if free || meter.latest() >= SLOW {
            return self.lift(clamped, look, trip);
        }
        self.0.no_reason();
        // Again when the kernel has forgotten it or the path has shown a better rate.
        let better = window(trip, meter) > clamped / 4 * 5;
        let due = self.0.may_repeat(look, trip) && (better || self.0.is_forgotten(look));
        due.then(|| self.apply(look, trip, meter))
    }

    fn consider(&mut self, look: &TcpSample, trip: Rtt, meter: &RateMeter) -> Option<BufferAction> {
        if !is_slow(trip, meter) || window(trip, meter) >= look.receive_window {
            self.0.no_reason();
            return None;
        }
        let patience = self.0.patience(SEEN).max(trip.min * 4);
        self.0
            .holds_for(look, patience)
            .then(|| self.apply(look, trip, meter))
    }

    fn lift(&mut self, clamped: u64, look: &TcpSample, trip: Rtt) -> Option<BufferAction> {
        if !self.0.holds_for(look, FREE.max(trip.min * 4)) {
            return None;
        }
        Some(BufferAction {
            change: self.0.lift(look),
            class: Bottleneck::ReceiveWindow,
            reason: format!(
                "nothing queues on the path any more; the window may grow beyond {}",
                show::bytes(clamped)
            ),
        })
    }

    fn apply(&mut self, look: &TcpSample, trip: Rtt, meter: &RateMeter) -> BufferAction {
        let window = window(trip, meter);
        BufferAction {
            change: Some(self.0.impose(look, window)),
            class: Bottleneck::Link,
            reason: format!(
                "packets queue for {} on a path of {}; a window of {} keeps it full",
                show::time(trip.smoothed.saturating_sub(trip.min)),
                show::bits(meter.best().saturating_mul(8)),
                show::bytes(window)
            ),
        }
    }
}

fn is_slow(trip: Rtt, meter: &RateMeter) -> bool {
    !trip.is_local()
        && meter.best() > 0
        && meter.best() < SLOW
        && trip.smoothed.saturating_sub(trip.min) > LONG_QUEUE
}

fn window(trip: Rtt, meter: &RateMeter) -> u64 {
    bytes_in(meter.best(), trip.min)
        .saturating_mul(2)
        .max(TEN_SEGMENTS)
}
