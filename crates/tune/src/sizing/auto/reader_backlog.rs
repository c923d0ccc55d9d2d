//! Window clamp for a reader that is slower than the path. Its backlog fills the receive buffer without any
//! gain. A window smaller than what it reads per round trip lets it catch up; then a slightly larger window
//! keeps a cushion that bridges its pauses. The clamp is lifted when the reader keeps up.

use std::time::Duration;

use units::{bytes_in, bytes_per_second, show};

use super::super::BufferSetting;
use super::action::BufferAction;
use super::imposed_window::ImposedWindow;
use crate::limiter::Role;
use crate::observation::{Bottleneck, Rtt, is_receive_buffer_backed_up};
use crate::sample::TcpSample;

/// Shortest time for which a slow reader must be behind. Its rate is averaged over the same time.
const SLOW_READER_TIME: Duration = Duration::from_secs(1);
/// Longest pause of a reader that the cushion hides from the sender.
const CUSHION: Duration = Duration::from_millis(100);
/// Smallest cushion, bytes.
const SMALLEST_CUSHION: u64 = 256 << 10;
/// Smallest window that can hold a rate, bytes.
const SMALLEST_WINDOW: u64 = 32 << 10;
/// Time after which a reader without backlog counts as keeping up.
const CAUGHT_UP_TIME: Duration = Duration::from_millis(100);

/// Rate at which the program reads, independent of arrivals.
#[derive(Debug, Clone, Copy, Default)]
struct ReaderRate {
    from: Option<TcpSample>,
    /// Bytes per second.
    rate: Option<u64>,
}

impl ReaderRate {
    fn on_sample(&mut self, sample: &TcpSample) {
        let Some(from) = self.from else {
            self.from = Some(*sample);
            return;
        };
        let stats = sample.since(&from, Role::Receiver);
        if stats.time >= SLOW_READER_TIME {
            let available = stats.bytes.saturating_add(from.readable);
            let read = available.saturating_sub(sample.readable);
            self.rate = Some(bytes_per_second(read, stats.time));
            self.from = Some(*sample);
        }
    }
}

/// Window clamp of one stream with a slow reader.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReaderBacklog {
    reader: ReaderRate,
    imposed: ImposedWindow,
    /// Whether the clamp in force lets the reader catch up; otherwise it keeps the cushion.
    draining: bool,
}

impl ReaderBacklog {
    pub(super) fn in_force(&self) -> bool {
        self.imposed.window().is_some()
    }

    /// Lifts the clamp, if it is in force.
    pub(super) fn release(&mut self, sample: &TcpSample) -> Option<BufferSetting> {
        self.imposed.lift(sample)
    }

    pub(super) fn on_sample(&mut self, sample: &TcpSample, rtt: Rtt) -> Option<BufferAction> {
        self.reader.on_sample(sample);
        // The reader's rate is known after the first second.
        let rate = self.reader.rate?;
        let cushion = bytes_in(rate, CUSHION.max(rtt.min * 2)).max(SMALLEST_CUSHION);
        match self.imposed.window() {
            None => self.consider(sample, rtt, rate, cushion),
            // With less than an eighth of the cushion left, the reader waits for data.
            Some(clamped) if sample.readable < cushion / 8 => self.lift(clamped, sample),
            Some(clamped) => self.keep(clamped, sample, rtt, rate, cushion),
        }
    }

    fn consider(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        rate: u64,
        cushion: u64,
    ) -> Option<BufferAction> {
        if !is_receive_buffer_backed_up(sample) {
            self.imposed.clear_reason();
            return None;
        }
        let patience = self.imposed.patience(SLOW_READER_TIME).max(rtt.min * 4);
        // A clamp pays off only if the cushion is far below the buffer.
        let is_worth_it = sample.receive_buffer / 4 >= cushion;
        let is_slow = self.imposed.holds_for(sample, patience);
        if !is_slow || !is_worth_it || window(rate, rtt, true) < SMALLEST_WINDOW {
            return None;
        }
        Some(self.apply(sample, rtt, rate, true))
    }

    fn lift(&mut self, clamped: u64, sample: &TcpSample) -> Option<BufferAction> {
        if !self.imposed.holds_for(sample, CAUGHT_UP_TIME) {
            return None;
        }
        Some(BufferAction {
            setting: self.imposed.lift(sample),
            bottleneck: Bottleneck::SenderOrPath,
            reason: format!(
                "the receiving program keeps up again; the window may grow beyond {}",
                show::bytes(clamped)
            ),
        })
    }

    /// Sets the clamp again when the reader has caught up or fallen behind, when its rate has changed, or
    /// when the kernel has dropped the clamp.
    fn keep(
        &mut self,
        clamped: u64,
        sample: &TcpSample,
        rtt: Rtt,
        rate: u64,
        cushion: u64,
    ) -> Option<BufferAction> {
        self.imposed.clear_reason();
        // The hysteresis between one and three cushions keeps bursts from toggling the clamp.
        let draining = if self.draining {
            sample.readable > cushion
        } else {
            sample.readable > cushion * 3
        };
        let window = window(rate, rtt, draining).max(SMALLEST_WINDOW);
        // A quarter up or down: smaller changes are noise of the reader's rate.
        let has_changed = window > clamped / 4 * 5 || window < clamped / 4 * 3;
        let is_due = self.imposed.may_repeat(sample, rtt);
        (is_due && (has_changed || self.imposed.was_dropped_by_kernel(sample)))
            .then(|| self.apply(sample, rtt, rate, draining))
    }

    fn apply(&mut self, sample: &TcpSample, rtt: Rtt, rate: u64, draining: bool) -> BufferAction {
        let window = window(rate, rtt, draining).max(SMALLEST_WINDOW);
        self.draining = draining;
        let aim = if draining {
            "lets it catch up"
        } else {
            "keeps it busy"
        };
        BufferAction {
            setting: Some(self.imposed.impose(sample, window)),
            bottleneck: Bottleneck::ReceiverApp,
            reason: format!(
                "the receiving program reads {} and has {} unread; a window of {} {aim}",
                show::bits(rate.saturating_mul(8)),
                show::bytes(sample.readable),
                show::bytes(window)
            ),
        }
    }
}

/// Window for a reader, bytes: three quarters of what it reads per round trip while it catches up, five
/// quarters afterwards. The round trip may be a little longer than that of the handshake, since too small a
/// window would starve the reader.
fn window(rate: u64, rtt: Rtt, draining: bool) -> u64 {
    let quarters = if draining { 3 } else { 5 };
    bytes_in(rate, rtt.for_window()) / 4 * quarters
}
