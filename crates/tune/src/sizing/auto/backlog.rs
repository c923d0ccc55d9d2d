//! A reader that is slower than the path: what it is behind fills the receive buffer, and buys
//! nothing. A window of less than the reader's share of a round trip lets it catch up, one of a little
//! more keeps a cushion that bridges its pauses. TCP_WINDOW_CLAMP neither locks nor lowers the
//! buffer, and is taken back when the reader keeps up.

use std::time::Duration;

use super::super::figures::{bits, bytes, bytes_in, rate_of};
use super::super::{Change, Look};
use super::Action;
use super::class::{Class, is_backed_up};
use super::meter::Trip;

/// A reader behind for less than this is busy, not slow; its rate is a mean over as much.
const SLOW: Duration = Duration::from_secs(1);
/// The cushion: a reader's pauses up to this do not reach the sender.
const CUSHION: Duration = Duration::from_millis(100);
/// No cushion is smaller, bytes.
const SMALLEST_CUSHION: u64 = 256 << 10;
/// Windows below this are too coarse to hold a rate, bytes.
const SMALLEST: u64 = 32 << 10;
/// Between two settings.
const REPEAT: Duration = Duration::from_millis(250);
/// A reader that has caught up for so long keeps up.
const KEEPS_UP: Duration = Duration::from_millis(100);
/// A clamp that comes and goes waits twice as long each time, up to this many times.
const DOUBLINGS: u32 = 6;

/// What a program reads, whatever arrives.
#[derive(Debug, Clone, Copy, Default)]
struct Reader {
    from: Option<Look>,
    /// Bytes per second.
    rate: Option<u64>,
}

impl Reader {
    fn on_look(&mut self, look: &Look) {
        let Some(from) = self.from else {
            self.from = Some(*look);
            return;
        };
        let time = look.at.saturating_sub(from.at);
        if time >= SLOW {
            let arrived = look.bytes.saturating_sub(from.bytes) + payload(from.receive_queued);
            let read = arrived.saturating_sub(payload(look.receive_queued));
            self.rate = Some(rate_of(read, time));
            self.from = Some(*look);
        }
    }
}

/// Of the memory of what is queued, the kernel's bookkeeping takes about a quarter.
fn payload(queued: u64) -> u64 {
    queued / 4 * 3
}

/// A window in force.
#[derive(Debug, Clone, Copy)]
struct Set {
    window: u64,
    /// The reader shall catch up; else it has, and keeps its cushion.
    draining: bool,
    at: Duration,
    /// The buffer then: when it grows, the kernel forgets the clamp.
    buffer: u64,
}

/// One stream's backlog.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backlog {
    reader: Reader,
    set: Option<Set>,
    /// Reason to set or to lift has been seen since then.
    since: Option<Duration>,
    lifted: u32,
}

impl Backlog {
    pub(super) fn in_force(&self) -> bool {
        self.set.is_some()
    }

    pub(super) fn on_look(&mut self, look: &Look, trip: Trip) -> Option<Action> {
        self.reader.on_look(look);
        let rate = self.reader.rate?;
        let cushion = bytes_in(rate, CUSHION.max(trip.base * 2)).max(SMALLEST_CUSHION);
        match self.set {
            None => self.consider(look, trip, rate, cushion),
            Some(set) if look.receive_queued < cushion / 8 => self.lift(&set, look),
            Some(set) => self.keep(set, look, trip, rate, cushion),
        }
    }

    fn consider(&mut self, look: &Look, trip: Trip, rate: u64, cushion: u64) -> Option<Action> {
        if !is_backed_up(look) {
            self.since = None;
            return None;
        }
        let patience = SLOW * (1 << self.lifted.min(DOUBLINGS));
        let saves = look.receive_buffer / 4 >= cushion;
        let held = self.holds_for(look, patience.max(trip.base * 4));
        if !held || !saves || window(rate, trip, true) < SMALLEST {
            return None;
        }
        Some(self.apply(look, trip, rate, true))
    }

    fn lift(&mut self, set: &Set, look: &Look) -> Option<Action> {
        if !self.holds_for(look, KEEPS_UP) {
            return None;
        }
        (self.set, self.since) = (None, None);
        self.lifted += 1;
        Some(Action {
            change: Some(Change::Window(look.window_ceiling.max(look.receive_buffer))),
            class: Class::Elsewhere,
            reason: format!(
                "this end keeps up again; the window may grow beyond {}",
                bytes(set.window)
            ),
        })
    }

    /// Sets it again when the reader has caught up or fallen behind, when its rate has changed, and
    /// when the kernel has forgotten it.
    fn keep(
        &mut self,
        set: Set,
        look: &Look,
        trip: Trip,
        rate: u64,
        cushion: u64,
    ) -> Option<Action> {
        self.since = None;
        let draining = if set.draining {
            look.receive_queued > cushion
        } else {
            look.receive_queued > cushion * 3
        };
        let window = window(rate, trip, draining).max(SMALLEST);
        let moved = window > set.window / 4 * 5 || window < set.window / 4 * 3;
        let forgotten = look.receive_buffer > set.buffer || look.window > set.window / 4 * 5;
        let due = look.at.saturating_sub(set.at) >= REPEAT.max(trip.now);
        (due && (moved || forgotten)).then(|| self.apply(look, trip, rate, draining))
    }

    fn holds_for(&mut self, look: &Look, time: Duration) -> bool {
        let since = *self.since.get_or_insert(look.at);
        look.at.saturating_sub(since) >= time
    }

    fn apply(&mut self, look: &Look, trip: Trip, rate: u64, draining: bool) -> Action {
        let window = window(rate, trip, draining).max(SMALLEST);
        self.since = None;
        self.set = Some(Set {
            window,
            draining,
            at: look.at,
            buffer: look.receive_buffer,
        });
        let aim = if draining {
            "lets it catch up"
        } else {
            "keeps it busy"
        };
        Action {
            change: Some(Change::Window(window)),
            class: Class::Sink,
            reason: format!(
                "this end reads {} and has {} waiting; a window of {} {aim}",
                bits(rate.saturating_mul(8)),
                bytes(look.receive_queued),
                bytes(window)
            ),
        }
    }
}

/// Three quarters of what is read in a round trip, or five. The round trip may be somewhat longer
/// than the handshake's: too small a window would starve the reader.
fn window(rate: u64, trip: Trip, draining: bool) -> u64 {
    let quarters = if draining { 3 } else { 5 };
    bytes_in(rate, trip.judged()) / 4 * quarters
}
