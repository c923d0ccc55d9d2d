//! Windows that are made smaller than the buffer allows, for memory's and the queue's sake, with
//! TCP_WINDOW_CLAMP: it neither locks nor lowers a buffer, and can be taken back.
//!
//! Two cases only, in which the rate cannot suffer. A window taken from the present rate would
//! spiral down between competing flows; these are taken from the reader's rate, which the sender
//! exceeds, and from the best rate that a slow path ever had.

use std::time::Duration;

use super::super::figures::{bits, bytes, bytes_in, span};
use super::super::{Change, Look};
use super::Action;
use super::class::{Class, fills_window, is_backed_up};
use super::meter::{Meter, Trip};

/// A reader behind for less than this is busy, not slow.
const SLOW_READER: Duration = Duration::from_secs(1);
/// A reader's pauses up to this are bridged by what the window holds.
const PAUSE: Duration = Duration::from_millis(100);
/// Windows below this save nothing worth having.
const SMALLEST: u64 = 256 << 10;
/// Queues of slow paths are long from here on.
const LONG_QUEUE: Duration = Duration::from_millis(400);
/// They are drained when they stay so for this time.
const SLOW_PATH_SEEN: Duration = Duration::from_millis(500);
/// Paths below this rate, bytes per second (2 Mbit/s), are slow.
const SLOW_PATH: u64 = 250_000;
/// Fewer bytes in flight (ten segments, RFC 6928) leave loss recovery no duplicate ACKs.
const TEN_SEGMENTS: u64 = 10 * 1460;
/// Between two settings of the same window.
const REPEAT: Duration = Duration::from_millis(250);
/// A clamp that comes and goes waits twice as long each time, up to this many times.
const DOUBLINGS: u32 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    SlowReader,
    SlowPath,
}

#[derive(Debug, Clone, Copy)]
struct Set {
    cause: Cause,
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
        if self.is_over(&set, look, trip, meter) {
            return Some(self.lift(&set, look));
        }
        self.keep(set, look, trip, meter)
    }

    fn consider(&mut self, look: &Look, trip: Trip, meter: &Meter) -> Option<Action> {
        let cause = if is_backed_up(look) {
            Cause::SlowReader
        } else if is_slow_path(trip, meter) {
            Cause::SlowPath
        } else {
            self.since = None;
            return None;
        };
        let window = window(cause, trip, meter);
        let patience = match cause {
            Cause::SlowReader => SLOW_READER * (1 << self.lifted.min(DOUBLINGS)),
            Cause::SlowPath => SLOW_PATH_SEEN * (1 << self.lifted.min(DOUBLINGS)),
        };
        let saves = match cause {
            Cause::SlowReader => window <= look.receive_buffer / 4,
            Cause::SlowPath => window < look.window,
        };
        if !self.holds_for(look, patience.max(trip.base * 4)) || !saves {
            return None;
        }
        Some(self.apply(cause, window, look, trip, meter))
    }

    /// The reason is gone.
    fn is_over(&mut self, set: &Set, look: &Look, trip: Trip, meter: &Meter) -> bool {
        let gone = match set.cause {
            Cause::SlowReader => look.receive_queued < set.window / 4,
            Cause::SlowPath => {
                meter.latest() >= SLOW_PATH
                    || (trip.now < trip.base * 5 / 4 && fills_window(look, trip, meter.latest()))
            }
        };
        if !gone {
            self.since = None;
            return false;
        }
        self.holds_for(look, SLOW_READER.max(trip.base * 4))
    }

    fn lift(&mut self, set: &Set, look: &Look) -> Action {
        (self.set, self.since) = (None, None);
        self.lifted += 1;
        let (class, what) = match set.cause {
            Cause::SlowReader => (Class::Elsewhere, "this end keeps up again"),
            Cause::SlowPath => (Class::Window, "nothing queues on the path any more"),
        };
        Action {
            change: Some(Change::Window(look.window_ceiling.max(look.receive_buffer))),
            class,
            reason: format!(
                "{what}; the window may grow beyond {} again",
                bytes(set.window)
            ),
        }
    }

    /// Sets it again when the kernel has overwritten it or the rates have moved.
    fn keep(&mut self, set: Set, look: &Look, trip: Trip, meter: &Meter) -> Option<Action> {
        let window = window(set.cause, trip, meter);
        let overwritten = look.receive_buffer > set.buffer || look.window > set.window / 4 * 5;
        let moved = window > set.window / 4 * 5
            || (set.cause == Cause::SlowReader && window < set.window / 2);
        let due = look.at.saturating_sub(set.at) >= REPEAT.max(trip.now);
        if !due || !(overwritten || moved) {
            return None;
        }
        Some(self.apply(set.cause, window, look, trip, meter))
    }

    fn holds_for(&mut self, look: &Look, time: Duration) -> bool {
        let since = *self.since.get_or_insert(look.at);
        look.at.saturating_sub(since) >= time
    }

    fn apply(
        &mut self,
        cause: Cause,
        window: u64,
        look: &Look,
        trip: Trip,
        meter: &Meter,
    ) -> Action {
        self.since = None;
        self.set = Some(Set {
            cause,
            window,
            at: look.at,
            buffer: look.receive_buffer,
        });
        let (class, what) = match cause {
            Cause::SlowReader => (
                Class::Sink,
                format!(
                    "{} of {} wait to be read, at {}; a window of {} is enough for that",
                    bytes(look.receive_queued),
                    bytes(look.receive_buffer),
                    bits(meter.lately().saturating_mul(8)),
                    bytes(window)
                ),
            ),
            Cause::SlowPath => (
                Class::PathFull,
                format!(
                    "packets queue for {} on a path of {}; a window of {} keeps it full",
                    span(trip.now.saturating_sub(trip.base)),
                    bits(meter.best().saturating_mul(8)),
                    bytes(window)
                ),
            ),
        };
        Action {
            change: Some(Change::Window(window)),
            class,
            reason: what,
        }
    }
}

fn is_slow_path(trip: Trip, meter: &Meter) -> bool {
    !trip.is_short()
        && meter.best() > 0
        && meter.best() < SLOW_PATH
        && trip.now.saturating_sub(trip.base) > LONG_QUEUE
}

/// Twice the bandwidth-delay product.
fn window(cause: Cause, trip: Trip, meter: &Meter) -> u64 {
    match cause {
        Cause::SlowReader => {
            let product = bytes_in(meter.lately(), trip.base.max(PAUSE / 2));
            product.saturating_mul(2).max(SMALLEST)
        }
        Cause::SlowPath => bytes_in(meter.best(), trip.base)
            .saturating_mul(2)
            .max(TEN_SEGMENTS),
    }
}
