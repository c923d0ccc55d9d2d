//! One direction of a network path: drop-tail queue, bottleneck, propagation delay, and the
//! misfortunes that may befall a packet on the way.
//!
//! A packet meets them in this order: the queue (full: dropped), the bottleneck (exact
//! serialisation, first in first out), then loss, corruption, duplication, and the delay. A lost
//! packet has used the bottleneck, as on a real path whose errors lie behind its narrowest hop.

use std::sync::Arc;
use std::time::Duration;

use crate::rate::Rate;
use crate::trace::Trace;

/// How much may wait for the bottleneck, the packet being serialised included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// No limit.
    Unlimited,
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes (IP packets, headers included).
    Bytes(u64),
}

/// Random loss behind the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// None.
    Never,
    /// Each packet independently with this probability, 0..=1.
    Independent(f64),
    /// Bursts: the Gilbert-Elliott model. Each packet first moves the state, then is lost with the
    /// state's probability.
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

/// What one direction does to packets.
#[derive(Debug, Clone, PartialEq)]
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
    pub trace: Option<Arc<Trace>>,
}

/// What becomes of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The queue was full.
    Dropped,
    /// Lost behind the bottleneck.
    Lost,
    /// It arrives.
    Arrives {
        /// When, on the clock of the call; never before an earlier packet that was not reordered.
        at: Duration,
        /// When its copy arrives, if it is duplicated.
        again: Option<Duration>,
        /// Its payload is to be changed: a number to choose the place by.
        corrupt: Option<u64>,
    },
}

/// What a direction has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
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

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    conditions: Conditions,
    counters: Counters,
}

impl Link {
    /// A fresh link; the same seed gives the same fates to the same packets.
    pub fn new(conditions: Conditions, _seed: u64) -> Self {
        Self {
            conditions,
            counters: Counters::default(),
        }
    }

    /// Decides about a packet of `bytes` (the IP packet, headers included) that reaches the queue
    /// at `now`; calls are in time order.
    pub fn offer(&mut self, now: Duration, bytes: u32) -> Fate {
        let _ = (now, bytes);
        todo!()
    }

    /// What it does.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// What it did.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
