//! Trial of one change: compares the goodput after it with that before it.

use std::time::Duration;

use units::show;

use super::transfer_meter::{TransferCounters, TransferInterval};
use crate::observation::Bottleneck;

/// Reason to add streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthReason {
    /// A window or a buffer limits each stream.
    FullBuffers,
    /// Losses limit each stream.
    Loss,
    /// The congestion windows grow slowly on a path with spare capacity.
    SlowGrowth,
}

/// The change that is tried.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TrialKind {
    /// More streams.
    MoreStreams {
        from: u32,
        to: u32,
        growth: GrowthReason,
    },
    /// Fewer streams.
    FewerStreams { from: u32, to: u32 },
    /// Another congestion control; `loss` is the loss ratio before, 0..=1.
    CongestionControl { from: String, to: String, loss: f64 },
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TrialOutcome {
    pub(super) is_kept: bool,
    /// Bytes per second, before and after.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Loss ratio during the measurement, 0..=1.
    pub(super) loss: f64,
}

impl TrialOutcome {
    /// Rate after as a multiple of the rate before.
    pub(super) fn gain(&self) -> f64 {
        self.after as f64 / self.before.max(1) as f64
    }

    /// `94 Mbit/s instead of 48 Mbit/s`.
    pub(super) fn describe_gain(&self) -> String {
        format!(
            "{} instead of {}",
            show::bits(self.after.saturating_mul(8)),
            show::bits(self.before.saturating_mul(8))
        )
    }
}

/// Streams that were closed after a successful trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemovedStreams {
    pub(super) from: u32,
    /// Rate with them, bytes per second.
    pub(super) rate: u64,
    pub(super) at: Duration,
}

/// A trial under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TuningTrial {
    pub(super) kind: TrialKind,
    before: u64,
    started: Duration,
    settle_time: Duration,
    measure_time: Duration,
    /// Time after which a clear result ends the measurement.
    early_result_after: Duration,
    /// Counters at the start of the measurement, once the change has settled.
    from: Option<TransferCounters>,
    repeats: u32,
}

/// Smallest gain for which a change is kept.
const MIN_GAIN: f64 = 1.1;
/// Gain of more streams under losses from which on still more streams are tried.
pub(super) const LARGE_GAIN: f64 = 1.3;
/// Gain of another congestion control from which on losses of its own start are tolerated for longer.
const VERY_LARGE_GAIN: f64 = 1.5;
/// Largest number of repetitions of a measurement during slow start.
const MAX_REPEATS: u32 = 4;
/// Longest wait for a stream that is being opened.
const MAX_OPENING_TIME: Duration = Duration::from_secs(3);

impl TuningTrial {
    /// Begins at `at`, against a rate of `before`, bytes per second, on a path with round trip `rtt`.
    pub(super) fn new(kind: TrialKind, before: u64, at: Duration, rtt: Duration) -> Self {
        let at_least =
            |round_trips: u32, ms: u64| (rtt * round_trips).max(Duration::from_millis(ms));
        // New streams need about four round trips of slow start; a new congestion control takes over windows
        // that are not its own. A rate limited by losses or a queue varies, and takes longer to measure than one
        // limited by windows.
        let (settle_time, measure_time) = match &kind {
            TrialKind::MoreStreams { growth, .. } => match growth {
                GrowthReason::FullBuffers => (at_least(4, 200), at_least(2, 100)),
                GrowthReason::SlowGrowth => (at_least(4, 300), at_least(4, 400)),
                GrowthReason::Loss => (at_least(4, 200), at_least(10, 1000)),
            },
            TrialKind::FewerStreams { .. } => (at_least(4, 200), at_least(8, 1000)),
            TrialKind::CongestionControl { .. } => (at_least(6, 400), at_least(20, 1000)),
        };
        let early_result_after = match &kind {
            TrialKind::MoreStreams {
                growth: GrowthReason::Loss,
                ..
            } => at_least(4, 200),
            _ => measure_time / 3,
        };
        Self {
            kind,
            before,
            started: at,
            settle_time,
            measure_time,
            early_result_after,
            from: None,
            repeats: 0,
        }
    }

    /// Takes an interval; returns the outcome at the end of the trial.
    pub(super) fn on_interval(
        &mut self,
        interval: &TransferInterval,
        now: TransferCounters,
        opening: u32,
    ) -> Option<TrialOutcome> {
        let waited = interval.at.saturating_sub(self.started);
        let Some(from) = self.from else {
            let is_settled =
                waited >= self.settle_time && (opening == 0 || waited >= MAX_OPENING_TIME);
            // The transition itself is not part of the measurement.
            self.from = is_settled.then_some(now);
            return None;
        };
        let time = now.at.saturating_sub(from.at);
        let outcome = self.outcome(from, now);
        if time < self.measure_time {
            return self.is_clear(time, interval, &outcome).then_some(outcome);
        }
        if !outcome.is_kept && (self.may_still_grow(interval) || self.may_settle(&outcome)) {
            self.repeats += 1;
            self.from = Some(now);
            return None;
        }
        Some(outcome)
    }

    fn outcome(&self, from: TransferCounters, now: TransferCounters) -> TrialOutcome {
        let after = now.since(&from).rate();
        let mut outcome = TrialOutcome {
            is_kept: false,
            before: self.before,
            after,
            loss: now.since(&from).loss_ratio(),
        };
        let gain = outcome.gain();
        outcome.is_kept = match &self.kind {
            // Without a queue more streams take nothing from cross traffic, so that a small gain is enough.
            TrialKind::MoreStreams {
                growth: GrowthReason::Loss,
                ..
            } => gain >= 1.05,
            TrialKind::MoreStreams { .. } => gain >= MIN_GAIN,
            // 2 % is within the noise of a measurement.
            TrialKind::FewerStreams { .. } => gain >= 0.98,
            // Losses that the new control causes itself hit cross traffic as well.
            TrialKind::CongestionControl { loss, .. } => {
                gain >= MIN_GAIN && outcome.loss <= loss * 2.0 + 0.01
            }
        };
        outcome
    }

    /// Whether the result is clear before the measurement ends.
    fn is_clear(
        &self,
        time: Duration,
        interval: &TransferInterval,
        outcome: &TrialOutcome,
    ) -> bool {
        let gain = outcome.gain();
        time >= self.early_result_after
            && match &self.kind {
                // During slow start the rate does not show yet what the losses allow.
                TrialKind::MoreStreams {
                    growth: GrowthReason::Loss,
                    ..
                } => outcome.is_kept && gain >= LARGE_GAIN && !interval.in_slow_start,
                TrialKind::MoreStreams { .. } | TrialKind::CongestionControl { .. } => {
                    outcome.is_kept && gain >= 1.5
                }
                TrialKind::FewerStreams { .. } => gain < 0.85,
            }
    }

    /// Whether added streams may still gain rate: they are in slow start.
    fn may_still_grow(&self, interval: &TransferInterval) -> bool {
        let adds_streams = matches!(self.kind, TrialKind::MoreStreams { .. });
        adds_streams
            && self.repeats < MAX_REPEATS
            && (interval.in_slow_start || interval.bottleneck == Bottleneck::SlowStart)
    }

    /// Whether another congestion control that gains may still lose less. Filling the path for the first time
    /// overflows its queue, and the retransmissions last longer the more was gained.
    fn may_settle(&self, outcome: &TrialOutcome) -> bool {
        let changes_control = matches!(self.kind, TrialKind::CongestionControl { .. });
        let patience = if outcome.gain() >= VERY_LARGE_GAIN {
            MAX_REPEATS
        } else {
            1
        };
        changes_control && self.repeats < patience && outcome.gain() >= MIN_GAIN
    }

    /// Counters at the start of the measurement.
    pub(super) fn measured_from(&self) -> Option<TransferCounters> {
        self.from
    }
}
