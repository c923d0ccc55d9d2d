//! Receive buffer of one stream. Autotuning is left alone while it can grow. The tuner sets the buffer when
//! autotuning has reached its limit, and repairs autotuning that has shrunk the buffer or stopped growing.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::super::host_limits::HostBufferLimits;
use super::action::BufferAction;
use super::host_limit::HostLimit;
use super::reader_backlog::ReaderBacklog;
use super::slow_path_clamp::SlowPathClamp;
use crate::limiter::Role;
use crate::observation::{
    Bottleneck, RateMeter, Rtt, fills_receive_window, is_receive_buffer_backed_up,
};
use crate::sample::TcpSample;

/// Largest number of repairs, after which a kernel that keeps shrinking the buffer is left alone.
const MAX_REPAIRS: u32 = 4;
/// Shortest time between two repairs.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// Time within which a window follows a raised buffer, at least two round trips. Later it never does.
const VERIFY_TIME: Duration = Duration::from_millis(500);
/// Time for which a full window must not have grown, at least four round trips, before autotuning counts as
/// stuck.
const STUCK_TIME: Duration = Duration::from_millis(300);

/// Tuner of one stream's receive buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceiveBufferTuner {
    backlog: ReaderBacklog,
    clamp: SlowPathClamp,
    /// Size of the buffer, and since when it has this size.
    buffer: u64,
    unchanged_since: Duration,
    /// Largest window so far.
    largest_window: u64,
    /// Time since which the window has been full.
    full_since: Option<Duration>,
    /// Whether this end has set the buffer, which ends autotuning.
    set_by_tuner: bool,
    /// Size requested last, as reported.
    requested: u64,
    /// Sample at which the buffer was raised, until the window has followed.
    unverified: Option<TcpSample>,
    /// Size before the kernel shrank the buffer, until it has that size again or was repaired.
    shrunk_from: Option<u64>,
    /// Raising the buffer had no effect.
    gave_up: bool,
    repairs: u32,
    repaired_at: Option<Duration>,
}

impl ReceiveBufferTuner {
    pub(super) fn on_sample(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        meter: &RateMeter,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if sample.receive_buffer == 0 {
            return None;
        }
        self.observe(sample, rtt, meter);
        if let Some(action) = self.impose(sample, rtt, meter) {
            return Some(action);
        }
        if self.imposed().is_some() {
            // A clamped window cannot follow the buffer.
            self.unverified = None;
            return None;
        }
        // With a slow reader a larger buffer would only hold more unread data.
        if is_receive_buffer_backed_up(sample) {
            return None;
        }
        // Verification goes first: a raise without effect must not be followed by another one.
        self.verify(sample, rtt, limits)
            .or_else(|| self.repair_fall(sample, limits))
            .or_else(|| self.grow(sample, rtt, meter, limits))
            .or_else(|| self.repair_stuck(sample, rtt, limits))
    }

    /// Sets or lifts a window clamp.
    fn impose(&mut self, sample: &TcpSample, rtt: Rtt, meter: &RateMeter) -> Option<BufferAction> {
        let action = self.backlog.on_sample(sample, rtt);
        if action.is_some() || self.backlog.in_force() || is_receive_buffer_backed_up(sample) {
            return action;
        }
        self.clamp.on_sample(sample, rtt, meter)
    }

    /// Lifts the window clamp.
    pub(super) fn release(&mut self, sample: &TcpSample) -> Option<BufferSetting> {
        let backlog = self.backlog.release(sample);
        self.clamp.release(sample).or(backlog)
    }

    /// Reason for the window clamp in force, if any.
    pub(super) fn imposed(&self) -> Option<Bottleneck> {
        let reader = self.backlog.in_force().then_some(Bottleneck::ReceiverApp);
        reader.or(self.clamp.in_force().then_some(Bottleneck::Link))
    }

    /// The host setting that limits this stream permanently, given that its window is the bottleneck.
    pub(super) fn host_limit(
        &self,
        sample: &TcpSample,
        limits: &HostBufferLimits,
    ) -> Option<HostLimit> {
        // The kernel rounds the window down to segments, so that it never quite reaches its ceiling.
        if sample.max_receive_window > 0
            && sample.receive_window >= sample.max_receive_window / 10 * 9
        {
            return Some(HostLimit::WindowScale);
        }
        let is_at_autotuning_limit =
            self.set_by_tuner || self.is_at_autotuning_limit(sample, limits);
        let reachable = headroom(sample, limits) > 0 && !self.gave_up;
        (is_at_autotuning_limit && !reachable).then_some(HostLimit::ReceiveBuffer)
    }

    /// Notes buffer and window sizes.
    fn observe(&mut self, sample: &TcpSample, rtt: Rtt, meter: &RateMeter) {
        let before = self.shrunk_from.unwrap_or(self.buffer);
        // The kernel adjusts sizes by a few per cent at any time.
        self.shrunk_from = (sample.receive_buffer < before / 10 * 9).then_some(before);
        if sample.receive_buffer != self.buffer {
            self.buffer = sample.receive_buffer;
            self.unchanged_since = sample.at;
        }
        self.largest_window = self.largest_window.max(sample.receive_window);
        self.full_since = if fills_receive_window(sample, rtt, meter.latest()) {
            self.full_since.or(Some(sample.at))
        } else {
            None
        };
    }

    fn is_at_autotuning_limit(&self, sample: &TcpSample, limits: &HostBufferLimits) -> bool {
        sample.receive_buffer >= limits.max_unset_receive_buffer() / 10 * 9
    }

    fn is_full_for(&self, sample: &TcpSample, time: Duration) -> bool {
        self.full_since
            .is_some_and(|since| sample.at.saturating_sub(since) >= time)
    }

    /// Checks that the window follows a raised buffer, which takes arriving data.
    fn verify(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let before = self.unverified?;
        // 5 % more is growth; less may be rounding to the window scale.
        if sample.receive_window > before.receive_window / 100 * 105 {
            self.unverified = None;
            return None;
        }
        let stats = sample.since(&before, Role::Receiver);
        // Old kernels do not show the window (zero).
        if sample.receive_window == 0
            || stats.time < VERIFY_TIME.max(rtt.smoothed * 2)
            || stats.bytes < before.receive_window
        {
            return None;
        }
        self.unverified = None;
        self.gave_up = true;
        self.set_by_tuner = !limits.receive_autotuning;
        Some(BufferAction {
            setting: limits
                .receive_autotuning
                .then_some(BufferSetting::RestoreAutotuning(before.receive_window)),
            bottleneck: Bottleneck::ReceiveWindow,
            reason: format!(
                "the window stayed at {} although the buffer was raised to {}; autotuning takes over from \
                 now on",
                show::bytes(sample.receive_window),
                show::bytes(sample.receive_buffer)
            ),
        })
    }

    /// Repairs a shrunk buffer: Linux 6.17 to 7.0 may shrink an autotuned buffer to its contents.
    fn repair_fall(
        &mut self,
        sample: &TcpSample,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let before = self.shrunk_from?;
        if !self.may_repair(sample, limits) {
            return None;
        }
        Some(self.repair(
            sample,
            self.largest_window,
            &format!(
                "the kernel shrank the receive buffer from {} to {}",
                show::bytes(before),
                show::bytes(sample.receive_buffer)
            ),
        ))
    }

    /// Repairs stuck autotuning: it grows only when a round trip brings more than any before, which a window
    /// that has shrunk prevents.
    fn repair_stuck(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let patience = STUCK_TIME.max(rtt.smoothed * 4);
        let is_unchanged = sample.at.saturating_sub(self.unchanged_since) >= patience;
        if rtt.is_local()
            || !is_unchanged
            || !self.is_full_for(sample, patience)
            || self.is_at_autotuning_limit(sample, limits)
            || !self.may_repair(sample, limits)
        {
            return None;
        }
        let window = window_ceiling(sample).min(sample.receive_window.saturating_mul(2));
        Some(self.repair(
            sample,
            window,
            &format!(
                "the window of {} is full and autotuning does not grow the buffer of {}",
                show::bytes(sample.receive_window),
                show::bytes(sample.receive_buffer)
            ),
        ))
    }

    fn may_repair(&self, sample: &TcpSample, limits: &HostBufferLimits) -> bool {
        let is_due = self
            .repaired_at
            .is_none_or(|at| sample.at.saturating_sub(at) >= REPAIR_PAUSE);
        limits.receive_autotuning && !self.set_by_tuner && self.repairs < MAX_REPAIRS && is_due
    }

    fn repair(&mut self, sample: &TcpSample, window: u64, cause: &str) -> BufferAction {
        self.repairs += 1;
        self.repaired_at = Some(sample.at);
        self.shrunk_from = None;
        BufferAction {
            setting: Some(BufferSetting::RestoreAutotuning(window)),
            bottleneck: Bottleneck::ReceiveWindow,
            reason: format!("{cause}; restored for a window of {}", show::bytes(window)),
        }
    }

    /// Sets a larger buffer where autotuning has reached its limit and SO_RCVBUF may exceed it.
    fn grow(
        &mut self,
        sample: &TcpSample,
        rtt: Rtt,
        meter: &RateMeter,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if self.gave_up
            || rtt.is_local()
            || !(self.set_by_tuner || self.is_at_autotuning_limit(sample, limits))
        {
            return None;
        }
        // DRS sets SO_RCVBUF to twice the bytes of a round trip; the kernel reports twice the setting.
        let drs_size = bytes_in(meter.best_recent(), rtt.for_window()).saturating_mul(4);
        let wanted = if limits.receive_autotuning {
            // Autotuning has kept the buffer ahead of the path so far. Only a full window justifies ending
            // it, and only a window that followed the last raise justifies another.
            if self.unverified.is_some() || !self.is_full_for(sample, rtt.smoothed * 2) {
                return None;
            }
            drs_size.max(sample.receive_buffer.saturating_mul(2))
        } else {
            drs_size
        };
        let size = wanted.min(
            sample
                .receive_buffer
                .saturating_add(headroom(sample, limits)),
        );
        // Every setting costs the kernel's autotuning: less than a quarter more is not worth it.
        if size < sample.receive_buffer / 4 * 5 {
            return None;
        }
        if sample.receive_buffer < self.requested / 10 * 9 {
            return Some(self.refused(sample));
        }
        self.requested = size;
        let reason = self.reason_to_grow(sample, meter.best_recent(), size, limits);
        self.set_by_tuner = true;
        self.full_since = None;
        self.unverified = self.unverified.or(Some(*sample));
        Some(BufferAction {
            setting: Some(BufferSetting::ReceiveBuffer(size / 2)),
            bottleneck: Bottleneck::ReceiveWindow,
            reason,
        })
    }

    fn refused(&mut self, sample: &TcpSample) -> BufferAction {
        self.gave_up = true;
        BufferAction {
            setting: None,
            bottleneck: Bottleneck::ReceiveWindow,
            reason: format!(
                "receive buffer stays at {}: the kernel did not grant {}",
                show::bytes(sample.receive_buffer),
                show::bytes(self.requested)
            ),
        }
    }

    fn reason_to_grow(
        &self,
        sample: &TcpSample,
        rate: u64,
        size: u64,
        limits: &HostBufferLimits,
    ) -> String {
        let cause = if !limits.receive_autotuning {
            "autotuning is off on this host"
        } else if self.set_by_tuner {
            "the window is full again"
        } else {
            "autotuning has reached its limit (tcp_rmem), and the window is full"
        };
        let mut reason = format!(
            "receive buffer {} at {}: {cause}; set to {}",
            show::bytes(sample.receive_buffer),
            show::bits(rate.saturating_mul(8)),
            show::bytes(size)
        );
        if size >= max_usable_buffer(sample) {
            reason.push_str(&format!(
                ", the largest that the connection's window scale can use (a window of {})",
                show::bytes(sample.max_receive_window)
            ));
        }
        reason
    }
}

fn window_ceiling(sample: &TcpSample) -> u64 {
    if sample.max_receive_window == 0 {
        u64::MAX
    } else {
        sample.max_receive_window
    }
}

/// Largest buffer whose window the window scale can express: at least half of a buffer is offered.
fn max_usable_buffer(sample: &TcpSample) -> u64 {
    window_ceiling(sample).saturating_mul(2)
}

/// Number of bytes by which the buffer can usefully be raised.
fn headroom(sample: &TcpSample, limits: &HostBufferLimits) -> u64 {
    let is_at_ceiling = sample.receive_window >= window_ceiling(sample) / 10 * 9;
    limits
        .max_settable_receive
        .min(max_usable_buffer(sample))
        .checked_sub(sample.receive_buffer)
        .filter(|headroom| *headroom >= sample.receive_buffer / 4 && !is_at_ceiling)
        .unwrap_or(0)
}
