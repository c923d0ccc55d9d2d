//! Carries out the rules, and acts on their outcome.

use std::time::Duration;

use units::{bytes_in, show};

use super::AutoTuner;
use super::decision::TransferSetting;
use super::estimate::{Confidence, EstimatedLoss, per_cent, segment};
use super::experiment::{Before, Experiment, ExperimentOutcome, RateMoments, TriedChange, bits};
use super::predict::{stream_rate_under_loss, streams_for_gain, streams_to_fill};
use super::rules::{Action, Now, Rule};
use super::side_by_side::{CandidateShare, ControlComparison, SideBySide};
use super::state::TunerState;
use super::thresholds::LIMITS;
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;
use crate::congestion::is_loss_tolerant;
use crate::observation::Bottleneck;
use crate::prior::MIN_BYTES_PER_STREAM;
use crate::sample::TcpSample;

/// Most doublings of a step of streams for windows.
const MOST_DOUBLINGS: u32 = 8;

/// Guards of the rules.
impl AutoTuner {
    /// Whether little is left to gain of what the path is known to carry, as certain as that.
    fn is_near_known_rate(now: &Now<'_>, confidence: Confidence) -> bool {
        let known = now.path.bottleneck_bandwidth;
        known.confidence >= confidence
            && now.interval.rate() as f64 >= known.value as f64 * LIMITS.near_rate
    }

    /// A rate that still rises by 5 % per interval needs no more streams.
    fn is_rising(&self, now: &Now<'_>) -> bool {
        now.interval.rate() / 21 > self.last_rate / 20
    }

    pub(super) fn have_windows_stopped_growing(&self, now: &Now<'_>) -> bool {
        // A queue that others keep, too, and that does not grow, leaves room for the next step.
        let is_open = now.path.bottleneck != Bottleneck::Link
            || (self.state.sharing().is_some()
                && do_windows_limit(now.sample.streams)
                && !self.has_queue_grown(now.interval));
        is_open
            && now.has_passed(LIMITS.settle_streams, self.estimator.window_grown)
            && now.has_passed(LIMITS.settle_streams, self.changed_at)
            && !self.is_rising(now)
            && !now.interval.rtt.is_local()
    }

    pub(super) fn are_losses_each_streams_own(&self, now: &Now<'_>) -> bool {
        let streams = now.sample.streams;
        let started = streams.iter().filter(|tcp| !tcp.in_slow_start).count();
        // Behind a slow start nobody knows what losses will leave, unless the model does: it knows no timeouts.
        let has_settled = now.has_passed(LIMITS.measure_losses, self.estimator.slow_start_seen);
        let each = now.interval.rate() / u64::from(self.streams.max(1));
        let model = stream_rate_under_loss(&now.path, segment(streams));
        started * 2 >= streams.len()
            && (has_settled || model.is_some_and(|model| model <= each))
            && (!is_loss_tolerant(&self.control.in_force)
                || (now.has_passed(LIMITS.slow_growth, self.changed_at)
                    && !Self::is_near_known_rate(now, Confidence::Earlier)
                    && !self.is_rising(now)))
    }

    pub(super) fn do_windows_grow_slowly(&self, now: &Now<'_>) -> bool {
        let last = self.changed_at.max(self.estimator.queue_seen);
        let last = last.max(self.estimator.loss_seen.unwrap_or_default());
        now.has_passed(LIMITS.slow_growth, last)
            && !Self::is_near_known_rate(now, Confidence::Measured)
            && !now.interval.in_slow_start
            && now.interval.rtt.min >= LIMITS.long_path
            && !is_loss_tolerant(&self.control.in_force)
    }

    /// Nothing was changed for some round trips. (A stream that waits for its program may stay in slow start for ever.)
    pub(super) fn has_rate_settled(&self, now: &Now<'_>) -> bool {
        now.has_passed(LIMITS.steady, self.changed_at)
    }

    /// Whether a path loses so much, for longer than a slow start's end is repaired, that its streams take each other's segments:
    /// many transfers began at once, and no window is left that could become smaller.
    pub(super) fn is_crowded(&self, now: &Now<'_>) -> bool {
        let at = now.interval.at;
        let half = LIMITS.recovery.at(now.interval.rtt.smoothed);
        let Some(begin) = at.checked_sub(half * 2) else {
            return false;
        };
        let [begin, middle] = [begin, at.saturating_sub(half)].map(|at| self.meter.counters_at(at));
        let ratios = [middle.since(&begin), self.meter.counters().since(&middle)];
        begin.at >= self.changed_at
            && ratios
                .iter()
                .all(|half| half.loss_ratio() >= LIMITS.crowded_loss)
    }

    /// No stream has a limit of its own (then fewer carry less), the rate has been steady for long enough to tell whether fewer carry
    /// it, and enough is left.
    pub(super) fn may_streams_be_too_many(&self, now: &Now<'_>) -> bool {
        let rtt = now.interval.rtt;
        let limits_each = matches!(now.path.bottleneck, Bottleneck::Cwnd | Bottleneck::Loss)
            && !rtt.has_queue()
            && !is_loss_tolerant(&self.control.in_force);
        if limits_each && !self.state.is_paced() {
            return false;
        }
        // Losses make a rate uneven, and a store stalls now and then.
        let patience = match now.path.bottleneck {
            Bottleneck::Link | Bottleneck::SenderApp => LIMITS.steady,
            _ if self.state.is_paced() => LIMITS.steady,
            _ => LIMITS.steady_uneven,
        };
        // Under pacing a slow start cannot overrun the path, and a stream that waits for its program may never leave it.
        let since = if self.state.is_paced() || now.path.bottleneck.is_program() {
            self.changed_at
        } else {
            self.changed_at.max(self.estimator.slow_start_seen)
        };
        let left = bytes_in(now.interval.rate(), LIMITS.left_for_fewer.at(rtt.smoothed));
        now.has_passed(patience, since)
            && now.sample.bytes_left.is_none_or(|bytes| bytes >= left)
            && (self.state.is_paced() || self.estimator.run >= 2)
            && self
                .state
                .pace()
                .is_none_or(super::pacing::PathPace::is_used)
    }

    /// Streams whose windows, perhaps the smallest ones, hold what fills the path, as long as they do not grow.
    fn streams_that_hold_the_path(&self, now: &Now<'_>) -> u32 {
        if now.interval.bottleneck.is_program() {
            // The network does not limit.
            return self.streams / 2;
        }
        let mut windows: Vec<u64> = now.sample.streams.iter().map(usable_window).collect();
        windows.sort_unstable();
        let rate = now.interval.rate().max(now.path.bottleneck_bandwidth.value);
        let filled = bytes_in(rate, now.interval.rtt.min);
        let sums = windows.iter().scan(0_u64, |sum, window| {
            *sum = sum.saturating_add(*window);
            Some(*sum)
        });
        let held = sums.take_while(|sum| *sum < filled).count() + 1;
        u32::try_from(held).unwrap_or(u32::MAX)
    }
}

impl AutoTuner {
    /// Does what the rule says, if there is anything to change.
    pub(super) fn act(&mut self, rule: &Rule, now: &Now<'_>) {
        match rule.action {
            Action::LeaveCrowd => self.leave_crowd(now),
            Action::StreamsForWindows => self.add_streams_for_windows(now),
            Action::ProbeQueue => self.probe_queue(now.interval),
            Action::TakeFairShare => self.take_fair_share(now.interval, now.sample),
            Action::TolerantControl => self.try_tolerant_control(now),
            Action::StreamsForLoss => self.add_streams_for_loss(now),
            Action::StreamsForSlowGrowth => {
                self.add_streams_for_slow_growth(now.interval, now.sample);
            }
            Action::StreamsForProgram => self.add_streams_for_program(now),
            Action::FewerStreams => self.try_fewer_streams(now),
        }
    }

    fn add_streams_for_windows(&mut self, now: &Now<'_>) {
        let (interval, sample) = (now.interval, now.sample);
        let each = interval.rate() / u64::from(self.streams.max(1));
        let wanted = match self.window_steps {
            Some(steps) => self.streams.saturating_add(1 << steps.min(MOST_DOUBLINGS)),
            // A queue means a nearly full path, or bursts of this transfer: a small step is safe in both cases.
            None if interval.rtt.has_queue() => {
                self.streams.saturating_add((self.streams / 4).max(1))
            }
            None => streams_to_fill(&now.path, each, self.streams),
        };
        let Some(to) = self.allowed_streams(wanted, sample) else {
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
        self.try_more_streams(to, Action::StreamsForWindows, interval, reason);
    }

    fn add_streams_for_loss(&mut self, now: &Now<'_>) {
        let rate = now.interval.rate() / u64::from(self.streams.max(1));
        let model = stream_rate_under_loss(&now.path, segment(now.sample.streams));
        // Windows still fall to what the losses allow, or rise to it.
        let each = model.map_or(rate, |model| model.min(rate));
        let (wanted, allowed) = if is_loss_tolerant(&self.control.in_force) {
            // No model says what they lack: a window, a processor, or their own start.
            (self.streams.saturating_mul(2), None)
        } else {
            let allowed = each.saturating_mul(self.streams.into());
            let wanted = streams_to_fill(&now.path, each, self.streams);
            (wanted, Some(allowed))
        };
        let Some(to) = self.allowed_streams(wanted, now.sample) else {
            return;
        };
        let reason = format!(
            "{}: {to} streams instead of {}",
            now.path.describe_loss(now.interval.rtt),
            self.streams
        );
        let change = TriedChange::MoreStreams {
            from: self.streams,
            to,
            action: Action::StreamsForLoss,
        };
        self.experiment(change, allowed, now.interval);
        self.set_streams(to, reason);
    }

    pub(super) fn add_streams_for_slow_growth(
        &mut self,
        interval: &TransferInterval,
        sample: &TransferSample<'_>,
    ) {
        let reason = format!(
            "nothing queues at {} and the congestion windows grow slowly ({})",
            show::bits(interval.rate().saturating_mul(8)),
            show::time(interval.rtt.min)
        );
        let action = Action::StreamsForSlowGrowth;
        self.double_streams(action, &reason, interval, sample);
    }

    fn add_streams_for_program(&mut self, now: &Now<'_>) {
        let speed = show::bits(now.interval.rate().saturating_mul(8));
        let reason = format!("the sending program writes only {speed}, perhaps on each stream");
        let action = Action::StreamsForProgram;
        self.double_streams(action, &reason, now.interval, now.sample);
    }

    fn double_streams(
        &mut self,
        action: Action,
        reason: &str,
        interval: &TransferInterval,
        sample: &TransferSample<'_>,
    ) {
        if let Some(to) = self.allowed_streams(self.streams.saturating_mul(2), sample) {
            let reason = format!("{reason}: {to} streams instead of {}", self.streams);
            self.try_more_streams(to, action, interval, reason);
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
        action: Action,
        interval: &TransferInterval,
        reason: String,
    ) {
        let change = TriedChange::MoreStreams {
            from: self.streams,
            to,
            action,
        };
        self.experiment(change, None, interval);
        self.set_streams(to, reason);
    }

    /// No experiment: fewer streams are for all who share the path, whatever this transfer's rate becomes.
    fn leave_crowd(&mut self, now: &Now<'_>) {
        let least = self.limits.min_streams.min(self.stream_cap);
        let to = (self.streams / 2).max(least);
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "more than {} of all segments are lost: {to} streams instead of {}, so that those that share the path get through",
            per_cent(LIMITS.crowded_loss),
            self.streams
        );
        self.on_change(now.interval.at);
        for more in [Action::StreamsForLoss, Action::StreamsForWindows] {
            self.fail(more, now.interval.at);
        }
        self.set_streams(to, reason);
    }

    fn try_fewer_streams(&mut self, now: &Now<'_>) {
        let interval = now.interval;
        let needed = self.streams_that_hold_the_path(now);
        let has_failed = self.cooldowns[Action::FewerStreams as usize].failures() > 0;
        let most = if has_failed {
            self.streams / 4
        } else {
            self.streams
        };
        let needed = needed.max(self.streams - most.max(1));
        let least = self.limits.min_streams.min(self.stream_cap);
        let to = needed.max(least);
        if to >= self.streams {
            return;
        }
        let (from, speed) = (self.streams, show::bits(interval.rate().saturating_mul(8)));
        let reason = format!(
            "fewer streams may be enough: {to} instead of {from} if the rate stays at {speed}"
        );
        self.experiment(TriedChange::FewerStreams { from, to }, None, interval);
        self.set_streams(to, reason);
    }

    fn try_tolerant_control(&mut self, now: &Now<'_>) {
        let in_force = self.control.in_force.clone();
        let Some(candidate) = self.tolerant_candidate(&in_force) else {
            return;
        };
        let candidate = candidate.as_str();
        let description = now.path.describe_loss(now.interval.rtt);
        if self.streams > 1 {
            let at = now.interval.at;
            let compare = SideBySide::new(candidate.to_owned(), in_force, CandidateShare::One, at);
            let reason = format!("{description}: {candidate} on one stream beside the others");
            self.compare(compare, now.sample, reason);
        } else {
            let reason = format!("{description}: {candidate} instead of {in_force}");
            self.switch_control(candidate, None, now.interval, reason);
        }
    }

    /// Begins to compare two controls.
    pub(super) fn compare(
        &mut self,
        mut compare: SideBySide,
        sample: &TransferSample<'_>,
        reason: String,
    ) {
        let streams = compare.assign(sample.streams);
        let name = compare.candidate.clone();
        self.state = TunerState::Compare(compare);
        self.on_change(sample.at);
        let setting = TransferSetting::StreamCongestionControl { streams, name };
        self.set(setting, reason);
    }

    /// Passes a sample to the comparison of controls.
    pub(super) fn continue_comparison(&mut self, sample: &TransferSample<'_>) {
        let TunerState::Compare(compare) = &mut self.state else {
            return;
        };
        let joined = compare.assign(sample.streams);
        let rtt = self.meter.current_rtt();
        let path = self.estimator.path;
        let outcome = compare.on_sample(sample, rtt, &path, self.estimator.losses.has_events());
        let (candidate, incumbent) = (compare.candidate.clone(), compare.incumbent.clone());
        let without = compare.incumbent_rate() * f64::from(self.streams);
        match outcome {
            ControlComparison::Undecided if joined.is_empty() => {}
            ControlComparison::Undecided => {
                let reason = format!("{candidate} on every second stream, to compare");
                let setting = TransferSetting::StreamCongestionControl {
                    streams: joined,
                    name: candidate,
                };
                self.set(setting, reason);
            }
            ControlComparison::CandidateWins => {
                let loss = path.describe_loss(rtt);
                let reason = if loss.is_empty() {
                    format!(
                        "streams with {candidate} are faster: {candidate} instead of {incumbent}"
                    )
                } else {
                    format!("{loss}: {candidate} instead of {incumbent}")
                };
                let interval = self.meter.since(self.changed_at);
                self.state = TunerState::Steady;
                self.switch_control(&candidate, Some(without), &interval, reason);
            }
            ControlComparison::IncumbentStays => {
                self.state = TunerState::Steady;
                // The path may have filled, or a window limited, before anything was decided.
                self.fail_for(Action::TolerantControl, sample.at, LIMITS.lasting_queue);
                let reason = format!("streams with {candidate} are not faster: {incumbent} stays");
                let setting = TransferSetting::CongestionControl(incumbent);
                self.set(setting, reason);
            }
        }
    }

    /// `without`: see [`TriedChange::CongestionControl`].
    fn switch_control(
        &mut self,
        to: &str,
        without: Option<f64>,
        interval: &TransferInterval,
        reason: String,
    ) {
        let change = TriedChange::CongestionControl {
            from: self.control.in_force.clone(),
            to: to.to_owned(),
            without,
        };
        self.experiment(change, None, interval);
        let setting = TransferSetting::CongestionControl(to.to_owned());
        self.set(setting, reason);
    }

    /// Begins an experiment against the rates before it. `allowed`: see [`Before`].
    fn experiment(
        &mut self,
        change: TriedChange,
        allowed: Option<u64>,
        interval: &TransferInterval,
    ) {
        let rates = match &change {
            // Windows that losses still reduce carry less than they did.
            TriedChange::MoreStreams { .. } if allowed.is_none() => {
                self.baseline.moments_at_least(interval.rate())
            }
            TriedChange::CongestionControl {
                without: Some(rate),
                ..
            } => RateMoments::of(*rate),
            _ => self.baseline.moments(interval.rate()),
        };
        let loss = match self.estimator.path.loss {
            EstimatedLoss::Random { high, .. } => high,
            // Nothing was lost before.
            EstimatedLoss::None if !self.estimator.losses.has_events() => LIMITS.least_loss,
            EstimatedLoss::None | EstimatedLoss::WithQueue => LIMITS.most_loss,
        };
        let before = Before {
            rates,
            allowed,
            loss,
        };
        let experiment = Experiment::new(change, before, interval.at, interval.rtt.smoothed);
        let under = std::mem::replace(&mut self.state, TunerState::Steady);
        self.state = TunerState::Experiment(experiment, Box::new(under));
        self.on_change(interval.at);
    }

    /// Passes an interval to the experiment under way and acts on its outcome.
    pub(super) fn continue_experiment(&mut self, now: &Now<'_>) {
        let counters = self.meter.counters();
        let TunerState::Experiment(experiment, under) = &mut self.state else {
            return;
        };
        let Some(outcome) =
            experiment.on_interval(now.interval, counters, now.sample.streams_opening)
        else {
            return;
        };
        let change = experiment.change.clone();
        self.state = std::mem::replace(under, TunerState::Steady);
        self.on_change(now.interval.at);
        match change {
            TriedChange::MoreStreams {
                from, to, action, ..
            } => self.on_more_streams((from, to), action, outcome, now),
            TriedChange::FewerStreams { from, to } => {
                self.on_fewer_streams(from, to, outcome, now);
            }
            TriedChange::CongestionControl { from, to, .. } => {
                self.on_control(from, &to, outcome, now.interval);
            }
        }
    }

    fn on_more_streams(
        &mut self,
        (from, to): (u32, u32),
        action: Action,
        outcome: ExperimentOutcome,
        now: &Now<'_>,
    ) {
        let at = now.interval.at;
        let mut reason = format!("{to} streams carry {}", outcome.describe());
        if !outcome.is_kept {
            self.fail(action, at);
            reason = format!("{reason}: back to {from}");
            self.set_streams(from, reason);
            return;
        }
        self.cooldowns[action as usize].reset();
        if let Some(steps) = self.window_steps.as_mut() {
            *steps = steps.saturating_add(1);
        }
        // Streams that have just proved useful are not put to the test at once.
        self.cooldowns[Action::FewerStreams as usize].extend(at, LIMITS.lasting_queue);
        self.note(reason);
    }

    fn on_fewer_streams(&mut self, from: u32, to: u32, outcome: ExperimentOutcome, now: &Now<'_>) {
        let (interval, sample) = (now.interval, now.sample);
        let at = interval.at;
        if outcome.is_kept {
            // Losses must not open the closed streams again at once.
            for action in [Action::StreamsForLoss, Action::StreamsForSlowGrowth] {
                self.cooldowns[action as usize].extend(at, LIMITS.lasting_queue);
            }
            let reason = format!("{to} streams do as well: {}", outcome.describe());
            self.note(reason);
            return;
        }
        self.fail(Action::FewerStreams, at);
        if !self.limits.may_pace && interval.rtt.is_congested() {
            // No probe can tell whose queue it is. The path stayed full although this transfer sent less.
            let reason = format!(
                "{to} streams carry {} on a full path: cross traffic took the rest",
                outcome.describe()
            );
            self.note(reason);
            self.share_path(at);
            self.take_fair_share(interval, sample);
            return;
        }
        let from = from.min(self.stream_cap);
        let reason = format!("{to} streams carry {}: back to {from}", outcome.describe());
        self.set_streams(from, reason);
    }

    fn on_control(
        &mut self,
        from: String,
        to: &str,
        outcome: ExperimentOutcome,
        interval: &TransferInterval,
    ) {
        let at = interval.at;
        let description = format!(
            "{to} carries {} and loses {}",
            outcome.describe(),
            per_cent(outcome.loss)
        );
        if outcome.is_kept {
            self.cooldowns[Action::TolerantControl as usize].reset();
            self.note(description);
            return;
        }
        self.fail(Action::TolerantControl, at);
        // The congestion windows are still those of the tried control. Adding streams waits until losses
        // have reduced them.
        let calm = LIMITS.calm_after_control.at(interval.rtt.min);
        self.cooldowns[Action::StreamsForLoss as usize].extend(at, calm);
        let reason = format!("{description}: back to {from}");
        let setting = TransferSetting::CongestionControl(from);
        self.set(setting, reason);
    }

    /// The route became longer: the windows of before carry less over it.
    pub(super) fn follow_longer_path(&mut self, before: Duration, sample: &TransferSample<'_>) {
        let rtt = self.meter.current_rtt();
        let interval = self.meter.since(sample.at.saturating_sub(rtt.smoothed * 4));
        let rate = self.estimator.proved_rate.max(interval.rate()) as f64;
        let wanted = streams_for_gain(self.streams, rate / interval.rate().max(1) as f64);
        let is_slower = rate >= interval.rate() as f64 * LIMITS.worthwhile_gain;
        if !is_slower || is_loss_tolerant(&self.control.in_force) || rtt.min < LIMITS.long_path {
            return;
        }
        let Some(to) = self.allowed_streams(wanted, sample) else {
            return;
        };
        let reason = format!(
            "a round trip takes {} instead of {}, and {} are to be kept: {to} streams instead of {}",
            show::time(rtt.min),
            show::time(before),
            bits(rate),
            self.streams
        );
        self.try_more_streams(to, Action::StreamsForSlowGrowth, &interval, reason);
    }
}

/// Window that this stream can use, bytes.
fn usable_window(tcp: &TcpSample) -> u64 {
    match tcp.peer_window {
        // Closed at the moment, or older kernels do not show it.
        0 => tcp.cwnd,
        window => tcp.cwnd.min(window),
    }
}

/// Whether the peer's windows limit most streams.
pub(super) fn do_windows_limit(samples: &[TcpSample]) -> bool {
    let limited = samples
        .iter()
        .filter(|tcp| tcp.peer_window > 0 && tcp.cwnd >= tcp.peer_window / 10 * 9);
    limited.count() * 2 >= samples.len()
}
