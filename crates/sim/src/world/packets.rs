//! Packets on their way, kept in a pool so that none of them is an allocation.

use crate::tcp::{Ack, Segment};

/// A packet's place in the pool.
pub(super) type PacketId = u32;

/// Where a packet is going next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// To the bottleneck.
    Bottleneck,
    /// From the bottleneck to the access link of the host it is for.
    Access,
    /// To that host.
    Host,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    /// Asks to open a connection.
    Open,
    /// Agrees.
    Opened,
    /// Data.
    Segment(Segment),
    /// An acknowledgement.
    Ack(Ack),
}

impl Body {
    /// It travels from sender to receiver.
    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Self::Open | Self::Segment(_))
    }
}

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) flow: u32,
    /// Of the IP packet.
    pub(super) bytes: u32,
    pub(super) stage: Stage,
    pub(super) body: Body,
}

/// The packets on their way.
#[derive(Debug, Default)]
pub(super) struct Packets {
    slots: Vec<Packet>,
    free: Vec<PacketId>,
}

impl Packets {
    pub(super) fn add(&mut self, packet: Packet) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = packet;
            return id;
        }
        self.slots.push(packet);
        PacketId::try_from(self.slots.len() - 1).unwrap_or(PacketId::MAX)
    }

    pub(super) fn get(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id as usize]
    }

    /// The packet has arrived or is lost.
    pub(super) fn remove(&mut self, id: PacketId) -> Packet {
        self.free.push(id);
        self.slots[id as usize]
    }

    /// How many are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
