//! Class of a stream's limit, seen over a few round trips. The rules of both ends stand in the order in
//! which they exclude each other.

use std::time::Duration;

use units::{bytes_in, show};

use super::meter::Trip;
use super::spell::Spell;
use crate::limiter::{Limiter, Role};
use crate::look::Look;
use crate::look::carried;

/// Limit of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Not seen yet.
    Unknown,
    /// The receiver's window.
    Window,
    /// The sender's buffer.
    SendBuffer,
    /// The sending program.
    Source,
    /// Nothing yet: slow start.
    Starting,
    /// The path: packets queue on it.
    PathFull,
    /// The path: it loses packets without a queue.
    Loss,
    /// The path, without queue or loss.
    Path,
    /// The receiving program.
    Sink,
    /// The sender or the path, which a receiver cannot tell apart.
    Elsewhere,
}

impl Class {
    pub(crate) fn limiter(self) -> Limiter {
        match self {
            Self::Unknown => Limiter::Unknown,
            Self::Window => Limiter::ReceiveWindow,
            Self::SendBuffer => Limiter::SendBuffer,
            Self::Source => Limiter::StoreRead,
            Self::Starting | Self::PathFull | Self::Path => Limiter::CongestionWindow,
            Self::Loss => Limiter::Loss,
            Self::Sink => Limiter::StoreWrite,
            Self::Elsewhere => Limiter::ServerCap,
        }
    }

    /// In plain words, with the figures of the look that it was seen at.
    pub(crate) fn reason(self, role: Role, look: &Look, rate: u64) -> String {
        let trip = Trip::of(look);
        let speed = show::bits(rate.saturating_mul(8));
        match self {
            Self::Unknown => "nothing moved yet".to_owned(),
            Self::Window => {
                let window = match role {
                    Role::Sender => look.peer_window,
                    Role::Receiver => look.window,
                };
                format!(
                    "{speed} fill the receiver's window of {} every {}",
                    show::bytes(window),
                    show::time(trip.judged())
                )
            }
            Self::SendBuffer => format!(
                "{speed} fill the send buffer of {} every {}",
                show::bytes(look.send_buffer),
                show::time(trip.now)
            ),
            Self::Source => format!("{speed} is what this end writes"),
            Self::Starting => format!("slow start, {speed} so far"),
            Self::PathFull => format!(
                "the path is full with {speed}: a round trip takes {} instead of {}",
                show::time(trip.now),
                show::time(trip.base)
            ),
            Self::Loss => format!(
                "losses hold the congestion window at {}",
                show::bytes(look.congestion_window)
            ),
            Self::Path => format!(
                "the congestion window of {} allows {speed}",
                show::bytes(look.congestion_window)
            ),
            Self::Sink => format!(
                "{speed} is what this end reads: {} wait in its buffer of {}",
                show::bytes(look.receive_readable),
                show::bytes(look.receive_buffer)
            ),
            Self::Elsewhere => format!("the sender or the path gives {speed}"),
        }
    }
}

/// The writer waits for room in the send buffer: it is woken when a third is free, and some more
/// may be free by the time it writes. What is written is in flight, and the peer has room. (The
/// kernel's own account, `sndbuf_limited`, misses most of that time.)
pub(crate) fn is_pressed(look: &Look) -> bool {
    /// The data room lets twice as much wait unsent (TCP_NOTSENT_LOWAT) where the buffer has room.
    const UNSENT: u64 = 512 << 10;
    look.send_buffer > 0
        && look.send_queued >= look.send_buffer / 5 * 3
        && look.unsent < UNSENT.min(look.send_buffer / 8)
        && (look.peer_window == 0 || look.in_flight < look.peer_window / 10 * 9)
}

/// The rate, bytes per second, is one that the send buffer could limit. During loss recovery a
/// buffer is full of what arrived after a gap, at whatever rate.
pub(crate) fn explains(look: &Look, trip: Trip, rate: u64) -> bool {
    bytes_in(rate, trip.now) >= carried(look.send_buffer) / 2
}

/// Half of what the receive buffer can hold waits to be read. Behind a lost segment a buffer is
/// full, too, of what cannot be read yet; of what can be, at least a quarter of the memory is payload
/// (full segments: a half to nearly all).
pub(crate) fn is_backed_up(look: &Look) -> bool {
    look.receive_buffer > 0
        && look.receive_queued >= look.receive_buffer / 2
        && look.receive_readable >= look.receive_queued / 4
}

/// One window a round trip explains the rate, bytes per second.
pub(crate) fn fills_window(look: &Look, trip: Trip, rate: u64) -> bool {
    let in_flight = bytes_in(rate, trip.judged());
    look.window > 0 && in_flight >= look.window / 100 * 85
}

/// Looks over two round trips, at least a tenth of a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    spell: Option<Spell>,
    looks: u32,
    pressed: u32,
    idle: u32,
    backed_up: u32,
}

/// Result of a tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) class: Class,
    /// Over this time.
    pub(crate) time: Duration,
    /// At this rate, bytes per second.
    pub(crate) rate: u64,
}

/// Differences over less are chance.
const SHORTEST: Duration = Duration::from_millis(100);
/// Nor do fewer looks tell anything.
const FEWEST: u32 = 3;

impl Tally {
    /// Takes a look; a verdict when the time is up and something moved.
    pub(crate) fn on_look(&mut self, role: Role, look: &Look) -> Option<Verdict> {
        let Some(spell) = &mut self.spell else {
            self.spell = Some(Spell::new(look));
            return None;
        };
        spell.on_look(look);
        let spell = *spell;
        self.looks += 1;
        self.pressed += u32::from(is_pressed(look));
        let idle = look.unsent == 0 && look.in_flight < look.congestion_window / 10 * 7;
        self.idle += u32::from(idle && !is_pressed(look));
        self.backed_up += u32::from(is_backed_up(look));
        let time = spell.time();
        if time < SHORTEST.max(spell.trip().now * 2) || self.looks < FEWEST {
            return None;
        }
        let class = match role {
            Role::Sender => self.sender(&spell, look),
            Role::Receiver => self.receiver(look, spell.trip(), spell.rate()),
        };
        *self = Self {
            spell: Some(Spell::new(look)),
            ..Self::default()
        };
        (spell.moved() > 0).then_some(Verdict {
            class,
            time,
            rate: spell.rate(),
        })
    }

    fn sender(&self, spell: &Spell, look: &Look) -> Class {
        let (first, trip) = (&spell.first, spell.trip());
        let busy = look.busy.saturating_sub(first.busy);
        let held = look.rwnd_limited.saturating_sub(first.rwnd_limited);
        if !busy.is_zero() && held * 10 > busy * 3 {
            return Class::Window;
        }
        if self.pressed * 2 >= self.looks && explains(look, trip, spell.rate()) {
            return if spell.fills_path() {
                Class::PathFull
            } else {
                Class::SendBuffer
            };
        }
        if busy * 10 < spell.time() * 7 || self.idle * 3 >= self.looks * 2 {
            return Class::Source;
        }
        if trip.is_congested() {
            return Class::PathFull;
        }
        if look.retransmits > first.retransmits {
            return Class::Loss;
        }
        if look.slow_start {
            Class::Starting
        } else {
            Class::Path
        }
    }

    fn receiver(&self, look: &Look, trip: Trip, rate: u64) -> Class {
        if self.backed_up * 2 >= self.looks {
            return Class::Sink;
        }
        if fills_window(look, trip, rate) {
            return Class::Window;
        }
        if trip.is_congested() {
            Class::PathFull
        } else {
            Class::Elsewhere
        }
    }
}
