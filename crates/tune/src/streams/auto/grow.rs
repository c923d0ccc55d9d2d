//! More streams, or a congestion control that bears losses: where each stream is limited by itself.

use std::time::Duration;

use units::show;

use super::gauge::Sight;
use super::losses::RATIO;
use super::onset;
use super::trial::{Kind, LARGE, Outcome, Why};
use super::{Auto, Decision, Scene, Step, is_asked, nearly_over};
use crate::congestion::{against_loss, bears_loss};
use crate::observation::{Class, Trip};

/// Initial pause after a trial without gain.
const PAUSE: Duration = Duration::from_secs(10);
/// A stream that gets less than this of the rest of the file is not worth its handshake, bytes.
const PIECE: u64 = 256 << 10;
/// On shorter paths windows open fast enough.
const LONG: Duration = Duration::from_millis(5);
/// A congestion control that bears losses fills a path with few streams.
const ENOUGH: u32 = 4;
/// Time for which losses that have proved a need are believed.
const PROVED: Duration = Duration::from_secs(60);

impl Auto {
    /// A window or a buffer limits each stream and grows no more: twice as many, no search.
    pub(super) fn more_for_room(
        &mut self,
        scene: &Scene<'_>,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let patience = (sight.trip.now * 4).max(Duration::from_millis(200));
        let grown = sight.at.saturating_sub(self.room.1) < patience;
        let settled = sight.at.saturating_sub(self.steady) >= patience;
        let short = sight.trip.base < Duration::from_millis(1);
        let rising = sight.rate / 21 > self.last_rate / 20;
        if grown || rising || !settled || short || !self.rests.buffer.is_over(sight.at) {
            return;
        }
        // Packets may queue because the path is nearly full, or in bursts of our own.
        let more = if sight.trip.has_queue() {
            (self.streams / 4).max(1)
        } else {
            self.streams
        };
        let Some(to) = self.room_for(self.streams.saturating_add(more), scene) else {
            return;
        };
        let looks = || scene.looks.iter();
        let what = if sight.class == Class::Window {
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
            show::time(sight.trip.now),
            self.streams
        );
        self.add(to, Why::Buffer, sight, reason, decisions);
    }

    /// Nothing is lost and nothing queues, but the windows open slowly: new streams start faster.
    pub(super) fn more_for_slow(
        &mut self,
        scene: &Scene<'_>,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let patience = (sight.trip.now * 20).max(Duration::from_secs(2));
        let settled = sight.at.saturating_sub(self.steady.max(self.clear)) >= patience;
        // After a loss the window knows where to return to.
        let whole = |lost| sight.at.saturating_sub(lost) >= PAUSE;
        if !settled
            || sight.class != Class::Path
            || !self.lost.is_none_or(whole)
            || sight.starting
            || sight.trip.base < LONG
            || bears_loss(scene.congestion)
            || !self.rests.slow.is_over(sight.at)
        {
            return;
        }
        let more = (self.streams / 4).max(1);
        let Some(to) = self.room_for(self.streams.saturating_add(more), scene) else {
            return;
        };
        let reason = format!(
            "nothing queues with {} and the congestion windows open slowly ({}): {to} streams instead \
             of {}",
            show::bits(sight.rate.saturating_mul(8)),
            show::time(sight.trip.base),
            self.streams
        );
        self.add(to, Why::Slow, sight, reason, decisions);
    }

    /// Losses without a queue: a congestion control that bears them, else more streams while they
    /// gain.
    pub(super) fn against_loss(
        &mut self,
        scene: &Scene<'_>,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(ratio) = self.losses.ratio(sight, self.gauge.now()) else {
            return;
        };
        let told = losing(ratio, sight.trip);
        if self.rests.control.is_over(sight.at) {
            let permitted = self.limits.congestion.clone();
            let other = against_loss(scene.congestion, &permitted);
            if let Some(other) = other {
                let kind = self.control_to(other, ratio);
                let reason = format!("{told}: {other} instead of {}", scene.congestion);
                self.attempt(kind, sight);
                self.switch(other, sight.at, reason, decisions);
                return;
            }
        }
        let enough = bears_loss(scene.congestion) && self.streams >= ENOUGH;
        if enough || !self.rests.loss.is_over(sight.at) {
            return;
        }
        if let Some(to) = self.room_for(self.streams.saturating_mul(2), scene) {
            let reason = format!("{told}: {to} streams instead of {}", self.streams);
            self.add(to, Why::Loss, sight, reason, decisions);
        }
    }

    /// So many streams, as far as limits and the rest of the file allow; `None`: no more than now.
    fn room_for(&self, wanted: u32, scene: &Scene<'_>) -> Option<u32> {
        let pieces = scene.left.map_or(u64::MAX, |left| left / PIECE);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let to = wanted
            .min(self.most)
            .min(self.streams.saturating_add(pieces));
        (to > self.streams).then_some(to)
    }

    fn add(
        &mut self,
        to: u32,
        why: Why,
        sight: &Sight,
        reason: String,
        decisions: &mut Vec<Decision>,
    ) {
        let from = self.streams;
        self.attempt(Kind::More { from, to, why }, sight);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(Step::Streams(to)), reason));
    }

    /// Streams were added.
    pub(super) fn added(
        &mut self,
        (from, to): (u32, u32),
        why: Why,
        outcome: Outcome,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let rest = match why {
            Why::Buffer => &mut self.rests.buffer,
            Why::Loss => &mut self.rests.loss,
            Why::Slow => &mut self.rests.slow,
        };
        if outcome.kept {
            rest.clear();
            if why == Why::Loss {
                let needed = f64::from(from) * outcome.gain().min(2.0) * 0.9;
                self.needed = (rounded(needed).max(1), sight.at + PROVED);
            }
            self.rests.fewer.fail(sight.at, PAUSE / 2);
            let reason = format!("{to} streams carry {}", gained(&outcome));
            decisions.push(self.decision(sight.at, None, reason));
            return;
        }
        rest.fail(sight.at, PAUSE);
        self.streams = from;
        let reason = format!("{to} streams carry {}: back to {from}", gained(&outcome));
        decisions.push(self.decision(sight.at, Some(Step::Streams(from)), reason));
    }

    /// Twice as many streams gained much under losses: twice as many again, at once. What they carry is
    /// held against no more than twice what half of them did: slow starts were measured with it.
    pub(super) fn double_again(
        &mut self,
        scene: &Scene<'_>,
        outcome: Outcome,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let lossy = outcome.loss >= RATIO && !sight.trip.has_queue();
        let enough = bears_loss(scene.congestion) && self.streams >= ENOUGH;
        let small = outcome.gain() < LARGE || nearly_over(scene, outcome.after, sight.trip);
        if !lossy || enough || small {
            return;
        }
        let Some(to) = self.room_for(self.streams.saturating_mul(2), scene) else {
            return;
        };
        let told = losing(outcome.loss, sight.trip);
        let reason = format!("{told}: {to} streams instead of {}", self.streams);
        let from = self.streams;
        let kind = Kind::More {
            from,
            to,
            why: Why::Loss,
        };
        let before = outcome.after.min(outcome.before.saturating_mul(2));
        self.begin(kind, before, sight.at, sight.trip);
        self.streams = to;
        decisions.push(self.decision(sight.at, Some(Step::Streams(to)), reason));
    }

    /// Plain losses in the first round trips: a congestion control that bears them, at once.
    pub(super) fn watch_onset(&mut self, scene: &Scene<'_>, decisions: &mut Vec<Decision>) {
        let (mark, trip) = (self.gauge.now(), self.gauge.live());
        let Some(lossy) = self.onset.on_scene(mark, scene.looks, trip) else {
            return;
        };
        // No slow start has overrun a queue: what is lost from now on counts.
        self.losses.count_from(mark);
        let before = onset::allowed(scene.looks, trip);
        let soon = self.rate_to_come(before, scene.looks);
        let vain = is_asked(scene, before) || nearly_over(scene, soon, trip);
        if vain || self.is_paced() || self.trial.is_some() {
            return;
        }
        let permitted = self.limits.congestion.clone();
        let Some(other) = against_loss(scene.congestion, &permitted) else {
            return;
        };
        let reason = format!(
            "{}: {other} instead of {}",
            losing(lossy.ratio, trip),
            scene.congestion
        );
        let kind = self.control_to(other, lossy.at_most);
        self.begin(kind, before, scene.at, trip);
        self.gauge.restart();
        self.switch(other, scene.at, reason, decisions);
    }

    fn control_to(&self, to: &str, loss: f64) -> Kind {
        Kind::Control {
            from: self.control.in_force.clone(),
            to: to.to_owned(),
            loss,
        }
    }

    fn switch(&self, to: &str, at: Duration, reason: String, decisions: &mut Vec<Decision>) {
        let step = Step::Congestion(to.to_owned());
        decisions.push(self.decision(at, Some(step), reason));
    }

    /// Another congestion control was tried.
    pub(super) fn changed(
        &mut self,
        from: String,
        to: &str,
        outcome: Outcome,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let told = format!(
            "{to} carries {} and loses {}",
            gained(&outcome),
            per_cent(outcome.loss)
        );
        if outcome.kept {
            self.rests.control.clear();
            decisions.push(self.decision(sight.at, None, told));
            return;
        }
        self.rests.control.fail(sight.at, PAUSE * 3);
        // The windows that it leaves are not those of losses yet.
        let calm = (sight.trip.base * 30).max(Duration::from_secs(3));
        self.rests.loss.pause(sight.at, calm);
        let reason = format!("{told}: back to {from}");
        decisions.push(self.decision(sight.at, Some(Step::Congestion(from)), reason));
    }

    /// Others' packets queue, and the congestion control that bears losses is of our choice: it
    /// takes more than its share from those that do not.
    pub(super) fn yield_control(&mut self, sight: &Sight, decisions: &mut Vec<Decision>) {
        let system = self.control.system.clone();
        let ours = bears_loss(&self.control.in_force) && !bears_loss(&system);
        if !ours || self.control.refused.contains(&system) {
            return;
        }
        self.rests.control.fail(sight.at, PAUSE * 6);
        self.losses.forget();
        self.steady = sight.at;
        let reason = format!(
            "others' packets queue for {}: back to {system}, which shares with them",
            show::time(sight.queue())
        );
        let step = Step::Congestion(system);
        decisions.push(self.decision(sight.at, Some(step), reason));
    }
}

/// `94 Mbit/s instead of 48 Mbit/s`.
pub(super) fn gained(outcome: &Outcome) -> String {
    format!(
        "{} instead of {}",
        show::bits(outcome.after.saturating_mul(8)),
        show::bits(outcome.before.saturating_mul(8))
    )
}

/// `losses of 1.0 % without a queue (round trip 51 ms of 50 ms)`.
fn losing(ratio: f64, trip: Trip) -> String {
    format!(
        "losses of {} without a queue (round trip {} of {})",
        per_cent(ratio),
        show::time(trip.now),
        show::time(trip.base)
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
