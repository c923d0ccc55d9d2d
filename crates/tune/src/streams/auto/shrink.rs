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
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(removed) = self.removed_streams else {
            return;
        };
        let since = interval.at.saturating_sub(removed.at);
        let time = (interval.rtt.smoothed * 20).max(Duration::from_secs(3));
        if since > RESTORE_WITHIN.max(time * 2) {
            self.removed_streams = None;
            return;
        }
        if since < time || interval.rtt.has_queue() {
            return;
        }
        let then = self.meter.counters_at(interval.at.saturating_sub(time));
        let rate = self.meter.counters().since(&then).rate();
        if rate as f64 >= removed.rate as f64 * RATE_DROP {
            return;
        }
        let to = removed.from.min(self.stream_cap);
        self.removed_streams = None;
        self.needed_streams = (to, interval.at + RESTORE_WITHIN);
        self.cooldowns
            // The number has proved necessary: fewer are not tried again soon.
            .fewer_streams
            .fail(interval.at, INITIAL_COOLDOWN);
        if to <= self.streams {
            return;
        }
        let reason = format!(
            "{} streams now carry {}, but {to} carried {}: back to {to}",
            self.streams,
            show::bits(rate.saturating_mul(8)),
            show::bits(removed.rate.saturating_mul(8))
        );
        self.streams = to;
        self.unchanged_since = interval.at;
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Tries fewer streams: half of them, or three quarters where half were too few.
    pub(super) fn try_fewer_streams(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // Where each stream has a limit of its own, fewer streams carry less, unless packets queue.
        let has_own_limit =
            matches!(interval.bottleneck, Bottleneck::Loss | Bottleneck::Cwnd) && !self.is_paced();
        if has_own_limit
            && !interval.rtt.has_queue()
            && !is_loss_tolerant(sample.congestion_control)
        {
            return;
        }
        if matches!(self.pacing, Pacing::Paced(paced) if !paced.is_used()) {
            return;
        }
        // A loss-limited rate varies more, so that it takes longer to be known.
        let (round_trips, time) = if has_own_limit { (20, 3) } else { (8, 1) };
        let steady_time = (interval.rtt.smoothed * round_trips).max(Duration::from_secs(time));
        let min_bytes_left = bytes_in(
            interval.rate(),
            MIN_TIME_LEFT.max(interval.rtt.smoothed * 20),
        );
        // Under pacing a slow start cannot overrun the path.
        let since = if self.is_paced() {
            self.unchanged_since
        } else {
            self.unchanged_since.max(self.last_slow_start)
        };
        let too_early = interval.at.saturating_sub(since) < steady_time;
        let too_late = sample.bytes_left.is_some_and(|left| left < min_bytes_left);
        if too_early || too_late {
            return;
        }
        if !self.cooldowns.fewer_streams.is_over(interval.at) || self.bottleneck_run.1 < 2 {
            return;
        }
        // Half of the streams can stop at once only if half of the data in flight waits in a queue, or if the
        // network does not limit.
        let is_spare = interval.queueing_delay() >= interval.rtt.min
            || interval.bottleneck == Bottleneck::SenderApp;
        let part = if self.cooldowns.fewer_streams.failures() == 0 && is_spare && !self.is_paced() {
            self.streams / 2
        } else {
            self.streams / 4
        };
        let to = self
            .streams
            .saturating_sub(part.max(1))
            .max(self.stream_floor(interval.at));
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "fewer streams may be enough: {to} instead of {} if the rate stays at {}",
            self.streams,
            show::bits(interval.rate().saturating_mul(8))
        );
        let from = self.streams;
        self.begin_trial(TrialKind::FewerStreams { from, to }, interval);
        self.streams = to;
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(to)), reason));
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
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(TrialKind::FewerStreams { from, to }) = self.trial.take().map(|trial| trial.kind)
        else {
            return;
        };
        self.cooldowns
            .fewer_streams
            .fail(interval.at, INITIAL_COOLDOWN);
        self.streams = from.min(self.stream_cap);
        let reason = format!("{to} streams may be too few: back to {}", self.streams);
        let setting = TransferSetting::Streams(self.streams);
        decisions.push(self.decision(interval.at, Some(setting), reason));
    }

    /// Acts on the outcome of a trial with fewer streams.
    pub(super) fn on_fewer_streams_tried(
        &mut self,
        from: u32,
        to: u32,
        outcome: TrialOutcome,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        if outcome.is_kept {
            // Losses must not open the closed streams again at once.
            self.cooldowns
                .loss
                .extend(interval.at, INITIAL_COOLDOWN / 2);
            self.cooldowns
                .slow_growth
                .extend(interval.at, INITIAL_COOLDOWN / 2);
            let rate = outcome.before;
            let has_own_limit = matches!(interval.bottleneck, Bottleneck::Loss | Bottleneck::Cwnd)
                && !self.is_paced();
            if has_own_limit
                && self
                    .removed_streams
                    .is_none_or(|removed| removed.rate < rate)
            {
                self.removed_streams = Some(RemovedStreams {
                    from,
                    rate,
                    at: interval.at,
                });
            }
            let reason = format!("{to} streams do as well: {}", outcome.describe_gain());
            decisions.push(self.decision(interval.at, None, reason));
            return;
        }
        self.cooldowns
            .fewer_streams
            .fail(interval.at, INITIAL_COOLDOWN);
        if !self.is_paced() && interval.rtt.is_congested() {
            self.concede_to_cross_traffic(to, outcome, interval, decisions);
            return;
        }
        let from = from.min(self.stream_cap);
        self.streams = from;
        let reason = format!(
            "{to} streams carry {}: back to {from}",
            outcome.describe_gain()
        );
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(from)), reason));
    }

    /// Concedes the path's rate to cross traffic: the path stayed full although this transfer sent less.
    fn concede_to_cross_traffic(
        &mut self,
        to: u32,
        outcome: TrialOutcome,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let since = self.cross_traffic.map_or(interval.at, |(since, _)| since);
        self.cross_traffic = Some((since, interval.at));
        let reason = format!(
            "{to} streams carry {} on a full path: cross traffic took the rest",
            outcome.describe_gain()
        );
        decisions.push(self.decision(interval.at, None, reason));
        self.reduce_to_fair_share(interval, decisions);
    }
}
