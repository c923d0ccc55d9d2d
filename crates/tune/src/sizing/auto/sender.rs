//! Send buffer of one stream. Autotuning stops at `tcp_wmem`, of which two thirds can be in flight.
//! SO_SNDBUF may exceed that.
//!
//! The buffer is raised when it has been full for a round trip and the path shows no queue, or idles between
//! bursts. Waiting for that round trip costs almost nothing: meanwhile slow start lets the congestion window
//! grow to twice the bytes in flight (`tcp_is_cwnd_limited`). Raising at once would also raise the buffer
//! on paths that the old one fills exactly, and only the queue would grow.

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::super::host_limits::HostBufferLimits;
use super::action::BufferAction;
use super::host_limit::HostLimit;
use crate::limiter::Role;
use crate::observation::{
    Bottleneck, Rtt, StreamInterval, explains_rate_by_send_buffer, is_send_buffer_full,
};
use crate::sample::{TcpSample, max_in_flight};

/// Tuner of one stream's send buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendBufferTuner {
    /// A round trip that began with a full buffer, and the number of its samples with a full buffer.
    pressed: Option<(StreamInterval, u32)>,
    /// Number of consecutive such round trips with a queue and without losses.
    queued: u32,
    /// Size requested last, as reported.
    asked: Option<u64>,
    /// Whether the kernel granted less than its limits promised.
    refused: bool,
    /// Known size, as reported; until the first sample.
    known: Option<u64>,
}

impl SendBufferTuner {
    /// Sets the known size, bytes as reported.
    pub(super) fn set_known_buffer(&mut self, buffer: Option<u64>) {
        self.known = buffer;
    }

    pub(super) fn on_sample(
        &mut self,
        look: &TcpSample,
        rate: u64,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if let Some(action) = self.apply_known_buffer(look, caps) {
            return Some(action);
        }
        let spell = self.pressed(look)?;
        let trip = spell.rtt();
        let rate = rate.max(spell.stats().rate());
        if !explains_rate_by_send_buffer(look, trip, rate)
            || self.may_be_full(&spell)
            || !self.has_room(look, caps)
        {
            return None;
        }
        if let Some(asked) = self
            .asked
            .take_if(|asked| look.send_buffer < *asked / 10 * 9)
        {
            self.refused = true;
            return Some(BufferAction {
                change: None,
                class: Bottleneck::SendBuffer,
                reason: format!(
                    "send buffer stays at {}: the kernel did not grant {}",
                    show::bytes(look.send_buffer),
                    show::bytes(asked)
                ),
            });
        }
        let size = self.wanted(look, trip, rate, caps);
        let reason = self.reason(look, trip, rate, size);
        self.asked = Some(size);
        (self.pressed, self.queued) = (None, 0);
        Some(BufferAction {
            change: Some(BufferSetting::SendBuffer(size / 2)),
            class: Bottleneck::SendBuffer,
            reason,
        })
    }

    /// Applies the known size if autotuning would stay below it.
    fn apply_known_buffer(
        &mut self,
        look: &TcpSample,
        caps: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let size = self.known.take()?.min(caps.max_settable_send);
        if size <= caps.max_autotuned_send.max(look.send_buffer) {
            return None;
        }
        self.asked = Some(size);
        Some(BufferAction {
            change: Some(BufferSetting::SendBuffer(size / 2)),
            class: Bottleneck::Unknown,
            reason: format!(
                "send buffer of {} by earlier knowledge of this path; it was {}",
                show::bytes(size),
                show::bytes(look.send_buffer)
            ),
        })
    }

    /// The host setting that limits this stream permanently, given that its buffer is the bottleneck.
    pub(super) fn host_limit(
        &self,
        look: &TcpSample,
        caps: &HostBufferLimits,
    ) -> Option<HostLimit> {
        let growing = self.asked.is_none() && look.send_buffer < caps.max_autotuned_send / 4 * 3;
        (!growing && !self.has_room(look, caps)).then_some(HostLimit::SendBuffer)
    }

    /// Whether autotuning has reached its limit and this process may exceed it.
    fn has_room(&self, look: &TcpSample, caps: &HostBufferLimits) -> bool {
        // Autotuning grows in steps of the congestion window: above three quarters of its limit the next step
        // reaches the limit.
        let at_end = self.asked.is_some() || look.send_buffer >= caps.max_autotuned_send / 4 * 3;
        at_end
            && !self.refused
            && caps.max_settable_send > caps.max_autotuned_send
            && caps.max_settable_send > look.send_buffer / 10 * 11
    }

    /// A whole round trip in which the buffer was full in most samples. Single samples may miss that: the
    /// writer was just woken, or the last bytes are being paced out.
    fn pressed(&mut self, look: &TcpSample) -> Option<StreamInterval> {
        let waits = is_send_buffer_full(look);
        let Some((spell, waiting)) = &mut self.pressed else {
            self.pressed = waits.then(|| (StreamInterval::new(Role::Sender, look), 1));
            return None;
        };
        spell.on_sample(look);
        *waiting += u32::from(waits);
        let (spell, waiting) = (*spell, *waiting);
        let trip = spell.rtt();
        if spell.stats().time < trip.smoothed {
            return None;
        }
        self.pressed = waits.then(|| (StreamInterval::new(Role::Sender, look), 1));
        let pressed = waits && waiting * 2 >= spell.samples() && !trip.is_local();
        if !pressed {
            self.queued = 0;
        }
        pressed.then_some(spell)
    }

    /// Whether the path may be full. If packets queue, gaps between bursts show that the path has spare capacity.
    /// But the gaps in the first round trip may be those of slow start, and after losses those of
    /// acknowledgements that waited for retransmissions.
    fn may_be_full(&mut self, spell: &StreamInterval) -> bool {
        if !spell.rtt().has_queue() {
            self.queued = 0;
            return false;
        }
        if spell.stats().has_losses() {
            self.queued = 0;
            return true;
        }
        self.queued = self.queued.saturating_add(1);
        self.queued < 2 || spell.fills_path()
    }

    /// New size: three times the bandwidth-delay product so far, and at least twice the present size, or four
    /// times during slow start, which would soon fill twice the size. Data that is not in flight stays with the
    /// program (TCP_NOTSENT_LOWAT), so that a buffer that is too large costs nothing.
    fn wanted(&self, look: &TcpSample, trip: Rtt, rate: u64, caps: &HostBufferLimits) -> u64 {
        let factor = if look.in_slow_start { 4 } else { 2 };
        bytes_in(rate, trip.min)
            .saturating_mul(3)
            .max(look.send_buffer.saturating_mul(factor))
            .max(caps.max_autotuned_send)
            .min(caps.max_settable_send)
    }

    fn reason(&self, look: &TcpSample, trip: Rtt, rate: u64, size: u64) -> String {
        let (buffer, size) = (show::bytes(look.send_buffer), show::bytes(size));
        if self.asked.is_none() {
            return format!(
                "send buffer {buffer} is the limit of autotuning (tcp_wmem) and keeps {} in flight; \
                 set to {size}",
                show::bytes(max_in_flight(look.send_buffer))
            );
        }
        format!(
            "send buffer {buffer} is full with {} at {} and nothing queues on the path; set to {size}",
            show::bits(rate.saturating_mul(8)),
            show::time(trip.smoothed)
        )
    }
}
