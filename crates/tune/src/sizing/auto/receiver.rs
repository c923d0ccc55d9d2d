//! The receive buffer. Autotuning is left alone while it can grow; it is taken over at its end, and
//! repaired when it shrank or stands still.

use std::time::Duration;

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::super::host_limits::HostBufferLimits;
use super::reader_backlog::ReaderBacklog;
use super::slow_path_clamp::SlowPathClamp;
use super::{BufferAction, HostLimit};
use crate::observation::{
    Bottleneck, RateMeter, Rtt, fills_receive_window, is_receive_buffer_backed_up,
};
use crate::sample::TcpSample;

/// A kernel that goes on shrinking the buffer is left alone after so many repairs.
const REPAIRS: u32 = 4;
/// Time between two of them.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// A window follows a raised buffer within this time or two round trips in which data arrives, or
/// never.
const VERIFY: Duration = Duration::from_millis(500);
/// Autotuning that has not grown a full window for four round trips and this time stands still.
const STUCK: Duration = Duration::from_millis(300);

/// When a buffer was raised: the bytes that had come, and the window.
#[derive(Debug, Clone, Copy)]
struct BeforeRaise {
    at: Duration,
    bytes: u64,
    window: u64,
}

/// One stream's receive buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceiveBufferTuner {
    backlog: ReaderBacklog,
    clamp: SlowPathClamp,
    /// The buffer's size, and since when it has it.
    buffer: u64,
    unchanged_since: Duration,
    /// The widest window so far.
    widest: u64,
    /// The window has been full since then.
    full_since: Option<Duration>,
    /// This end has set the buffer: autotuning is off.
    taken: bool,
    /// The size asked for last, as reported.
    asked: u64,
    /// Before the buffer was raised, until the window is seen to have followed.
    unverified: Option<BeforeRaise>,
    /// The size that the kernel made smaller, until it is that large again or was repaired.
    fell_from: Option<u64>,
    /// Raising did not help.
    gave_up: bool,
    repairs: u32,
    repaired_at: Option<Duration>,
}

impl ReceiveBufferTuner {
    pub(super) fn on_sample(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        meter: &RateMeter,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if look.receive_buffer == 0 {
            return None;
        }
        self.observe(look, trip, meter);
        if let Some(action) = self.impose(look, trip, meter) {
            return Some(action);
        }
        if self.imposed().is_some() {
            // A window that is kept small cannot follow.
            self.unverified = None;
            return None;
        }
        if is_receive_buffer_backed_up(look) {
            return None;
        }
        self.verify(look, trip, caps)
            .or_else(|| self.repair_fall(look, caps))
            .or_else(|| self.grow(look, trip, meter, caps))
            .or_else(|| self.repair_stuck(look, trip, caps))
    }

    /// Sets or lifts a smaller window.
    fn impose(&mut self, look: &TcpSample, trip: Rtt, meter: &RateMeter) -> Option<BufferAction> {
        let action = self.backlog.on_sample(look, trip);
        if action.is_some() || self.backlog.in_force() || is_receive_buffer_backed_up(look) {
            return action;
        }
        self.clamp.on_sample(look, trip, meter)
    }

    /// Takes back a window that is kept small.
    pub(super) fn release(&mut self, look: &TcpSample) -> Option<BufferSetting> {
        let backlog = self.backlog.release(look);
        self.clamp.release(look).or(backlog)
    }

    /// Why the window is smaller than the buffer allows, if this end has made it so.
    pub(super) fn imposed(&self) -> Option<Bottleneck> {
        let sink = self.backlog.in_force().then_some(Bottleneck::ReceiverApp);
        sink.or(self.clamp.in_force().then_some(Bottleneck::Link))
    }

    /// The setting that holds this stream back for good, if its window does.
    pub(super) fn host_limit(
        &self,
        look: &TcpSample,
        caps: &HostBufferLimits,
    ) -> Option<HostLimit> {
        if look.max_receive_window > 0 && look.receive_window >= look.max_receive_window / 10 * 9 {
            return Some(HostLimit::WindowScale);
        }
        let at_end = self.taken || self.at_end(look, caps);
        let reachable = room(look, caps) > 0 && !self.gave_up;
        (at_end && !reachable).then_some(HostLimit::ReceiveBuffer)
    }

    /// Notes sizes.
    fn observe(&mut self, look: &TcpSample, trip: Rtt, meter: &RateMeter) {
        let before = self.fell_from.unwrap_or(self.buffer);
        self.fell_from = (look.receive_buffer < before / 10 * 9).then_some(before);
        if look.receive_buffer != self.buffer {
            self.buffer = look.receive_buffer;
            self.unchanged_since = look.at;
        }
        self.widest = self.widest.max(look.receive_window);
        self.full_since = if fills_receive_window(look, trip, meter.latest()) {
            self.full_since.or(Some(look.at))
        } else {
            None
        };
    }

    fn at_end(&self, look: &TcpSample, caps: &HostBufferLimits) -> bool {
        look.receive_buffer >= caps.max_unset_receive_buffer() / 10 * 9
    }

    fn is_full_for(&self, look: &TcpSample, time: Duration) -> bool {
        self.full_since
            .is_some_and(|since| look.at.saturating_sub(since) >= time)
    }

    /// A raised buffer is of use only when the window follows, which it does as data arrives.
    fn verify(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let before = self.unverified?;
        if look.receive_window > before.window / 100 * 105 {
            self.unverified = None;
            return None;
        }
        let time = look.at.saturating_sub(before.at);
        let come = look.bytes.saturating_sub(before.bytes);
        // A window of nothing is one that the kernel does not show.
        if look.receive_window == 0 || time < VERIFY.max(trip.smoothed * 2) || come < before.window
        {
            return None;
        }
        self.unverified = None;
        self.gave_up = true;
        self.taken = !caps.receive_autotuning;
        Some(BufferAction {
            change: caps
                .receive_autotuning
                .then_some(BufferSetting::RestoreAutotuning(before.window)),
            class: Bottleneck::ReceiveWindow,
            reason: format!(
                "the window stayed at {} although the buffer was raised to {}; left to the kernel from \
                 now on",
                show::bytes(look.receive_window),
                show::bytes(look.receive_buffer)
            ),
        })
    }

    /// Linux 6.17 to 7.0 may cut an autotuned buffer down to what it holds.
    fn repair_fall(&mut self, look: &TcpSample, caps: &HostBufferLimits) -> Option<BufferAction> {
        let before = self.fell_from?;
        if !self.may_repair(look, caps) {
            return None;
        }
        Some(self.repair(
            look,
            self.widest,
            &format!(
                "receive buffer fell from {} to {}, which the kernel does not make good",
                show::bytes(before),
                show::bytes(look.receive_buffer)
            ),
        ))
    }

    /// Autotuning grows only when a round trip brings more than any before, which a full window
    /// prevents once it has shrunk.
    fn repair_stuck(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let patience = STUCK.max(trip.smoothed * 4);
        let still = look.at.saturating_sub(self.unchanged_since) >= patience;
        if trip.is_local()
            || !still
            || !self.is_full_for(look, patience)
            || self.at_end(look, caps)
            || !self.may_repair(look, caps)
        {
            return None;
        }
        let window = ceiling(look).min(look.receive_window.saturating_mul(2));
        Some(self.repair(
            look,
            window,
            &format!(
                "the window of {} is full and autotuning stands still with a buffer of {}",
                show::bytes(look.receive_window),
                show::bytes(look.receive_buffer)
            ),
        ))
    }

    fn may_repair(&self, look: &TcpSample, caps: &HostBufferLimits) -> bool {
        let rested = self
            .repaired_at
            .is_none_or(|at| look.at.saturating_sub(at) >= REPAIR_PAUSE);
        caps.receive_autotuning && !self.taken && self.repairs < REPAIRS && rested
    }

    fn repair(&mut self, look: &TcpSample, window: u64, what: &str) -> BufferAction {
        self.repairs += 1;
        self.repaired_at = Some(look.at);
        self.fell_from = None;
        BufferAction {
            change: Some(BufferSetting::RestoreAutotuning(window)),
            class: Bottleneck::ReceiveWindow,
            reason: format!("{what}; given room for {} again", show::bytes(window)),
        }
    }

    /// Takes over where autotuning ends and SO_RCVBUF may go further.
    fn grow(
        &mut self,
        look: &TcpSample,
        trip: Rtt,
        meter: &RateMeter,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if self.gave_up || trip.is_local() || !(self.taken || self.at_end(look, caps)) {
            return None;
        }
        // The argument shall be twice what a round trip brings (DRS); four times, as reported.
        let paper = bytes_in(meter.best_recent(), trip.for_window()).saturating_mul(4);
        let wanted = if caps.receive_autotuning {
            // Autotuning has kept the buffer ahead of the path so far: only a full window is a
            // reason to end that, and only one that follows a reason to go on.
            if self.unverified.is_some() || !self.is_full_for(look, trip.smoothed * 2) {
                return None;
            }
            paper.max(look.receive_buffer.saturating_mul(2))
        } else {
            paper
        };
        let size = wanted.min(look.receive_buffer.saturating_add(room(look, caps)));
        if size < look.receive_buffer / 4 * 5 {
            return None;
        }
        if look.receive_buffer < self.asked / 10 * 9 {
            return Some(self.refused(look));
        }
        self.asked = size;
        let reason = self.reason_to_grow(look, meter.best_recent(), size, caps);
        self.taken = true;
        self.full_since = None;
        self.unverified = self.unverified.or(Some(BeforeRaise {
            at: look.at,
            bytes: look.bytes,
            window: look.receive_window,
        }));
        Some(BufferAction {
            change: Some(BufferSetting::ReceiveBuffer(size / 2)),
            class: Bottleneck::ReceiveWindow,
            reason,
        })
    }

    fn refused(&mut self, look: &TcpSample) -> BufferAction {
        self.gave_up = true;
        BufferAction {
            change: None,
            class: Bottleneck::ReceiveWindow,
            reason: format!(
                "receive buffer stays at {}: {} were asked for and not granted",
                show::bytes(look.receive_buffer),
                show::bytes(self.asked)
            ),
        }
    }

    fn reason_to_grow(
        &self,
        look: &TcpSample,
        rate: u64,
        size: u64,
        caps: &HostBufferLimits,
    ) -> String {
        let what = if !caps.receive_autotuning {
            "autotuning is off on this host"
        } else if self.taken {
            "its window is full again"
        } else {
            "it is all that autotuning gives (tcp_rmem), and its window is full"
        };
        let mut reason = format!(
            "receive buffer {} at {}: {what}; set to {}",
            show::bytes(look.receive_buffer),
            show::bits(rate.saturating_mul(8)),
            show::bytes(size)
        );
        if size >= most_usable(look) {
            reason.push_str(&format!(
                ", all that the connection's window scale can use (a window of {})",
                show::bytes(look.max_receive_window)
            ));
        }
        reason
    }
}

fn ceiling(look: &TcpSample) -> u64 {
    if look.max_receive_window == 0 {
        u64::MAX
    } else {
        look.max_receive_window
    }
}

/// The largest buffer whose window the connection can express: at least half of it is offered.
fn most_usable(look: &TcpSample) -> u64 {
    ceiling(look).saturating_mul(2)
}

/// By how much the buffer can be raised to some use.
fn room(look: &TcpSample, caps: &HostBufferLimits) -> u64 {
    let expressed = look.receive_window >= ceiling(look) / 10 * 9;
    caps.max_settable_receive
        .min(most_usable(look))
        .checked_sub(look.receive_buffer)
        .filter(|room| *room >= look.receive_buffer / 4 && !expressed)
        .unwrap_or(0)
}
