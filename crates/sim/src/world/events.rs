//! The event queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::packets::PacketId;

/// An event. The type is small, because millions of events pass through the queue per simulated
/// minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// A packet reaches its next hop.
    Hop(PacketId),
    /// A flow starts.
    Start(u32),
    /// A flow's application stops writing.
    Stop(u32),
    /// A flow's application produces another segment.
    AppWrite(u32),
    /// A sender's retransmission timer may expire.
    SenderTimer(u32),
    /// A paced sender may send the next segment.
    PacingTimer(u32),
    /// A delayed acknowledgement may be due.
    ReceiverTimer(u32),
    /// A source of cross traffic sends a packet.
    CrossTraffic(u32),
}

/// Pending events in order of time; events of the same time are in the order in which they were
/// scheduled, which makes runs reproducible.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    scheduled: u64,
}

impl EventQueue {
    /// Schedules an event at `at`.
    pub(super) fn push(&mut self, at: Duration, event: SimEvent) {
        self.scheduled += 1;
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.heap.push(Reverse((at, self.scheduled, event)));
    }

    /// Removes and returns the next event, if it is not later than `until`.
    pub(super) fn pop(&mut self, until: Duration) -> Option<(Duration, SimEvent)> {
        let Reverse((at, _, _)) = self.heap.peek()?;
        let at = Duration::from_nanos(*at);
        if at > until {
            return None;
        }
        let Reverse((_, _, event)) = self.heap.pop()?;
        Some((at, event))
    }

    /// Number of events scheduled so far.
    pub(super) fn scheduled(&self) -> u64 {
        self.scheduled
    }
}
