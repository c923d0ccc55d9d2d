//! Drains the transfer's own queue and keeps it short by pacing at the rate of the path.
//!
//! A short period below the path's rate shows whose queue it is: the transfer's own queue shrinks as
//! computed, cross traffic refills its own. Draining costs no goodput, since the bottleneck stays busy until
//! the queue is empty. Then the pacing rate follows the rate of the bottleneck, with a queue of a tenth of the
//! round trip to keep it busy. If the queue disappears at that rate, the path has become faster. If it grows
//! against the pace, cross traffic has arrived, and pacing ends so that TCP competes normally.

use std::time::Duration;

use super::thresholds::LIMITS;
use super::transfer_meter::TransferInterval;
use crate::observation::Rtt;

/// Sending rate while the queue is drained, as a part of the path's rate.
const DRAIN_RATE: f64 = 0.75;
/// Part of the path's rate from which on a drain must change the round trip.
const VISIBLE_SHARE: f64 = 0.3;
/// Part of the path's rate that leaves nothing to others.
const WHOLE_PATH: f64 = 0.9;
/// Consecutive rate increases without a queue after which pacing ends: the path has become faster.
const MAX_INCREASES: i32 = 6;
/// Smallest and largest rate increase; each is twice the one before.
const INCREASE: (f64, f64) = (0.005, 0.03);
/// Relative change of the pacing rate that is too small to apply.
const MIN_CHANGE: f64 = 0.003;
/// Consecutive intervals with an unused pacing rate after which something else must limit.
const MAX_UNUSED_INTERVALS: u32 = 6;
/// Part of the path's rate from which on it counts as used.
const USED_SHARE: f64 = 0.97;
/// Where some streams do not use their part of the pacing rate, all streams get a surplus: it grows by up
/// to this factor at a time, to at most [`MAX_SURPLUS`], and shrinks by [`SURPLUS_DECAY`] when a queue grows.
const MAX_SURPLUS_STEP: f64 = 1.15;
const MAX_SURPLUS: f64 = 4.0;
const SURPLUS_DECAY: f64 = 0.95;
/// Part of the path's rate from which on an unused pacing rate may stay.
const ACCEPTED_SHARE: f64 = 0.9;
/// Part of the first rate below which cross traffic must have arrived.
const OWN_SHARE: f64 = 0.85;

/// A queue that is being drained, and the state before that.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueDrain {
    from: Duration,
    rtt: Rtt,
    /// Rate with a full queue, bytes per second.
    rate: u64,
}

/// Result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainResult {
    /// The queue was the transfer's own.
    Own,
    /// Others keep it filled.
    Shared,
    /// Nothing changed at all: the path is longer.
    NoQueue,
}

impl QueueDrain {
    /// Begins at `at`, with this round trip and rate (bytes per second).
    pub(super) fn new(at: Duration, rtt: Rtt, rate: u64) -> Self {
        Self {
            from: at,
            rtt,
            rate,
        }
    }

    /// Pacing rate while the queue drains, bytes per second.
    pub(super) fn pace(&self) -> u64 {
        scaled(self.rate, DRAIN_RATE)
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Result, as soon as the round trip shows it. `capacity`: rate that the path carried alone before, bytes per second; zero if
    /// unknown.
    pub(super) fn on_rtt(&self, at: Duration, rtt: Rtt, capacity: u64) -> Option<DrainResult> {
        let queue = |rtt: Rtt| rtt.smoothed.saturating_sub(rtt.min);
        let (before, now) = (queue(self.rtt), queue(rtt));
        // The queue is gone. Timestamps and pacing timers leave some jitter.
        if now <= rtt.min / 8 + Duration::from_micros(500) {
            return Some(DrainResult::Own);
        }
        // Slower sending shows here after one round trip.
        let time = at
            .saturating_sub(self.from)
            .saturating_sub(self.rtt.smoothed);
        // At 75 % of the path's rate an own queue shrinks by a quarter of the time that passes.
        let expected_fall = time.mul_f64(1.0 - DRAIN_RATE).min(before);
        let measured_fall = before.saturating_sub(now);
        let is_conclusive = time
            >= (self.rtt.min * 2)
                .max(before)
                .max(LIMITS.harmless_queue * 4);
        let is_late = time >= before * 8 + self.rtt.min * 4;
        // A queue that holds a fair part of the packets of this transfer becomes shorter without some of them.
        let is_unchanged = measured_fall <= (before / 20).max(Duration::from_millis(1));
        let part = self.rate as f64 / capacity.max(1) as f64;
        let is_longer = part >= WHOLE_PATH || (is_unchanged && part >= VISIBLE_SHARE);
        // Half of the computed fall is the margin for measurement errors.
        let falls = measured_fall >= expected_fall / 2;
        if is_conclusive && !falls && capacity > 0 && is_longer {
            return Some(DrainResult::NoQueue);
        }
        ((is_conclusive && !falls) || is_late).then_some(DrainResult::Shared)
    }
}

/// Pacing rate that follows the bottleneck.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathPace {
    pub(super) since: Duration,
    /// Pacing rate in force, bytes per second.
    pace: u64,
    /// Estimate of the bottleneck's rate, bytes per second, including steps towards a faster path.
    estimate: u64,
    initial_rate: u64,
    /// The estimate when packets last queued.
    queued_rate: u64,
    increases: i32,
    unused_intervals: u32,
    /// Consecutive intervals with a full queue.
    congested_intervals: u32,
    /// Factor on the pacing rate that makes up for streams that do not use their part.
    surplus: f64,
}

/// Answer to an interval under pacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaceUpdate {
    /// The pacing rate stays.
    Keep,
    /// New pacing rate, bytes per second.
    Set(u64),
    /// Cross traffic arrived, or the path became slower: pacing ends.
    CrossTraffic,
    /// The path became faster: pacing ends.
    PathFaster,
    /// Something else limits: pacing ends.
    Unused,
}

impl PathPace {
    /// Begins at the rate that the path carried with a queue, bytes per second.
    pub(super) fn new(at: Duration, rate: u64) -> Self {
        Self {
            since: at,
            pace: rate,
            estimate: rate,
            initial_rate: rate,
            queued_rate: rate,
            increases: 0,
            unused_intervals: 0,
            congested_intervals: 0,
            surplus: 1.0,
        }
    }

    /// Pacing rate, bytes per second.
    pub(super) fn pace(&self) -> u64 {
        self.pace
    }

    /// Estimate of the path's rate, bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.queued_rate
    }

    /// Whether packets queued in the last interval, so that the streams use their pacing rate.
    pub(super) fn is_used(&self) -> bool {
        self.unused_intervals == 0 && self.increases == 0
    }

    pub(super) fn on_interval(&mut self, interval: &TransferInterval) -> PaceUpdate {
        let min_rtt = interval.rtt.min;
        // Below this queueing delay the bottleneck may be idle at times.
        let idle_below = min_rtt / 25 + Duration::from_micros(500);
        let queue = interval.queueing_delay();
        // The interval must lie fully after the start, and its effect shows a round trip later.
        let settled_at = self.since + interval.stats.time + interval.rtt.smoothed;
        if interval.at < settled_at {
            return PaceUpdate::Keep;
        }
        let congested = interval.rtt.is_congested() && queue > LIMITS.harmless_queue;
        self.congested_intervals = if congested {
            self.congested_intervals + 1
        } else {
            0
        };
        // One congested interval may be a burst; a queue longer than the path itself is not.
        if self.congested_intervals >= 2 || (congested && queue > min_rtt) {
            if self.surplus <= 1.0 {
                return PaceUpdate::CrossTraffic;
            }
            // The surplus may be what fills the queue: it is taken back first.
            (self.surplus, self.congested_intervals) = (1.0, 0);
            return self.set(0.9);
        }
        if queue < idle_below {
            return self.probe_faster(interval.rate());
        }
        (self.increases, self.unused_intervals) = (0, 0);
        let target = min_rtt / 10 + Duration::from_millis(1);
        // A queue keeps the bottleneck busy, so that the measured rate is the rate of the bottleneck. With
        // a nearly empty queue that is uncertain, unless the rate is higher than the estimate.
        if !interval.is_recovering && (queue >= target || interval.rate() > self.estimate) {
            self.estimate = self.estimate / 2 + interval.rate() / 2;
            self.queued_rate = self.estimate;
        }
        if (self.estimate as f64) < self.initial_rate as f64 * OWN_SHARE {
            return PaceUpdate::CrossTraffic;
        }
        let excess = queue.as_secs_f64() - target.as_secs_f64();
        let correction = excess / (interval.stats.time.as_secs_f64() * 2.0).max(0.05);
        if queue > target * 2 {
            self.surplus = (self.surplus * SURPLUS_DECAY).max(1.0);
        }
        // The rate falls quickly and rises slowly: a queue that grows costs others, one that shrinks
        // costs nothing for two intervals.
        self.set(1.0 - correction.clamp(-0.01, 0.1))
    }

    /// Increases the rate a little when no packets queue and the present rate is used.
    fn probe_faster(&mut self, rate: u64) -> PaceUpdate {
        if (rate as f64) < self.estimate as f64 * USED_SHARE {
            self.unused_intervals += 1;
            if self.unused_intervals >= MAX_UNUSED_INTERVALS {
                return self.accept_slack(rate);
            }
            // Every stream has an equal part of the pacing rate: some could use more, others use less.
            let missing = self.estimate as f64 / rate.max(1) as f64;
            self.surplus = (self.surplus * missing.min(MAX_SURPLUS_STEP)).min(MAX_SURPLUS);
            return self.set(1.0);
        }
        self.unused_intervals = 0;
        if self.increases >= MAX_INCREASES {
            return PaceUpdate::PathFaster;
        }
        let increase = (INCREASE.0 * 2_f64.powi(self.increases)).min(INCREASE.1);
        // Growing steps find a much faster path soon without overrunning one that is only a little
        // faster.
        self.increases += 1;
        self.estimate = scaled(
            self.estimate.max(self.rate_without_surplus()),
            1.0 + increase,
        );
        self.set(1.0)
    }

    /// Keeps a pacing rate that has been unused for long, if the rate is close to the path's.
    fn accept_slack(&mut self, rate: u64) -> PaceUpdate {
        if (rate as f64) < self.queued_rate as f64 * ACCEPTED_SHARE {
            return PaceUpdate::Unused;
        }
        (self.increases, self.unused_intervals) = (0, 0);
        self.estimate = self.queued_rate;
        self.set(1.0)
    }

    /// Pacing rate without the surplus, bytes per second.
    fn rate_without_surplus(&self) -> u64 {
        scaled(self.pace, 1.0 / self.surplus)
    }

    /// Sets the pacing rate to a multiple of the estimate.
    fn set(&mut self, times: f64) -> PaceUpdate {
        let pace = scaled(self.estimate, times * self.surplus);
        // Every change costs a system call per stream.
        if (self.pace.abs_diff(pace) as f64) < self.pace as f64 * MIN_CHANGE {
            return PaceUpdate::Keep;
        }
        self.pace = pace;
        PaceUpdate::Set(pace)
    }
}

/// A rate times a factor that is not negative.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn scaled(rate: u64, factor: f64) -> u64 {
    (rate as f64 * factor) as u64
}
