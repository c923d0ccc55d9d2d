//! Closes streams whose removal does not lower goodput.

use std::time::Duration;

use units::{bytes_in, show};

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::pacing::Pacing;
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;
use super::trial::{RemovedStreams, TrialKind, TrialOutcome};
use crate::congestion::is_loss_tolerant;
use crate::observation::Bottleneck;

/// Remaining time of a transfer for which a trial of about two seconds is worth it.
const MIN_TIME_LEFT: Duration = Duration::from_secs(5);
/// Initial cooldown after a trial that showed that the streams are needed.
const INITIAL_COOLDOWN: Duration = Duration::from_secs(20);

/// Part of the former rate below which closed streams are opened again: under losses the remaining streams
/// keep their rate only at first.
const RATE_DROP: f64 = 0.93;
/// Time for which closed streams may be opened again.
const RESTORE_WITHIN: Duration = Duration::from_secs(60);

impl AutoTuner {
    /// Opens streams again that were closed too early.
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
        let rate = self.meter.counters().since(&then).rate();
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
            "{} streams now carry {}, but {to} carried {}: back to {to}",
            self.streams,
            show::bits(rate.saturating_mul(8)),
            show::bits(given.rate.saturating_mul(8))
        );
        self.streams = to;
        self.unchanged_since = sight.at;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Tries fewer streams: half of them, or three quarters where half were too few.
    pub(super) fn try_fewer_streams(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // Where each stream has a limit of its own, fewer streams carry less, unless packets queue.
        let alone =
            matches!(sight.bottleneck, Bottleneck::Loss | Bottleneck::Cwnd) && !self.is_paced();
        if alone && !sight.rtt.has_queue() && !is_loss_tolerant(scene.congestion_control) {
            return;
        }
        if matches!(self.pacing, Pacing::Paced(paced) if !paced.is_used()) {
            return;
        }
        // A loss-limited rate varies more, so that it takes longer to be known.
        let (trips, time) = if alone { (20, 3) } else { (8, 1) };
        let steady = (sight.rtt.smoothed * trips).max(Duration::from_secs(time));
        let worth = bytes_in(sight.rate(), MIN_TIME_LEFT.max(sight.rtt.smoothed * 20));
        // Under pacing a slow start cannot overrun the path.
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
        // Half of the streams can stop at once only if half of the data in flight waits in a queue, or if the
        // network does not limit.
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
            "fewer streams may be enough: {to} instead of {} if the rate stays at {}",
            self.streams,
            show::bits(sight.rate().saturating_mul(8))
        );
        let from = self.streams;
        self.begin_trial(TrialKind::FewerStreams { from, to }, sight);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Smallest number of streams that may be tried.
    fn stream_floor(&self, at: Duration) -> u32 {
        let (needed, until) = self.needed_streams;
        let needed = if at < until { needed } else { 1 };
        self.limits.min_streams.max(needed).min(self.stream_cap)
    }

    /// Cancels a trial during which pacing ended. Its measurement is void, and the closed streams may be
    /// needed, so they are opened again.
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

    /// Acts on the outcome of a trial with fewer streams.
    pub(super) fn on_fewer_streams_tried(
        &mut self,
        from: u32,
        to: u32,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        if outcome.is_kept {
            // Losses must not open the closed streams again at once.
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
            let reason = format!("{to} streams do as well: {}", outcome.describe_gain());
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
            outcome.describe_gain()
        );
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(from)), reason));
    }

    /// Concedes the path's rate to cross traffic: the path stayed full although this transfer sent less.
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
            "{to} streams carry {} on a full path: cross traffic took the rest",
            outcome.describe_gain()
        );
        decisions.push(self.decision(sight.at, None, reason));
        self.reduce_to_fair_share(sight, decisions);
    }
}
