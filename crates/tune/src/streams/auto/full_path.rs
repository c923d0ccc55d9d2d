//! Treatment of a full path: whose the queue is, a pace if it is ours, a fair share if not.

use std::time::Duration;

use units::{show, splitmix};

use super::pacing::{HARMLESS_QUEUE, PaceUpdate, Pacing, PathPace, QueueDrain, QueueOwner};
use super::transfer_meter::TransferInterval;
use super::{AutoTuner, TransferDecision, TransferSample, TransferSetting};

/// Between two questions whose a queue is, once it was others'.
const PAUSE: Duration = Duration::from_secs(4);
/// A short queue is asked for its owner after so long.
const LONG: Duration = Duration::from_secs(5);
/// Others have been there for so long before a congestion control is changed for them.
const OTHERS: Duration = Duration::from_secs(5);
/// They are believed to be there for so long after they were last seen.
const GONE: Duration = Duration::from_secs(30);
/// A pace that held for so long was right.
const HELD: Duration = Duration::from_secs(10);

impl AutoTuner {
    /// The path is full.
    pub(super) fn respond_to_full_path(
        &mut self,
        scene: &TransferSample<'_>,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        if sight.queueing_delay() <= HARMLESS_QUEUE {
            self.try_fewer_streams(scene, sight, decisions);
            return;
        }
        let even = !sight.is_recovering;
        if self.limits.may_pace && even && self.cooldowns.drain.is_over(sight.at) {
            self.start_drain(sight, decisions);
            return;
        }
        match self.cross_traffic {
            Some((since, _)) => {
                if sight.at.saturating_sub(since) >= OTHERS {
                    self.yield_to_cross_traffic(sight, decisions);
                }
                self.reduce_to_fair_share(sight, decisions);
            }
            None => self.try_fewer_streams(scene, sight, decisions),
        }
    }

    /// A queue that does not fill the path's round trip half again has stayed for long, so that the
    /// round trip may not be what it seems.
    pub(super) fn may_drain_queue(&self, sight: &TransferInterval) -> bool {
        let long = (sight.rtt.smoothed * 20).max(LONG);
        self.limits.may_pace
            && !sight.is_recovering
            && sight
                .at
                .saturating_sub(self.unchanged_since.max(self.last_slow_start))
                >= long
            && self.cooldowns.drain.is_over(sight.at)
    }

    /// Sends less for a moment, to see whose the queue is.
    pub(super) fn start_drain(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let time = (sight.rtt.smoothed * 2).max(Duration::from_millis(200));
        let from = self.meter.counters_at(sight.at.saturating_sub(time));
        let rate = self.meter.counters().rate_since(&from).max(1);
        let drain = QueueDrain::new(sight.at, sight.rtt, rate);
        let pace = drain.pace();
        let reason = format!(
            "packets queue for {} on a path of {}: {} for a moment shows whether they are ours",
            show::time(sight.queueing_delay()),
            show::time(sight.rtt.min),
            show::bits(pace.saturating_mul(8))
        );
        self.pacing = Pacing::Draining(drain);
        self.unchanged_since = sight.at;
        decisions.push(self.decision(
            sight.at,
            Some(TransferSetting::PacingRate(Some(pace))),
            reason,
        ));
    }

    /// While a queue is drained every scene is asked.
    pub(super) fn continue_drain(
        &mut self,
        scene: &TransferSample<'_>,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let Pacing::Draining(drain) = self.pacing else {
            return;
        };
        let trip = self.meter.current_rtt();
        let Some(whose) = drain.on_rtt(scene.at, trip) else {
            return;
        };
        self.unchanged_since = scene.at;
        let (now, base) = (show::time(trip.smoothed), show::time(trip.min));
        if whose == QueueOwner::Ours {
            let paced = PathPace::new(scene.at, drain.rate());
            let pace = paced.pace();
            self.cross_traffic = None;
            self.pacing = Pacing::Paced(paced);
            self.meter.restart_interval();
            let reason = format!(
                "the queue was ours (round trip {now} of {base}): {} fill the path without one",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(
                scene.at,
                Some(TransferSetting::PacingRate(Some(pace))),
                reason,
            ));
            return;
        }
        let since = self.cross_traffic.map_or(scene.at, |(since, _)| since);
        self.cross_traffic = Some((since, scene.at));
        let pause = self.with_jitter(PAUSE);
        self.cooldowns.drain.fail(scene.at, pause);
        let reason = format!("others fill the queue (round trip {now} of {base})");
        self.stop_pacing(scene.at, &reason, decisions);
    }

    /// Lets the pace follow the path; true: it was lifted.
    pub(super) fn follow_path(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) -> bool {
        if !matches!(self.pacing, Pacing::Paced(_)) {
            return false;
        }
        self.update_pace(sight, decisions);
        !self.is_paced()
    }

    fn update_pace(&mut self, sight: &TransferInterval, decisions: &mut Vec<TransferDecision>) {
        let Pacing::Paced(paced) = &mut self.pacing else {
            return;
        };
        let since = paced.since;
        let turn = paced.on_interval(sight);
        let (now, base) = (show::time(sight.rtt.smoothed), show::time(sight.rtt.min));
        let speed = show::bits(sight.rate.saturating_mul(8));
        match turn {
            PaceUpdate::Keep => {}
            PaceUpdate::Set(pace) => {
                let reason = format!(
                    "a round trip of {now} of {base} at {speed}: {} from now on",
                    show::bits(pace.saturating_mul(8))
                );
                decisions.push(self.decision(
                    sight.at,
                    Some(TransferSetting::PacingRate(Some(pace))),
                    reason,
                ));
            }
            PaceUpdate::CrossTraffic => {
                if sight.at.saturating_sub(since) >= HELD {
                    self.cooldowns.drain.reset();
                }
                let pause = self.with_jitter(PAUSE / 4);
                self.cooldowns.drain.fail(sight.at, pause);
                let reason = format!("others came, or the path is slower ({now} of {base})");
                self.stop_pacing(sight.at, &reason, decisions);
            }
            PaceUpdate::PathFaster => {
                let reason = format!("the path is faster: nothing queues with {speed}");
                self.stop_pacing(sight.at, &reason, decisions);
            }
            PaceUpdate::Unused => {
                self.cooldowns.drain.fail(sight.at, PAUSE);
                let reason = format!("the path carries more than {speed}: something else limits");
                self.stop_pacing(sight.at, &reason, decisions);
            }
        }
    }

    /// TCP alone decides about the rate again.
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
        self.loss_counter.reset();
        let reason = format!("{reason}: no pace");
        decisions.push(self.decision(at, Some(TransferSetting::PacingRate(None)), reason));
    }

    pub(super) fn is_paced(&self) -> bool {
        !matches!(self.pacing, Pacing::Free)
    }

    /// Others were at the bottleneck when it was last asked.
    pub(super) fn has_cross_traffic(&mut self, at: Duration) -> bool {
        self.cross_traffic = self
            .cross_traffic
            .filter(|(_, seen)| at.saturating_sub(*seen) < GONE);
        self.cross_traffic.is_some()
    }

    /// With others at the bottleneck every stream is a share.
    pub(super) fn reduce_to_fair_share(
        &mut self,
        sight: &TransferInterval,
        decisions: &mut Vec<TransferDecision>,
    ) {
        let to = self.limits.min_streams.min(self.stream_cap);
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "others share the path, and every stream takes a share: {to} instead of {}",
            self.streams
        );
        self.streams = to;
        self.unchanged_since = sight.at;
        decisions.push(self.decision(sight.at, Some(TransferSetting::Streams(to)), reason));
    }

    /// `time` to twice that: transfers that share a path must not ask at the same time. What has
    /// moved until now differs enough between any two.
    fn with_jitter(&self, time: Duration) -> Duration {
        let now = self.meter.counters();
        let mixed =
            splitmix::first(now.bytes_moved ^ splitmix::first(u64::from(now.at.subsec_nanos())));
        let part = (mixed >> 40) as f64 / (1_u64 << 24) as f64;
        time + time.mul_f64(part)
    }
}
