//! A full path: paces if the queue is the transfer's own, takes a fair share if others queue, too.

use std::time::Duration;

use units::{bytes_per_second, show, splitmix};

use super::AutoTuner;
use super::actions::do_windows_limit;
use super::decision::TransferSetting;
use super::estimate::{Intrusion, QueueOwner};
use super::experiment::TriedChange;
use super::pacing::{DrainResult, PaceUpdate, PathPace, QueueDrain};
use super::rules::{Action, Now};
use super::state::{Sharing, TunerState};
use super::thresholds::LIMITS;
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;
use crate::congestion::is_loss_tolerant;
use crate::observation::{Bottleneck, Rtt};

/// Bytes that a stream may at least have in flight while a queue is drained: some segments.
const LEAST_IN_FLIGHT: u64 = 8 << 10;
/// Part of the path that a transfer has at most beside another one that is its equal, with a margin.
const MOST_OF_SHARED_PATH: f64 = 0.6;

impl AutoTuner {
    /// Whether a queue may be drained: a long one of a full path at once; one below half a round trip if it lasts, since then the
    /// smallest round trip may be wrong.
    pub(super) fn may_probe_queue(&self, now: &Now<'_>) -> bool {
        let (at, rtt) = (now.interval.at, now.interval.rtt);
        let stable = LIMITS.lasting_queue.max(rtt.smoothed * 20);
        let since = self.changed_at.max(self.estimator.slow_start_seen);
        let is_full = now.path.bottleneck == Bottleneck::Link;
        let is_lasting = at.saturating_sub(since) >= stable;
        // During loss recovery acknowledgements jump, and neither rate nor round trip show much; but a queue that overflows all
        // the time is never without one.
        let is_due =
            (is_full || is_lasting) && (!now.interval.is_recovering || (is_full && is_lasting));
        self.limits.may_pace && is_due
    }

    /// Sends below the path's rate for a short time, to find out whose queue it is.
    pub(super) fn probe_queue(&mut self, interval: &TransferInterval) {
        // A longer history could contain the slow start, whose rate is too low. While losses are repaired, a short one jumps.
        let (trips, least) = if interval.is_recovering {
            (10, 600)
        } else {
            (2, 200)
        };
        let time = (interval.rtt.smoothed * trips).max(Duration::from_millis(least));
        let from = interval
            .at
            .saturating_sub(time)
            .max(self.estimator.slow_start_seen);
        let earlier = self
            .meter
            .counters_at(from.min(interval.at.saturating_sub(interval.stats.time)));
        let rate = self.meter.counters().since(&earlier).rate().max(1);
        // Acknowledgements may stand still for a moment, and a segment that was sent at next to no rate holds up its stream for long
        // after the pace is lifted.
        let in_flight = u64::from(self.streams) * LEAST_IN_FLIGHT;
        let rate = rate.max(bytes_per_second(in_flight, interval.rtt.smoothed));
        let drain = QueueDrain::new(interval.at, interval.rtt, rate);
        let pace = drain.pace();
        let reason = format!(
            "packets queue for {} on a path of {}: {} for a short time shows whether the queue is our own",
            show::time(interval.queueing_delay()),
            show::time(interval.rtt.min),
            show::bits(pace.saturating_mul(8))
        );
        self.state = TunerState::QueueProbe(drain, self.state.sharing());
        self.on_change(interval.at);
        self.set(TransferSetting::PacingRate(Some(pace)), reason);
    }

    /// Checks at every sample whether the draining queue has shown its owner.
    pub(super) fn continue_probe(&mut self, sample: &TransferSample<'_>) {
        let TunerState::QueueProbe(drain, _) = &self.state else {
            return;
        };
        let (drain, rtt) = (*drain, self.meter.current_rtt());
        let Some(result) = drain.on_rtt(sample.at, rtt, self.estimator.proved_rate) else {
            return;
        };
        let (now, minimum) = (show::time(rtt.smoothed), show::time(rtt.min));
        if result == DrainResult::NoQueue {
            let reason = format!("a round trip takes {now} also without our packets");
            self.stop_pacing(sample.at, &reason);
            self.meter.adopt_rtt();
            self.follow_longer_path(rtt.min, sample);
            return;
        }
        if result == DrainResult::Own && self.is_coincidence(&drain, sample.at) {
            let cooldown = self.with_jitter(LIMITS.lasting_queue * 4 / 5);
            self.fail_for(Action::ProbeQueue, sample.at, cooldown);
            let rate = show::bits(drain.rate().saturating_mul(8));
            let reason = format!(
                "{rate} are much less than before: others may have drained their queue at the same time"
            );
            self.stop_pacing(sample.at, &reason);
            return;
        }
        if result == DrainResult::Own {
            let paced = PathPace::new(sample.at, drain.rate());
            let pace = paced.pace();
            self.state = TunerState::Paced(paced);
            self.estimator.path.queue_owner = QueueOwner::Mine;
            self.on_change(sample.at);
            // The open interval contains the drain, whose rate is too low.
            self.meter.restart_interval();
            let reason = format!(
                "the queue was our own (round trip {now}, minimum {minimum}): {} fill the path without one",
                show::bits(pace.saturating_mul(8))
            );
            self.set(TransferSetting::PacingRate(Some(pace)), reason);
            return;
        }
        let reason = format!("cross traffic fills the queue (round trip {now}, minimum {minimum})");
        let cooldown = self.with_jitter(LIMITS.lasting_queue * 4 / 5);
        self.fail_for(Action::ProbeQueue, sample.at, cooldown);
        let sharing = self.state.sharing();
        self.stop_pacing(sample.at, &reason);
        self.state = sharing.map_or(TunerState::Steady, TunerState::Shared);
        self.share_path(sample.at);
    }

    /// Whether others may have drained the queue at the same time: a moment ago the path had room for a much higher rate. Paces that
    /// begin as unequal shares remain so, since all follow the same queue. The second time it is believed, because a path that has
    /// become slower stays so.
    fn is_coincidence(&mut self, drain: &QueueDrain, at: Duration) -> bool {
        let Some(intrusion) = &mut self.estimator.intrusion else {
            return false;
        };
        let is_recent = at.saturating_sub(intrusion.at) < LIMITS.others_gone;
        let is_part = (drain.rate() as f64) < intrusion.rate as f64 * MOST_OF_SHARED_PATH;
        if !is_recent || !is_part {
            return false;
        }
        !std::mem::replace(&mut intrusion.is_doubted, true)
    }

    /// Others share the path.
    pub(super) fn share_path(&mut self, at: Duration) {
        let since = self.state.sharing().map_or(at, |sharing| sharing.since);
        self.estimator.path.queue_owner = QueueOwner::Others;
        self.state = TunerState::Shared(Sharing { since, seen: at });
    }

    /// Forgets others that were not found for a while.
    pub(super) fn forget_others(&mut self, at: Duration) {
        if let TunerState::Shared(sharing) = &self.state
            && at.saturating_sub(sharing.seen) >= LIMITS.others_gone
        {
            self.end_sharing();
        }
    }

    /// Nobody else is on the path.
    pub(super) fn end_sharing(&mut self) {
        self.state = TunerState::Steady;
        self.estimator.path.queue_owner = QueueOwner::Unknown;
    }

    /// Lets the pacing rate follow the path.
    pub(super) fn follow_path(&mut self, now: &Now<'_>) {
        let interval = now.interval;
        // Under an experiment the streams do not use their pace as they do otherwise.
        let TunerState::Paced(paced) = &mut self.state else {
            return;
        };
        let (since, rate) = (paced.since, paced.rate());
        let update = paced.on_interval(interval);
        let (latest, minimum) = (
            show::time(interval.rtt.smoothed),
            show::time(interval.rtt.min),
        );
        let speed = show::bits(interval.rate().saturating_mul(8));
        let has_held = interval.at.saturating_sub(since) >= LIMITS.pace_proved;
        if has_held && update != PaceUpdate::Unused {
            self.estimator.proved_rate = rate;
        }
        match update {
            PaceUpdate::Keep => {}
            PaceUpdate::Set(pace) => {
                let reason = format!(
                    "round trip {latest}, minimum {minimum} at {speed}: pacing rate {}",
                    show::bits(pace.saturating_mul(8))
                );
                self.set(TransferSetting::PacingRate(Some(pace)), reason);
            }
            PaceUpdate::CrossTraffic => {
                // A pace that held for long was right: earlier failures no longer count.
                if has_held {
                    self.cooldowns[Action::ProbeQueue as usize].reset();
                }
                let cooldown = self.with_jitter(LIMITS.lasting_queue / 5);
                self.fail_for(Action::ProbeQueue, interval.at, cooldown);
                let reason = format!(
                    "cross traffic arrived, or the path became slower (round trip {latest}, minimum {minimum})"
                );
                self.stop_pacing(interval.at, &reason);
                // A path becomes slower once. A queue that fills again and again against a pace is filled by others.
                let intrusion = Intrusion {
                    at: interval.at,
                    rate,
                    is_doubted: false,
                };
                let last = self.estimator.intrusion.replace(intrusion);
                let is_again =
                    |last: Intrusion| interval.at.saturating_sub(last.at) < LIMITS.others_gone;
                if last.is_some_and(is_again) {
                    self.share_path(interval.at);
                }
            }
            PaceUpdate::PathFaster => {
                let reason = format!("the path became faster: nothing queues at {speed}");
                self.stop_pacing(interval.at, &reason);
                // The windows are those of the slower path, and so is the rate.
                self.estimator.forget_bandwidth();
                self.estimator.proved_rate = 0;
                if !is_loss_tolerant(&self.control.in_force) {
                    self.add_streams_for_slow_growth(interval, now.sample);
                }
            }
            PaceUpdate::Unused => {
                self.fail(Action::ProbeQueue, interval.at);
                let reason = format!("the path carries more than {speed}: something else limits");
                self.stop_pacing(interval.at, &reason);
            }
        }
    }

    /// Ends pacing: TCP alone sets the rate again. An experiment under pacing is void, and the streams that it has closed may
    /// be needed.
    pub(super) fn stop_pacing(&mut self, at: Duration, reason: &str) {
        if !self.state.is_paced() {
            return;
        }
        let state = std::mem::replace(&mut self.state, TunerState::Steady);
        self.estimator.path.queue_owner = QueueOwner::Unknown;
        // Losses under pacing do not show what TCP loses without it.
        self.on_change(at);
        self.meter.restart_interval();
        self.set(
            TransferSetting::PacingRate(None),
            format!("{reason}: pacing ends"),
        );
        if let TunerState::Experiment(experiment, _) = state
            && let TriedChange::FewerStreams { from, to } = experiment.change
        {
            self.fail(Action::FewerStreams, at);
            let from = from.min(self.stream_cap);
            let reason = format!("{to} streams may be too few: back to {from}");
            self.set_streams(from, reason);
        }
    }

    /// Reduces the streams to the minimum, since every one takes a share (where windows limit, in proportion to the queue), and goes
    /// back to the system's congestion control if this tuner has chosen a loss-tolerant one: that takes more than its share from loss-based flows.
    pub(super) fn take_fair_share(
        &mut self,
        interval: &TransferInterval,
        sample: &TransferSample<'_>,
    ) {
        let at = interval.at;
        let system = self.control.system_default.clone();
        let is_own_choice = is_loss_tolerant(&self.control.in_force) && !is_loss_tolerant(&system);
        let lasts = |sharing: Sharing| at.saturating_sub(sharing.since) >= LIMITS.yield_after;
        if is_own_choice
            && self.state.sharing().is_some_and(lasts)
            && !self.control.refused.contains(&system)
        {
            self.fail_for(Action::TolerantControl, at, LIMITS.others_gone * 2);
            self.on_change(at);
            let reason = format!(
                "cross traffic queues for {}: back to {system}, which shares with it",
                show::time(interval.queueing_delay())
            );
            let setting = TransferSetting::CongestionControl(system);
            self.set(setting, reason);
        }
        let least = self.limits.min_streams.min(self.stream_cap);
        let to = if do_windows_limit(sample.streams) {
            self.streams_before_queue(interval).max(least)
        } else {
            least
        };
        if to < self.streams {
            let reason = format!(
                "cross traffic shares the path, and every stream takes a share: {to} instead of {}",
                self.streams
            );
            self.on_change(at);
            // Streams that are closed still send what they have taken, here and elsewhere.
            let calm = self.with_jitter(LIMITS.lasting_queue / 2);
            self.cooldowns[Action::StreamsForWindows as usize].extend(at, calm);
            self.set_streams(to, reason);
        }
    }

    /// Whether the queue has grown to half of the smallest round trip of the last seconds. All transfers on the path see that alike;
    /// the smallest round trip of all time is smaller for those that were there first.
    pub(super) fn has_queue_grown(&self, interval: &TransferInterval) -> bool {
        let min = self.meter.recent_min_rtt();
        let smoothed = interval.rtt.smoothed;
        !min.is_zero() && Rtt { min, smoothed }.is_congested()
    }

    /// Streams whose windows held what this transfer carries before the queue grew.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no more than there are"
    )]
    fn streams_before_queue(&self, interval: &TransferInterval) -> u32 {
        let smoothed = interval.rtt.smoothed.as_secs_f64().max(f64::EPSILON);
        let part = self.meter.recent_min_rtt().as_secs_f64() / smoothed;
        (f64::from(self.streams) * part).round() as u32
    }

    /// Where windows limit, a share is taken once for each growth of the queue, and counts when the streams that were closed are gone.
    pub(super) fn may_take_fair_share(&self, now: &Now<'_>) -> bool {
        !do_windows_limit(now.sample.streams)
            || (now.sample.streams.len() <= self.streams as usize
                && self.has_queue_grown(now.interval)
                && now.has_passed(LIMITS.settle_streams, self.changed_at))
    }

    /// A time between `time` and twice that. Transfers that share a path must not drain at the same time, and
    /// their byte counts differ enough to serve as a seed.
    fn with_jitter(&self, time: Duration) -> Duration {
        let now = self.meter.counters();
        let mixed =
            splitmix::first(now.bytes_moved ^ splitmix::first(u64::from(now.at.subsec_nanos())));
        // The upper 24 bits of the hash as a number in 0..1.
        let part = (mixed >> 40) as f64 / (1_u64 << 24) as f64;
        time + time.mul_f64(part)
    }
}
