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
    full_round: Option<(StreamInterval, u32)>,
    /// Number of consecutive such round trips with a queue and without losses.
    queued_rounds: u32,
    /// Size requested last, as reported.
    requested: Option<u64>,
    /// Whether the kernel granted less than its limits promised.
    refused: bool,
    /// Known size, as reported; until the first sample.
    known_buffer: Option<u64>,
}

impl SendBufferTuner {
    /// Sets the known size, bytes as reported.
    pub(super) fn set_known_buffer(&mut self, buffer: Option<u64>) {
        self.known_buffer = buffer;
    }

    pub(super) fn on_sample(
        &mut self,
        sample: &TcpSample,
        rate: u64,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        if let Some(action) = self.apply_known_buffer(sample, limits) {
            return Some(action);
        }
        let interval = self.full_round(sample)?;
        let rtt = interval.rtt();
        let rate = rate.max(interval.stats().rate());
        if !explains_rate_by_send_buffer(sample, rtt, rate)
            || self.check_full_path(&interval)
            || !self.can_grow(sample, limits)
        {
            return None;
        }
        if let Some(requested) = self
            .requested
            // The kernel rounds sizes: up to 10 % less is not a refusal.
            .take_if(|requested| sample.send_buffer < *requested / 10 * 9)
        {
            self.refused = true;
            return Some(BufferAction {
                setting: None,
                bottleneck: Bottleneck::SendBuffer,
                reason: format!(
                    "send buffer stays at {}: the kernel did not grant {}",
                    show::bytes(sample.send_buffer),
                    show::bytes(requested)
                ),
            });
        }
        let size = self.new_size(sample, rtt, rate, limits);
        let reason = self.reason(sample, rtt, rate, size);
        self.requested = Some(size);
        (self.full_round, self.queued_rounds) = (None, 0);
        Some(BufferAction {
            // The kernel doubles the value given to setsockopt (socket(7)).
            setting: Some(BufferSetting::SendBuffer(size / 2)),
            bottleneck: Bottleneck::SendBuffer,
            reason,
        })
    }

    /// Applies the known size if autotuning would stay below it.
    fn apply_known_buffer(
        &mut self,
        sample: &TcpSample,
        limits: &HostBufferLimits,
    ) -> Option<BufferAction> {
        let size = self.known_buffer.take()?.min(limits.max_settable_send);
        if size <= limits.max_autotuned_send.max(sample.send_buffer) {
            return None;
        }
        self.requested = Some(size);
        Some(BufferAction {
            setting: Some(BufferSetting::SendBuffer(size / 2)),
            bottleneck: Bottleneck::Unknown,
            reason: format!(
                "send buffer of {} by earlier knowledge of this path; it was {}",
                show::bytes(size),
                show::bytes(sample.send_buffer)
            ),
        })
    }

    /// The host setting that limits this stream permanently, given that its buffer is the bottleneck.
    pub(super) fn host_limit(
        &self,
        sample: &TcpSample,
        limits: &HostBufferLimits,
    ) -> Option<HostLimit> {
        let is_growing =
            self.requested.is_none() && sample.send_buffer < limits.max_autotuned_send / 4 * 3;
        (!is_growing && !self.can_grow(sample, limits)).then_some(HostLimit::SendBuffer)
    }

    /// Whether autotuning has reached its limit and this process may exceed it.
    fn can_grow(&self, sample: &TcpSample, limits: &HostBufferLimits) -> bool {
        // Autotuning grows in steps of the congestion window: above three quarters of its limit the next step
        // reaches the limit.
        let is_at_autotuning_limit =
            self.requested.is_some() || sample.send_buffer >= limits.max_autotuned_send / 4 * 3;
        is_at_autotuning_limit
            && !self.refused
            && limits.max_settable_send > limits.max_autotuned_send
            // Less than 10 % more is not worth ending autotuning.
            && limits.max_settable_send > sample.send_buffer / 10 * 11
    }

    /// A whole round trip in which the buffer was full in most samples. Single samples may miss that: the
    /// writer was just woken, or the last bytes are being paced out.
    fn full_round(&mut self, sample: &TcpSample) -> Option<StreamInterval> {
        let is_full = is_send_buffer_full(sample);
        let Some((interval, full_samples)) = &mut self.full_round else {
            self.full_round = is_full.then(|| (StreamInterval::new(Role::Sender, sample), 1));
            return None;
        };
        interval.on_sample(sample);
        *full_samples += u32::from(is_full);
        let (interval, full_samples) = (*interval, *full_samples);
        let rtt = interval.rtt();
        if interval.stats().time < rtt.smoothed {
            return None;
        }
        self.full_round = is_full.then(|| (StreamInterval::new(Role::Sender, sample), 1));
        let full_round = is_full && full_samples * 2 >= interval.samples() && !rtt.is_local();
        if !full_round {
            self.queued_rounds = 0;
        }
        full_round.then_some(interval)
    }

    /// Counts rounds with a queue; returns whether the path may be full. If packets queue, gaps between bursts show that the path has spare capacity.
    /// But the gaps in the first round trip may be those of slow start, and after losses those of
    /// acknowledgements that waited for retransmissions.
    fn check_full_path(&mut self, interval: &StreamInterval) -> bool {
        if !interval.rtt().has_queue() {
            self.queued_rounds = 0;
            return false;
        }
        if interval.stats().has_losses() {
            self.queued_rounds = 0;
            return true;
        }
        self.queued_rounds = self.queued_rounds.saturating_add(1);
        self.queued_rounds < 2 || interval.fills_path()
    }

    /// New size: three times the bandwidth-delay product so far, and at least twice the present size, or four
    /// times during slow start, which would soon fill twice the size. Data that is not in flight stays with the
    /// program (TCP_NOTSENT_LOWAT), so that a buffer that is too large costs nothing.
    fn new_size(&self, sample: &TcpSample, rtt: Rtt, rate: u64, limits: &HostBufferLimits) -> u64 {
        let factor = if sample.in_slow_start { 4 } else { 2 };
        bytes_in(rate, rtt.min)
            .saturating_mul(3)
            .max(sample.send_buffer.saturating_mul(factor))
            .max(limits.max_autotuned_send)
            .min(limits.max_settable_send)
    }

    fn reason(&self, sample: &TcpSample, rtt: Rtt, rate: u64, size: u64) -> String {
        let (buffer, size) = (show::bytes(sample.send_buffer), show::bytes(size));
        if self.requested.is_none() {
            return format!(
                "send buffer {buffer} is the limit of autotuning (tcp_wmem) and keeps {} in flight; \
                 set to {size}",
                show::bytes(max_in_flight(sample.send_buffer))
            );
        }
        format!(
            "send buffer {buffer} is full with {} at {} and nothing queues on the path; set to {size}",
            show::bits(rate.saturating_mul(8)),
            show::time(rtt.smoothed)
        )
    }
}
