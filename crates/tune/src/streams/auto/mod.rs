//! `auto`: streams, congestion control and pace of one transfer, decided from evidence.
//!
//! Whoever sends looks at its streams several times a second and hands all looks over as a
//! [`TransferSample`]; what comes back is to be carried out ([`TransferSetting`]), each with its reason.
//!
//! What limits comes first: streams are added only where each is limited by itself (a window, a
//! buffer, losses, a window that opens slowly), and a congestion control is changed only where losses
//! come without a queue. Every change is tried out against what was before it; what gains nothing is
//! taken back and tried ever more seldom. Streams that nothing is lost without are given back. Where
//! the path is full the queue is the price: if it is ours, the streams are paced so that it stays
//! short.

mod apply_prior;
mod bottleneck_times;
mod cooldown;
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
mod trial;

use std::time::Duration;

use self::bottleneck_times::{BottleneckTimes, TransferBottleneck};
use self::cooldown::Cooldowns;
use self::first_losses::FirstLossDetector;
use self::loss_counter::LossCounter;
use self::pacing::{HARMLESS_QUEUE, Pacing};
use self::shrink::RemovedStreams;
use self::transfer_meter::{TransferInterval, TransferMeter};
use self::trial::{GrowthReason, TrialKind, TuningTrial};
use crate::limiter::Limiter;
use crate::observation::{Bottleneck, Hysteresis, Rtt};
use crate::prior::Prior;
use crate::sample::TcpSample;
use units::bytes_in;

/// Bounds of `auto`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoLimits {
    /// Fewest streams, at least 1.
    pub min_streams: u32,
    /// Most streams at a time; equal to `least`: the number is not `auto`'s to change.
    pub max_streams: u32,
    /// Congestion controls that may be set on a live stream, as the kernel names them; empty: the one
    /// in force stays.
    pub congestion_controls: Vec<String>,
    /// The streams may be paced (SO_MAX_PACING_RATE).
    pub may_pace: bool,
}

/// A sending transfer at one moment.
#[derive(Debug, Clone, Copy)]
pub struct TransferSample<'a> {
    /// Since the transfer began.
    pub at: Duration,
    /// Payload acknowledged or handed out so far over all streams, ended ones too, bytes.
    pub bytes_moved: u64,
    /// Bytes that no stream has taken yet; `None`: not known (a pipe).
    pub bytes_left: Option<u64>,
    /// Streams at work.
    pub streams: &'a [TcpSample],
    /// Streams that are being opened.
    pub streams_opening: u32,
    /// The congestion control in force.
    pub congestion_control: &'a str,
    /// A limit on the rate that the user set, bytes per second.
    pub rate_limit: Option<u64>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferSetting {
    /// Have so many streams: open more, or let the surplus end with the block that it has begun.
    Streams(u32),
    /// Run this congestion control on all streams, also those opened later.
    CongestionControl(String),
    /// Send no faster than this over all streams together, bytes per second; `None`: as fast as TCP
    /// lets.
    PacingRate(Option<u64>),
}

/// Decision, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferDecision {
    /// Since the transfer began.
    pub at: Duration,
    /// The step to take; `None`: none, on purpose.
    pub setting: Option<TransferSetting>,
    /// Limiter of the transfer.
    pub limiter: Limiter,
    /// In plain words.
    pub reason: String,
}

/// Limiter of the transfer over its time, and what would change that.
#[derive(Debug, Clone, PartialEq)]
pub struct LimiterVerdict {
    /// What, for most of the time.
    pub limiter: Limiter,
    /// Streams at the end.
    pub streams: u32,
    /// Congestion control at the end.
    pub congestion_control: String,
    /// Advice that would make it faster: an imperative in plain words, to follow "to change that: "; `None`:
    /// nothing that is known of, or nothing at all (a full path).
    pub remedy: Option<String>,
}

/// The policy of one sending transfer.
#[derive(Debug)]
pub struct AutoTuner {
    limits: AutoLimits,
    /// [`AutoLimits::most`], or what could be opened.
    stream_cap: u32,
    streams: u32,
    /// Earlier knowledge; until the first scene.
    prior: Option<Prior>,
    /// The rate that the path is known for, bytes per second; 0: not known.
    known_rate: u64,
    meter: TransferMeter,
    congestion_control: CongestionControlInUse,
    trial: Option<TuningTrial>,
    pacing: Pacing,
    loss_counter: LossCounter,
    first_losses: FirstLossDetector,
    cooldowns: Cooldowns,
    /// Streams that losses have proved to be needed, until when.
    needed_streams: (u32, Duration),
    removed_streams: Option<RemovedStreams>,
    /// Nothing has been changed, tried or learned since.
    unchanged_since: Duration,
    /// The rate of the last sight, bytes per second.
    last_rate: u64,
    /// The class of the last sights, and of how many in turn.
    bottleneck_run: (Bottleneck, u32),
    /// The largest window or buffer so far, bytes, and when it last grew.
    largest_window: (u64, Duration),
    /// Others have filled the queue since, and did when it was last drained.
    cross_traffic: Option<(Duration, Duration)>,
    /// Nothing has queued since.
    queue_free_since: Duration,
    /// When something was last lost.
    last_loss: Option<Duration>,
    /// No stream has been in its first slow start since.
    last_slow_start: Duration,
    hysteresis: Hysteresis,
    bottleneck_times: BottleneckTimes,
}

/// The congestion control.
#[derive(Debug, Default)]
struct CongestionControlInUse {
    /// The first one seen.
    system_default: String,
    in_force: String,
    refused: Vec<String>,
}

/// Less is left to send than moves in this time: nothing is worth a change any more.
const MIN_TIME_LEFT: Duration = Duration::from_secs(1);
/// A limit that the user set explains a rate from this part of it on, per cent.
const RATE_LIMIT_REACHED: u64 = 85;

impl AutoTuner {
    /// Begins with `streams` streams, and nothing known of the path.
    pub fn new(limits: AutoLimits, streams: u32) -> Self {
        Self::from_prior(limits, Prior::with_streams(streams))
    }

    /// Begins with what is known, as far as the limits let it: with so many streams (one, if that is not
    /// known), which are there or being opened already; the first decisions are for the congestion
    /// control and the pace.
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
            queue_free_since: Duration::ZERO,
            last_loss: None,
            last_slow_start: Duration::ZERO,
            hysteresis: Hysteresis::default(),
            bottleneck_times: BottleneckTimes::default(),
        }
    }

    /// Decisions that follow from a look at the transfer; mostly none. A scene that is not newer than the
    /// last, or without streams, is ignored.
    pub fn on_sample(&mut self, scene: &TransferSample<'_>) -> Vec<TransferDecision> {
        let mut decisions = Vec::new();
        if !self.meter.on_sample(scene) {
            return decisions;
        }
        if self.congestion_control.system_default.is_empty() {
            scene
                .congestion_control
                .clone_into(&mut self.congestion_control.system_default);
        }
        scene
            .congestion_control
            .clone_into(&mut self.congestion_control.in_force);
        if self.meter.take_path_lengthened() {
            // What was taken for others' queue was the way.
            self.cross_traffic = None;
        }
        self.apply_prior(scene, &mut decisions);
        self.note_largest_window(scene);
        self.continue_drain(scene, &mut decisions);
        self.watch_first_losses(scene, &mut decisions);
        if let Some(sight) = self.meter.take_interval(scene.streams) {
            self.on_interval(scene, &sight, &mut decisions);
        }
        decisions
    }

    fn on_interval(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let limit = self.transfer_bottleneck(scene, sight);
        self.bottleneck_times
            .add_interval(sight, limit, scene.streams);
        self.loss_counter.on_interval(sight, self.meter.counters());
        self.bottleneck_run = match self.bottleneck_run {
            (class, times) if is_same_bottleneck(class, sight.bottleneck) => {
                (sight.bottleneck, times.saturating_add(1))
            }
            _ => (sight.bottleneck, 1),
        };
        if sight.rtt.has_queue() {
            self.queue_free_since = sight.at;
        }
        if sight.has_losses {
            self.last_loss = Some(sight.at);
        }
        if sight.in_slow_start {
            self.last_slow_start = sight.at;
        }
        if limit == TransferBottleneck::RateLimit {
            self.stop_pacing(
                sight.at,
                "the rate limit is below what the path carries",
                decisions,
            );
        } else if self.follow_path(sight, decisions) {
            self.cancel_trial(sight, decisions);
        } else if self.trial.is_some() {
            self.continue_trial(scene, sight, decisions);
        } else if scene.streams_opening == 0 {
            let rate = self.expected_rate(sight.rate, scene.streams);
            if !is_nearly_over(scene, rate, sight.rtt) {
                self.respond_to_bottleneck(scene, sight, decisions);
            }
        }
        self.last_rate = sight.rate;
        if decisions.is_empty() && self.hysteresis.is_change(sight.at, sight.bottleneck) {
            let reason = limit.describe(sight);
            decisions.push(self.decision(sight.at, None, reason));
        }
    }

    /// Whatever fits what limits.
    fn respond_to_bottleneck(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        match self.pacing {
            Pacing::Draining(_) => return,
            Pacing::Paced(_) => {
                self.try_fewer_streams(scene, sight, decisions);
                return;
            }
            Pacing::Free => {}
        }
        if self.bottleneck_run.1 < 2 {
            return;
        }
        match sight.bottleneck {
            Bottleneck::ReceiveWindow | Bottleneck::SendBuffer => {
                self.add_streams_for_full_buffers(scene, sight, decisions);
            }
            Bottleneck::Link => self.respond_to_full_path(scene, sight, decisions),
            Bottleneck::Loss | Bottleneck::Cwnd => {
                self.respond_to_cwnd_limit(scene, sight, decisions);
            }
            Bottleneck::SenderApp => self.try_fewer_streams(scene, sight, decisions),
            Bottleneck::SlowStart
            | Bottleneck::Unknown
            | Bottleneck::ReceiverApp
            | Bottleneck::SenderOrPath => {}
        }
    }

    /// Each stream's congestion window limits it, with a short queue or none.
    fn respond_to_cwnd_limit(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let queue = sight.rtt.has_queue() && sight.queueing_delay() > HARMLESS_QUEUE;
        if queue && self.may_drain_queue(sight) {
            self.start_drain(sight, decisions);
        } else if self.has_cross_traffic(sight.at) {
            if queue {
                self.reduce_to_fair_share(sight, decisions);
            }
        } else {
            self.restore_removed_streams(sight, decisions);
            if decisions.is_empty() {
                self.respond_to_loss(scene, sight, decisions);
            }
            if decisions.is_empty() {
                self.add_streams_for_slow_growth(scene, sight, decisions);
            }
            if decisions.is_empty() {
                self.try_fewer_streams(scene, sight, decisions);
            }
        }
    }

    fn transfer_bottleneck(
        &self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
    ) -> TransferBottleneck {
        if is_rate_limited(scene, sight.rate) {
            return TransferBottleneck::RateLimit;
        }
        match self.pacing {
            // What is paced is a full path, whatever the streams look like.
            Pacing::Draining(_) | Pacing::Paced(_) => TransferBottleneck::Stream(Bottleneck::Link),
            Pacing::Free => TransferBottleneck::Stream(sight.bottleneck),
        }
    }

    /// A window or buffer that still grows by itself is waited for.
    fn note_largest_window(&mut self, scene: &TransferSample<'_>) {
        let room = |look: &TcpSample| match self.bottleneck_run.0 {
            Bottleneck::SendBuffer => look.send_buffer,
            _ => look.peer_window,
        };
        let room = scene.streams.iter().map(room).max().unwrap_or_default();
        if room / 21 > self.largest_window.0 / 20 {
            self.largest_window = (room, scene.at);
        }
    }

    /// Tries something out, against the rate of what has been the same for long enough.
    fn begin_trial(&mut self, kind: TrialKind, sight: &TransferInterval) {
        let before = self.rate_before_trial(&kind, sight);
        self.begin_trial_against(kind, before, sight.at, sight.rtt);
    }

    /// Tries something out, against a rate of `before`, bytes per second.
    fn begin_trial_against(&mut self, kind: TrialKind, before: u64, at: Duration, trip: Rtt) {
        self.trial = Some(TuningTrial::new(kind, before, at, trip.smoothed));
        self.first_losses.stop();
        self.unchanged_since = at;
    }

    /// The rate before a trial, over at least ten round trips and a second, if it is steady for so
    /// long.
    fn rate_before_trial(&self, kind: &TrialKind, sight: &TransferInterval) -> u64 {
        let time = (sight.rtt.smoothed * 10).max(Duration::from_secs(1));
        let from = self.unchanged_since.max(sight.at.saturating_sub(time));
        let now = self.meter.counters();
        let rate = now.rate_since(&self.meter.counters_at(from));
        match kind {
            // Windows and buffers make a rate even, and the last one is that of all streams.
            TrialKind::MoreStreams {
                why: GrowthReason::FullBuffers,
                ..
            } if !sight.is_recovering => rate.max(sight.rate),
            _ if rate == 0 => sight.rate,
            // Windows that losses are still cutting were larger before.
            TrialKind::MoreStreams {
                why: GrowthReason::Loss,
                ..
            } => {
                let time = (sight.rtt.smoothed * 6).max(Duration::from_millis(200));
                let then = self.meter.counters_at(sight.at.saturating_sub(time));
                rate.min(now.rate_since(&then)).max(1)
            }
            _ => rate,
        }
    }

    /// A trial is under way; its outcome when there is one.
    fn continue_trial(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let now = self.meter.counters();
        let Some(trial) = &mut self.trial else {
            return;
        };
        let Some(outcome) = trial.on_interval(sight, now, scene.streams_opening) else {
            return;
        };
        let (kind, from) = (trial.kind.clone(), trial.measured_from());
        self.trial = None;
        self.unchanged_since = if outcome.is_kept {
            from.map_or(sight.at, |from| from.at)
        } else {
            sight.at
        };
        self.loss_counter.reset();
        match kind {
            TrialKind::MoreStreams { from, to, why } => {
                self.on_more_streams_tried((from, to), why, outcome, sight, decisions);
                if why == GrowthReason::Loss && outcome.is_kept {
                    self.double_streams_again(scene, outcome, sight, decisions);
                }
            }
            TrialKind::FewerStreams { from, to } => {
                self.on_fewer_streams_tried(from, to, outcome, sight, decisions);
            }
            TrialKind::CongestionControl { from, to, .. } => {
                self.on_congestion_control_tried(from, &to, outcome, sight, decisions);
            }
        }
    }

    fn decision(
        &self,
        at: Duration,
        step: Option<TransferSetting>,
        reason: String,
    ) -> TransferDecision {
        TransferDecision {
            at,
            setting: step,
            limiter: self.bottleneck_times.current(),
            reason,
        }
    }

    /// A stream that was asked for could not be opened: the policy goes on with `open` streams, and
    /// never asks for more.
    pub fn on_stream_refused(&mut self, open: u32) {
        self.stream_cap = open.clamp(1, self.stream_cap);
        self.streams = self.streams.min(self.stream_cap);
        if matches!(&self.trial, Some(trial) if matches!(trial.kind, TrialKind::MoreStreams { .. }))
        {
            self.trial = None;
        }
    }

    /// A congestion control that was asked for was refused, and is not asked for again.
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

    /// When the next look is due, after the last: twice a round trip.
    pub fn next_sample_in(&self) -> Duration {
        let half = self.meter.current_rtt().smoothed / 2;
        half.clamp(Duration::from_millis(25), Duration::from_millis(250))
    }

    /// Limiter of the transfer now, for a progress display.
    pub fn limiter(&self) -> Limiter {
        self.bottleneck_times.current()
    }

    /// Limiter of the transfer over all.
    pub fn verdict(&self) -> LimiterVerdict {
        let may_add = self.streams < self.stream_cap;
        self.bottleneck_times
            .verdict(self.streams, &self.congestion_control.in_force, may_add)
    }
}

/// Losses come and go while they limit.
fn is_same_bottleneck(before: Bottleneck, now: Bottleneck) -> bool {
    let path = |class| matches!(class, Bottleneck::Loss | Bottleneck::Cwnd);
    before == now || (path(before) && path(now))
}

/// A limit that the user set explains this rate, bytes per second.
fn is_rate_limited(scene: &TransferSample<'_>, rate: u64) -> bool {
    scene
        .rate_limit
        .is_some_and(|limit| rate >= limit / 100 * RATE_LIMIT_REACHED)
}

/// At this rate, bytes per second, nothing that is begun now would be worth it.
fn is_nearly_over(scene: &TransferSample<'_>, rate: u64, trip: Rtt) -> bool {
    scene
        .bytes_left
        .is_some_and(|left| left < bytes_in(rate, MIN_TIME_LEFT.max(trip.smoothed * 4)))
}
