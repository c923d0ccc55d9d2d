//! A queue of our own is drained, and kept short by sending no faster than the path carries.
//!
//! Whose a queue is shows when we send less for a moment: ours falls as fast as that says, while
//! others fill theirs up again. Draining costs nothing, for the bottleneck is busy until the queue is
//! empty. Afterwards the pace follows the bottleneck's rate, with a queue of a tenth of the round trip
//! to keep it busy. When none is left at the known rate, the path has become faster; when one grows
//! against the pace, others have come, and TCP competes as if nobody paced.

use std::time::Duration;

use super::transfer_meter::TransferInterval;
use crate::observation::Rtt;

/// Part of the path's rate that is sent while the queue is drained.
const DRAIN_RATE: f64 = 0.75;
/// A queue shorter than this does no harm.
pub(super) const HARMLESS_QUEUE: Duration = Duration::from_millis(5);
/// Steps towards a faster path in turn, each twice the one before up to the largest, until the pace is
/// lifted.
const CLIMBS: i32 = 6;
/// The first step, and the largest.
const CLIMB: (f64, f64) = (0.005, 0.03);
/// A pace within this part of what is wanted stays.
const CLOSE: f64 = 0.003;
/// A pace that is not used up for so many sights in turn is not what limits.
const SLACK: u32 = 6;
/// The path's rate is used from this part of it on.
const USED: f64 = 0.97;
/// Where some streams leave a part of their pace, all get so much more at a time, up to so many
/// times, and lose this part again when a queue grows.
const MAX_SURPLUS_STEP: f64 = 1.15;
const MAX_SURPLUS: f64 = 4.0;
const SURPLUS_DECAY: f64 = 0.95;
/// From this part of it on a pace may stay that is not used up.
const NEARLY: f64 = 0.9;
/// Below this part of the first rate somebody else must be there.
const OWN: f64 = 0.85;

/// How fast the streams send.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Pacing {
    /// As TCP lets them.
    #[default]
    Free,
    /// Slower than the path, to see whose the queue is.
    Draining(QueueDrain),
    /// As fast as the path.
    Paced(PathPace),
}

/// A queue that is being drained.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueDrain {
    from: Duration,
    trip: Rtt,
    /// Bytes per second with a full queue.
    rate: u64,
}

/// Whose queue it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueOwner {
    Ours,
    CrossTraffic,
}

impl QueueDrain {
    /// Begins now, with this round trip and rate (bytes per second).
    pub(super) fn new(at: Duration, trip: Rtt, rate: u64) -> Self {
        Self {
            from: at,
            trip,
            rate,
        }
    }

    /// Pace meanwhile, bytes per second.
    pub(super) fn pace(&self) -> u64 {
        scaled(self.rate, DRAIN_RATE)
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Findings on the round trip so far.
    pub(super) fn on_rtt(&self, at: Duration, trip: Rtt) -> Option<QueueOwner> {
        let queue = |trip: Rtt| trip.smoothed.saturating_sub(trip.min);
        let (before, now) = (queue(self.trip), queue(trip));
        if now <= trip.min / 8 + Duration::from_micros(500) {
            return Some(QueueOwner::Ours);
        }
        // It takes a round trip until slower sending is seen here.
        let time = at
            .saturating_sub(self.from)
            .saturating_sub(self.trip.smoothed);
        let fall = time.mul_f64(1.0 - DRAIN_RATE).min(before);
        let fell = before.saturating_sub(now);
        let telling = time >= (self.trip.min * 2).max(before).max(HARMLESS_QUEUE * 4);
        let late = time >= before * 8 + self.trip.min * 4;
        ((telling && fell < fall / 2) || late).then_some(QueueOwner::CrossTraffic)
    }
}

/// A pace that follows the bottleneck.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathPace {
    pub(super) since: Duration,
    /// Most that is sent, bytes per second.
    pace: u64,
    /// The bottleneck's rate as last seen, bytes per second.
    carried: u64,
    first: u64,
    /// The same when packets last queued: without the steps towards a faster path.
    busy: u64,
    climbs: i32,
    slack: u32,
    /// Sights with a full queue in turn.
    crowded: u32,
    /// How many times more the streams may send than they shall: some leave a part of theirs.
    surplus: f64,
}

/// Outcome of a pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaceUpdate {
    /// It stays.
    Keep,
    /// Another one, bytes per second.
    Set(u64),
    /// Others came: compete.
    CrossTraffic,
    /// The path has become faster.
    PathFaster,
    /// Something else limits.
    Unused,
}

impl PathPace {
    /// The queue was ours; with one the path carried `rate`, bytes per second.
    pub(super) fn new(at: Duration, rate: u64) -> Self {
        Self {
            since: at,
            pace: rate,
            carried: rate,
            first: rate,
            busy: rate,
            climbs: 0,
            slack: 0,
            crowded: 0,
            surplus: 1.0,
        }
    }

    /// Bytes per second.
    pub(super) fn pace(&self) -> u64 {
        self.pace
    }

    /// The bottleneck had packets waiting when it was last seen: the streams can use their pace.
    pub(super) fn is_used(&self) -> bool {
        self.slack == 0 && self.climbs == 0
    }

    pub(super) fn on_interval(&mut self, sight: &TransferInterval) -> PaceUpdate {
        let base = sight.rtt.min;
        let short = base / 25 + Duration::from_micros(500);
        let queue = sight.queueing_delay();
        let settled = self.since + sight.time + sight.rtt.smoothed;
        if sight.at < settled {
            return PaceUpdate::Keep;
        }
        let congested = sight.rtt.is_congested() && queue > HARMLESS_QUEUE;
        self.crowded = if congested { self.crowded + 1 } else { 0 };
        if self.crowded >= 2 || (congested && queue > base) {
            if self.surplus <= 1.0 {
                return PaceUpdate::CrossTraffic;
            }
            // What was lent is in the queue: that comes back first.
            (self.surplus, self.crowded) = (1.0, 0);
            return self.set(0.9);
        }
        if queue < short {
            return self.probe_faster(sight.rate);
        }
        (self.climbs, self.slack) = (0, 0);
        let target = base / 10 + Duration::from_millis(1);
        // The bottleneck is busy: what arrives is what it carries. (Of a queue that is nearly gone that
        // is not sure.)
        if !sight.is_recovering && (queue >= target || sight.rate > self.carried) {
            self.carried = self.carried / 2 + sight.rate / 2;
            self.busy = self.carried;
        }
        if (self.carried as f64) < self.first as f64 * OWN {
            return PaceUpdate::CrossTraffic;
        }
        let excess = queue.as_secs_f64() - target.as_secs_f64();
        let correction = excess / (sight.time.as_secs_f64() * 2.0).max(0.05);
        if queue > target * 2 {
            self.surplus = (self.surplus * SURPLUS_DECAY).max(1.0);
        }
        self.set(1.0 - correction.clamp(-0.01, 0.1))
    }

    /// There is no queue: a little faster each time, if that is used.
    fn probe_faster(&mut self, rate: u64) -> PaceUpdate {
        if (rate as f64) < self.carried as f64 * USED {
            self.slack += 1;
            if self.slack >= SLACK {
                return self.accept_slack(rate);
            }
            // Each stream has its part of the pace: some could use more than that, others do not.
            let missing = self.carried as f64 / rate.max(1) as f64;
            self.surplus = (self.surplus * missing.min(MAX_SURPLUS_STEP)).min(MAX_SURPLUS);
            return self.set(1.0);
        }
        self.slack = 0;
        if self.climbs >= CLIMBS {
            return PaceUpdate::PathFaster;
        }
        let step = (CLIMB.0 * 2_f64.powi(self.climbs)).min(CLIMB.1);
        self.climbs += 1;
        self.carried = scaled(self.carried.max(self.rate_without_surplus()), 1.0 + step);
        self.set(1.0)
    }

    /// The pace has not been used up for long: no harm while the rate is nearly the path's.
    fn accept_slack(&mut self, rate: u64) -> PaceUpdate {
        if (rate as f64) < self.busy as f64 * NEARLY {
            return PaceUpdate::Unused;
        }
        (self.climbs, self.slack) = (0, 0);
        self.carried = self.busy;
        self.set(1.0)
    }

    /// The pace without what was lent.
    fn rate_without_surplus(&self) -> u64 {
        scaled(self.pace, 1.0 / self.surplus)
    }

    /// So many times what the path carries.
    fn set(&mut self, times: f64) -> PaceUpdate {
        let pace = scaled(self.carried, times * self.surplus);
        if (self.pace.abs_diff(pace) as f64) < self.pace as f64 * CLOSE {
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
