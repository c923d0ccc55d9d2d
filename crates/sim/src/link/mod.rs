//! One direction of a network path: drop-tail queue, bottleneck, propagation delay, and the
//! misfortunes that may befall a packet on the way.
//!
//! A packet meets them in this order: the queue (full: dropped), the bottleneck (exact
//! serialisation, first in first out), then loss, corruption, duplication, and the delay. A lost
//! packet has used the bottleneck, as on a real path whose errors lie behind its narrowest hop.
//!
//! A trace is known in advance, so a packet's whole fate is decided when it is offered: when its
//! last bit will have left under the rates to come, and which delay and loss hold then.

mod impairments;
mod schedule;
mod serializer;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use impairments::{Impairments, PacketImpairments};
use schedule::nanoseconds;
use serializer::Serializer;

use crate::trace::PathTrace;
use units::Rate;

/// How much may wait for the bottleneck. The packet being serialised waits, all of it, until its last
/// bit has left; a packet that would exceed the limit is dropped, so a limit below one packet lets
/// nothing pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queue {
    /// No limit.
    #[default]
    Unlimited,
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes (IP packets, headers included).
    Bytes(u64),
}

/// Random loss behind the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    Never,
    /// Each packet independently with this probability, 0..=1.
    Independent(f64),
    /// Bursts: the Gilbert-Elliott model (E. N. Gilbert 1960, E. O. Elliott 1963). It begins in the
    /// good state; each packet first moves the state, then is lost with the state's probability.
    Bursty {
        /// Probability to go from the good state to the bad one, per packet.
        to_bad: f64,
        /// Probability to go from the bad state to the good one, per packet.
        to_good: f64,
        /// Probability of loss in the good state.
        in_good: f64,
        /// Probability of loss in the bad state.
        in_bad: f64,
    },
}

/// Packets that are overtaken on purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of packets held back, 0..=1.
    pub probability: f64,
    /// How much later than its turn a chosen packet arrives; those behind it do not wait.
    pub extra: Duration,
}

/// Conditions of one direction for packets; the default is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Bottleneck; `None`: no serialisation and no queue.
    pub rate: Option<Rate>,
    /// One-way propagation delay. When a trace changes it, order is kept.
    pub delay: Duration,
    /// Queue in front of the bottleneck.
    pub queue: Queue,
    /// Loss.
    pub loss: Loss,
    /// Reordering.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice, 0..=1.
    pub duplicate: f64,
    /// Share of packets whose payload is changed under a right checksum, 0..=1.
    pub corrupt: f64,
    /// Values in time that replace rate, delay (half the trace's round trip) and loss.
    pub trace: Option<Arc<PathTrace>>,
}

/// Fate of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    /// The queue was full.
    Dropped,
    /// Lost behind the bottleneck.
    Lost,
    /// It arrives.
    Delivered {
        /// When, on the clock of the call; never before an earlier packet that was not reordered.
        /// [`NEVER`] behind a bottleneck that stands still for good.
        arrives_at: Duration,
        /// When its last bit leaves the bottleneck.
        departs_at: Duration,
        /// When its copy arrives, if it is duplicated: right behind it, and changed if it is.
        duplicate_at: Option<Duration>,
        /// Its payload is to be changed: a number to choose the place by.
        corrupt: Option<u64>,
    },
}

/// Counts of a direction so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Packets offered.
    pub packets: u64,
    /// Bytes offered.
    pub bytes: u64,
    /// Packets dropped at the full queue.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets that arrive, copies not counted.
    pub delivered: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets changed.
    pub corrupted: u64,
    /// Packets held back to be overtaken.
    pub reordered: u64,
    /// Most packets ever waiting, the one being serialised included.
    pub peak_queue_packets: u64,
    /// Most bytes ever waiting, the packet being serialised included.
    pub peak_queue_bytes: u64,
}

/// A time that does not come: the end of the clock, 584 years.
pub const NEVER: Duration = Duration::from_nanos(u64::MAX);

/// Packets that wait for the bottleneck, the one being serialised included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkBacklog {
    /// Packets.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    conditions: Conditions,
    counters: LinkCounters,
    bottleneck: Serializer,
    luck: Impairments,
    /// Packets that wait, in the order of departure; those that have departed are removed at the next call.
    waiting: VecDeque<QueuedPacket>,
    waiting_bytes: u64,
    /// When the latest packet that was not held back arrives, nanoseconds.
    latest: u64,
}

/// A packet in the queue.
#[derive(Debug, Clone, Copy)]
struct QueuedPacket {
    /// Nanoseconds.
    departs: u64,
    bytes: u32,
}

impl Link {
    /// A fresh link; the same seed gives the same fates to the same packets. Loss, reordering,
    /// duplication and corruption each have random numbers of their own: turning one on changes
    /// none of the others.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            bottleneck: Serializer::new(&conditions),
            luck: Impairments::new(seed),
            counters: LinkCounters::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            latest: 0,
            conditions,
        }
    }

    /// Decides about a packet of `bytes` (the IP packet, headers included) that reaches the queue
    /// at `now`; calls are in time order.
    pub fn offer(&mut self, now: Duration, bytes: u32) -> PacketFate {
        let now = nanoseconds(now);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        self.remove_departed(now);
        if !self.has_room(bytes) {
            self.counters.queue_drops += 1;
            return PacketFate::Dropped;
        }
        let (departs, stretch) = self.bottleneck.depart(now, bytes);
        if departs > now {
            self.enqueue(departs, bytes);
        }
        let luck = self.luck.next(&self.conditions, stretch.loss);
        if luck.lost {
            self.counters.losses += 1;
            return PacketFate::Lost;
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(bytes);
        self.deliver(departs, stretch.delay, luck)
    }

    /// Packets that wait for the bottleneck at `now`, which is not before the latest packet was offered.
    pub fn backlog(&mut self, now: Duration) -> LinkBacklog {
        self.remove_departed(nanoseconds(now));
        LinkBacklog {
            packets: self.waiting.len() as u64,
            bytes: self.waiting_bytes,
        }
    }

    /// The conditions.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The counts.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Forgets the packets that have departed.
    fn remove_departed(&mut self, now: u64) {
        while let Some(first) = self.waiting.front()
            && first.departs <= now
        {
            self.waiting_bytes -= u64::from(first.bytes);
            self.waiting.pop_front();
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.conditions.queue {
            Queue::Unlimited => true,
            Queue::Packets(most) => self.waiting.len() < most as usize,
            Queue::Bytes(most) => self.waiting_bytes.saturating_add(u64::from(bytes)) <= most,
        }
    }

    fn enqueue(&mut self, departs: u64, bytes: u32) {
        self.waiting.push_back(QueuedPacket { departs, bytes });
        self.waiting_bytes += u64::from(bytes);
        let counters = &mut self.counters;
        counters.peak_queue_packets = counters.peak_queue_packets.max(self.waiting.len() as u64);
        counters.peak_queue_bytes = counters.peak_queue_bytes.max(self.waiting_bytes);
    }

    /// When and how a packet that is not lost arrives. One that the delay would let overtake
    /// arrives together with the one before it.
    fn deliver(&mut self, departs: u64, delay: u64, luck: PacketImpairments) -> PacketFate {
        let mut at = departs.saturating_add(delay).max(self.latest);
        if luck.held_back {
            self.counters.reordered += 1;
            let extra = self.conditions.reorder.map_or(Duration::ZERO, |r| r.extra);
            at = at.saturating_add(nanoseconds(extra));
        } else {
            self.latest = at;
        }
        self.counters.duplicated += u64::from(luck.doubled);
        self.counters.corrupted += u64::from(luck.corrupt.is_some());
        let at = Duration::from_nanos(at);
        PacketFate::Delivered {
            arrives_at: at,
            departs_at: Duration::from_nanos(departs),
            duplicate_at: luck.doubled.then_some(at),
            corrupt: luck.corrupt,
        }
    }
}
