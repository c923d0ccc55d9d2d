//! One direction of a network path: drop-tail queue, bottleneck, propagation delay, and random
//! impairments (loss, corruption, duplication, reordering).
//!
//! A packet passes them in this order: the queue, which drops it if it is full; the bottleneck, with
//! exact serialization, first in, first out; then loss, corruption, duplication and delay. A lost packet
//! has used the bottleneck, as on a real path with errors behind its narrowest hop.
//!
//! A trace is known in advance. So the complete fate of a packet is computed when it is offered: when
//! its last bit will leave under the rates to come, and the delay and loss at that time.

#![forbid(unsafe_code)]

mod impairments;
mod schedule;
mod serializer;
#[cfg(test)]
mod tests;
pub mod trace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use impairments::{Impairments, PacketImpairments};
use schedule::nanoseconds;
use serializer::Serializer;

use crate::trace::PathTrace;
use units::Rate;

/// Limit of the queue in front of the bottleneck. The packet being serialized counts completely until
/// its last bit has left. A packet that would exceed the limit is dropped, so a limit below one packet
/// drops everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queue {
    /// Unlimited.
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
    /// No loss.
    #[default]
    Never,
    /// Each packet is lost independently with this probability, 0..=1.
    Independent(f64),
    /// Bursts of loss: the Gilbert-Elliott model (E. N. Gilbert 1960, E. O. Elliott 1963). It begins in
    /// the good state. Each packet first changes the state at random, then is lost with the probability of
    /// the new state.
    Bursty {
        /// Probability per packet of a change from the good to the bad state.
        to_bad: f64,
        /// Probability per packet of a change from the bad to the good state.
        to_good: f64,
        /// Probability of loss in the good state.
        in_good: f64,
        /// Probability of loss in the bad state.
        in_bad: f64,
    },
}

/// Reordering: some packets are delayed so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of delayed packets, 0..=1.
    pub probability: f64,
    /// Additional delay of such a packet; later packets do not wait for it.
    pub extra: Duration,
}

/// The properties of one direction of a path. By default packets pass at once and unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Rate of the bottleneck; `None`: no serialization and no queue.
    pub rate: Option<Rate>,
    /// One-way propagation delay. If a trace changes it, packets stay in order.
    pub delay: Duration,
    /// Limit of the queue in front of the bottleneck.
    pub queue: Queue,
    /// Random loss.
    pub loss: Loss,
    /// Reordering; `None`: packets stay in order.
    pub reorder: Option<Reorder>,
    /// Share of duplicated packets, 0..=1.
    pub duplicate: f64,
    /// Share of packets whose payload is changed while their checksum stays right, 0..=1.
    pub corrupt: f64,
    /// Trace that replaces rate, delay (half of the trace's RTT) and loss over time.
    pub trace: Option<Arc<PathTrace>>,
}

/// The fate of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    /// The queue was full.
    Dropped,
    /// The packet was lost behind the bottleneck.
    Lost,
    /// The packet arrives.
    Delivered {
        /// Time of arrival, on the clock of the call; not before earlier packets, except reordered
        /// ones. [`NEVER`] if the bottleneck has the rate 0 for ever.
        arrives_at: Duration,
        /// Time at which its last bit leaves the bottleneck.
        departs_at: Duration,
        /// Time at which its duplicate arrives, directly behind it, if it is duplicated. The duplicate of
        /// a corrupted packet is corrupted, too.
        duplicate_at: Option<Duration>,
        /// If its payload must be changed: a random number that selects the position.
        corrupt: Option<u64>,
    },
}

/// Counters of one direction since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Packets offered.
    pub packets: u64,
    /// Bytes offered.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub losses: u64,
    /// Packets that arrive, without duplicates.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Duplicates.
    pub duplicated: u64,
    /// Corrupted packets.
    pub corrupted: u64,
    /// Reordered packets.
    pub reordered: u64,
    /// Largest queue length, packets, including the one being serialized.
    pub peak_queue_packets: u64,
    /// Largest queue length, bytes, including the packet being serialized.
    pub peak_queue_bytes: u64,
}

/// A time that is never reached: the end of the clock, 584 years.
pub const NEVER: Duration = Duration::from_nanos(u64::MAX);

/// The queue in front of the bottleneck, including the packet being serialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkBacklog {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// One direction of a path, as a state machine on the clock of its caller.
#[derive(Debug)]
pub struct Link {
    conditions: Conditions,
    counters: LinkCounters,
    bottleneck: Serializer,
    impairments: Impairments,
    /// Queued packets in order of departure; departed ones are removed at the next call.
    waiting: VecDeque<QueuedPacket>,
    waiting_bytes: u64,
    /// Latest arrival of a packet that was not reordered, nanoseconds.
    latest: u64,
}

/// A packet in the queue, or being serialized.
#[derive(Debug, Clone, Copy)]
struct QueuedPacket {
    /// Time of departure, nanoseconds.
    departs: u64,
    bytes: u32,
}

impl Link {
    /// A new link. The same seed gives the same packets the same fates. Loss, reordering, duplication and
    /// corruption use separate random number streams, so enabling one does not change the others.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            bottleneck: Serializer::new(&conditions),
            impairments: Impairments::new(seed),
            counters: LinkCounters::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            latest: 0,
            conditions,
        }
    }

    /// Decides the fate of an IP packet of `bytes`, headers included, that reaches the queue at `now`.
    /// Calls must be in order of time.
    pub fn offer(&mut self, now: Duration, bytes: u32) -> PacketFate {
        let now = nanoseconds(now);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        self.remove_departed(now);
        if !self.has_room(bytes) {
            self.counters.queue_drops += 1;
            return PacketFate::Dropped;
        }
        let (departs, conditions_then) = self.bottleneck.depart(now, bytes);
        // Without a bottleneck the packet leaves at once and never counts as queued.
        if departs > now {
            self.enqueue(departs, bytes);
        }
        // Drawn after the bottleneck, so that a lost packet has used its capacity.
        let impairments = self
            .impairments
            .next(&self.conditions, conditions_then.loss);
        if impairments.lost {
            self.counters.losses += 1;
            return PacketFate::Lost;
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(bytes);
        self.deliver(departs, conditions_then.delay, impairments)
    }

    /// The queue at `now`, which must not be before the last offered packet.
    pub fn backlog(&mut self, now: Duration) -> LinkBacklog {
        self.remove_departed(nanoseconds(now));
        LinkBacklog {
            packets: self.waiting.len() as u64,
            bytes: self.waiting_bytes,
        }
    }

    /// The properties of the link.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The counters.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Removes departed packets from the queue.
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

    /// The fate of a packet that is not lost. If a shorter delay would let it overtake the packet before
    /// it, both arrive at the same time.
    fn deliver(&mut self, departs: u64, delay: u64, impairments: PacketImpairments) -> PacketFate {
        let mut at = departs.saturating_add(delay).max(self.latest);
        if impairments.reordered {
            self.counters.reordered += 1;
            let extra = self.conditions.reorder.map_or(Duration::ZERO, |r| r.extra);
            at = at.saturating_add(nanoseconds(extra));
        } else {
            // A reordered packet does not move `latest`: the packets behind it must not wait.
            self.latest = at;
        }
        self.counters.duplicated += u64::from(impairments.duplicated);
        self.counters.corrupted += u64::from(impairments.corrupt.is_some());
        let at = Duration::from_nanos(at);
        PacketFate::Delivered {
            arrives_at: at,
            departs_at: Duration::from_nanos(departs),
            duplicate_at: impairments.duplicated.then_some(at),
            corrupt: impairments.corrupt,
        }
    }
}
