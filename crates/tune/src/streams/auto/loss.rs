//! Finds out whether the path itself loses packets: repeatedly, and without a queue, unlike at the end of a slow start.

use std::collections::BTreeMap;
use std::time::Duration;

use super::estimate::EstimatedLoss;
use super::thresholds::LIMITS;
use super::transfer_meter::TransferCounters;
use crate::observation::Rtt;
use crate::sample::{StreamId, TcpSample};

/// Whether packets queue at this moment, on a long path also for less than a tenth of its round trip.
pub(super) fn shows_queue(rtt: Rtt) -> bool {
    rtt.has_queue() || rtt.smoothed.saturating_sub(rtt.min) > LIMITS.harmless_queue
}

/// Losses of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct LosingStream {
    retransmits: u64,
    /// Last loss that counts as a separate one.
    at: Option<Duration>,
}

/// Counts losses since the last change of a setting.
#[derive(Debug, Clone, Default)]
pub(super) struct LossEstimator {
    streams: BTreeMap<StreamId, LosingStream>,
    /// Losses count from these counters on.
    from: Option<TransferCounters>,
    /// Time of the first and the last loss that counts, and their number.
    first: Duration,
    last: Duration,
    events: u32,
    /// Samples, and those of them with a queue.
    samples: u32,
    queued_samples: u32,
    /// Last time at which packets queued.
    queue_seen: Option<Duration>,
    /// Losses belong to an overrun until then.
    recovering_until: Duration,
}

impl LossEstimator {
    /// Takes the samples of all streams; `counters` are those of the whole transfer.
    pub(super) fn on_sample(
        &mut self,
        counters: TransferCounters,
        samples: &[TcpSample],
        rtt: Rtt,
    ) {
        let at = counters.at;
        let has_queue = rtt.has_queue();
        if shows_queue(rtt) {
            self.queue_seen = Some(at);
        }
        self.samples = self.samples.saturating_add(1);
        self.queued_samples += u32::from(has_queue);
        let from = *self.from.get_or_insert(counters);
        if at.saturating_sub(from.at) >= LIMITS.loss_window.at(rtt.min) {
            self.restart(counters);
        }
        self.streams
            .retain(|id, _| samples.iter().any(|tcp| tcp.stream == *id));
        for tcp in samples {
            // Retransmissions before the first sample belong to an earlier transfer.
            let known = LosingStream {
                retransmits: tcp.retransmits,
                at: None,
            };
            let stream = self.streams.entry(tcp.stream).or_insert(known);
            if tcp.retransmits <= stream.retransmits {
                continue;
            }
            stream.retransmits = tcp.retransmits;
            // TCP reduces its window once for the losses of a round trip (RFC 5681 §3.2, RFC 6675 §5).
            if stream
                .at
                .is_none_or(|last| at.saturating_sub(last) >= rtt.smoothed)
            {
                stream.at = Some(at);
                self.on_event(counters, rtt);
            }
        }
    }

    fn on_event(&mut self, counters: TransferCounters, rtt: Rtt) {
        let at = counters.at;
        // A queue overflows a round trip before the sender notices.
        let is_overrun = self
            .queue_seen
            .is_some_and(|seen| seen.saturating_add(rtt.smoothed * 2) >= at);
        if is_overrun {
            self.recovering_until = at.saturating_add(LIMITS.recovery.at(rtt.min));
        }
        if at < self.recovering_until {
            self.restart(counters);
            return;
        }
        if self.events == 0 {
            // The ratio is that behind the first loss: a path may begin to lose packets after a long time without.
            self.restart(counters);
            self.first = at;
        }
        self.last = at;
        self.events = self.events.saturating_add(1);
    }

    /// Begins a new count: a setting has changed, or an overrun is being repaired.
    pub(super) fn restart(&mut self, counters: TransferCounters) {
        self.from = Some(counters);
        (self.events, self.samples, self.queued_samples) = (0, 0, 0);
    }

    /// Whether something was lost without a queue since the count began.
    pub(super) fn has_events(&self) -> bool {
        self.events > 0
    }

    /// The losses of the path, as far as they are known.
    pub(super) fn estimate(&self, now: TransferCounters, rtt: Rtt, segment: u64) -> EstimatedLoss {
        let Some(from) = self.from else {
            return EstimatedLoss::None;
        };
        if now.at < self.recovering_until {
            return EstimatedLoss::WithQueue;
        }
        let since = now.since(&from);
        let ratio = since.loss_ratio();
        let is_random = self.events >= LIMITS.loss_events
            // Losses of one moment are one event, whatever number of streams they hit.
            && self.last.saturating_sub(self.first) >= rtt.min / 2
            && now.at.saturating_sub(self.first) >= rtt.min
            // A path that is full now and then loses by its queue.
            && u64::from(self.queued_samples) * 4 <= u64::from(self.samples)
            && !rtt.is_congested()
            && (LIMITS.least_loss..=LIMITS.most_loss).contains(&ratio);
        if !is_random {
            return EstimatedLoss::None;
        }
        // Two standard deviations of a Poisson count, relative to the count.
        let lost = (since.retransmitted as f64 / segment.max(1) as f64).max(1.0);
        let spread = (lost.sqrt() * 2.0 + 1.0) / lost;
        EstimatedLoss::Random {
            ratio,
            high: (ratio * (1.0 + spread)).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1448;

    /// Estimate after steps of a round trip of 50 ms: queue in ms, and the segments that each stream has lost so far.
    fn estimate(steps: &[(u64, [u64; 4])]) -> EstimatedLoss {
        let mut losses = LossEstimator::default();
        let mut found = EstimatedLoss::None;
        for (step, (queue, lost)) in (1_u32..).zip(steps) {
            let at = Duration::from_millis(50) * step;
            let counters = TransferCounters {
                at,
                bytes_moved: u64::from(step) * 400 * SEGMENT,
                bytes_retransmitted: lost.iter().sum::<u64>() * SEGMENT,
            };
            let rtt = Rtt {
                min: Duration::from_millis(50),
                smoothed: Duration::from_millis(50 + queue),
            };
            let sample = |(stream, lost): (u64, &u64)| TcpSample {
                stream,
                retransmits: *lost,
                ..TcpSample::default()
            };
            let samples: Vec<TcpSample> = (0..).zip(lost).map(sample).collect();
            losses.on_sample(counters, &samples, rtt);
            found = losses.estimate(counters, rtt, SEGMENT);
        }
        found
    }

    #[test]
    fn losses_of_several_streams_without_a_queue_are_the_paths() {
        let steps = [
            (0, [0; 4]),
            (0, [1, 1, 0, 0]),
            (1, [1, 1, 1, 0]),
            (0, [2, 1, 1, 1]),
        ];
        let EstimatedLoss::Random { ratio, high } = estimate(&steps) else {
            unreachable!("{:?}", estimate(&steps));
        };
        assert!(ratio < high && (0.002..0.01).contains(&ratio));
        // One event of all streams is none of the path's.
        assert_eq!(estimate(&steps[..2]), EstimatedLoss::None);
        assert_eq!(
            estimate(&[(0, [0; 4]), (0, [1; 4]), (0, [1; 4]), (0, [1; 4])]),
            EstimatedLoss::None
        );
    }

    #[test]
    fn losses_behind_a_queue_and_those_of_an_overrun_are_not() {
        let steps = [
            (0, [0; 4]),
            (12, [0; 4]),
            (0, [1, 1, 0, 0]),
            (0, [2, 1, 1, 0]),
            (0, [2, 2, 1, 1]),
        ];
        assert_eq!(estimate(&steps), EstimatedLoss::WithQueue);
        let burst = [(0, [0; 4]), (0, [60; 4]), (0, [90; 4]), (0, [120; 4])];
        assert_eq!(estimate(&burst), EstimatedLoss::None);
    }

    #[test]
    fn losses_of_an_earlier_transfer_do_not_count() {
        assert_eq!(
            estimate(&[(0, [9; 4]), (0, [9; 4]), (0, [9; 4])]),
            EstimatedLoss::None
        );
    }
}
