//! `auto`: streams, congestion control and pace of one transfer, decided from evidence.
//!
//! Whoever sends looks at its streams several times a second and hands all looks over as a
//! [`Scene`]; what comes back is to be carried out ([`Step`]), each with its reason.
//!
//! What limits comes first: streams are added only where each is limited by itself (a window, a
//! buffer, losses, a window that opens slowly), and a congestion control is changed only where losses
//! come without a queue. Every change is tried out against what was before it; what gains nothing is
//! taken back and tried ever more seldom. Streams that nothing is lost without are given back. Where
//! the path is full the queue is the price: if it is ours, the streams are paced so that it stays
//! short.

mod account;
mod base;
mod gauge;
mod grow;
mod known;
mod losses;
mod onset;
mod pacing;
mod queue;
mod rest;
mod shrink;
#[cfg(test)]
mod tests;
mod trial;

use std::time::Duration;

use self::account::{Account, Limit};
use self::gauge::{Gauge, Sight};
use self::losses::Losses;
use self::onset::Onset;
use self::pacing::{HARMLESS, Pacing};
use self::rest::Rests;
use self::shrink::Given;
use self::trial::{Kind, Trial, Why};
use crate::limiter::Limiter;
use crate::look::Look;
use crate::observation::{Class, Standing, Trip};
use crate::prior::Prior;
use units::bytes_in;

/// Bounds of `auto`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Fewest streams, at least 1.
    pub least: u32,
    /// Most streams at a time; equal to `least`: the number is not `auto`'s to change.
    pub most: u32,
    /// Congestion controls that may be set on a live stream, as the kernel names them; empty: the one
    /// in force stays.
    pub congestion: Vec<String>,
    /// The streams may be paced (SO_MAX_PACING_RATE).
    pub pace: bool,
}

/// A sending transfer at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Since the transfer began.
    pub at: Duration,
    /// Payload acknowledged or handed out so far over all streams, ended ones too, bytes.
    pub moved: u64,
    /// Bytes that no stream has taken yet; `None`: not known (a pipe).
    pub left: Option<u64>,
    /// Streams at work.
    pub looks: &'a [Look],
    /// Streams that are being opened.
    pub opening: u32,
    /// The congestion control in force.
    pub congestion: &'a str,
    /// A limit on the rate that the user set, bytes per second.
    pub rate_limit: Option<u64>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Have so many streams: open more, or let the surplus end with the block that it has begun.
    Streams(u32),
    /// Run this congestion control on all streams, also those opened later.
    Congestion(String),
    /// Send no faster than this over all streams together, bytes per second; `None`: as fast as TCP
    /// lets.
    Pace(Option<u64>),
}

/// Decision, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Since the transfer began.
    pub at: Duration,
    /// The step to take; `None`: none, on purpose.
    pub step: Option<Step>,
    /// Limiter of the transfer.
    pub limiter: Limiter,
    /// In plain words.
    pub reason: String,
}

/// Limiter of the transfer over its time, and what would change that.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What, for most of the time.
    pub limiter: Limiter,
    /// Streams at the end.
    pub streams: u32,
    /// Congestion control at the end.
    pub congestion: String,
    /// Advice that would make it faster: an imperative in plain words, to follow "to change that: "; `None`:
    /// nothing that is known of, or nothing at all (a full path).
    pub remedy: Option<String>,
}

/// The policy of one sending transfer.
#[derive(Debug)]
pub struct Auto {
    limits: Limits,
    /// [`Limits::most`], or what could be opened.
    most: u32,
    streams: u32,
    /// Earlier knowledge; until the first scene.
    prior: Option<Prior>,
    /// The rate that the path is known for, bytes per second; 0: not known.
    expected: u64,
    gauge: Gauge,
    control: Control,
    trial: Option<Trial>,
    pacing: Pacing,
    losses: Losses,
    onset: Onset,
    rests: Rests,
    /// Streams that losses have proved to be needed, until when.
    needed: (u32, Duration),
    given: Option<Given>,
    /// Nothing has been changed, tried or learned since.
    steady: Duration,
    /// The rate of the last sight, bytes per second.
    last_rate: u64,
    /// The class of the last sights, and of how many in turn.
    run: (Class, u32),
    /// The largest window or buffer so far, bytes, and when it last grew.
    room: (u64, Duration),
    /// Others have filled the queue since, and did when it was last drained.
    others: Option<(Duration, Duration)>,
    /// Nothing has queued since.
    clear: Duration,
    /// When something was last lost.
    lost: Option<Duration>,
    /// No stream has been in its first slow start since.
    started: Duration,
    standing: Standing,
    account: Account,
}

/// The congestion control.
#[derive(Debug, Default)]
struct Control {
    /// The first one seen.
    system: String,
    in_force: String,
    refused: Vec<String>,
}

/// Less is left to send than moves in this time: nothing is worth a change any more.
const NEARLY_OVER: Duration = Duration::from_secs(1);
/// A limit that the user set explains a rate from this part of it on, per cent.
const ASKED: u64 = 85;

impl Auto {
    /// Begins with `streams` streams, and nothing known of the path.
    pub fn new(limits: Limits, streams: u32) -> Self {
        Self::from_prior(limits, Prior::of_streams(streams))
    }

    /// Begins with what is known, as far as the limits let it: with so many streams (one, if that is not
    /// known), which are there or being opened already; the first decisions are for the congestion
    /// control and the pace.
    pub fn from_prior(limits: Limits, prior: Prior) -> Self {
        let least = limits.least.max(1);
        let most = limits.most.max(least);
        Self {
            limits: Limits {
                least,
                most,
                ..limits
            },
            most,
            streams: prior.streams.unwrap_or(1).clamp(least, most),
            expected: prior.rate.unwrap_or_default(),
            prior: Some(prior),
            gauge: Gauge::default(),
            control: Control::default(),
            trial: None,
            pacing: Pacing::Free,
            losses: Losses::default(),
            onset: Onset::default(),
            rests: Rests::default(),
            needed: (1, Duration::ZERO),
            given: None,
            steady: Duration::ZERO,
            last_rate: 0,
            run: (Class::Unknown, 0),
            room: (0, Duration::ZERO),
            others: None,
            clear: Duration::ZERO,
            lost: None,
            started: Duration::ZERO,
            standing: Standing::default(),
            account: Account::default(),
        }
    }

    /// Decisions that follow from a look at the transfer; mostly none. A scene that is not newer than the
    /// last, or without streams, is ignored.
    pub fn on_scene(&mut self, scene: &Scene<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.gauge.on_scene(scene) {
            return decisions;
        }
        if self.control.system.is_empty() {
            scene.congestion.clone_into(&mut self.control.system);
        }
        scene.congestion.clone_into(&mut self.control.in_force);
        if self.gauge.take_longer() {
            // What was taken for others' queue was the way.
            self.others = None;
        }
        self.begin_as_known(scene, &mut decisions);
        self.note_room(scene);
        self.watch_drain(scene, &mut decisions);
        self.watch_onset(scene, &mut decisions);
        if let Some(sight) = self.gauge.sight(scene.looks) {
            self.on_sight(scene, &sight, &mut decisions);
        }
        decisions
    }

    fn on_sight(&mut self, scene: &Scene<'_>, sight: &Sight, decisions: &mut Vec<Decision>) {
        let limit = self.limit(scene, sight);
        self.account.note(sight, limit, scene.looks);
        self.losses.on_sight(sight, self.gauge.now());
        self.run = match self.run {
            (class, times) if same(class, sight.class) => (sight.class, times.saturating_add(1)),
            _ => (sight.class, 1),
        };
        if sight.trip.has_queue() {
            self.clear = sight.at;
        }
        if sight.lost {
            self.lost = Some(sight.at);
        }
        if sight.starting {
            self.started = sight.at;
        }
        if limit == Limit::Asked {
            self.unpace(
                sight.at,
                "the rate limit is below what the path carries",
                decisions,
            );
        } else if self.paces(sight, decisions) {
            self.void(sight, decisions);
        } else if self.trial.is_some() {
            self.judge(scene, sight, decisions);
        } else if scene.opening == 0 {
            let rate = self.rate_to_come(sight.rate, scene.looks);
            if !nearly_over(scene, rate, sight.trip) {
                self.act(scene, sight, decisions);
            }
        }
        self.last_rate = sight.rate;
        if decisions.is_empty() && self.standing.on_class(sight.at, sight.class) {
            let reason = limit.describe(sight);
            decisions.push(self.decision(sight.at, None, reason));
        }
    }

    /// Whatever fits what limits.
    fn act(&mut self, scene: &Scene<'_>, sight: &Sight, decisions: &mut Vec<Decision>) {
        match self.pacing {
            Pacing::Draining(_) => return,
            Pacing::Paced(_) => {
                self.fewer(scene, sight, decisions);
                return;
            }
            Pacing::Free => {}
        }
        if self.run.1 < 2 {
            return;
        }
        match sight.class {
            Class::Window | Class::SendBuffer => self.more_for_room(scene, sight, decisions),
            Class::PathFull => self.full(scene, sight, decisions),
            Class::Loss | Class::Path => self.limited_by_itself(scene, sight, decisions),
            Class::Source => self.fewer(scene, sight, decisions),
            Class::Starting | Class::Unknown | Class::Sink | Class::Elsewhere => {}
        }
    }

    /// Each stream's congestion window limits it, with a short queue or none.
    fn limited_by_itself(
        &mut self,
        scene: &Scene<'_>,
        sight: &Sight,
        decisions: &mut Vec<Decision>,
    ) {
        let queue = sight.trip.has_queue() && sight.queue() > HARMLESS;
        if queue && self.may_drain(sight) {
            self.drain(sight, decisions);
        } else if self.has_others(sight.at) {
            if queue {
                self.share(sight, decisions);
            }
        } else {
            self.regret(sight, decisions);
            if decisions.is_empty() {
                self.against_loss(scene, sight, decisions);
            }
            if decisions.is_empty() {
                self.more_for_slow(scene, sight, decisions);
            }
            if decisions.is_empty() {
                self.fewer(scene, sight, decisions);
            }
        }
    }

    fn limit(&self, scene: &Scene<'_>, sight: &Sight) -> Limit {
        if is_asked(scene, sight.rate) {
            return Limit::Asked;
        }
        match self.pacing {
            // What is paced is a full path, whatever the streams look like.
            Pacing::Draining(_) | Pacing::Paced(_) => Limit::Class(Class::PathFull),
            Pacing::Free => Limit::Class(sight.class),
        }
    }

    /// A window or buffer that still grows by itself is waited for.
    fn note_room(&mut self, scene: &Scene<'_>) {
        let room = |look: &Look| match self.run.0 {
            Class::SendBuffer => look.send_buffer,
            _ => look.peer_window,
        };
        let room = scene.looks.iter().map(room).max().unwrap_or_default();
        if room / 21 > self.room.0 / 20 {
            self.room = (room, scene.at);
        }
    }

    /// Tries something out, against the rate of what has been the same for long enough.
    fn attempt(&mut self, kind: Kind, sight: &Sight) {
        let before = self.before(&kind, sight);
        self.begin(kind, before, sight.at, sight.trip);
    }

    /// Tries something out, against a rate of `before`, bytes per second.
    fn begin(&mut self, kind: Kind, before: u64, at: Duration, trip: Trip) {
        self.trial = Some(Trial::new(kind, before, at, trip.now));
        self.onset.end();
        self.steady = at;
    }

    /// The rate before a trial, over at least ten round trips and a second, if it is steady for so
    /// long.
    fn before(&self, kind: &Kind, sight: &Sight) -> u64 {
        let time = (sight.trip.now * 10).max(Duration::from_secs(1));
        let from = self.steady.max(sight.at.saturating_sub(time));
        let now = self.gauge.now();
        let rate = now.rate_since(&self.gauge.then(from));
        match kind {
            // Windows and buffers make a rate even, and the last one is that of all streams.
            Kind::More {
                why: Why::Buffer, ..
            } if !sight.mending => rate.max(sight.rate),
            _ if rate == 0 => sight.rate,
            // Windows that losses are still cutting were larger before.
            Kind::More { why: Why::Loss, .. } => {
                let time = (sight.trip.now * 6).max(Duration::from_millis(200));
                let then = self.gauge.then(sight.at.saturating_sub(time));
                rate.min(now.rate_since(&then)).max(1)
            }
            _ => rate,
        }
    }

    /// A trial is under way; its outcome when there is one.
    fn judge(&mut self, scene: &Scene<'_>, sight: &Sight, decisions: &mut Vec<Decision>) {
        let now = self.gauge.now();
        let Some(trial) = &mut self.trial else {
            return;
        };
        let Some(outcome) = trial.on_sight(sight, now, scene.opening) else {
            return;
        };
        let (kind, from) = (trial.kind.clone(), trial.from());
        self.trial = None;
        self.steady = if outcome.kept {
            from.map_or(sight.at, |from| from.at)
        } else {
            sight.at
        };
        self.losses.forget();
        match kind {
            Kind::More { from, to, why } => {
                self.added((from, to), why, outcome, sight, decisions);
                if why == Why::Loss && outcome.kept {
                    self.double_again(scene, outcome, sight, decisions);
                }
            }
            Kind::Fewer { from, to } => self.retired(from, to, outcome, sight, decisions),
            Kind::Control { from, to, .. } => self.changed(from, &to, outcome, sight, decisions),
        }
    }

    fn decision(&self, at: Duration, step: Option<Step>, reason: String) -> Decision {
        Decision {
            at,
            step,
            limiter: self.account.now(),
            reason,
        }
    }

    /// A stream that was asked for could not be opened: the policy goes on with `open` streams, and
    /// never asks for more.
    pub fn on_refused(&mut self, open: u32) {
        self.most = open.clamp(1, self.most);
        self.streams = self.streams.min(self.most);
        if matches!(&self.trial, Some(trial) if matches!(trial.kind, Kind::More { .. })) {
            self.trial = None;
        }
    }

    /// A congestion control that was asked for was refused, and is not asked for again.
    pub fn on_congestion_refused(&mut self, name: &str) {
        self.limits.congestion.retain(|permitted| permitted != name);
        self.control.refused.push(name.to_owned());
        if matches!(&self.trial, Some(trial) if matches!(trial.kind, Kind::Control { .. })) {
            self.trial = None;
        }
    }

    /// When the next look is due, after the last: twice a round trip.
    pub fn due(&self) -> Duration {
        let half = self.gauge.live().now / 2;
        half.clamp(Duration::from_millis(25), Duration::from_millis(250))
    }

    /// Limiter of the transfer now, for a progress display.
    pub fn limiter(&self) -> Limiter {
        self.account.now()
    }

    /// Limiter of the transfer over all.
    pub fn verdict(&self) -> Verdict {
        let may_add = self.streams < self.most;
        self.account
            .verdict(self.streams, &self.control.in_force, may_add)
    }
}

/// Losses come and go while they limit.
fn same(before: Class, now: Class) -> bool {
    let path = |class| matches!(class, Class::Loss | Class::Path);
    before == now || (path(before) && path(now))
}

/// A limit that the user set explains this rate, bytes per second.
fn is_asked(scene: &Scene<'_>, rate: u64) -> bool {
    scene
        .rate_limit
        .is_some_and(|limit| rate >= limit / 100 * ASKED)
}

/// At this rate, bytes per second, nothing that is begun now would be worth it.
fn nearly_over(scene: &Scene<'_>, rate: u64, trip: Trip) -> bool {
    scene
        .left
        .is_some_and(|left| left < bytes_in(rate, NEARLY_OVER.max(trip.now * 4)))
}
