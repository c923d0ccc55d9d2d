//! The send buffer. Autotuning stops at `tcp_wmem`, of which two thirds are in flight; SO_SNDBUF
//! may go further.
//!
//! The buffer is raised when it has been full for a round trip and the path still shows no queue, or
//! gaps between what arrives. Waiting for that round trip costs next to nothing, because meanwhile
//! slow start lets the congestion window grow to twice what is in flight (`tcp_is_cwnd_limited`);
//! raising at once would also raise it on paths that the old buffer fills exactly, and there only
//! queues would grow.

use units::{bytes_in, show};

use super::super::BufferSetting;
use super::super::host_limits::HostBufferLimits;
use super::{BufferAction, HostLimit};
use crate::observation::{
    Bottleneck, Rtt, StreamInterval, explains_rate_by_send_buffer, is_send_buffer_full,
};
use crate::sample::TcpSample;
use crate::sample::max_in_flight;

/// One stream's send buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendBufferTuner {
    /// A round trip that began with the writer waiting for room, and how many looks found it so.
    pressed: Option<(StreamInterval, u32)>,
    /// How often in turn such a round trip has had queues and no losses.
    queued: u32,
    /// The size asked for last, as reported.
    asked: Option<u64>,
    /// The kernel granted less than it said it would.
    refused: bool,
    /// The size that is known to be right, as reported; until the first look.
    known: Option<u64>,
}

impl SendBufferTuner {
    /// A size that is known to be right, bytes as reported.
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
        let rate = rate.max(spell.rate());
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
                    "send buffer stays at {}: {} were asked for and not granted",
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

    /// Sets what is known to be right, where autotuning would stop short of it.
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
                "a send buffer of {} is known to be right for this path; it was {}",
                show::bytes(size),
                show::bytes(look.send_buffer)
            ),
        })
    }

    /// The setting that holds this stream back for good, if its buffer does.
    pub(super) fn host_limit(
        &self,
        look: &TcpSample,
        caps: &HostBufferLimits,
    ) -> Option<HostLimit> {
        let growing = self.asked.is_none() && look.send_buffer < caps.max_autotuned_send / 4 * 3;
        (!growing && !self.has_room(look, caps)).then_some(HostLimit::SendBuffer)
    }

    /// Autotuning is at its end, and this process may go on.
    fn has_room(&self, look: &TcpSample, caps: &HostBufferLimits) -> bool {
        let at_end = self.asked.is_some() || look.send_buffer >= caps.max_autotuned_send / 4 * 3;
        at_end
            && !self.refused
            && caps.max_settable_send > caps.max_autotuned_send
            && caps.max_settable_send > look.send_buffer / 10 * 11
    }

    /// A whole round trip in which the writer waited in most looks. Some miss it: it has just been
    /// woken, or its last bytes are being paced out.
    fn pressed(&mut self, look: &TcpSample) -> Option<StreamInterval> {
        let waits = is_send_buffer_full(look);
        let Some((spell, waiting)) = &mut self.pressed else {
            self.pressed = waits.then(|| (StreamInterval::new(look), 1));
            return None;
        };
        spell.on_sample(look);
        *waiting += u32::from(waits);
        let (spell, waiting) = (*spell, *waiting);
        let trip = spell.rtt();
        if spell.time() < trip.smoothed {
            return None;
        }
        self.pressed = waits.then(|| (StreamInterval::new(look), 1));
        let pressed = waits && waiting * 2 >= spell.samples() && !trip.is_local();
        if !pressed {
            self.queued = 0;
        }
        pressed.then_some(spell)
    }

    /// Whether there may be nothing to gain. Where packets queue, gaps between bursts tell that the
    /// path has room, but the first round trip may still have those of slow start, and one after
    /// losses those of acknowledgements that waited for the lost.
    fn may_be_full(&mut self, spell: &StreamInterval) -> bool {
        if !spell.rtt().has_queue() {
            self.queued = 0;
            return false;
        }
        if spell.has_retransmits() {
            self.queued = 0;
            return true;
        }
        self.queued = self.queued.saturating_add(1);
        self.queued < 2 || spell.fills_path()
    }

    /// Three times the bandwidth-delay product as seen so far, and at least twice as much as
    /// before, or four times while slow start would soon fill that too. What is not in flight stays
    /// with the program (TCP_NOTSENT_LOWAT), so that a buffer too large costs nothing.
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
                "send buffer {buffer} is all that autotuning gives (tcp_wmem), it keeps {} in flight; \
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
