//! More streams, or a congestion control that bears losses: where each stream is limited by itself.

use std::time::Duration;

use super::gauge::Sight;
use super::trial::{Kind, Outcome, Why};
use super::{Auto, Decision, Scene, Step};
use crate::congestion::{against_loss, bears_loss};
use crate::evidence::Class;
use crate::sizing::figures::{bits, bytes, span};

/// What gained nothing rests for so long the first time.
const PAUSE: Duration = Duration::from_secs(10);
/// A stream that gets less than this of the rest of the file is not worth its handshake, bytes.
const PIECE: u64 = 256 << 10;
/// On shorter paths windows open fast enough.
const LONG: Duration = Duration::from_millis(5);
/// A congestion control that bears losses fills a path with few streams.
const ENOUGH: u32 = 4;
/// What losses have proved to be needed is believed for so long.
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
            let window = looks().map(|look| look.peer_window).max();
            format!("the receiver's window of {}", bytes(window.unwrap_or(0)))
        } else {
            let buffer = looks().map(|look| look.send_buffer).max();
            format!("the send buffer of {}", bytes(buffer.unwrap_or(0)))
        };
        let reason = format!(
            "{what} holds each stream back ({} at {}): {to} streams instead of {}",
            bits(sight.rate.saturating_mul(8)),
            span(sight.trip.now),
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
            bits(sight.rate.saturating_mul(8)),
            span(sight.trip.base),
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
        let told = format!(
            "losses of {} without a queue (round trip {} of {})",
            per_cent(ratio),
            span(sight.trip.now),
            span(sight.trip.base)
        );
        if self.rests.control.is_over(sight.at) {
            let permitted = self.limits.congestion.clone();
            let other = against_loss(scene.congestion, &permitted, sight.trip.base);
            if let Some(other) = other {
                let reason = format!("{told}: {other} instead of {}", scene.congestion);
                self.switch(other, ratio, sight, reason, decisions);
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

    fn switch(
        &mut self,
        to: &str,
        loss: f64,
        sight: &Sight,
        reason: String,
        decisions: &mut Vec<Decision>,
    ) {
        let kind = Kind::Control {
            from: self.control.in_force.clone(),
            to: to.to_owned(),
            loss,
        };
        self.attempt(kind, sight);
        let step = Step::Congestion(to.to_owned());
        decisions.push(self.decision(sight.at, Some(step), reason));
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
            span(sight.queue())
        );
        let step = Step::Congestion(system);
        decisions.push(self.decision(sight.at, Some(step), reason));
    }
}

/// `94 Mbit/s instead of 48 Mbit/s`.
pub(super) fn gained(outcome: &Outcome) -> String {
    format!(
        "{} instead of {}",
        bits(outcome.after.saturating_mul(8)),
        bits(outcome.before.saturating_mul(8))
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
