//! `auto`: tunes the streams, congestion control and pacing rate of one sending transfer.
//!
//! The sender samples all its streams several times a second ([`TransferSample`]). The answers are settings to apply
//! ([`TransferSetting`]), each with its reason. Every sample updates one estimate of the path (`estimate`); one table of
//! rules (`rules`) says what follows from it in each state (`state`). The number of streams comes from a model of the path
//! (`predict`) and is corrected by what happens. What can be compared at the same moment is (`side_by_side`: congestion controls
//! on streams of one transfer); other changes are judged by the rates before and after them, with their variance
//! (`experiment`). On a full path, pacing keeps the transfer's own queue short, and others get their share (`full_path`).

mod actions;
mod bottleneck_times;
mod cooldown;
mod decision;
mod estimate;
mod experiment;
mod full_path;
mod loss;
mod min_rtt;
mod pacing;
mod predict;
mod prior_knowledge;
mod rules;
mod side_by_side;
mod state;
#[cfg(test)]
mod tests;
mod thresholds;
mod transfer_meter;
mod transfer_sample;

use std::time::Duration;

use self::bottleneck_times::{BottleneckTimes, TransferBottleneck};
use self::cooldown::Cooldown;
use self::estimate::{Confidence, EstimatedLoss, PathEstimator};
use self::experiment::{Baseline, TriedChange};
use self::prior_knowledge::{PriorDisagreement, PriorKnowledge};
use self::rules::{Action, Now, RULES};
use self::side_by_side::{CandidateShare, SideBySide};
use self::state::{StateKind, TunerState};
use self::thresholds::LIMITS;
use self::transfer_meter::{TransferInterval, TransferMeter};
use crate::congestion::{SHORT_PATH, loss_tolerant_alternative};
use crate::limiter::Limiter;
use crate::observation::{Bottleneck, Hysteresis};
use crate::prior::{PathRate, Prior};

pub use self::decision::{AutoLimits, TransferDecision, TransferSetting};
pub use self::thresholds::{RoundTrips, Thresholds};
pub use self::transfer_sample::TransferSample;
pub use crate::limiter::LimiterVerdict;

/// The tuner of one sending transfer.
#[derive(Debug)]
pub struct AutoTuner {
    limits: AutoLimits,
    /// [`AutoLimits::max_streams`], or fewer if a stream could not be opened.
    stream_cap: u32,
    streams: u32,
    control: CongestionControlInUse,
    known: PriorKnowledge,
    meter: TransferMeter,
    estimator: PathEstimator,
    baseline: Baseline,
    state: TunerState,
    /// One for each [`Action`].
    cooldowns: [Cooldown; 9],
    /// Time of the last change of a setting, or of the last finding about the path.
    changed_at: Duration,
    /// Rate of the last interval, bytes per second.
    last_rate: u64,
    /// Additions of streams for windows that gained since the path was last full; `None` until it was full.
    window_steps: Option<u32>,
    times: BottleneckTimes,
    hysteresis: Hysteresis,
    /// Decisions of this sample.
    pending: Vec<TransferDecision>,
}

/// Congestion controls of this transfer.
#[derive(Debug, Default)]
struct CongestionControlInUse {
    /// The one in force at the first sample.
    system_default: String,
    in_force: String,
    refused: Vec<String>,
}

impl CongestionControlInUse {
    fn note(&mut self, in_force: &str) {
        if self.system_default.is_empty() {
            in_force.clone_into(&mut self.system_default);
        }
        in_force.clone_into(&mut self.in_force);
    }
}

impl AutoTuner {
    /// A tuner of a transfer that begins with `streams` streams and knows nothing of the path.
    pub fn new(limits: AutoLimits, streams: u32) -> Self {
        Self::from_prior(limits, Prior::with_streams(streams))
    }

    /// A tuner that begins with what is known of the path, within the limits. The caller opens that number of
    /// streams itself (one, if unknown); the first decisions set the congestion control and the pacing rate. What was known is dropped
    /// as soon as the first measurements contradict it.
    pub fn from_prior(limits: AutoLimits, prior: Prior) -> Self {
        let least = limits.min_streams.max(1);
        let most = limits.max_streams.max(least);
        let mut cooldowns = [Cooldown::default(); 9];
        for rule in &RULES {
            cooldowns[rule.action as usize] = Cooldown::new(rule.doublings);
        }
        Self {
            limits: AutoLimits {
                min_streams: least,
                max_streams: most,
                ..limits
            },
            stream_cap: most,
            streams: prior.streams.unwrap_or(1).clamp(least, most),
            control: CongestionControlInUse::default(),
            known: PriorKnowledge::new(prior),
            meter: TransferMeter::default(),
            estimator: PathEstimator::default(),
            baseline: Baseline::default(),
            state: TunerState::Steady,
            cooldowns,
            changed_at: Duration::ZERO,
            last_rate: 0,
            window_steps: None,
            times: BottleneckTimes::default(),
            hysteresis: Hysteresis::default(),
            pending: Vec::new(),
        }
    }

    /// Takes a sample of the transfer and returns decisions, mostly none. A sample that is not newer than
    /// the last one, or that has no streams, is ignored.
    pub fn on_sample(&mut self, sample: &TransferSample<'_>) -> Vec<TransferDecision> {
        let base_rtt = self.meter.current_rtt().min;
        if !self.meter.on_sample(sample) {
            return Vec::new();
        }
        let is_first = self.control.system_default.is_empty();
        // While two are compared, the streams have different ones.
        if self.state.kind() != StateKind::Compare {
            self.control.note(sample.congestion_control);
        }
        self.apply_prior(sample.at);
        let rtt = self.meter.current_rtt();
        self.estimator.on_sample(sample, self.meter.counters(), rtt);
        if is_first {
            self.compare_from_the_start(sample);
        }
        if self.meter.take_path_lengthened() {
            self.on_longer_path(base_rtt, sample);
        }
        self.continue_probe(sample);
        self.continue_comparison(sample);
        if let Some(interval) = self.meter.take_interval(sample.streams) {
            self.on_interval(sample, &interval);
        }
        std::mem::take(&mut self.pending)
    }

    /// While nothing is known of the path, every second stream begins with a loss-tolerant control, if the system permits one.
    fn compare_from_the_start(&mut self, sample: &TransferSample<'_>) {
        let incumbent = self.control.system_default.clone();
        // Timers slow a loss-tolerant control down on a short path, and a known path needs no comparison.
        let can_compare = self.streams > 1
            && self.state.kind() == StateKind::Steady
            && !self.known.has_settings
            && self.meter.current_rtt().min >= SHORT_PATH;
        let Some(candidate) = self.tolerant_candidate(&incumbent).filter(|_| can_compare) else {
            return;
        };
        let reason =
            format!("{candidate} on every second stream shows whether the path loses packets");
        let compare = SideBySide::new(candidate, incumbent, CandidateShare::Half, sample.at);
        self.compare(compare, sample, reason);
    }

    /// A loss-tolerant control to try, if the system permits it and the way back.
    fn tolerant_candidate(&self, in_force: &str) -> Option<String> {
        let permitted = &self.limits.congestion_controls;
        let candidate = loss_tolerant_alternative(in_force, permitted)?;
        let may_return = permitted.iter().any(|name| name == in_force);
        may_return.then(|| candidate.to_owned())
    }

    /// The longer round trip looked like a queue of cross traffic.
    fn on_longer_path(&mut self, before: Duration, sample: &TransferSample<'_>) {
        match self.state.kind() {
            StateKind::Shared => self.end_sharing(),
            StateKind::Steady => {}
            _ => return,
        }
        self.estimator.losses.restart(self.meter.counters());
        self.follow_longer_path(before, sample);
    }

    fn on_interval(&mut self, sample: &TransferSample<'_>, interval: &TransferInterval) {
        let limit = self.transfer_bottleneck(sample, interval);
        self.times.add_interval(interval, limit, sample.streams);
        self.estimator.on_interval(interval);
        if self.has_queue_grown(interval) {
            self.window_steps = Some(0);
        }
        self.check_prior(sample);
        self.forget_others(interval.at);
        let now = Now {
            sample,
            interval,
            path: self.estimator.path,
        };
        let was_paced = self.state.is_paced();
        if limit == TransferBottleneck::RateLimit {
            let reason = "the rate limit is below what the path carries";
            self.stop_pacing(interval.at, reason);
        } else {
            self.follow_path(&now);
            if was_paced == self.state.is_paced() {
                self.apply_rules(&now);
            }
        }
        if self.changed_at < interval.at {
            self.baseline.on_interval(interval);
        }
        self.last_rate = interval.rate();
        let at = interval.at;
        if self.pending.is_empty() && self.hysteresis.confirm_change(at, interval.bottleneck) {
            let reason = limit.describe(interval);
            self.note(reason);
        }
    }

    /// Makes the change that the first rule that applies calls for.
    fn apply_rules(&mut self, now: &Now<'_>) {
        let state = self.state.kind();
        match state {
            StateKind::Experiment => return self.continue_experiment(now),
            StateKind::Compare | StateKind::QueueProbe => return,
            StateKind::Steady | StateKind::Paced | StateKind::Shared => {}
        }
        let rate = self
            .estimator
            .expected_rate(now.interval.rate(), now.sample.streams);
        if now.sample.streams_opening > 0 || now.sample.is_nearly_over(rate, now.interval.rtt) {
            return;
        }
        // One interval may be a transient.
        let is_lossy = matches!(now.path.loss, EstimatedLoss::Random { .. });
        if state != StateKind::Paced && self.estimator.run < 2 && !is_lossy {
            return;
        }
        for rule in &RULES {
            let is_over = self.cooldowns[rule.action as usize].is_over(now.interval.at);
            if self.pending.is_empty() && is_over && rule.applies(self, state, now) {
                self.act(rule, now);
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
        // Pacing hides the queue that shows a full path.
        TransferBottleneck::Stream(if self.state.is_paced() {
            Bottleneck::Link
        } else {
            interval.bottleneck
        })
    }

    /// An action has failed: its cooldown, by the table.
    fn fail(&mut self, action: Action, at: Duration) {
        let time = RULES.iter().find(|rule| rule.action == action);
        self.fail_for(
            action,
            at,
            time.map_or(Duration::ZERO, |rule| rule.cooldown),
        );
    }

    fn fail_for(&mut self, action: Action, at: Duration, time: Duration) {
        self.cooldowns[action as usize].fail(at, time);
    }

    /// A setting has changed, or something was found out about the path: what was measured before belongs to another state.
    fn on_change(&mut self, at: Duration) {
        self.changed_at = at;
        self.baseline.restart();
        self.estimator.losses.restart(self.meter.counters());
    }

    fn set_streams(&mut self, to: u32, reason: String) {
        self.streams = to;
        self.set(TransferSetting::Streams(to), reason);
    }

    /// Decides on a setting.
    fn set(&mut self, setting: TransferSetting, reason: String) {
        self.decide(Some(setting), reason);
    }

    /// Decides to leave the settings as they are.
    fn note(&mut self, reason: String) {
        self.decide(None, reason);
    }

    fn decide(&mut self, setting: Option<TransferSetting>, reason: String) {
        self.pending.push(TransferDecision {
            at: self.meter.counters().at,
            setting,
            limiter: self.times.current(),
            reason,
        });
    }

    /// A stream could not be opened. The tuner continues with `open` streams and never asks for more.
    pub fn on_stream_refused(&mut self, open: u32) {
        self.stream_cap = open.clamp(1, self.stream_cap);
        self.streams = self.streams.min(self.stream_cap);
        self.abandon(|change| matches!(change, TriedChange::MoreStreams { .. }));
    }

    /// The system refused a congestion control. The tuner does not ask for it again.
    pub fn on_congestion_control_refused(&mut self, name: &str) {
        self.limits
            .congestion_controls
            .retain(|permitted| permitted != name);
        self.control.refused.push(name.to_owned());
        self.abandon(|change| matches!(change, TriedChange::CongestionControl { .. }));
        if matches!(&self.state, TunerState::Compare(compare) if compare.candidate == name) {
            self.state = TunerState::Steady;
        }
    }

    /// Ends an experiment that cannot be carried out.
    fn abandon(&mut self, is_void: impl Fn(&TriedChange) -> bool) {
        if let TunerState::Experiment(experiment, under) = &mut self.state
            && is_void(&experiment.change)
        {
            self.state = std::mem::replace(under, TunerState::Steady);
        }
    }

    /// Congestion control to go back to if the transfer ends now: the one in force has not proved itself yet.
    pub fn unproved_control_replaced(&self) -> Option<&str> {
        match &self.state {
            TunerState::Experiment(experiment, _) => match &experiment.change {
                TriedChange::CongestionControl {
                    from,
                    without: None,
                    ..
                } => Some(from),
                _ => None,
            },
            _ => None,
        }
    }

    /// Time from the last sample to the next: half a round trip, 10 to 250 ms; 25 ms at least once the transfer is steady.
    pub fn next_sample_in(&self) -> Duration {
        // Two samples per round trip show every flight; more would only cost CPU.
        let half = self.meter.current_rtt().smoothed / 2;
        let is_new = self.meter.counters().at < LIMITS.lasting_queue;
        let least = if is_new { 10 } else { 25 };
        half.clamp(Duration::from_millis(least), Duration::from_millis(250))
    }

    /// Pacing rate of all streams together, bytes per second, if the transfer's own queue is kept short by it.
    pub fn pacing_rate(&self) -> Option<u64> {
        self.state.pace().map(pacing::PathPace::pace)
    }

    /// Rate that the path has carried for this transfer, as far as it was measured.
    pub fn path_rate(&self) -> Option<PathRate> {
        let known = self.estimator.path.bottleneck_bandwidth;
        let is_full = known.confidence == Confidence::Measured;
        // An earlier transfer's rate is no measurement of this one.
        let rate = if is_full {
            known.value
        } else {
            self.estimator.best_rate
        };
        (rate > 0).then_some(PathRate {
            bytes_per_second: rate,
            is_full,
        })
    }

    /// How the path differs from what was known, if the tuner has dropped that.
    pub fn prior_disagreement(&self) -> Option<PriorDisagreement> {
        self.known.disagreement
    }

    /// Current limiter of the transfer, for a progress display.
    pub fn limiter(&self) -> Limiter {
        self.times.current()
    }

    /// Limiter of the transfer over its whole time.
    pub fn verdict(&self) -> LimiterVerdict {
        let may_add = self.streams < self.stream_cap;
        self.times
            .verdict(self.streams, &self.control.in_force, may_add)
    }
}
