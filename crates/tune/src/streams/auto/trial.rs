//! One change, tried out: what came after it against what was before.

use std::time::Duration;

use super::transfer_meter::{TransferCounters, TransferInterval};
use crate::observation::Bottleneck;

/// Why there are to be more streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthReason {
    /// A window or a buffer limits each.
    FullBuffers,
    /// Losses limit each.
    Loss,
    /// Their windows open slowly on a path that has room.
    SlowGrowth,
}

/// Kind of change that is tried.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TrialKind {
    /// More streams.
    MoreStreams {
        from: u32,
        to: u32,
        why: GrowthReason,
    },
    /// Fewer streams.
    FewerStreams { from: u32, to: u32 },
    /// Another congestion control; what was lost before, 0..=1.
    CongestionControl { from: String, to: String, loss: f64 },
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrialOutcome {
    pub(super) is_kept: bool,
    /// Bytes per second, before and after.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Part that was lost meanwhile, 0..=1.
    pub(super) loss: f64,
}

impl TrialOutcome {
    /// After as a multiple of before.
    pub(super) fn gain(&self) -> f64 {
        self.after as f64 / self.before.max(1) as f64
    }
}

/// A trial under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TuningTrial {
    pub(super) kind: TrialKind,
    before: u64,
    begun: Duration,
    settle: Duration,
    measure: Duration,
    /// Time after which a result beyond doubt may end the measurement.
    soon: Duration,
    /// Where the measurement begins, when all has settled.
    from: Option<TransferCounters>,
    again: u32,
}

/// Least gain of a change.
const MIN_GAIN: f64 = 1.1;
/// Gain of more streams under losses that is large, from here on: there may be more to gain.
pub(super) const LARGE_GAIN: f64 = 1.3;
/// Another congestion control that gains so much is not soon given up for what its own start has lost.
const MANIFOLD: f64 = 1.5;
/// A measurement of streams that were still starting is repeated so often.
const REPEATS: u32 = 4;
/// A stream that does not open in this time is not waited for.
const OPENING: Duration = Duration::from_secs(3);

impl TuningTrial {
    /// Begins now, against a rate of `before`, bytes per second, on a path with round trip `rtt`.
    pub(super) fn new(kind: TrialKind, before: u64, at: Duration, rtt: Duration) -> Self {
        let least = |trips: u32, ms: u64| (rtt * trips).max(Duration::from_millis(ms));
        let (settle, measure) = match &kind {
            TrialKind::MoreStreams { why, .. } => match why {
                GrowthReason::FullBuffers => (least(4, 200), least(2, 100)),
                GrowthReason::SlowGrowth => (least(4, 300), least(4, 400)),
                GrowthReason::Loss => (least(4, 200), least(10, 1000)),
            },
            TrialKind::FewerStreams { .. } => (least(4, 200), least(8, 1000)),
            TrialKind::CongestionControl { .. } => (least(6, 400), least(20, 1000)),
        };
        let soon = match &kind {
            TrialKind::MoreStreams {
                why: GrowthReason::Loss,
                ..
            } => least(4, 200),
            _ => measure / 3,
        };
        Self {
            kind,
            before,
            begun: at,
            settle,
            measure,
            soon,
            from: None,
            again: 0,
        }
    }

    /// Takes a sight; an outcome when there is one.
    pub(super) fn on_interval(
        &mut self,
        sight: &TransferInterval,
        now: TransferCounters,
        opening: u32,
    ) -> Option<TrialOutcome> {
        let waited = sight.at.saturating_sub(self.begun);
        let Some(from) = self.from else {
            let settled = waited >= self.settle && (opening == 0 || waited >= OPENING);
            self.from = settled.then_some(now);
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        let outcome = self.outcome(from, now);
        if time < self.measure {
            return self.is_clear(time, sight, &outcome).then_some(outcome);
        }
        if !outcome.is_kept && (self.may_still_grow(sight) || self.may_settle(&outcome)) {
            self.again += 1;
            self.from = Some(now);
            return None;
        }
        Some(outcome)
    }

    fn outcome(&self, from: TransferCounters, now: TransferCounters) -> TrialOutcome {
        let after = now.rate_since(&from);
        let mut outcome = TrialOutcome {
            is_kept: false,
            before: self.before,
            after,
            loss: now.loss_ratio_since(&from),
        };
        let gain = outcome.gain();
        outcome.is_kept = match &self.kind {
            TrialKind::MoreStreams {
                why: GrowthReason::Loss,
                ..
            } => gain >= 1.05,
            TrialKind::MoreStreams { .. } => gain >= MIN_GAIN,
            TrialKind::FewerStreams { .. } => gain >= 0.98,
            // Losses that the new one makes itself are others' losses, too.
            TrialKind::CongestionControl { loss, .. } => {
                gain >= MIN_GAIN && outcome.loss <= loss * 2.0 + 0.01
            }
        };
        outcome
    }

    /// There is no doubt before the time is up.
    fn is_clear(&self, time: Duration, sight: &TransferInterval, outcome: &TrialOutcome) -> bool {
        let gain = outcome.gain();
        time >= self.soon
            && match &self.kind {
                // A slow start is no measure of what losses leave.
                TrialKind::MoreStreams {
                    why: GrowthReason::Loss,
                    ..
                } => outcome.is_kept && gain >= LARGE_GAIN && !sight.in_slow_start,
                TrialKind::MoreStreams { .. } | TrialKind::CongestionControl { .. } => {
                    outcome.is_kept && gain >= 1.5
                }
                TrialKind::FewerStreams { .. } => gain < 0.85,
            }
    }

    /// Streams were added that are still in slow start, or wait for their windows.
    fn may_still_grow(&self, sight: &TransferInterval) -> bool {
        let more = matches!(self.kind, TrialKind::MoreStreams { .. });
        more && self.again < REPEATS
            && (sight.in_slow_start || sight.bottleneck == Bottleneck::SlowStart)
    }

    /// Another congestion control gains, and lost much: filling the path for the first time overruns
    /// its queue, which is no measure of what is lost from then on. All of that has to be sent again:
    /// the more was gained, the longer it may take.
    fn may_settle(&self, outcome: &TrialOutcome) -> bool {
        let control = matches!(self.kind, TrialKind::CongestionControl { .. });
        let patience = if outcome.gain() >= MANIFOLD {
            REPEATS
        } else {
            1
        };
        control && self.again < patience && outcome.gain() >= MIN_GAIN
    }

    /// Where its measurement began.
    pub(super) fn measured_from(&self) -> Option<TransferCounters> {
        self.from
    }
}
