//! `auto`: tunes the streams, congestion control and pacing rate of one sending transfer.
//!
//! The sender samples all its streams several times a second ([`TransferSample`]). The answers are
//! settings to apply ([`TransferSetting`]), each with its reason.
//!
//! Decisions follow the bottleneck. Streams are added only if each one has a limit of its own: a window, a
//! buffer, losses, or a congestion window that grows slowly. The congestion control is changed only on
//! losses without a queue. Every change is a trial: its goodput is compared with that before it, and a
//! change without gain is reverted and repeated after a longer and longer cooldown. Streams whose removal does
//! not lower goodput are closed. On a full path, pacing keeps the transfer's own queue short, and cross
//! traffic gets its share.

mod apply_prior;
mod bottleneck_times;
mod check_prior;
mod cooldown;
mod decision;
mod first_losses;
mod full_path;
mod grow;
mod loss_counter;
mod min_rtt;
mod pacing;
mod shrink;
#[cfg(test)]
mod tests;
mod transfer_meter;
mod transfer_sample;
mod trial;

use std::time::Duration;

use self::bottleneck_times::{BottleneckTimes, TransferBottleneck};
use self::cooldown::Cooldowns;
use self::first_losses::FirstLossDetector;
use self::loss_counter::LossCounter;
use self::pacing::{HARMLESS_QUEUE, Pacing};
use self::transfer_meter::{TransferInterval, TransferMeter};
use self::trial::{GrowthReason, RemovedStreams, TrialKind, TuningTrial};
use crate::limiter::Limiter;
use crate::observation::{Bottleneck, Hysteresis, Rtt};
use crate::path::prior_check::{PriorCheck, PriorDisagreement};
use crate::prior::Prior;
use crate::sample::TcpSample;

pub use self::decision::{AutoLimits, TransferDecision, TransferSetting};
pub use self::transfer_sample::TransferSample;
pub use crate::limiter::LimiterVerdict;

/// The tuner of one sending transfer.
#[derive(Debug)]
pub struct AutoTuner {
    limits: AutoLimits,
    /// [`AutoLimits::max_streams`], or fewer if a stream could not be opened.
    stream_cap: u32,
    streams: u32,
    /// Knowledge of the path, until the first sample.
    prior: Option<Prior>,
    /// Check of that knowledge, until it is decided.
    prior_check: Option<PriorCheck>,
    /// How the path has turned out to differ from that knowledge.
    disagreement: Option<PriorDisagreement>,
    /// Congestion control that the knowledge has set.
    known_congestion_control: Option<String>,
    /// Rate of the path by earlier knowledge, bytes per second; 0 if unknown.
    known_rate: u64,
    meter: TransferMeter,
    congestion_control: CongestionControlInUse,
    trial: Option<TuningTrial>,
    pacing: Pacing,
    loss_counter: LossCounter,
    first_losses: FirstLossDetector,
    cooldowns: Cooldowns,
    /// Number of streams that losses have shown to be needed, and until when that counts.
    needed_streams: (u32, Duration),
    removed_streams: Option<RemovedStreams>,
    /// Time of the last change of a setting, or of the last finding about the path.
    unchanged_since: Duration,
    /// Rate of the last interval, bytes per second.
    last_rate: u64,
    /// Bottleneck of the last interval, and for how many consecutive intervals.
    bottleneck_run: (Bottleneck, u32),
    /// Largest window or buffer of a stream so far, bytes, and when it last grew.
    largest_window: (u64, Duration),
    /// When cross traffic was first and last found in the queue.
    cross_traffic: Option<(Duration, Duration)>,
    /// Last time at which packets queued.
    last_queue_seen: Duration,
    /// Last time at which segments were lost.
    last_loss: Option<Duration>,
    /// Last time at which a stream was in its first slow start.
    last_slow_start: Duration,
    hysteresis: Hysteresis,
    bottleneck_times: BottleneckTimes,
}

/// Congestion controls of this transfer.
#[derive(Debug, Default)]
struct CongestionControlInUse {
    /// The one in force at the first sample.
    system_default: String,
    in_force: String,
    refused: Vec<String>,
}

impl AutoTuner {
    /// A tuner of a transfer that begins with `streams` streams and knows nothing of the path.
    pub fn new(limits: AutoLimits, streams: u32) -> Self {
        Self::from_prior(limits, Prior::with_streams(streams))
    }

    /// A tuner that begins with what is known of the path, within the limits. The caller opens that number of
    /// streams itself (one, if unknown); the first decisions set the congestion control and the pacing rate.
    /// [`first_decisions`](Self::first_decisions) gives them before the first byte. What was known is dropped
    /// within two round trips if the first samples contradict it ([`PriorCheck`]).
    pub fn from_prior(limits: AutoLimits, prior: Prior) -> Self {
        let least = limits.min_streams.max(1);
        let most = limits.max_streams.max(least);
        Self {
            limits: AutoLimits {
                min_streams: least,
                max_streams: most,
                ..limits
            },
            stream_cap: most,
            streams: prior.streams.unwrap_or(1).clamp(least, most),
            known_rate: prior.expected_rate.unwrap_or_default(),
            prior_check: PriorCheck::new(&prior),
            disagreement: None,
            known_congestion_control: None,
            prior: Some(prior),
            meter: TransferMeter::default(),
            congestion_control: CongestionControlInUse::default(),
            trial: None,
            pacing: Pacing::Free,
            loss_counter: LossCounter::default(),
            first_losses: FirstLossDetector::default(),
            cooldowns: Cooldowns::default(),
            needed_streams: (1, Duration::ZERO),
            removed_streams: None,
            unchanged_since: Duration::ZERO,
            last_rate: 0,
            bottleneck_run: (Bottleneck::Unknown, 0),
            largest_window: (0, Duration::ZERO),
            cross_traffic: None,
            last_queue_seen: Duration::ZERO,
            last_loss: None,
            last_slow_start: Duration::ZERO,
            hysteresis: Hysteresis::default(),
            bottleneck_times: BottleneckTimes::default(),
        }
    }

    /// Takes a sample of the transfer and returns decisions, mostly none. A sample that is not newer than
    /// the last one, or that has no streams, is ignored.
    pub fn on_sample(&mut self, sample: &TransferSample<'_>) -> Vec<TransferDecision> {
        let mut decisions = Vec::new();
        if !self.meter.on_sample(sample) {
            return decisions;
        }
        if self.congestion_control.system_default.is_empty() {
            sample
                .congestion_control
                .clone_into(&mut self.congestion_control.system_default);
        }
        sample
            .congestion_control
            .clone_into(&mut self.congestion_control.in_force);
        if self.meter.take_path_lengthened() {
            // The longer round trip looked like a queue of cross traffic.
            self.cross_traffic = None;
        }
        let known = self.apply_prior(sample.at, sample.congestion_control);
        decisions.extend(known);
        self.check_prior(sample, &mut decisions);
        self.note_largest_window(sample);
        self.continue_drain(sample, &mut decisions);
        self.watch_first_losses(sample, &mut decisions);
        if let Some(interval) = self.meter.take_interval(sample.streams) {
            self.on_interval(sample, &interval, &mut decisions);
        }
        decisions
    }

    fn on_interval(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let limit = self.transfer_bottleneck(sample, interval);
        self.bottleneck_times
            .add_interval(interval, limit, sample.streams);
        self.loss_counter
            .on_interval(interval, self.meter.counters());
        self.bottleneck_run = match self.bottleneck_run {
            (bottleneck, times) if is_same_bottleneck(bottleneck, interval.bottleneck) => {
                (interval.bottleneck, times.saturating_add(1))
            }
            _ => (interval.bottleneck, 1),
        };
        if interval.rtt.has_queue() {
            self.last_queue_seen = interval.at;
        }
        if interval.stats.has_losses() {
            self.last_loss = Some(interval.at);
        }
        if interval.in_slow_start {
            self.last_slow_start = interval.at;
        }
        if limit == TransferBottleneck::RateLimit {
            self.stop_pacing(
                interval.at,
                "the rate limit is below what the path carries",
                decisions,
            );
        } else if self.follow_path(interval, decisions) {
            self.cancel_trial(interval, decisions);
        } else if self.trial.is_some() {
            self.continue_trial(sample, interval, decisions);
        } else if sample.streams_opening == 0 {
            let rate = self.expected_rate(interval.rate(), sample.streams);
            if !sample.is_nearly_over(rate, interval.rtt) {
                self.respond_to_bottleneck(sample, interval, decisions);
            }
        }
        self.last_rate = interval.rate();
        if decisions.is_empty()
            && self
                .hysteresis
                .confirm_change(interval.at, interval.bottleneck)
        {
            let reason = limit.describe(interval);
            decisions.push(self.decision(interval.at, None, reason));
        }
    }

    /// Makes the change that the bottleneck calls for, if any.
    fn respond_to_bottleneck(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        match self.pacing {
            Pacing::Draining(_) => return,
            Pacing::Paced(_) => {
                self.try_fewer_streams(sample, interval, decisions);
                return;
            }
            Pacing::Free => {}
        }
        // One interval may be a transient.
        if self.bottleneck_run.1 < 2 {
            return;
        }
        match interval.bottleneck {
            Bottleneck::ReceiveWindow | Bottleneck::SendBuffer => {
                self.add_streams_for_full_buffers(sample, interval, decisions);
            }
            Bottleneck::Link => self.respond_to_full_path(sample, interval, decisions),
            Bottleneck::Loss | Bottleneck::Cwnd => {
                self.respond_to_cwnd_limit(sample, interval, decisions);
            }
            Bottleneck::SenderApp => self.try_fewer_streams(sample, interval, decisions),
            Bottleneck::SlowStart
            | Bottleneck::Unknown
            | Bottleneck::ReceiverApp
            | Bottleneck::SenderOrPath => {}
        }
    }

    /// The congestion windows limit, with a short queue or none.
    fn respond_to_cwnd_limit(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let queue = interval.rtt.has_queue() && interval.queueing_delay() > HARMLESS_QUEUE;
        if queue && self.may_drain_queue(interval) {
            self.start_drain(interval, decisions);
        } else if self.check_cross_traffic(interval.at) {
            if queue {
                self.reduce_to_fair_share(interval, decisions);
            }
        } else {
            self.restore_removed_streams(interval, decisions);
            if decisions.is_empty() {
                self.respond_to_loss(sample, interval, decisions);
            }
            if decisions.is_empty() {
                self.add_streams_for_slow_growth(sample, interval, decisions);
            }
            if decisions.is_empty() {
                self.try_fewer_streams(sample, interval, decisions);
            }
        }
    }

    fn transfer_bottleneck(
        &self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
    ) -> TransferBottleneck {
        if sample.is_rate_limited(interval.rate()) {
            return TransferBottleneck::RateLimit;
        }
        match self.pacing {
            // Pacing hides the queue that shows a full path.
            Pacing::Draining(_) | Pacing::Paced(_) => TransferBottleneck::Stream(Bottleneck::Link),
            Pacing::Free => TransferBottleneck::Stream(interval.bottleneck),
        }
    }

    /// Notes when a window or buffer last grew: streams are not added while the kernel still enlarges it.
    fn note_largest_window(&mut self, sample: &TransferSample<'_>) {
        let window = |tcp: &TcpSample| match self.bottleneck_run.0 {
            Bottleneck::SendBuffer => tcp.send_buffer,
            _ => tcp.peer_window,
        };
        let window = sample.streams.iter().map(window).max().unwrap_or_default();
        // Growth below 5 % is noise.
        if window / 21 > self.largest_window.0 / 20 {
            self.largest_window = (window, sample.at);
        }
    }

    /// Begins a trial against the rate that was measured before it.
    fn begin_trial(&mut self, kind: TrialKind, interval: &TransferInterval) {
        let before = self.rate_before_trial(&kind, interval);
        self.begin_trial_against(kind, before, interval.at, interval.rtt);
    }

    /// Begins a trial against a rate of `before`, bytes per second.
    fn begin_trial_against(&mut self, kind: TrialKind, before: u64, at: Duration, rtt: Rtt) {
        self.trial = Some(TuningTrial::new(kind, before, at, rtt.smoothed));
        self.first_losses.stop();
        self.unchanged_since = at;
    }

    /// Rate before a trial, bytes per second: over the last ten round trips, at least a second, but not
    /// further back than the last change.
    fn rate_before_trial(&self, kind: &TrialKind, interval: &TransferInterval) -> u64 {
        let time = (interval.rtt.smoothed * 10).max(Duration::from_secs(1));
        let from = self.unchanged_since.max(interval.at.saturating_sub(time));
        let now = self.meter.counters();
        let rate = now.since(&self.meter.counters_at(from)).rate();
        match kind {
            // With full windows and buffers the rate is even, and only the last interval surely has all
            // streams.
            TrialKind::MoreStreams {
                growth: GrowthReason::FullBuffers,
                ..
            } if !interval.is_recovering => rate.max(interval.rate()),
            _ if rate == 0 => interval.rate(),
            // Losses still reduce the congestion windows, so that an older rate is too high.
            TrialKind::MoreStreams {
                growth: GrowthReason::Loss,
                ..
            } => {
                let time = (interval.rtt.smoothed * 6).max(Duration::from_millis(200));
                let then = self.meter.counters_at(interval.at.saturating_sub(time));
                rate.min(now.since(&then).rate()).max(1)
            }
            _ => rate,
        }
    }

    /// Passes an interval to the trial under way and acts on its outcome.
    fn continue_trial(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let now = self.meter.counters();
        let Some(trial) = &mut self.trial else {
            return;
        };
        let Some(outcome) = trial.on_interval(interval, now, sample.streams_opening) else {
            return;
        };
        let (kind, from) = (trial.kind.clone(), trial.measured_from());
        self.trial = None;
        self.unchanged_since = if outcome.is_kept {
            from.map_or(interval.at, |from| from.at)
        } else {
            interval.at
        };
        // The losses of the trial belong to a setting that may be gone.
        self.loss_counter.reset();
        match kind {
            TrialKind::MoreStreams { from, to, growth } => {
                self.on_more_streams_tried((from, to), growth, outcome, interval, decisions);
                if growth == GrowthReason::Loss && outcome.is_kept {
                    self.double_streams_again(sample, outcome, interval, decisions);
                }
            }
            TrialKind::FewerStreams { from, to } => {
                self.on_fewer_streams_tried(from, to, outcome, interval, decisions);
            }
            TrialKind::CongestionControl { from, to, .. } => {
                self.on_congestion_control_tried(from, &to, outcome, interval, decisions);
            }
        }
    }

    fn decision(
        &self,
        at: Duration,
        setting: Option<TransferSetting>,
        reason: String,
    ) -> TransferDecision {
        TransferDecision {
            at,
            setting,
            limiter: self.bottleneck_times.current(),
            reason,
        }
    }

    /// A stream could not be opened. The tuner continues with `open` streams and never asks for more.
    pub fn on_stream_refused(&mut self, open: u32) {
        self.stream_cap = open.clamp(1, self.stream_cap);
        self.streams = self.streams.min(self.stream_cap);
        if matches!(&self.trial, Some(trial) if matches!(trial.kind, TrialKind::MoreStreams { .. }))
        {
            self.trial = None;
        }
    }

    /// The system refused a congestion control. The tuner does not ask for it again.
    pub fn on_congestion_control_refused(&mut self, name: &str) {
        self.limits
            .congestion_controls
            .retain(|permitted| permitted != name);
        self.congestion_control.refused.push(name.to_owned());
        if matches!(&self.trial, Some(trial) if matches!(trial.kind, TrialKind::CongestionControl { .. }))
        {
            self.trial = None;
        }
    }

    /// Time from the last sample to the next: half a round trip, 25 to 250 ms.
    pub fn next_sample_in(&self) -> Duration {
        // Two samples per round trip show every flight; more would only cost CPU.
        let half = self.meter.current_rtt().smoothed / 2;
        half.clamp(Duration::from_millis(25), Duration::from_millis(250))
    }

    /// Pacing rate of all streams together, bytes per second, if the transfer's own queue is kept short by it.
    pub fn pacing_rate(&self) -> Option<u64> {
        match &self.pacing {
            Pacing::Paced(paced) => Some(paced.pace()),
            Pacing::Draining(_) | Pacing::Free => None,
        }
    }

    /// How the path differs from what was known, if the tuner has dropped that.
    pub fn prior_disagreement(&self) -> Option<PriorDisagreement> {
        self.disagreement
    }

    /// Current limiter of the transfer, for a progress display.
    pub fn limiter(&self) -> Limiter {
        self.bottleneck_times.current()
    }

    /// Limiter of the transfer over its whole time.
    pub fn verdict(&self) -> LimiterVerdict {
        let may_add = self.streams < self.stream_cap;
        self.bottleneck_times
            .verdict(self.streams, &self.congestion_control.in_force, may_add)
    }
}

/// Whether two bottlenecks count as the same: losses come and go while they limit the congestion window.
fn is_same_bottleneck(before: Bottleneck, now: Bottleneck) -> bool {
    let is_cwnd_limit = |bottleneck| matches!(bottleneck, Bottleneck::Loss | Bottleneck::Cwnd);
    before == now || (is_cwnd_limit(before) && is_cwnd_limit(now))
}
