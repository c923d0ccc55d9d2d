//! The estimate of the path, the only input of decisions.

use std::time::Duration;

use units::show;

use super::loss::LossEstimator;
use super::thresholds::LIMITS;
use super::transfer_meter::{TransferCounters, TransferInterval};
use super::transfer_sample::TransferSample;
use crate::observation::{Bottleneck, Rtt};
use crate::sample::TcpSample;

/// Payload of a segment if no stream shows it, bytes.
const SEGMENT: u64 = 1448;

/// How well a value is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The value is at least this: something else has limited so far.
    AtLeast,
    /// An earlier transfer has measured it.
    Earlier,
    /// Measured by this transfer.
    Measured,
}

/// A value and how well it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Estimated<T> {
    /// The value.
    pub(super) value: T,
    /// How well it is known.
    pub(super) confidence: Confidence,
}

/// Whose packets queue at the bottleneck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum QueueOwner {
    /// Those of this transfer: the queue shrinks when it sends less.
    Mine,
    /// Those of other traffic as well.
    Others,
    /// It was not found out yet.
    #[default]
    Unknown,
}

/// A queue that filled against the pace: others came, or the path became slower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intrusion {
    /// When, since the start of the transfer.
    pub(super) at: Duration,
    /// The pace that filled the path before, bytes per second.
    pub(super) rate: u64,
    /// A drain has found the queue to be the transfer's own since, at much less than that rate.
    pub(super) is_doubted: bool,
}

/// Losses on the path.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum EstimatedLoss {
    /// None, or too few to tell.
    #[default]
    None,
    /// A queue has overflowed.
    WithQueue,
    /// The path loses packets at any rate.
    Random {
        /// Part of the segments that is lost, 0..=1.
        ratio: f64,
        /// Two standard deviations more.
        high: f64,
    },
}

/// Knowledge of the path of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PathEstimate {
    /// Payload that the bottleneck carries for this transfer, bytes per second.
    pub(super) bottleneck_bandwidth: Estimated<u64>,
    /// Round trip without a queue.
    pub(super) base_rtt: Duration,
    /// Time that packets queue, over the last interval.
    pub(super) queue_delay: Duration,
    /// Whose queue that is.
    pub(super) queue_owner: QueueOwner,
    /// Losses.
    pub(super) loss: EstimatedLoss,
    /// Resource that limits the transfer.
    pub(super) bottleneck: Bottleneck,
}

impl PathEstimate {
    /// `losses of 1.0 % without a queue (round trip 51 ms, minimum 50 ms)`; empty without such losses.
    pub(super) fn describe_loss(&self, rtt: Rtt) -> String {
        let EstimatedLoss::Random { ratio, .. } = self.loss else {
            return String::new();
        };
        format!(
            "losses of {} without a queue (round trip {}, minimum {})",
            per_cent(ratio),
            show::time(rtt.smoothed),
            show::time(rtt.min)
        )
    }
}

/// `1.0 %`.
pub(super) fn per_cent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent >= 0.1 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.3} %")
    }
}

/// Updates the estimate with each sample and each interval.
#[derive(Debug, Default)]
pub(super) struct PathEstimator {
    pub(super) path: PathEstimate,
    pub(super) losses: LossEstimator,
    /// Consecutive intervals with this bottleneck.
    pub(super) run: u32,
    /// Largest rate of this transfer, bytes per second.
    pub(super) best_rate: u64,
    /// Last time at which packets queued, segments were lost, and a stream was in its first slow start.
    pub(super) queue_seen: Duration,
    pub(super) loss_seen: Option<Duration>,
    pub(super) slow_start_seen: Duration,
    /// Largest window or buffer of a stream so far, bytes, and when it last grew: streams are not added while the kernel still
    /// enlarges it.
    pub(super) largest_window: u64,
    pub(super) window_grown: Duration,
    /// The last time that a queue filled against the pace.
    pub(super) intrusion: Option<Intrusion>,
    /// Rate of the last pacing that held, bytes per second: the path has carried it without a queue.
    pub(super) proved_rate: u64,
}

impl PathEstimator {
    /// Takes a sample of all streams.
    pub(super) fn on_sample(
        &mut self,
        sample: &TransferSample<'_>,
        now: TransferCounters,
        rtt: Rtt,
    ) {
        self.losses.on_sample(now, sample.streams, rtt);
        self.path.loss = self.losses.estimate(now, rtt, segment(sample.streams));
        self.path.base_rtt = rtt.min;
        let window = |tcp: &TcpSample| match self.path.bottleneck {
            Bottleneck::SendBuffer => tcp.send_buffer,
            _ => tcp.peer_window,
        };
        let window = sample.streams.iter().map(window).max().unwrap_or_default();
        // Growth below 5 % is noise.
        if window / 21 > self.largest_window / 20 {
            (self.largest_window, self.window_grown) = (window, sample.at);
        }
    }

    /// Takes an interval.
    pub(super) fn on_interval(&mut self, interval: &TransferInterval) {
        let is_same = is_same_bottleneck(self.path.bottleneck, interval.bottleneck);
        self.run = if is_same {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.path.bottleneck = interval.bottleneck;
        self.path.queue_delay = interval.queueing_delay();
        let at = interval.at;
        let has_queue = interval.rtt.has_queue();
        if has_queue {
            self.queue_seen = at;
        }
        if interval.stats.has_losses() {
            self.loss_seen = Some(at);
        }
        if interval.in_slow_start {
            self.slow_start_seen = at;
        }
        let (known, rate) = (&mut self.path.bottleneck_bandwidth, interval.rate());
        if !interval.is_recovering {
            self.best_rate = self.best_rate.max(rate);
        }
        // A queue keeps the bottleneck busy, unless an end limits. While losses are repaired, the count of acknowledged bytes jumps.
        if has_queue
            && !interval.bottleneck.is_at_an_end()
            && !interval.is_recovering
            && self.path.queue_owner != QueueOwner::Others
        {
            *known = Estimated {
                value: rate,
                confidence: Confidence::Measured,
            };
        } else if rate > known.value && !interval.is_recovering {
            // The rate that was measured with a queue was not all.
            let is_more = known.confidence == Confidence::Unknown
                || rate as f64 >= known.value as f64 * LIMITS.worthwhile_gain;
            known.value = rate;
            if is_more {
                known.confidence = Confidence::AtLeast;
            }
        }
    }

    /// The path is another one, or its rate is: what was measured of it is no more than a lower bound.
    pub(super) fn forget_bandwidth(&mut self) {
        self.path.bottleneck_bandwidth.confidence = Confidence::AtLeast;
    }

    /// Rate to expect soon, bytes per second: while a stream is in slow start, the rate that an earlier transfer reached counts if
    /// it is higher.
    pub(super) fn expected_rate(&self, rate: u64, samples: &[TcpSample]) -> u64 {
        let known = self.path.bottleneck_bandwidth;
        let is_early = samples.iter().any(|tcp| tcp.in_slow_start);
        if is_early && known.confidence == Confidence::Earlier {
            rate.max(known.value)
        } else {
            rate
        }
    }
}

/// Payload of a segment, bytes.
pub(super) fn segment(samples: &[TcpSample]) -> u64 {
    let known = samples.iter().map(|tcp| tcp.mss).find(|mss| *mss > 0);
    known.unwrap_or(SEGMENT)
}

/// Whether two bottlenecks count as the same: losses come and go while they limit the congestion window.
fn is_same_bottleneck(before: Bottleneck, now: Bottleneck) -> bool {
    let is_cwnd_limit = |bottleneck| matches!(bottleneck, Bottleneck::Loss | Bottleneck::Cwnd);
    before == now || (is_cwnd_limit(before) && is_cwnd_limit(now))
}
