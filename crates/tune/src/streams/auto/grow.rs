//! More streams, or a congestion control that bears losses: where each stream is limited by itself.

use std::time::Duration;

use units::show;

use super::first_losses;
use super::loss_counter::MIN_LOSS_RATIO;
use super::transfer_meter::TransferInterval;
use super::trial::{GrowthReason, LARGE_GAIN, TrialKind, TrialOutcome};
use super::{
    AutoTuner, TransferDecision, TransferSample, TransferSetting, is_nearly_over, is_rate_limited,
};
use crate::congestion::{is_loss_tolerant, loss_tolerant_alternative};
use crate::observation::{Bottleneck, Rtt};

/// Initial pause after a trial without gain.
const INITIAL_COOLDOWN: Duration = Duration::from_secs(10);
/// A stream that gets less than this of the rest of the file is not worth its handshake, bytes.
const PIECE: u64 = 256 << 10;
/// On shorter paths windows open fast enough.
const LONG_PATH: Duration = Duration::from_millis(5);
/// A congestion control that bears losses fills a path with few streams.
const ENOUGH_LOSS_TOLERANT_STREAMS: u32 = 4;
/// Time for which losses that have proved a need are believed.
const NEED_REMEMBERED: Duration = Duration::from_secs(60);

impl AutoTuner {
    /// A window or a buffer limits each stream and grows no more: twice as many, no search.
    pub(super) fn add_streams_for_full_buffers(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let patience = (sight.rtt.smoothed * 4).max(Duration::from_millis(200));
        let grown = sight.at.saturating_sub(self.largest_window.1) < patience;
        let settled = sight.at.saturating_sub(self.unchanged_since) >= patience;
        let short = sight.rtt.min < Duration::from_millis(1);
        let rising = sight.rate / 21 > self.last_rate / 20;
        if grown || rising || !settled || short || !self.cooldowns.full_buffers.is_over(sight.at) {
            return;
        }
        // Packets may queue because the path is nearly full, or in bursts of our own.
        let more = if sight.rtt.has_queue() {
            (self.streams / 4).max(1)
        } else {
            self.streams
        };
        let Some(to) = self.allowed_streams(self.streams.saturating_add(more), scene) else {
            return;
        };
        let looks = || scene.streams.iter();
        let what = if sight.bottleneck == Bottleneck::ReceiveWindow {
            match looks().map(|look| look.peer_window).max().unwrap_or(0) {
                0 => "the receiver's window".to_owned(),
                window => format!("the receiver's window of {}", show::bytes(window)),
            }
        } else {
            let buffer = looks().map(|look| look.send_buffer).max();
            format!("the send buffer of {}", show::bytes(buffer.unwrap_or(0)))
        };
        let reason = format!(
            "{what} holds each stream back ({} at {}): {to} streams instead of {}",
            show::bits(sight.rate.saturating_mul(8)),
            show::time(sight.rtt.smoothed),
            self.streams
        );
        self.try_more_streams(to, GrowthReason::FullBuffers, sight, reason, decisions);
    }

    /// Nothing is lost and nothing queues, but the windows open slowly: new streams start faster.
    pub(super) fn add_streams_for_slow_growth(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let patience = (sight.rtt.smoothed * 20).max(Duration::from_secs(2));
        let settled = sight
            .at
            .saturating_sub(self.unchanged_since.max(self.queue_free_since))
            >= patience;
        // After a loss the window knows where to return to.
        let whole = |lost| sight.at.saturating_sub(lost) >= INITIAL_COOLDOWN;
        if !settled
            || sight.bottleneck != Bottleneck::Cwnd
            || !self.last_loss.is_none_or(whole)
            || sight.in_slow_start
            || sight.rtt.min < LONG_PATH
            || is_loss_tolerant(scene.congestion_control)
            || !self.cooldowns.slow_growth.is_over(sight.at)
        {
            return;
        }
        let more = (self.streams / 4).max(1);
        let Some(to) = self.allowed_streams(self.streams.saturating_add(more), scene) else {
            return;
        };
        let reason = format!(
            "nothing queues with {} and the congestion windows open slowly ({}): {to} streams instead \
             of {}",
            show::bits(sight.rate.saturating_mul(8)),
            show::time(sight.rtt.min),
            self.streams
        );
        self.try_more_streams(to, GrowthReason::SlowGrowth, sight, reason, decisions);
    }

    /// Losses without a queue: a congestion control that bears them, else more streams while they
    /// gain.
    pub(super) fn respond_to_loss(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Some(ratio) = self.loss_counter.loss_ratio(sight, self.meter.counters()) else {
            return;
        };
        let told = describe_loss(ratio, sight.rtt);
        if self.cooldowns.congestion_control.is_over(sight.at) {
            let permitted = self.limits.congestion_controls.clone();
            let other = loss_tolerant_alternative(scene.congestion_control, &permitted);
            if let Some(other) = other {
                let kind = self.congestion_control_trial(other, ratio);
                let reason = format!("{told}: {other} instead of {}", scene.congestion_control);
                self.begin_trial(kind, sight);
                self.switch_congestion_control(other, sight.at, reason, decisions);
                return;
            }
        }
        let enough = is_loss_tolerant(scene.congestion_control)
            && self.streams >= ENOUGH_LOSS_TOLERANT_STREAMS;
        if enough || !self.cooldowns.loss.is_over(sight.at) {
            return;
        }
        if let Some(to) = self.allowed_streams(self.streams.saturating_mul(2), scene) {
            let reason = format!("{told}: {to} streams instead of {}", self.streams);
            self.try_more_streams(to, GrowthReason::Loss, sight, reason, decisions);
        }
    }

    /// So many streams, as far as limits and the rest of the file allow; `None`: no more than now.
    fn allowed_streams(&self, wanted: u32, scene: &TransferSample<'_>) -> Option<u32> {
        let pieces = scene.bytes_left.map_or(u64::MAX, |left| left / PIECE);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let to = wanted
            .min(self.stream_cap)
            .min(self.streams.saturating_add(pieces));
        (to > self.streams).then_some(to)
    }

    fn try_more_streams(
        &mut self,
        to: u32,
        why: GrowthReason,
        sight: &TransferInterval,
        reason: String,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let from = self.streams;
        self.begin_trial(TrialKind::MoreStreams { from, to, why }, sight);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Streams were added.
    pub(super) fn on_more_streams_tried(
        &mut self,
        (from, to): (u32, u32),
        why: GrowthReason,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let rest = match why {
            GrowthReason::FullBuffers => &mut self.cooldowns.full_buffers,
            GrowthReason::Loss => &mut self.cooldowns.loss,
            GrowthReason::SlowGrowth => &mut self.cooldowns.slow_growth,
        };
        if outcome.is_kept {
            rest.reset();
            if why == GrowthReason::Loss {
                let needed = f64::from(from) * outcome.gain().min(2.0) * 0.9;
                self.needed_streams = (rounded(needed).max(1), sight.at + NEED_REMEMBERED);
            }
            self.cooldowns
                .fewer_streams
                .fail(sight.at, INITIAL_COOLDOWN / 2);
            let reason = format!("{to} streams carry {}", describe_gain(&outcome));
            decisions.push(self.decision(sight.at, None, reason));
            return;
        }
        rest.fail(sight.at, INITIAL_COOLDOWN);
        self.streams = from;
        let reason = format!(
            "{to} streams carry {}: back to {from}",
            describe_gain(&outcome)
        );
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(from)), reason));
    }

    /// Twice as many streams gained much under losses: twice as many again, at once. What they carry is
    /// held against no more than twice what half of them did: slow starts were measured with it.
    pub(super) fn double_streams_again(
        &mut self,
        scene: &TransferSample<'_>,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let lossy = outcome.loss >= MIN_LOSS_RATIO && !sight.rtt.has_queue();
        let enough = is_loss_tolerant(scene.congestion_control)
            && self.streams >= ENOUGH_LOSS_TOLERANT_STREAMS;
        let small = outcome.gain() < LARGE_GAIN || is_nearly_over(scene, outcome.after, sight.rtt);
        if !lossy || enough || small {
            return;
        }
        let Some(to) = self.allowed_streams(self.streams.saturating_mul(2), scene) else {
            return;
        };
        let told = describe_loss(outcome.loss, sight.rtt);
        let reason = format!("{told}: {to} streams instead of {}", self.streams);
        let from = self.streams;
        let kind = TrialKind::MoreStreams {
            from,
            to,
            why: GrowthReason::Loss,
        };
        let before = outcome.after.min(outcome.before.saturating_mul(2));
        self.begin_trial_against(kind, before, sight.at, sight.rtt);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// Plain losses in the first round trips: a congestion control that bears them, at once.
    pub(super) fn watch_first_losses(
        &mut self,
        scene: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let (mark, trip) = (self.meter.counters(), self.meter.current_rtt());
        let Some(lossy) = self.first_losses.on_sample(mark, scene.streams, trip) else {
            return;
        };
        // No slow start has overrun a queue: what is lost from now on counts.
        self.loss_counter.count_from(mark);
        let before = first_losses::cwnd_rate(scene.streams, trip);
        let soon = self.expected_rate(before, scene.streams);
        let vain = is_rate_limited(scene, before) || is_nearly_over(scene, soon, trip);
        if vain || self.is_paced() || self.trial.is_some() {
            return;
        }
        let permitted = self.limits.congestion_controls.clone();
        let Some(other) = loss_tolerant_alternative(scene.congestion_control, &permitted) else {
            return;
        };
        let reason = format!(
            "{}: {other} instead of {}",
            describe_loss(lossy.ratio, trip),
            scene.congestion_control
        );
        let kind = self.congestion_control_trial(other, lossy.upper_bound);
        self.begin_trial_against(kind, before, scene.at, trip);
        self.meter.restart_interval();
        self.switch_congestion_control(other, scene.at, reason, decisions);
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
        let step = TransferSetting::CongestionControl(to.to_owned());
        decisions.push(self.decision(at, Some(step), reason));
    }

    /// Another congestion control was tried.
    pub(super) fn on_congestion_control_tried(
        &mut self,
        from: String,
        to: &str,
        outcome: TrialOutcome,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let told = format!(
            "{to} carries {} and loses {}",
            describe_gain(&outcome),
            per_cent(outcome.loss)
        );
        if outcome.is_kept {
            self.cooldowns.congestion_control.reset();
            decisions.push(self.decision(sight.at, None, told));
            return;
        }
        self.cooldowns
            .congestion_control
            .fail(sight.at, INITIAL_COOLDOWN * 3);
        // The windows that it leaves are not those of losses yet.
        let calm = (sight.rtt.min * 30).max(Duration::from_secs(3));
        self.cooldowns.loss.extend(sight.at, calm);
        let reason = format!("{told}: back to {from}");
        decisions.push(self.decision(
            sight.at,
            Some(TransferSetting::CongestionControl(from)),
            reason,
        ));
    }

    /// Others' packets queue, and the congestion control that bears losses is of our choice: it
    /// takes more than its share from those that do not.
    pub(super) fn yield_to_cross_traffic(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let system = self.congestion_control.system_default.clone();
        let ours =
            is_loss_tolerant(&self.congestion_control.in_force) && !is_loss_tolerant(&system);
        if !ours || self.congestion_control.refused.contains(&system) {
            return;
        }
        self.cooldowns
            .congestion_control
            .fail(sight.at, INITIAL_COOLDOWN * 6);
        self.loss_counter.reset();
        self.unchanged_since = sight.at;
        let reason = format!(
            "others' packets queue for {}: back to {system}, which shares with them",
            show::time(sight.queueing_delay())
        );
        let step = TransferSetting::CongestionControl(system);
        decisions.push(self.decision(sight.at, Some(step), reason));
    }
}

/// `94 Mbit/s instead of 48 Mbit/s`.
pub(super) fn describe_gain(outcome: &TrialOutcome) -> String {
    format!(
        "{} instead of {}",
        show::bits(outcome.after.saturating_mul(8)),
        show::bits(outcome.before.saturating_mul(8))
    )
}

/// `losses of 1.0 % without a queue (round trip 51 ms of 50 ms)`.
fn describe_loss(ratio: f64, trip: Rtt) -> String {
    format!(
        "losses of {} without a queue (round trip {} of {})",
        per_cent(ratio),
        show::time(trip.smoothed),
        show::time(trip.min)
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
