//! Packets in flight, kept in a pool to avoid one allocation per packet, and access links.

use std::time::Duration;

use units::Rate;

use crate::tcp::{Ack, Segment};

/// Index of a packet in the pool.
pub(super) type PacketId = u32;

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextHop {
    /// The access link of the sending host, if connections share it.
    SharedAccess,
    /// The bottleneck.
    Bottleneck,
    /// The access link of the destination host.
    Access,
    /// The destination host.
    Host,
}

/// Content of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum PacketBody {
    /// Request to open a connection.
    Syn,
    /// Reply to the request.
    SynAck,
    /// A data segment.
    Segment(Segment),
    /// An acknowledgement.
    Ack(Ack),
}

impl PacketBody {
    /// Whether it travels from the sender to the receiver.
    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Self::Syn | Self::Segment(_))
    }
}

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimPacket {
    pub(super) flow: u32,
    /// Size of the IP packet, bytes.
    pub(super) bytes: u32,
    pub(super) stage: NextHop,
    /// Of a packet from the receiver: when it was sent. Of a segment: the timestamp that it returns.
    pub(super) timestamp: Option<Duration>,
    pub(super) body: PacketBody,
}

/// The packets in flight.
#[derive(Debug, Default)]
pub(super) struct PacketPool {
    slots: Vec<SimPacket>,
    free: Vec<PacketId>,
}

impl PacketPool {
    pub(super) fn add(&mut self, packet: SimPacket) -> PacketId {
        // Reuse keeps the pool as small as the largest number of packets in flight.
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

    /// Removes a packet that has arrived or is lost.
    pub(super) fn remove(&mut self, id: PacketId) -> SimPacket {
        self.free.push(id);
        self.slots[id as usize]
    }

    /// Number of packets in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// An access link, with the same properties in both directions and an unlimited queue.
///
/// Connections that share one differ from others when they send bursts at the same time. Own links deliver the
/// bursts interleaved, and a queue that overflows drops the end of each; a shared link delivers them one after
/// the other, and the queue drops those of a few connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessLink {
    /// Rate; `None`: packets are sent at once.
    pub rate: Option<Rate>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Whether all connections with this flag share one link at this end: they belong to one host.
    pub shared: bool,
}

/// The sending queue of one direction of an access link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccessQueue {
    free_at: Duration,
}

impl AccessQueue {
    /// Arrival time of a packet of `bytes` that enters at `now`. Calls must be in order of time.
    pub(super) fn carry(&mut self, access: &AccessLink, now: Duration, bytes: u32) -> Duration {
        let Some(rate) = access.rate else {
            return now + access.delay;
        };
        // A packet waits until the one before it has been sent.
        self.free_at = self.free_at.max(now) + serialization_time(rate, bytes);
        self.free_at + access.delay
    }
}

/// Interval between packets of `bytes` at `rate`, at least 1 ns: otherwise a source would schedule
/// events for ever without time passing.
pub(super) fn packet_interval(rate: Rate, bytes: u32) -> Duration {
    serialization_time(rate, bytes).max(Duration::from_nanos(1))
}

/// Time to send `bytes` at `rate`; at rate 0 up to 584 years.
fn serialization_time(rate: Rate, bytes: u32) -> Duration {
    let bit_nanoseconds = u64::from(bytes) * 8 * 1_000_000_000;
    Duration::from_nanos(bit_nanoseconds / rate.as_bits_per_second().max(1))
}
