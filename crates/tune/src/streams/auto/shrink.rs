//! Streams that nothing is lost without are given back.

use std::time::Duration;

use units::{bytes_in, show};

use super::grow::describe_gain;
use super::pacing::Pacing;
use super::transfer_meter::TransferInterval;
use super::trial::{TrialKind, TrialOutcome};
use super::{AutoTuner, TransferDecision, TransferSample, TransferSetting};
use crate::congestion::is_loss_tolerant;
use crate::observation::Bottleneck;

/// A trial takes about two seconds; it must be worth it.
const MIN_TIME_LEFT: Duration = Duration::from_secs(5);
/// A number of streams that was found to be needed is left alone for so long the first time.
const INITIAL_COOLDOWN: Duration = Duration::from_secs(20);

/// Part of the rate below which streams given back are missed: losses leave each stream less than it had at first.
const RATE_DROP: f64 = 0.93;
/// Until then.
const RESTORE_WITHIN: Duration = Duration::from_secs(60);

/// Streams that were given back.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemovedStreams {
    from: u32,
    /// With them, bytes per second.
    rate: u64,
    at: Duration,
}

impl AutoTuner {
    /// Takes streams back that were given up too early.
    pub(super) fn restore_removed_streams(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(given) = self.removed_streams else {
            return;
        };
        let since = sight.at.saturating_sub(given.at);
        let time = (sight.rtt.smoothed * 20).max(Duration::from_secs(3));
        if since > RESTORE_WITHIN.max(time * 2) {
            self.removed_streams = None;
            return;
        }
        if since < time || sight.rtt.has_queue() {
            return;
        }
        let then = self.meter.counters_at(sight.at.saturating_sub(time));
        let rate = self.meter.counters().rate_since(&then);
        if rate as f64 >= given.rate as f64 * RATE_DROP {
            return;
        }
        let to = given.from.min(self.stream_cap);
        self.removed_streams = None;
        self.needed_streams = (to, sight.at + RESTORE_WITHIN);
        self.cooldowns
            .fewer_streams
            .fail(sight.at, INITIAL_COOLDOWN);
        if to <= self.streams {
            return;
        }
        let reason = format!(
            "{} streams carry {} by now, and {to} carried {}: back to {to}",
            self.streams,
            show::bits(rate.saturating_mul(8)),
            show::bits(given.rate.saturating_mul(8))
        );
        self.streams = to;
        self.unchanged_since = sight.at;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Tries with fewer: half of them, or a quarter where half are too many.
    pub(super) fn try_fewer_streams(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // Where each stream is limited by itself, fewer carry less, unless packets queue.
        let alone =
            matches!(sight.bottleneck, Bottleneck::Loss | Bottleneck::Cwnd) && !self.is_paced();
        if alone && !sight.rtt.has_queue() && !is_loss_tolerant(scene.congestion_control) {
            return;
        }
        if matches!(self.pacing, Pacing::Paced(paced) if !paced.is_used()) {
            return;
        }
        let (trips, time) = if alone { (20, 3) } else { (8, 1) };
        let steady = (sight.rtt.smoothed * trips).max(Duration::from_secs(time));
        let worth = bytes_in(sight.rate, MIN_TIME_LEFT.max(sight.rtt.smoothed * 20));
        let since = if self.is_paced() {
            self.unchanged_since
        } else {
            self.unchanged_since.max(self.last_slow_start)
        };
        let soon = sight.at.saturating_sub(since) < steady;
        let late = scene.bytes_left.is_some_and(|left| left < worth);
        if soon || late {
            return;
        }
        if !self.cooldowns.fewer_streams.is_over(sight.at) || self.bottleneck_run.1 < 2 {
            return;
        }
        // What half of them have in flight can be missed at once only where as much waits in a queue,
        // or where the network does not limit.
        let spare =
            sight.queueing_delay() >= sight.rtt.min || sight.bottleneck == Bottleneck::SenderApp;
        let part = if self.cooldowns.fewer_streams.failures() == 0 && spare && !self.is_paced() {
            self.streams / 2
        } else {
            self.streams / 4
        };
        let to = self
            .streams
            .saturating_sub(part.max(1))
            .max(self.stream_floor(sight.at));
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "more streams do not help here: {to} instead of {} if {} stand",
            self.streams,
            show::bits(sight.rate.saturating_mul(8))
        );
        let from = self.streams;
        self.begin_trial(TrialKind::FewerStreams { from, to }, sight);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Fewest streams that may do.
    fn stream_floor(&self, at: Duration) -> u32 {
        let (needed, until) = self.needed_streams;
        let needed = if at < until { needed } else { 1 };
        self.limits.min_streams.max(needed).min(self.stream_cap)
    }

    /// The pace was lifted in the middle of a trial, so that what was measured is void: what was
    /// given back may be what is missing.
    pub(super) fn cancel_trial(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(TrialKind::FewerStreams { from, to }) = self.trial.take().map(|trial| trial.kind)
        else {
            return;
        };
        self.cooldowns
            .fewer_streams
            .fail(sight.at, INITIAL_COOLDOWN);
        self.streams = from.min(self.stream_cap);
        let reason = format!("{to} streams may be too few: back to {}", self.streams);
        let step = TransferSetting::Streams(self.streams);
        decisions.push(self.decision(sight.at, Some(step), reason));
    }

    /// Some were let go.
    pub(super) fn on_fewer_streams_tried(
        &mut self,
        from: u32,
        to: u32,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        if outcome.is_kept {
            // Losses shall not bring back at once what has just been given back.
            self.cooldowns.loss.extend(sight.at, INITIAL_COOLDOWN / 2);
            self.cooldowns
                .slow_growth
                .extend(sight.at, INITIAL_COOLDOWN / 2);
            let rate = outcome.before;
            let alone =
                matches!(sight.bottleneck, Bottleneck::Loss | Bottleneck::Cwnd) && !self.is_paced();
            if alone && self.removed_streams.is_none_or(|given| given.rate < rate) {
                self.removed_streams = Some(RemovedStreams {
                    from,
                    rate,
                    at: sight.at,
                });
            }
            let reason = format!("{to} streams do as well: {}", describe_gain(&outcome));
            decisions.push(self.decision(sight.at, None, reason));
            return;
        }
        self.cooldowns
            .fewer_streams
            .fail(sight.at, INITIAL_COOLDOWN);
        if !self.is_paced() && sight.rtt.is_congested() {
            self.concede_to_cross_traffic(to, outcome, sight, decisions);
            return;
        }
        let from = from.min(self.stream_cap);
        self.streams = from;
        let reason = format!(
            "{to} streams carry {}: back to {from}",
            describe_gain(&outcome)
        );
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(from)), reason));
    }

    /// The path stayed full although less was sent: others took what was given up, so that every
    /// stream is a share.
    fn concede_to_cross_traffic(
        &mut self,
        to: u32,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let since = self.cross_traffic.map_or(sight.at, |(since, _)| since);
        self.cross_traffic = Some((since, sight.at));
        let reason = format!(
            "{to} streams carry {} on a path that is full: others took the rest",
            describe_gain(&outcome)
        );
        decisions.push(self.decision(sight.at, None, reason));
        self.reduce_to_fair_share(sight, decisions);
    }
}
