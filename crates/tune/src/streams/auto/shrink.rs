//! Streams that nothing is lost without are given back.

use std::time::Duration;

use units::{bytes_in, show};

use super::gauge::Sight;
use super::grow::gained;
use super::pacing::Pacing;
use super::trial::{Kind, Outcome};
use super::{Auto, Decision, Scene, Step};
use crate::congestion::bears_loss;
use crate::observation::Class;

/// A trial takes about two seconds; it must be worth it.
const WORTH: Duration = Duration::from_secs(5);
/// A number of streams that was found to be needed is left alone for so long the first time.
const PAUSE: Duration = Duration::from_secs(20);

/// Part of the rate below which streams given back are missed: losses leave each stream less than it had at first.
const MISSED: f64 = 0.93;
/// Until then.
const REGRET: Duration = Duration::from_secs(60);

/// Streams that were given back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    from: u32,
    /// With them, bytes per second.
    rate: u64,
    at: Duration,
}

impl Auto {
    /// Takes streams back that were given up too early.
    pub(super) fn regret(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let Some(given) = self.given else {
            return;
        };
        let since = sight.at.saturating_sub(given.at);
        let time = (sight.trip.now * 20).max(Duration::from_secs(3));
        if since > REGRET.max(time * 2) {
            self.given = None;
            return;
        }
        if since < time || sight.trip.has_queue() {
            return;
        }
        let then = self.gauge.then(sight.at.saturating_sub(time));
        let rate = self.gauge.now().rate_since(&then);
        if rate as f64 >= given.rate as f64 * MISSED {
            return;
        }
        let to = given.from.min(self.most);
        self.given = None;
        self.needed = (to, sight.at + REGRET);
        self.rests.fewer.fail(sight.at, PAUSE);
        if to <= self.streams {
            return;
        }
        let reason = format!(
            "{} streams carry {} by now, and {to} carried {}: back to {to}",
            self.streams,
            show::bits(rate.saturating_mul(8)),
            show::bits(given.rate.saturating_mul(8))
        );
        self.streams = to;
        self.steady = sight.at;
        decisions.push(self.decision(sight.at, Some(Step::Streams(to)), reason));
    }

    /// Tries with fewer: half of them, or a quarter where half are too many.
    pub(super) fn fewer(
        &mut self,
        scene: &Scene<'_>,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        // Where each stream is limited by itself, fewer carry less, unless packets queue.
        let alone = matches!(sight.class, Class::Loss | Class::Path) && !self.is_paced();
        if alone && !sight.trip.has_queue() && !bears_loss(scene.congestion) {
            return;
        }
        if matches!(self.pacing, Pacing::Paced(paced) if !paced.is_used()) {
            return;
        }
        let (trips, time) = if alone { (20, 3) } else { (8, 1) };
        let steady = (sight.trip.now * trips).max(Duration::from_secs(time));
        let worth = bytes_in(sight.rate, WORTH.max(sight.trip.now * 20));
        let since = if self.is_paced() {
            self.steady
        } else {
            self.steady.max(self.started)
        };
        let soon = sight.at.saturating_sub(since) < steady;
        let late = scene.left.is_some_and(|left| left < worth);
        if soon || late {
            return;
        }
        if !self.rests.fewer.is_over(sight.at) || self.run.1 < 2 {
            return;
        }
        // What half of them have in flight can be missed at once only where as much waits in a queue,
        // or where the network does not limit.
        let spare = sight.queue() >= sight.trip.base || sight.class == Class::Source;
        let part = if self.rests.fewer.failures() == 0 && spare && !self.is_paced() {
            self.streams / 2
        } else {
            self.streams / 4
        };
        let to = self
            .streams
            .saturating_sub(part.max(1))
            .max(self.floor(sight.at));
        if to >= self.streams {
            return;
        }
        let reason = format!(
            "more streams do not help here: {to} instead of {} if {} stand",
            self.streams,
            show::bits(sight.rate.saturating_mul(8))
        );
        let from = self.streams;
        self.attempt(Kind::Fewer { from, to }, sight);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(Step::Streams(to)), reason));
    }

    /// Fewest streams that may do.
    fn floor(&self, at: Duration) -> u32 {
        let (needed, until) = self.needed;
        let needed = if at < until { needed } else { 1 };
        self.limits.least.max(needed).min(self.most)
    }

    /// The pace was lifted in the middle of a trial, so that what was measured is void: what was
    /// given back may be what is missing.
    pub(super) fn void(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let Some(Kind::Fewer { from, to }) = self.trial.take().map(|trial| trial.kind) else {
            return;
        };
        self.rests.fewer.fail(sight.at, PAUSE);
        self.streams = from.min(self.most);
        let reason = format!("{to} streams may be too few: back to {}", self.streams);
        let step = Step::Streams(self.streams);
        decisions.push(self.decision(sight.at, Some(step), reason));
    }

    /// Some were let go.
    pub(super) fn retired(
        &mut self,
        from: u32,
        to: u32,
        outcome: Outcome,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        if outcome.kept {
            // Losses shall not bring back at once what has just been given back.
            self.rests.loss.pause(sight.at, PAUSE / 2);
            self.rests.slow.pause(sight.at, PAUSE / 2);
            let rate = outcome.before;
            let alone = matches!(sight.class, Class::Loss | Class::Path) && !self.is_paced();
            if alone && self.given.is_none_or(|given| given.rate < rate) {
                self.given = Some(Given {
                    from,
                    rate,
                    at: sight.at,
                });
            }
            let reason = format!("{to} streams do as well: {}", gained(&outcome));
            decisions.push(self.decision(sight.at, None, reason));
            return;
        }
        self.rests.fewer.fail(sight.at, PAUSE);
        if !self.is_paced() && sight.trip.is_congested() {
            self.taken_by_others(to, outcome, sight, decisions);
            return;
        }
        let from = from.min(self.most);
        self.streams = from;
        let reason = format!("{to} streams carry {}: back to {from}", gained(&outcome));
        decisions.push(self.decision(sight.at, Some(Step::Streams(from)), reason));
    }

    /// The path stayed full although less was sent: others took what was given up, so that every
    /// stream is a share.
    fn taken_by_others(
        &mut self,
        to: u32,
        outcome: Outcome,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let since = self.others.map_or(sight.at, |(since, _)| since);
        self.others = Some((since, sight.at));
        let reason = format!(
            "{to} streams carry {} on a path that is full: others took the rest",
            gained(&outcome)
        );
        decisions.push(self.decision(sight.at, None, reason));
        self.share(sight, decisions);
    }
}
