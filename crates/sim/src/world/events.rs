//! Events to come, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::packets::PacketId;

/// Something that happens. Small: millions of them pass through the queue in a simulated minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// A packet reaches the next stage of its way.
    Hop(PacketId),
    /// A flow opens.
    Start(u32),
    /// A flow's application stops to write.
    Stop(u32),
    /// A flow's application has made another segment.
    AppWrite(u32),
    /// A sender's retransmission timer may have expired.
    SenderTimer(u32),
    /// A paced sender may send its next segment.
    PacingTimer(u32),
    /// A receiver's delayed acknowledgement may be due.
    ReceiverTimer(u32),
    /// A source of cross traffic sends.
    CrossTraffic(u32),
}

/// Events in the order of time; those of the same instant in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    made: u64,
}

impl EventQueue {
    /// An event that is to happen at `at`.
    pub(super) fn push(&mut self, at: Duration, event: SimEvent) {
        self.made += 1;
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.heap.push(Reverse((at, self.made, event)));
    }

    /// The next event that happens no later than `until`.
    pub(super) fn pop(&mut self, until: Duration) -> Option<(Duration, SimEvent)> {
        let Reverse((at, _, _)) = self.heap.peek()?;
        let at = Duration::from_nanos(*at);
        if at > until {
            return None;
        }
        let Reverse((_, _, event)) = self.heap.pop()?;
        Some((at, event))
    }

    /// How many have been made so far.
    pub(super) fn made(&self) -> u64 {
        self.made
    }
}
