//! Statistics of a flow.

use std::time::Duration;

use crate::tcp::{LimitedTimes, SenderStats};

/// One flow, from its start until now. The difference of two of them tells of the time between
/// ([`FlowStats::since`]).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FlowStats {
    /// The time this was taken.
    pub at: Duration,
    /// Payload that arrived, copies not counted, bytes.
    pub delivered_bytes: u64,
    /// Counts and sights of the sender.
    pub sender: SenderStats,
    /// Segments that arrived more than once.
    pub duplicates: u64,
    /// Packets of this flow, acknowledgements included, that a full queue dropped.
    pub drops: u64,
    /// Packets of this flow, acknowledgements included, that were lost at random.
    pub losses: u64,
    /// Congestion window, segments.
    pub cwnd: f64,
    /// Slow-start threshold, segments; infinite before the first loss.
    pub ssthresh: f64,
    /// When the last byte of a source that ends had been acknowledged.
    pub finished: Option<Duration>,
}

impl FlowStats {
    /// Difference from `earlier`; windows, smallest round trip and end are those of now.
    pub fn since(&self, earlier: &Self) -> Self {
        let (now, then) = (&self.sender, &earlier.sender);
        Self {
            at: self.at.saturating_sub(earlier.at),
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            sender: SenderStats {
                segments: now.segments - then.segments,
                retransmits: now.retransmits - then.retransmits,
                timeouts: now.timeouts - then.timeouts,
                recoveries: now.recoveries - then.recoveries,
                acked_bytes: now.acked_bytes - then.acked_bytes,
                rtt_samples: now.rtt_samples - then.rtt_samples,
                rtt_total: now.rtt_total.saturating_sub(then.rtt_total),
                rtt_min: now.rtt_min,
                limited_times: waits_since(&now.limited_times, &then.limited_times),
            },
            duplicates: self.duplicates - earlier.duplicates,
            drops: self.drops - earlier.drops,
            losses: self.losses - earlier.losses,
            ..*self
        }
    }

    /// Payload per second, bit/s, over [`Self::at`]: since the start of the run, or of the interval
    /// that [`Self::since`] cut out.
    pub fn goodput(&self) -> f64 {
        let seconds = self.at.as_secs_f64();
        if seconds > 0.0 {
            self.delivered_bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }

    /// Mean of the round trips that were measured: one an acknowledgement, of segments sent once.
    pub fn mean_rtt(&self) -> Option<Duration> {
        let samples = self.sender.rtt_samples;
        (samples > 0).then(|| self.sender.rtt_total.div_f64(samples as f64))
    }

    /// Smallest round trip since the flow began.
    pub fn min_rtt(&self) -> Option<Duration> {
        (!self.sender.rtt_min.is_zero()).then_some(self.sender.rtt_min)
    }
}

fn waits_since(now: &LimitedTimes, then: &LimitedTimes) -> LimitedTimes {
    LimitedTimes {
        busy: now.busy.saturating_sub(then.busy),
        rwnd_limited: now.rwnd_limited.saturating_sub(then.rwnd_limited),
        sndbuf_limited: now.sndbuf_limited.saturating_sub(then.sndbuf_limited),
    }
}

/// How long packets waited for the bottleneck, behind those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueingDelay {
    /// Packets that arrived, cross traffic included.
    pub packets: u64,
    /// Sum of their waits.
    pub total: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl QueueingDelay {
    pub(super) fn note(&mut self, wait: Duration) {
        self.packets += 1;
        self.total += wait;
        self.longest = self.longest.max(wait);
    }

    /// The mean wait; zero before the first packet.
    pub fn mean(&self) -> Duration {
        if self.packets == 0 {
            return Duration::ZERO;
        }
        self.total.div_f64(self.packets as f64)
    }

    /// Difference from `earlier`; the longest is that of the whole run.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets - earlier.packets,
            total: self.total.saturating_sub(earlier.total),
            longest: self.longest,
        }
    }
}
