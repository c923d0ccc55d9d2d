//! Window clamp for a slow path with a deep queue, such as a modem line. There a window above the
//! bandwidth-delay product makes every byte wait for seconds and gains nothing. TCP_WINDOW_CLAMP drains the queue.
//!
//! The window is twice the best rate that the path ever had times its round trip, so that the line stays full. A
//! window from the present rate would shrink again and again between competing flows. Faster paths are
//! left alone for the same reason.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::action::BufferAction;
use super::imposed_window::ImposedWindow;
use crate::observation::{Bottleneck, RateMeter, Rtt, fills_receive_window};
use crate::sample::TcpSample;

/// Rate below which a path is slow, bytes per second (2 Mbit/s).
const SLOW_RATE: u64 = 250_000;
/// Queueing delay from which on the queue of a slow path is drained.
const LONG_QUEUE: Duration = Duration::from_millis(400);
/// Time for which the queue must be that long.
const LONG_QUEUE_TIME: Duration = Duration::from_millis(500);
/// Smallest window, bytes: ten segments, the initial window of RFC 6928. A much smaller one leaves too few in
/// flight for the three duplicate ACKs of fast retransmit (RFC 5681 §3.2).
const TEN_SEGMENTS: u64 = 10 * 1460;
/// Time without a queue after which the path must have changed.
const QUEUE_FREE_TIME: Duration = Duration::from_secs(1);

/// Window clamp of one stream on a slow path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlowPathClamp(ImposedWindow);

impl SlowPathClamp {
    pub(super) fn in_force(&self) -> bool {
        self.0.window().is_some()
    }

    /// Lifts the clamp, if it is in force.
    pub(super) fn release(&mut self, sample: &TcpSample) -> Option<BufferSetting> {
        self.0.lift(sample)
    }

    pub(super) fn on_sample(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        meter: &RateMeter,
    ) -> Option<BufferAction> {
        let Some(clamped) = self.0.window() else {
            return self.consider(sample, rtt, meter);
        };
        // A full window without a queue means that the clamp itself limits.
        let is_free =
            rtt.smoothed < rtt.min * 5 / 4 && fills_receive_window(sample, rtt, meter.latest());
        if is_free || meter.latest() >= SLOW_RATE {
            return self.lift(clamped, sample, rtt);
        }
        self.0.clear_reason();
        // The clamp is set again when the kernel has dropped it or the path has reached a higher rate.
        let is_better = window(rtt, meter) > clamped / 4 * 5;
        let is_due =
            self.0.may_repeat(sample, rtt) && (is_better || self.0.was_dropped_by_kernel(sample));
        is_due.then(|| self.apply(sample, rtt, meter))
    }

    fn consider(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        meter: &RateMeter,
    ) -> Option<BufferAction> {
        if !is_slow(rtt, meter) || window(rtt, meter) >= sample.receive_window {
            self.0.clear_reason();
            return None;
        }
        let patience = self.0.patience(LONG_QUEUE_TIME).max(rtt.min * 4);
        self.0
            .holds_for(sample, patience)
            .then(|| self.apply(sample, rtt, meter))
    }

    fn lift(&mut self, clamped: u64, sample: &TcpSample, rtt: Rtt) -> Option<BufferAction> {
        if !self.0.holds_for(sample, QUEUE_FREE_TIME.max(rtt.min * 4)) {
            return None;
        }
        Some(BufferAction {
            setting: self.0.lift(sample),
            bottleneck: Bottleneck::ReceiveWindow,
            reason: format!(
                "the queue on the path is gone; the window may grow beyond {}",
                show::bytes(clamped)
            ),
        })
    }

    fn apply(&mut self, sample: &TcpSample, rtt: Rtt, meter: &RateMeter) -> BufferAction {
        let window = window(rtt, meter);
        BufferAction {
            setting: Some(self.0.impose(sample, window)),
            bottleneck: Bottleneck::Link,
            reason: format!(
                "packets queue for {} on a path of {}; a window of {} keeps it full",
                show::time(rtt.smoothed.saturating_sub(rtt.min)),
                show::bits(meter.best().saturating_mul(8)),
                show::bytes(window)
            ),
        }
    }
}

fn is_slow(rtt: Rtt, meter: &RateMeter) -> bool {
    !rtt.is_local()
        // The best rate is zero until two rounds have ended.
        && meter.best() > 0
        && meter.best() < SLOW_RATE
        && rtt.smoothed.saturating_sub(rtt.min) > LONG_QUEUE
}

fn window(rtt: Rtt, meter: &RateMeter) -> u64 {
    bytes_in(meter.best(), rtt.min)
        .saturating_mul(2)
        .max(TEN_SEGMENTS)
}
