//! Packets on their way, kept in a pool so that none of them is an allocation, and the access links that they
//! cross.

use std::time::Duration;

use units::Rate;

use crate::tcp::{Ack, Segment};

/// A packet's place in the pool.
pub(super) type PacketId = u32;

/// Where a packet is going next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextHop {
    /// To the bottleneck.
    Bottleneck,
    /// From the bottleneck to the access link of the host it is for.
    Access,
    /// To that host.
    Host,
}

/// Content of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum PacketBody {
    /// Asks to open a connection.
    Syn,
    /// Agrees.
    SynAck,
    /// Data.
    Segment(Segment),
    /// An acknowledgement.
    Ack(Ack),
}

impl PacketBody {
    /// It travels from sender to receiver.
    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Self::Syn | Self::Segment(_))
    }
}

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimPacket {
    pub(super) flow: u32,
    /// Of the IP packet.
    pub(super) bytes: u32,
    pub(super) stage: NextHop,
    pub(super) body: PacketBody,
}

/// The packets on their way.
#[derive(Debug, Default)]
pub(super) struct PacketPool {
    slots: Vec<SimPacket>,
    free: Vec<PacketId>,
}

impl PacketPool {
    pub(super) fn add(&mut self, packet: SimPacket) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = packet;
            return id;
        }
        self.slots.push(packet);
        PacketId::try_from(self.slots.len() - 1).unwrap_or(PacketId::MAX)
    }

    pub(super) fn get(&mut self, id: PacketId) -> &mut SimPacket {
        &mut self.slots[id as usize]
    }

    /// The packet has arrived or is lost.
    pub(super) fn remove(&mut self, id: PacketId) -> SimPacket {
        self.free.push(id);
        self.slots[id as usize]
    }

    /// How many are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// An access link, the same in both directions; its queue has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessLink {
    /// `None`: packets need no time to be sent.
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub delay: Duration,
}

/// One direction of an access link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccessQueue {
    free_at: Duration,
}

impl AccessQueue {
    /// When a packet of `bytes` that enters at `now` arrives; calls are in time order.
    pub(super) fn carry(&mut self, access: &AccessLink, now: Duration, bytes: u32) -> Duration {
        let Some(rate) = access.rate else {
            return now + access.delay;
        };
        self.free_at = self.free_at.max(now) + serialization_time(rate, bytes);
        self.free_at + access.delay
    }
}

/// The time from one packet of `bytes` to the next at `rate`, never nothing: a source must let time
/// pass.
pub(super) fn packet_interval(rate: Rate, bytes: u32) -> Duration {
    serialization_time(rate, bytes).max(Duration::from_nanos(1))
}

/// How long `bytes` occupy a line of `rate`; of a line that stands still, for 584 years at most.
fn serialization_time(rate: Rate, bytes: u32) -> Duration {
    let bit_nanoseconds = u64::from(bytes) * 8 * 1_000_000_000;
    Duration::from_nanos(bit_nanoseconds / rate.as_bits_per_second().max(1))
}
