//! Adds streams, or changes the congestion control, where each stream has a limit of its own.

use std::time::Duration;

use units::show;

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::first_losses;
use super::loss_counter::MIN_LOSS_RATIO;
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;
use super::trial::{GrowthReason, LARGE_GAIN, TrialKind, TrialOutcome};
use crate::congestion::{is_loss_tolerant, loss_tolerant_alternative};
use crate::observation::{Bottleneck, Rtt};
use crate::prior::MIN_BYTES_PER_STREAM;

/// Initial cooldown after a trial without gain.
const INITIAL_COOLDOWN: Duration = Duration::from_secs(10);
/// On shorter paths congestion windows grow fast enough.
const LONG_PATH: Duration = Duration::from_millis(5);
/// Number of streams with which a loss-tolerant congestion control fills any path.
const ENOUGH_LOSS_TOLERANT_STREAMS: u32 = 4;
/// How long a number of streams that losses have shown to be needed is kept.
const NEED_REMEMBERED: Duration = Duration::from_secs(60);

impl AutoTuner {
    /// Doubles the streams when a full window or buffer limits each one and no longer grows.
    pub(super) fn add_streams_for_full_buffers(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // The kernel's autotuning doubles a buffer once per round trip: four without growth mean its end.
        let patience = (interval.rtt.smoothed * 4).max(Duration::from_millis(200));
        let has_grown = interval.at.saturating_sub(self.largest_window.1) < patience;
        let is_settled = interval.at.saturating_sub(self.unchanged_since) >= patience;
        let is_local = interval.rtt.min < Duration::from_millis(1);
        // A rate that still rises by 5 % per interval needs no more streams.
        let is_rising = interval.rate() / 21 > self.last_rate / 20;
        if has_grown
            || is_rising
            || !is_settled
            || is_local
            || !self.cooldowns.full_buffers.is_over(interval.at)
        {
            return;
        }
        // A queue means a nearly full path, or bursts of this transfer: a small step is safe in both cases.
        let additional = if interval.rtt.has_queue() {
            (self.streams / 4).max(1)
        } else {
            self.streams
        };
        let Some(to) = self.allowed_streams(self.streams.saturating_add(additional), sample) else {
            return;
        };
        let samples = || sample.streams.iter();
        let limit = if interval.bottleneck == Bottleneck::ReceiveWindow {
            match samples().map(|tcp| tcp.peer_window).max().unwrap_or(0) {
                0 => "the receiver's window".to_owned(),
                window => format!("the receiver's window of {}", show::bytes(window)),
            }
        } else {
            let buffer = samples().map(|tcp| tcp.send_buffer).max();
            format!("the send buffer of {}", show::bytes(buffer.unwrap_or(0)))
        };
        let reason = format!(
            "{limit} limits each stream ({} at {}): {to} streams instead of {}",
            show::bits(interval.rate().saturating_mul(8)),
            show::time(interval.rtt.smoothed),
            self.streams
        );
        self.try_more_streams(to, GrowthReason::FullBuffers, interval, reason, decisions);
    }

    /// Adds streams when nothing is lost, nothing queues and the congestion windows grow slowly. New streams
    /// gain rate faster by their slow start.
    pub(super) fn add_streams_for_slow_growth(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // Congestion avoidance adds a segment per round trip (RFC 5681 §3.1): 20 of them show its pace.
        let patience = (interval.rtt.smoothed * 20).max(Duration::from_secs(2));
        let is_settled = interval
            .at
            .saturating_sub(self.unchanged_since.max(self.last_queue_seen))
            >= patience;
        // After a recent loss CUBIC returns to its former window by itself (RFC 9438 §4.4).
        let is_long_ago = |lost| interval.at.saturating_sub(lost) >= INITIAL_COOLDOWN;
        if !is_settled
            || interval.bottleneck != Bottleneck::Cwnd
            || !self.last_loss.is_none_or(is_long_ago)
            || interval.in_slow_start
            || interval.rtt.min < LONG_PATH
            || is_loss_tolerant(sample.congestion_control)
            || !self.cooldowns.slow_growth.is_over(interval.at)
        {
            return;
        }
        let additional = (self.streams / 4).max(1);
        let Some(to) = self.allowed_streams(self.streams.saturating_add(additional), sample) else {
            return;
        };
        let reason = format!(
            "nothing queues at {} and the congestion windows grow slowly ({}): {to} streams instead \
             of {}",
            show::bits(interval.rate().saturating_mul(8)),
            show::time(interval.rtt.min),
            self.streams
        );
        self.try_more_streams(to, GrowthReason::SlowGrowth, interval, reason, decisions);
    }

    /// On losses without a queue, tries a loss-tolerant congestion control, or else more streams.
    pub(super) fn respond_to_loss(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(ratio) = self
            .loss_counter
            .loss_ratio(interval, self.meter.counters())
        else {
            return;
        };
        let description = describe_loss(ratio, interval.rtt);
        if self.cooldowns.congestion_control.is_over(interval.at) {
            let permitted = self.limits.congestion_controls.clone();
            let alternative = loss_tolerant_alternative(sample.congestion_control, &permitted);
            if let Some(alternative) = alternative {
                let kind = self.congestion_control_trial(alternative, ratio);
                let reason = format!(
                    "{description}: {alternative} instead of {}",
                    sample.congestion_control
                );
                self.begin_trial(kind, interval);
                self.switch_congestion_control(alternative, interval.at, reason, decisions);
                return;
            }
        }
        let is_enough = is_loss_tolerant(sample.congestion_control)
            && self.streams >= ENOUGH_LOSS_TOLERANT_STREAMS;
        if is_enough || !self.cooldowns.loss.is_over(interval.at) {
            return;
        }
        if let Some(to) = self.allowed_streams(self.streams.saturating_mul(2), sample) {
            let reason = format!("{description}: {to} streams instead of {}", self.streams);
            self.try_more_streams(to, GrowthReason::Loss, interval, reason, decisions);
        }
    }

    /// The wanted number of streams, bounded by the limits and the rest of the file; `None` if that is not
    /// more than now.
    fn allowed_streams(&self, wanted: u32, sample: &TransferSample<'_>) -> Option<u32> {
        // More streams can only share bytes that no stream has taken yet.
        let pieces = sample
            .bytes_left
            .map_or(u64::MAX, |left| left / MIN_BYTES_PER_STREAM);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let to = wanted
            .min(self.stream_cap)
            .min(self.streams.saturating_add(pieces));
        (to > self.streams).then_some(to)
    }

    fn try_more_streams(
        &mut self,
        to: u32,
        growth: GrowthReason,
        interval: &TransferInterval,
        reason: String,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let from = self.streams;
        self.begin_trial(TrialKind::MoreStreams { from, to, growth }, interval);
        self.streams = to;
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Acts on the outcome of a trial with more streams.
    pub(super) fn on_more_streams_tried(
        &mut self,
        (from, to): (u32, u32),
        growth: GrowthReason,
        outcome: TrialOutcome,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let cooldown = match growth {
            GrowthReason::FullBuffers => &mut self.cooldowns.full_buffers,
            GrowthReason::Loss => &mut self.cooldowns.loss,
            GrowthReason::SlowGrowth => &mut self.cooldowns.slow_growth,
        };
        if outcome.is_kept {
            cooldown.reset();
            if growth == GrowthReason::Loss {
                // Under losses the rate is proportional to the streams: the gain tells how many it takes, less
                // a tenth for noise.
                let needed = f64::from(from) * outcome.gain().min(2.0) * 0.9;
                self.needed_streams = (rounded(needed).max(1), interval.at + NEED_REMEMBERED);
            }
            self.cooldowns
                // Streams that have just proved useful are not put to the test at once.
                .fewer_streams
                .fail(interval.at, INITIAL_COOLDOWN / 2);
            let reason = format!("{to} streams carry {}", outcome.describe_gain());
            decisions.push(self.decision(interval.at, None, reason));
            return;
        }
        cooldown.fail(interval.at, INITIAL_COOLDOWN);
        self.streams = from;
        let reason = format!(
            "{to} streams carry {}: back to {from}",
            outcome.describe_gain()
        );
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(from)), reason));
    }

    /// Doubles the streams again, at once, if doubling them gained much under losses. The new rate is
    /// compared with at most twice the rate before the first doubling, since the measured rate contains slow
    /// starts.
    pub(super) fn double_streams_again(
        &mut self,
        sample: &TransferSample<'_>,
        outcome: TrialOutcome,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let is_lossy = outcome.loss >= MIN_LOSS_RATIO && !interval.rtt.has_queue();
        let is_enough = is_loss_tolerant(sample.congestion_control)
            && self.streams >= ENOUGH_LOSS_TOLERANT_STREAMS;
        let is_small =
            outcome.gain() < LARGE_GAIN || sample.is_nearly_over(outcome.after, interval.rtt);
        if !is_lossy || is_enough || is_small {
            return;
        }
        let Some(to) = self.allowed_streams(self.streams.saturating_mul(2), sample) else {
            return;
        };
        let description = describe_loss(outcome.loss, interval.rtt);
        let reason = format!("{description}: {to} streams instead of {}", self.streams);
        let from = self.streams;
        let kind = TrialKind::MoreStreams {
            from,
            to,
            growth: GrowthReason::Loss,
        };
        let before = outcome.after.min(outcome.before.saturating_mul(2));
        self.begin_trial_against(kind, before, interval.at, interval.rtt);
        self.streams = to;
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Tries a loss-tolerant congestion control at once when losses without a queue show in the first round
    /// trips.
    pub(super) fn watch_first_losses(
        &mut self,
        sample: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let (counters, rtt) = (self.meter.counters(), self.meter.current_rtt());
        let Some(estimate) = self.first_losses.on_sample(counters, sample.streams, rtt) else {
            return;
        };
        // No slow start has overflowed a queue, so that every later loss is the path's.
        self.loss_counter.count_from(counters);
        let before = first_losses::cwnd_rate(sample.streams, rtt);
        let soon = self.expected_rate(before, sample.streams);
        let is_pointless = sample.is_rate_limited(before) || sample.is_nearly_over(soon, rtt);
        if is_pointless || self.is_paced() || self.trial.is_some() {
            return;
        }
        let permitted = self.limits.congestion_controls.clone();
        let Some(alternative) = loss_tolerant_alternative(sample.congestion_control, &permitted)
        else {
            return;
        };
        let reason = format!(
            "{}: {alternative} instead of {}",
            describe_loss(estimate.ratio, rtt),
            sample.congestion_control
        );
        let kind = self.congestion_control_trial(alternative, estimate.upper_bound);
        self.begin_trial_against(kind, before, sample.at, rtt);
        // The open interval belongs to the old congestion control.
        self.meter.restart_interval();
        self.switch_congestion_control(alternative, sample.at, reason, decisions);
    }

    fn congestion_control_trial(&self, to: &str, loss: f64) -> TrialKind {
        TrialKind::CongestionControl {
            from: self.congestion_control.in_force.clone(),
            to: to.to_owned(),
            loss,
        }
    }

    fn switch_congestion_control(
        &self,
        to: &str,
        at: Duration,
        reason: String,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let setting = TransferSetting::CongestionControl(to.to_owned());
        decisions.push(self.decision(at, Some(setting), reason));
    }

    /// Acts on the outcome of a trial with another congestion control.
    pub(super) fn on_congestion_control_tried(
        &mut self,
        from: String,
        to: &str,
        outcome: TrialOutcome,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let description = format!(
            "{to} carries {} and loses {}",
            outcome.describe_gain(),
            per_cent(outcome.loss)
        );
        if outcome.is_kept {
            self.cooldowns.congestion_control.reset();
            decisions.push(self.decision(interval.at, None, description));
            return;
        }
        self.cooldowns
            .congestion_control
            .fail(interval.at, INITIAL_COOLDOWN * 3);
        // The congestion windows are still those of the tried control. Adding streams waits until losses
        // have reduced them.
        let calm = (interval.rtt.min * 30).max(Duration::from_secs(3));
        self.cooldowns.loss.extend(interval.at, calm);
        let reason = format!("{description}: back to {from}");
        decisions.push(self.decision(
            interval.at,
            Some(TransferSetting::CongestionControl(from)),
            reason,
        ));
    }

    /// Goes back to the system's congestion control when cross traffic queues and the tuner itself has chosen a
    /// loss-tolerant one: that takes more than its share from loss-based flows.
    pub(super) fn yield_to_cross_traffic(
        &mut self,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let system = self.congestion_control.system_default.clone();
        let chosen_by_tuner =
            is_loss_tolerant(&self.congestion_control.in_force) && !is_loss_tolerant(&system);
        // A congestion control that the user or the system has chosen stays.
        if !chosen_by_tuner || self.congestion_control.refused.contains(&system) {
            return;
        }
        self.cooldowns
            .congestion_control
            .fail(interval.at, INITIAL_COOLDOWN * 6);
        self.loss_counter.reset();
        self.unchanged_since = interval.at;
        let reason = format!(
            "cross traffic queues for {}: back to {system}, which shares with it",
            show::time(interval.queueing_delay())
        );
        let setting = TransferSetting::CongestionControl(system);
        decisions.push(self.decision(interval.at, Some(setting), reason));
    }
}

/// `losses of 1.0 % without a queue (round trip 51 ms, minimum 50 ms)`.
fn describe_loss(ratio: f64, rtt: Rtt) -> String {
    format!(
        "losses of {} without a queue (round trip {}, minimum {})",
        per_cent(ratio),
        show::time(rtt.smoothed),
        show::time(rtt.min)
    )
}

fn per_cent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent >= 0.1 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.3} %")
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn rounded(streams: f64) -> u32 {
    streams.ceil() as u32
}
