//! Class of a stream's limit, seen over a few round trips. The rules of both ends stand in the order in
//! which they exclude each other.

use std::time::Duration;

use units::{bytes_in, show};

use super::rate_meter::Rtt;
use super::stream_interval::StreamInterval;
use crate::limiter::{Limiter, Role};
use crate::sample::TcpSample;
use crate::sample::max_in_flight;

/// Limit of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    /// Not seen yet.
    Unknown,
    /// The receiver's window.
    ReceiveWindow,
    /// The sender's buffer.
    SendBuffer,
    /// The sending program.
    SenderApp,
    /// Nothing yet: slow start.
    SlowStart,
    /// The path: packets queue on it.
    Link,
    /// The path: it loses packets without a queue.
    Loss,
    /// The path, without queue or loss.
    Cwnd,
    /// The receiving program.
    ReceiverApp,
    /// The sender or the path, which a receiver cannot tell apart.
    SenderOrPath,
}

impl Bottleneck {
    pub(crate) fn limiter(self) -> Limiter {
        match self {
            Self::Unknown => Limiter::Unknown,
            Self::ReceiveWindow => Limiter::ReceiveWindow,
            Self::SendBuffer => Limiter::SendBuffer,
            Self::SenderApp => Limiter::StoreRead,
            Self::SlowStart | Self::Link | Self::Cwnd => Limiter::CongestionWindow,
            Self::Loss => Limiter::Loss,
            Self::ReceiverApp => Limiter::StoreWrite,
            Self::SenderOrPath => Limiter::ServerCap,
        }
    }

    /// In plain words, with the figures of the look that it was seen at.
    pub(crate) fn describe(self, role: Role, look: &TcpSample, rate: u64) -> String {
        let trip = Rtt::of_sample(look);
        let speed = show::bits(rate.saturating_mul(8));
        match self {
            Self::Unknown => "nothing moved yet".to_owned(),
            Self::ReceiveWindow => {
                let window = match role {
                    Role::Sender => look.peer_window,
                    Role::Receiver => look.receive_window,
                };
                format!(
                    "{speed} fill the receiver's window of {} every {}",
                    show::bytes(window),
                    show::time(trip.for_window())
                )
            }
            Self::SendBuffer => format!(
                "{speed} fill the send buffer of {} every {}",
                show::bytes(look.send_buffer),
                show::time(trip.smoothed)
            ),
            Self::SenderApp => format!("{speed} is what this end writes"),
            Self::SlowStart => format!("slow start, {speed} so far"),
            Self::Link => format!(
                "the path is full with {speed}: a round trip takes {} instead of {}",
                show::time(trip.smoothed),
                show::time(trip.min)
            ),
            Self::Loss => format!(
                "losses hold the congestion window at {}",
                show::bytes(look.cwnd)
            ),
            Self::Cwnd => format!(
                "the congestion window of {} allows {speed}",
                show::bytes(look.cwnd)
            ),
            Self::ReceiverApp => format!(
                "{speed} is what this end reads: {} wait in its buffer of {}",
                show::bytes(look.readable),
                show::bytes(look.receive_buffer)
            ),
            Self::SenderOrPath => format!("the sender or the path gives {speed}"),
        }
    }
}

/// The writer waits for room in the send buffer: it is woken when a third is free, and some more
/// may be free by the time it writes. What is written is in flight, and the peer has room. (The
/// kernel's own account, `sndbuf_limited`, misses most of that time.)
pub(crate) fn is_send_buffer_full(look: &TcpSample) -> bool {
    /// The data room lets twice as much wait unsent (TCP_NOTSENT_LOWAT) where the buffer has room.
    const UNSENT: u64 = 512 << 10;
    look.send_buffer > 0
        && look.send_queue_memory >= look.send_buffer / 5 * 3
        && look.unsent < UNSENT.min(look.send_buffer / 8)
        && (look.peer_window == 0 || look.in_flight < look.peer_window / 10 * 9)
}

/// The rate, bytes per second, is one that the send buffer could limit. During loss recovery a
/// buffer is full of what arrived after a gap, at whatever rate.
pub(crate) fn explains_rate_by_send_buffer(look: &TcpSample, trip: Rtt, rate: u64) -> bool {
    bytes_in(rate, trip.smoothed) >= max_in_flight(look.send_buffer) / 2
}

/// Half of what the receive buffer can hold waits to be read. Behind a lost segment a buffer is
/// full, too, of what cannot be read yet; of what can be, at least a quarter of the memory is payload
/// (full segments: a half to nearly all).
pub(crate) fn is_receive_buffer_backed_up(look: &TcpSample) -> bool {
    look.receive_buffer > 0
        && look.receive_queue_memory >= look.receive_buffer / 2
        && look.readable >= look.receive_queue_memory / 4
}

/// One window a round trip explains the rate, bytes per second.
pub(crate) fn fills_receive_window(look: &TcpSample, trip: Rtt, rate: u64) -> bool {
    let in_flight = bytes_in(rate, trip.for_window());
    look.receive_window > 0 && in_flight >= look.receive_window / 100 * 85
}

/// Looks over two round trips, at least a tenth of a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BottleneckClassifier {
    spell: Option<StreamInterval>,
    looks: u32,
    pressed: u32,
    idle: u32,
    backed_up: u32,
}

/// Result of a tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassifiedInterval {
    pub(crate) bottleneck: Bottleneck,
    /// Over this time.
    pub(crate) time: Duration,
    /// At this rate, bytes per second.
    pub(crate) rate: u64,
}

/// Differences over less are chance.
const SHORTEST: Duration = Duration::from_millis(100);
/// Nor do fewer looks tell anything.
const FEWEST: u32 = 3;

impl BottleneckClassifier {
    /// Takes a look; a verdict when the time is up and something moved.
    pub(crate) fn on_sample(&mut self, role: Role, look: &TcpSample) -> Option<ClassifiedInterval> {
        let Some(spell) = &mut self.spell else {
            self.spell = Some(StreamInterval::new(look));
            return None;
        };
        spell.on_sample(look);
        let spell = *spell;
        self.looks += 1;
        self.pressed += u32::from(is_send_buffer_full(look));
        let idle = look.unsent == 0 && look.in_flight < look.cwnd / 10 * 7;
        self.idle += u32::from(idle && !is_send_buffer_full(look));
        self.backed_up += u32::from(is_receive_buffer_backed_up(look));
        let time = spell.time();
        if time < SHORTEST.max(spell.rtt().smoothed * 2) || self.looks < FEWEST {
            return None;
        }
        let class = match role {
            Role::Sender => self.classify_sender(&spell, look),
            Role::Receiver => self.classify_receiver(look, spell.rtt(), spell.rate()),
        };
        *self = Self {
            spell: Some(StreamInterval::new(look)),
            ..Self::default()
        };
        (spell.bytes() > 0).then_some(ClassifiedInterval {
            bottleneck: class,
            time,
            rate: spell.rate(),
        })
    }

    fn classify_sender(&self, spell: &StreamInterval, look: &TcpSample) -> Bottleneck {
        let (first, trip) = (&spell.first, spell.rtt());
        let busy = look.busy_time.saturating_sub(first.busy_time);
        let held = look.rwnd_limited.saturating_sub(first.rwnd_limited);
        if !busy.is_zero() && held * 10 > busy * 3 {
            return Bottleneck::ReceiveWindow;
        }
        if self.pressed * 2 >= self.looks && explains_rate_by_send_buffer(look, trip, spell.rate())
        {
            return if spell.fills_path() {
                Bottleneck::Link
            } else {
                Bottleneck::SendBuffer
            };
        }
        if busy * 10 < spell.time() * 7 || self.idle * 3 >= self.looks * 2 {
            return Bottleneck::SenderApp;
        }
        if trip.is_congested() {
            return Bottleneck::Link;
        }
        if look.retransmits > first.retransmits {
            return Bottleneck::Loss;
        }
        if look.in_slow_start {
            Bottleneck::SlowStart
        } else {
            Bottleneck::Cwnd
        }
    }

    fn classify_receiver(&self, look: &TcpSample, trip: Rtt, rate: u64) -> Bottleneck {
        if self.backed_up * 2 >= self.looks {
            return Bottleneck::ReceiverApp;
        }
        if fills_receive_window(look, trip, rate) {
            return Bottleneck::ReceiveWindow;
        }
        if trip.is_congested() {
            Bottleneck::Link
        } else {
            Bottleneck::SenderOrPath
        }
    }
}
