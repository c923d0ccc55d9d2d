//! Treatment of a full path: whose the queue is, a pace if it is ours, a fair share if not.

use std::time::Duration;

use units::{show, splitmix};

use super::gauge::Sight;
use super::pacing::{Drain, Drained, HARMLESS, Paced, Pacing, Turn};
use super::{Auto, Decision, Scene, Step};

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

impl Auto {
    /// The path is full.
    pub(super) fn full(&mut self, scene: &Scene<'_>, sight: &Sight, decisions: &mut Vec<Decision>) {
        if sight.queue() <= HARMLESS {
            self.fewer(scene, sight, decisions);
            return;
        }
        let even = !sight.mending;
        if self.limits.pace && even && self.rests.drain.is_over(sight.at) {
            self.drain(sight, decisions);
            return;
        }
        match self.others {
            Some((since, _)) => {
                if sight.at.saturating_sub(since) >= OTHERS {
                    self.yield_control(sight, decisions);
                }
                self.share(sight, decisions);
            }
            None => self.fewer(scene, sight, decisions),
        }
    }

    /// A queue that does not fill the path's round trip half again has stayed for long, so that the
    /// round trip may not be what it seems.
    pub(super) fn may_drain(&self, sight: &Sight) -> bool {
        let long = (sight.trip.now * 20).max(LONG);
        self.limits.pace
            && !sight.mending
            && sight.at.saturating_sub(self.steady.max(self.started)) >= long
            && self.rests.drain.is_over(sight.at)
    }

    /// Sends less for a moment, to see whose the queue is.
    pub(super) fn drain(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let time = (sight.trip.now * 2).max(Duration::from_millis(200));
        let from = self.gauge.then(sight.at.saturating_sub(time));
        let rate = self.gauge.now().rate_since(&from).max(1);
        let drain = Drain::new(sight.at, sight.trip, rate);
        let pace = drain.pace();
        let reason = format!(
            "packets queue for {} on a path of {}: {} for a moment shows whether they are ours",
            show::time(sight.queue()),
            show::time(sight.trip.base),
            show::bits(pace.saturating_mul(8))
        );
        self.pacing = Pacing::Draining(drain);
        self.steady = sight.at;
        decisions.push(self.decision(sight.at, Some(Step::Pace(Some(pace))), reason));
    }

    /// While a queue is drained every scene is asked.
    pub(super) fn watch_drain(&mut self, scene: &Scene<'_>, decisions: &mut Vec<Decision>) {
        let Pacing::Draining(drain) = self.pacing else {
            return;
        };
        let trip = self.gauge.live();
        let Some(whose) = drain.on_trip(scene.at, trip) else {
            return;
        };
        self.steady = scene.at;
        let (now, base) = (show::time(trip.now), show::time(trip.base));
        if whose == Drained::Ours {
            let paced = Paced::new(scene.at, drain.rate());
            let pace = paced.pace();
            self.others = None;
            self.pacing = Pacing::Paced(paced);
            self.gauge.restart();
            let reason = format!(
                "the queue was ours (round trip {now} of {base}): {} fill the path without one",
                show::bits(pace.saturating_mul(8))
            );
            decisions.push(self.decision(scene.at, Some(Step::Pace(Some(pace))), reason));
            return;
        }
        let since = self.others.map_or(scene.at, |(since, _)| since);
        self.others = Some((since, scene.at));
        let pause = self.spread(PAUSE);
        self.rests.drain.fail(scene.at, pause);
        let reason = format!("others fill the queue (round trip {now} of {base})");
        self.unpace(scene.at, &reason, decisions);
    }

    /// Lets the pace follow the path; true: it was lifted.
    pub(super) fn paces(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) -> bool {
        if !matches!(self.pacing, Pacing::Paced(_)) {
            return false;
        }
        self.follow(sight, decisions);
        !self.is_paced()
    }

    fn follow(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let Pacing::Paced(paced) = &mut self.pacing else {
            return;
        };
        let since = paced.since;
        let turn = paced.on_sight(sight);
        let (now, base) = (show::time(sight.trip.now), show::time(sight.trip.base));
        let speed = show::bits(sight.rate.saturating_mul(8));
        match turn {
            Turn::Keep => {}
            Turn::Set(pace) => {
                let reason = format!(
                    "a round trip of {now} of {base} at {speed}: {} from now on",
                    show::bits(pace.saturating_mul(8))
                );
                decisions.push(self.decision(sight.at, Some(Step::Pace(Some(pace))), reason));
            }
            Turn::Crowded => {
                if sight.at.saturating_sub(since) >= HELD {
                    self.rests.drain.clear();
                }
                let pause = self.spread(PAUSE / 4);
                self.rests.drain.fail(sight.at, pause);
                let reason = format!("others came, or the path is slower ({now} of {base})");
                self.unpace(sight.at, &reason, decisions);
            }
            Turn::Faster => {
                let reason = format!("the path is faster: nothing queues with {speed}");
                self.unpace(sight.at, &reason, decisions);
            }
            Turn::Unused => {
                self.rests.drain.fail(sight.at, PAUSE);
                let reason = format!("the path carries more than {speed}: something else limits");
                self.unpace(sight.at, &reason, decisions);
            }
        }
    }

    /// TCP alone decides about the rate again.
    pub(super) fn unpace(&mut self, at: Duration, reason: &str, decisions: &mut Vec<Decision>) {
        if !self.is_paced() {
            return;
        }
        self.pacing = Pacing::Free;
        self.gauge.restart();
        self.steady = at;
        self.losses.forget();
        let reason = format!("{reason}: no pace");
        decisions.push(self.decision(at, Some(Step::Pace(None)), reason));
    }

    pub(super) fn is_paced(&self) -> bool {
        !matches!(self.pacing, Pacing::Free)
    }

    /// Others were at the bottleneck when it was last asked.
    pub(super) fn has_others(&mut self, at: Duration) -> bool {
        self.others = self
            .others
            .filter(|(_, seen)| at.saturating_sub(*seen) < GONE);
        self.others.is_some()
    }

    /// With others at the bottleneck every stream is a share.
    pub(super) fn share(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let to = self.limits.least.min(self.most);
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "others share the path, and every stream takes a share: {to} instead of {}",
            self.streams
        );
        self.streams = to;
        self.steady = sight.at;
        decisions.push(self.decision(sight.at, Some(Step::Streams(to)), reason));
    }

    /// `time` to twice that: transfers that share a path must not ask at the same time. What has
    /// moved until now differs enough between any two.
    fn spread(&self, time: Duration) -> Duration {
        let now = self.gauge.now();
        let mixed = splitmix::first(now.moved ^ splitmix::first(u64::from(now.at.subsec_nanos())));
        let part = (mixed >> 40) as f64 / (1_u64 << 24) as f64;
        time + time.mul_f64(part)
    }
}
