//! Reacts to a full path: paces if the queue is the transfer's own, takes a fair share if cross traffic queues
//! too.

use std::time::Duration;

use units::{show, splitmix};

use super::AutoTuner;
use super::decision::{TransferDecision, TransferSetting};
use super::pacing::{HARMLESS_QUEUE, PaceUpdate, Pacing, PathPace, QueueDrain, QueueOwner};
use super::transfer_meter::TransferInterval;
use super::transfer_sample::TransferSample;

/// Initial cooldown of draining, once the queue was cross traffic's.
const INITIAL_COOLDOWN: Duration = Duration::from_secs(4);
/// Time after which a short queue is drained as well.
const SHORT_QUEUE_TIME: Duration = Duration::from_secs(5);
/// Time for which cross traffic must be there before the congestion control is changed for it.
const YIELD_AFTER: Duration = Duration::from_secs(5);
/// Time after which cross traffic that was not seen again is taken to be gone.
const CROSS_TRAFFIC_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a pacing rate counts as successful.
const SUCCESSFUL_PACE_TIME: Duration = Duration::from_secs(10);

impl AutoTuner {
    /// Drains the queue, shares with cross traffic, or closes streams.
    pub(super) fn respond_to_full_path(
        &mut self,
        sample: &TransferSample<'_>,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        // A full path with a short queue delays nobody: pacing would gain nothing.
        if interval.queueing_delay() <= HARMLESS_QUEUE {
            self.try_fewer_streams(sample, interval, decisions);
            return;
        }
        // During loss recovery acknowledgements jump, and the round trip does not show the queue.
        let is_even = !interval.is_recovering;
        if self.limits.may_pace && is_even && self.cooldowns.drain.is_over(interval.at) {
            self.start_drain(interval, decisions);
            return;
        }
        match self.cross_traffic {
            Some((since, _)) => {
                // Cross traffic that leaves again soon is not worth a change of congestion control.
                if interval.at.saturating_sub(since) >= YIELD_AFTER {
                    self.yield_to_cross_traffic(interval, decisions);
                }
                self.reduce_to_fair_share(interval, decisions);
            }
            None => self.try_fewer_streams(sample, interval, decisions),
        }
    }

    /// Whether to drain a queue below half a round trip. One that stays for long may hide that the minimum
    /// round trip is wrong.
    pub(super) fn may_drain_queue(&self, interval: &TransferInterval) -> bool {
        let stable_time = (interval.rtt.smoothed * 20).max(SHORT_QUEUE_TIME);
        self.limits.may_pace
            && !interval.is_recovering
            && interval
                .at
                .saturating_sub(self.unchanged_since.max(self.last_slow_start))
                >= stable_time
            && self.cooldowns.drain.is_over(interval.at)
    }

    /// Sends below the path's rate for a short time, to find out whose queue it is.
    pub(super) fn start_drain(
        &mut self,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let time = (interval.rtt.smoothed * 2).max(Duration::from_millis(200));
        // A longer history could contain the slow start, whose rate is too low.
        let earlier = self.meter.counters_at(interval.at.saturating_sub(time));
        let rate = self.meter.counters().since(&earlier).rate().max(1);
        let drain = QueueDrain::new(interval.at, interval.rtt, rate);
        let pace = drain.pace();
        let reason = format!(
            "packets queue for {} on a path of {}: {} for a short time shows whether the queue is our own",
            show::time(interval.queueing_delay()),
            show::time(interval.rtt.min),
            show::bits(pace.saturating_mul(8))
        );
        self.pacing = Pacing::Draining(drain);
        self.unchanged_since = interval.at;
        decisions.push(self.decision(
            interval.at,
            Some(TransferSetting::PacingRate(Some(pace))),
            reason,
        ));
    }

    /// Checks at every sample whether the draining queue has shown its owner.
    pub(super) fn continue_drain(
        &mut self,
        sample: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Pacing::Draining(drain) = self.pacing else {
            return;
        };
        let rtt = self.meter.current_rtt();
        let Some(owner) = drain.on_rtt(sample.at, rtt) else {
            return;
        };
        self.unchanged_since = sample.at;
        let (now, minimum) = (show::time(rtt.smoothed), show::time(rtt.min));
        if owner == QueueOwner::Ours {
            let paced = PathPace::new(sample.at, drain.rate());
            let pace = paced.pace();
            self.cross_traffic = None;
            self.pacing = Pacing::Paced(paced);
            // The open interval contains the drain, whose rate is too low.
            self.meter.restart_interval();
            let reason = format!(
                "the queue was our own (round trip {now}, minimum {minimum}): {} fill the path without one",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(
                sample.at,
                Some(TransferSetting::PacingRate(Some(pace))),
                reason,
            ));
            return;
        }
        let since = self.cross_traffic.map_or(sample.at, |(since, _)| since);
        self.cross_traffic = Some((since, sample.at));
        let cooldown = self.with_jitter(INITIAL_COOLDOWN);
        self.cooldowns.drain.fail(sample.at, cooldown);
        let reason = format!("cross traffic fills the queue (round trip {now}, minimum {minimum})");
        self.stop_pacing(sample.at, &reason, decisions);
    }

    /// Lets the pacing rate follow the path; true if pacing ended.
    pub(super) fn follow_path(
        &mut self,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) -> bool {
        if !matches!(self.pacing, Pacing::Paced(_)) {
            return false;
        }
        self.update_pace(interval, decisions);
        !self.is_paced()
    }

    fn update_pace(&mut self, interval: &TransferInterval, decisions: &mut Vec<TransferDecision>) {
        let Pacing::Paced(paced) = &mut self.pacing else {
            return;
        };
        let since = paced.since;
        let update = paced.on_interval(interval);
        let (now, minimum) = (
            show::time(interval.rtt.smoothed),
            show::time(interval.rtt.min),
        );
        let speed = show::bits(interval.rate().saturating_mul(8));
        match update {
            PaceUpdate::Keep => {}
            PaceUpdate::Set(pace) => {
                let reason = format!(
                    "round trip {now}, minimum {minimum} at {speed}: pacing rate {}",
                    show::bits(pace.saturating_mul(8))
                );
                decisions.push(self.decision(
                    interval.at,
                    Some(TransferSetting::PacingRate(Some(pace))),
                    reason,
                ));
            }
            PaceUpdate::CrossTraffic => {
                // A pace that held for long was right: earlier failures no longer count.
                if interval.at.saturating_sub(since) >= SUCCESSFUL_PACE_TIME {
                    self.cooldowns.drain.reset();
                }
                let cooldown = self.with_jitter(INITIAL_COOLDOWN / 4);
                self.cooldowns.drain.fail(interval.at, cooldown);
                let reason = format!(
                    "cross traffic arrived, or the path became slower (round trip {now}, minimum {minimum})"
                );
                self.stop_pacing(interval.at, &reason, decisions);
            }
            PaceUpdate::PathFaster => {
                let reason = format!("the path became faster: nothing queues at {speed}");
                self.stop_pacing(interval.at, &reason, decisions);
            }
            PaceUpdate::Unused => {
                self.cooldowns.drain.fail(interval.at, INITIAL_COOLDOWN);
                let reason = format!("the path carries more than {speed}: something else limits");
                self.stop_pacing(interval.at, &reason, decisions);
            }
        }
    }

    /// Ends pacing: TCP alone sets the rate again.
    pub(super) fn stop_pacing(
        &mut self,
        at: Duration,
        reason: &str,
        decisions: &mut Vec<TransferDecision>,
    ) {
        if !self.is_paced() {
            return;
        }
        self.pacing = Pacing::Free;
        self.meter.restart_interval();
        self.unchanged_since = at;
        // Losses under pacing do not show what TCP loses without it.
        self.loss_counter.reset();
        let reason = format!("{reason}: pacing ends");
        decisions.push(self.decision(at, Some(TransferSetting::PacingRate(None)), reason));
    }

    pub(super) fn is_paced(&self) -> bool {
        !matches!(self.pacing, Pacing::Free)
    }

    /// Forgets cross traffic that was not found for a while; returns whether some was found recently.
    pub(super) fn check_cross_traffic(&mut self, at: Duration) -> bool {
        self.cross_traffic = self
            .cross_traffic
            .filter(|(_, seen)| at.saturating_sub(*seen) < CROSS_TRAFFIC_TIMEOUT);
        self.cross_traffic.is_some()
    }

    /// Reduces the streams to the minimum: with cross traffic at the bottleneck every stream takes a share.
    pub(super) fn reduce_to_fair_share(
        &mut self,
        interval: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let to = self.limits.min_streams.min(self.stream_cap);
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "cross traffic shares the path, and every stream takes a share: {to} instead of {}",
            self.streams
        );
        self.streams = to;
        self.unchanged_since = interval.at;
        decisions.push(self.decision(interval.at, Some(TransferSetting::Streams(to)), reason));
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
