//! A slow path with a deep queue: a modem's line, on which a window larger than the path makes every
//! byte wait for seconds and gains nothing. TCP_WINDOW_CLAMP drains it.
//!
//! The window is twice the best rate that the path ever had times its round trip, so that the line
//! stays full. One from the present rate would spiral down between competing flows; for the same
//! reason faster paths are left alone.

use std::time::Duration;

use super::super::figures::{bits, bytes, bytes_in, span};
use super::super::{Change, Look};
use super::Action;
use super::class::{Class, fills_window};
use super::meter::{Meter, Trip};

/// Paths below this rate, bytes per second (2 Mbit/s), are slow.
const SLOW: u64 = 250_000;
/// Their queues are long from here on.
const LONG_QUEUE: Duration = Duration::from_millis(400);
/// They are drained when they stay so for this time.
const SEEN: Duration = Duration::from_millis(500);
/// Fewer bytes in flight (ten segments, RFC 6928) leave loss recovery no duplicate ACKs.
const TEN_SEGMENTS: u64 = 10 * 1460;
/// Between two settings.
const REPEAT: Duration = Duration::from_millis(250);
/// A path that has been free of queues for so long has changed.
const FREE: Duration = Duration::from_secs(1);
/// A clamp that comes and goes waits twice as long each time, up to this many times.
const DOUBLINGS: u32 = 6;

/// A window in force.
#[derive(Debug, Clone, Copy)]
struct Set {
    window: u64,
    at: Duration,
    /// The buffer then: when it grows, the kernel forgets the clamp.
    buffer: u64,
}

/// One stream's clamp.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clamp {
    set: Option<Set>,
    /// Reason to set or to lift has been seen since then.
    since: Option<Duration>,
    lifted: u32,
}

impl Clamp {
    pub(super) fn in_force(&self) -> bool {
        self.set.is_some()
    }

    pub(super) fn on_look(&mut self, look: &Look, trip: Trip, meter: &Meter) -> Option<Action> {
        let Some(set) = self.set else {
            return self.consider(look, trip, meter);
        };
        let free = trip.now < trip.base * 5 / 4 && fills_window(look, trip, meter.latest());
        if free || meter.latest() >= SLOW {
            return self.lift(&set, look, trip);
        }
        self.since = None;
        self.keep(set, look, trip, meter)
    }

    fn consider(&mut self, look: &Look, trip: Trip, meter: &Meter) -> Option<Action> {
        if !is_slow(trip, meter) || window(trip, meter) >= look.window {
            self.since = None;
            return None;
        }
        let patience = SEEN * (1 << self.lifted.min(DOUBLINGS));
        self.holds_for(look, patience.max(trip.base * 4))
            .then(|| self.apply(look, trip, meter))
    }

    fn lift(&mut self, set: &Set, look: &Look, trip: Trip) -> Option<Action> {
        if !self.holds_for(look, FREE.max(trip.base * 4)) {
            return None;
        }
        (self.set, self.since) = (None, None);
        self.lifted += 1;
        Some(Action {
            change: Some(Change::Window(look.window_ceiling.max(look.receive_buffer))),
            class: Class::Window,
            reason: format!(
                "nothing queues on the path any more; the window may grow beyond {}",
                bytes(set.window)
            ),
        })
    }

    /// Sets it again when the kernel has forgotten it or the path has shown a better rate.
    fn keep(&mut self, set: Set, look: &Look, trip: Trip, meter: &Meter) -> Option<Action> {
        let forgotten = look.receive_buffer > set.buffer || look.window > set.window / 4 * 5;
        let better = window(trip, meter) > set.window / 4 * 5;
        let due = look.at.saturating_sub(set.at) >= REPEAT.max(trip.now);
        (due && (forgotten || better)).then(|| self.apply(look, trip, meter))
    }

    fn holds_for(&mut self, look: &Look, time: Duration) -> bool {
        let since = *self.since.get_or_insert(look.at);
        look.at.saturating_sub(since) >= time
    }

    fn apply(&mut self, look: &Look, trip: Trip, meter: &Meter) -> Action {
        let window = window(trip, meter);
        self.since = None;
        self.set = Some(Set {
            window,
            at: look.at,
            buffer: look.receive_buffer,
        });
        Action {
            change: Some(Change::Window(window)),
            class: Class::PathFull,
            reason: format!(
                "packets queue for {} on a path of {}; a window of {} keeps it full",
                span(trip.now.saturating_sub(trip.base)),
                bits(meter.best().saturating_mul(8)),
                bytes(window)
            ),
        }
    }
}

fn is_slow(trip: Trip, meter: &Meter) -> bool {
    !trip.is_short()
        && meter.best() > 0
        && meter.best() < SLOW
        && trip.now.saturating_sub(trip.base) > LONG_QUEUE
}

fn window(trip: Trip, meter: &Meter) -> u64 {
    bytes_in(meter.best(), trip.base)
        .saturating_mul(2)
        .max(TEN_SEGMENTS)
}
