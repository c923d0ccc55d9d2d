//! Statistics of flows and of the queue.

use std::time::Duration;

use crate::tcp::{LimitedTimes, SenderStats};

/// Statistics of one flow from its start until now. The difference of two of them covers the time
/// between ([`FlowStats::since`]).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FlowStats {
    /// Time of these statistics, or the length of the interval that [`FlowStats::since`] computes.
    pub at: Duration,
    /// Payload that has arrived, without duplicates, bytes.
    pub delivered_bytes: u64,
    /// Statistics of the sender.
    pub sender: SenderStats,
    /// Segments that arrived more than once.
    pub duplicates: u64,
    /// Packets of this flow, including acknowledgements, that were dropped at a full queue.
    pub drops: u64,
    /// Packets of this flow, including acknowledgements, that were lost at random.
    pub losses: u64,
    /// Congestion window, segments.
    pub cwnd: f64,
    /// Slow-start threshold, segments; infinite before the first loss.
    pub ssthresh: f64,
    /// Window that the receiver advertises, bytes.
    pub receive_window: u64,
    /// Payload that is sent and not acknowledged, bytes.
    pub in_flight: u64,
    /// Time at which the last byte of a finite source was acknowledged.
    pub finished: Option<Duration>,
}

impl FlowStats {
    /// The difference from `earlier`. The windows, the data in flight, the smallest RTT and the finish time are not
    /// differences but the current values.
    pub fn since(&self, earlier: &Self) -> Self {
        let (now, then) = (&self.sender, &earlier.sender);
        // Counters only grow, so their differences count the interval. The smallest RTT of the interval
        // cannot be derived from two smallest values, so that of the whole flow stays.
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

    /// Payload per second, bit/s, over [`Self::at`]: since the start of the run, or in the interval of
    /// [`Self::since`].
    pub fn goodput(&self) -> f64 {
        let seconds = self.at.as_secs_f64();
        if seconds > 0.0 {
            self.delivered_bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }

    /// Mean of the RTT samples: one per acknowledgement, of segments that were sent once.
    pub fn mean_rtt(&self) -> Option<Duration> {
        let samples = self.sender.rtt_samples;
        (samples > 0).then(|| self.sender.rtt_total.div_f64(samples as f64))
    }

    /// Smallest RTT since the flow began; `None` before the first sample.
    pub fn min_rtt(&self) -> Option<Duration> {
        // `SenderStats::rtt_min` is zero until the first sample.
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

/// Queueing delay of packets at the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueingDelay {
    /// Number of packets that were neither dropped nor lost, including cross traffic.
    pub packets: u64,
    /// Sum of the delays.
    pub total: Duration,
    /// Longest delay.
    pub longest: Duration,
}

impl QueueingDelay {
    pub(super) fn record(&mut self, wait: Duration) {
        self.packets += 1;
        self.total += wait;
        self.longest = self.longest.max(wait);
    }

    /// Mean delay; zero before the first packet.
    pub fn mean(&self) -> Duration {
        if self.packets == 0 {
            return Duration::ZERO;
        }
        self.total.div_f64(self.packets as f64)
    }

    /// The difference from `earlier`; the longest delay is that of the whole run.
    pub fn since(&self, earlier: &Self) -> Self {
        // Like `rtt_min`, the longest delay of an interval cannot be derived from two of them.
        Self {
            packets: self.packets - earlier.packets,
            total: self.total.saturating_sub(earlier.total),
            longest: self.longest,
        }
    }
}
