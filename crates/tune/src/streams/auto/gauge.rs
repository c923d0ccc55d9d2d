//! All streams of a transfer read together: what limits it, how fast it is, what it loses.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::bytes_per_second;

use super::Scene;
use super::base::Base;
use crate::limiter::Role;
use crate::look::{Look, StreamId};
use crate::observation::{Class, Tally, Trip, Verdict};

/// Differences over less are chance.
const SHORTEST: Duration = Duration::from_millis(100);
/// Nor do fewer scenes tell anything.
const FEWEST: u32 = 3;
/// Time that is remembered.
const MEMORY: Duration = Duration::from_secs(60);
/// Marks are kept no closer than this.
const STEP: Duration = Duration::from_millis(20);
/// The payload of a segment where nobody tells.
const SEGMENT: u64 = 1448;

/// How far a transfer was at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: Duration,
    /// Payload, bytes.
    pub(super) moved: u64,
    /// Sent again, bytes.
    pub(super) resent: u64,
}

impl Mark {
    /// From there to here, bytes per second.
    pub(super) fn rate_since(&self, from: &Self) -> u64 {
        bytes_per_second(
            self.moved.saturating_sub(from.moved),
            self.at.saturating_sub(from.at),
        )
    }

    /// Part of all that was sent from there to here that was sent again, 0..=1.
    pub(super) fn loss_since(&self, from: &Self) -> f64 {
        let moved = self.moved.saturating_sub(from.moved) as f64;
        let resent = self.resent.saturating_sub(from.resent) as f64;
        if resent > 0.0 {
            resent / (moved + resent)
        } else {
            0.0
        }
    }
}

/// Findings of two round trips, at least a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sight {
    /// Its end.
    pub(super) at: Duration,
    pub(super) time: Duration,
    /// Of the streams that carry most.
    pub(super) class: Class,
    /// Bytes per second.
    pub(super) rate: u64,
    /// The round trip without and with queues, the mean.
    pub(super) trip: Trip,
    /// Segments were sent again.
    pub(super) lost: bool,
    /// Or had been in the sight before: what is acknowledged stands still and jumps.
    pub(super) mending: bool,
    /// A stream is still in its first slow start.
    pub(super) starting: bool,
}

impl Sight {
    /// How long packets wait.
    pub(super) fn queue(&self) -> Duration {
        self.trip.now.saturating_sub(self.trip.base)
    }
}

/// A stream as it was read so far.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    tally: Tally,
    verdict: Option<(Duration, Verdict)>,
    seen: bool,
    retransmits: u64,
}

/// Scenes since a sight.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Mark,
    scenes: u32,
    trips: Duration,
}

/// Reads scenes.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge {
    base: Base,
    streams: BTreeMap<StreamId, Stream>,
    now: Mark,
    marks: VecDeque<Mark>,
    window: Option<Window>,
    live: Duration,
    seen: bool,
    /// The last sight showed losses.
    lost: bool,
    /// The path has become longer since that was asked.
    longer: bool,
}

impl Gauge {
    /// Takes a scene; false: it is not newer than the last, or shows no stream.
    pub(super) fn on_scene(&mut self, scene: &Scene<'_>) -> bool {
        if (self.seen && scene.at <= self.now.at) || scene.looks.is_empty() {
            return false;
        }
        self.seen = true;
        self.live = round_trip(scene.looks).unwrap_or(self.live);
        self.longer |= self.base.on_looks(scene.at, scene.looks, self.live);
        self.live = self.live.max(self.base.get());
        let mut resent = self.now.resent;
        self.streams
            .retain(|id, _| scene.looks.iter().any(|look| look.stream == *id));
        for look in scene.looks {
            resent = resent.saturating_add(self.on_look(scene.at, look));
        }
        self.now = Mark {
            at: scene.at,
            moved: self.now.moved.max(scene.moved),
            resent,
        };
        self.remember();
        true
    }

    /// Reads one stream; what it sent again, bytes.
    fn on_look(&mut self, at: Duration, look: &Look) -> u64 {
        let look = Look {
            at,
            min_rtt: self.base.get(),
            ..*look
        };
        let stream = self.streams.entry(look.stream).or_default();
        if let Some(verdict) = stream.tally.on_look(Role::Sender, &look) {
            stream.verdict = Some((at, verdict));
        }
        // What a connection lost before it was seen is another transfer's.
        let before = match stream.seen {
            true => stream.retransmits,
            false => look.retransmits,
        };
        stream.seen = true;
        let again = look.retransmits.saturating_sub(before);
        stream.retransmits = stream.retransmits.max(look.retransmits);
        let segment = if look.segment == 0 {
            SEGMENT
        } else {
            look.segment
        };
        again.saturating_mul(segment)
    }

    fn remember(&mut self) {
        let last = self.marks.back();
        if last.is_none_or(|last| self.now.at.saturating_sub(last.at) >= STEP) {
            self.marks.push_back(self.now);
        }
        let old = self.now.at.saturating_sub(MEMORY);
        while self.marks.len() > 1 && self.marks[1].at <= old {
            self.marks.pop_front();
        }
    }

    /// Findings, when they took long enough; to be asked for after each scene.
    pub(super) fn sight(&mut self, looks: &[Look]) -> Option<Sight> {
        let Some(window) = &mut self.window else {
            self.restart();
            return None;
        };
        window.scenes += 1;
        window.trips += self.live;
        let time = self.now.at.saturating_sub(window.from.at);
        if window.scenes < FEWEST || time < SHORTEST.max(self.live * 2) {
            return None;
        }
        let window = *window;
        let lost = self.now.resent > window.from.resent;
        let sight = Sight {
            at: self.now.at,
            time,
            class: match self.class(time) {
                // Seldom on each of many streams is often on all.
                Class::Path if lost || self.lost => Class::Loss,
                class => class,
            },
            rate: self.now.rate_since(&window.from),
            trip: Trip {
                base: self.base.get(),
                now: (window.trips / window.scenes).max(self.base.get()),
            },
            lost,
            mending: lost || self.lost,
            starting: looks.iter().any(|look| look.slow_start),
        };
        self.lost = lost;
        self.restart();
        Some(sight)
    }

    /// The next sight begins now: something was changed.
    pub(super) fn restart(&mut self) {
        self.window = Some(Window {
            from: self.now,
            scenes: 0,
            trips: Duration::ZERO,
        });
    }

    /// The class of the streams that together carry most.
    fn class(&self, time: Duration) -> Class {
        let fresh = self.now.at.saturating_sub(time * 3);
        let mut sums: Vec<(Class, u64)> = Vec::new();
        for stream in self.streams.values() {
            let Some((_, verdict)) = stream.verdict.filter(|(at, _)| *at >= fresh) else {
                continue;
            };
            match sums.iter_mut().find(|(class, _)| *class == verdict.class) {
                Some((_, rate)) => *rate = rate.saturating_add(verdict.rate),
                None => sums.push((verdict.class, verdict.rate)),
            }
        }
        let most = sums.into_iter().max_by_key(|(_, rate)| *rate);
        most.map_or(Class::Unknown, |(class, _)| class)
    }

    /// Whether the path has become longer since this was asked.
    pub(super) fn take_longer(&mut self) -> bool {
        std::mem::take(&mut self.longer)
    }

    /// The path's round trip now.
    pub(super) fn live(&self) -> Trip {
        Trip {
            base: self.base.get(),
            now: self.live,
        }
    }

    /// How far the transfer is.
    pub(super) fn now(&self) -> Mark {
        self.now
    }

    /// How far it was then, or as early after as is remembered.
    pub(super) fn then(&self, at: Duration) -> Mark {
        let next = self.marks.partition_point(|mark| mark.at < at);
        self.marks.get(next).copied().unwrap_or(self.now)
    }
}

/// The mean over all streams by what they have in flight: one that rests shows an old round trip.
fn round_trip(looks: &[Look]) -> Option<Duration> {
    let known = || looks.iter().filter(|look| !look.rtt.is_zero());
    let weight = |look: &Look| u128::from(look.in_flight).saturating_add(1);
    let all: u128 = known().map(weight).sum();
    let sum: u128 = known()
        .map(|look| look.rtt.as_micros().saturating_mul(weight(look)))
        .fold(0, u128::saturating_add);
    let mean = sum.checked_div(all)?;
    u64::try_from(mean).ok().map(Duration::from_micros)
}
