//! Packets under way, in the order of their delivery.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most memory for packets under way: the bandwidth-delay product of 10 Gbit/s for 0.8 s.
pub(super) const MEMORY_LIMIT: usize = 1 << 30;

/// A frame on its way to a host.
#[derive(Debug)]
pub(super) struct PendingDelivery {
    /// Which direction carries it.
    pub(super) direction: usize,
    /// When the first of its packets arrives on the path.
    pub(super) first: Duration,
    /// When the last does, and it is handed over.
    pub(super) due: Duration,
    /// Packets it stands for.
    pub(super) packets: u32,
    /// Bytes of these.
    pub(super) bytes: u64,
    /// It is a duplicate.
    pub(super) is_copy: bool,
    /// Virtio-net header, if the devices have it, and packet.
    pub(super) frame: Vec<u8>,
}

/// A priority queue by delivery time; at the same time, what was put in first comes out first.
#[derive(Debug)]
pub(super) struct DeliveryQueue {
    heap: BinaryHeap<Reverse<QueuedDelivery>>,
    next: u64,
    memory: usize,
    limit: usize,
}

/// A delivery and its place among those due at the same time. It stays there when put back.
#[derive(Debug)]
pub(super) struct QueuedDelivery {
    order: u64,
    /// Packet to deliver.
    pub(super) delivery: PendingDelivery,
}

impl DeliveryQueue {
    /// An empty one for so many bytes of memory.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            next: 0,
            memory: 0,
            limit,
        }
    }

    /// Adds a delivery.
    pub(super) fn push(&mut self, delivery: PendingDelivery) {
        let order = self.next;
        self.next += 1;
        self.put_back(QueuedDelivery { order, delivery });
    }

    /// Adds an entry that was taken out and could not be delivered.
    pub(super) fn put_back(&mut self, entry: QueuedDelivery) {
        self.memory += entry.memory();
        self.heap.push(Reverse(entry));
    }

    /// When the next delivery is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(entry)| entry.delivery.due)
    }

    /// Takes out the next delivery that is due.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<QueuedDelivery> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.memory -= entry.memory();
        Some(entry)
    }

    /// Whether another packet may be taken on. One more than the limit does no harm.
    pub(super) fn has_room(&self) -> bool {
        self.memory < self.limit
    }
}

impl QueuedDelivery {
    fn memory(&self) -> usize {
        size_of::<Self>() + self.delivery.frame.capacity()
    }

    fn key(&self) -> (Duration, u64) {
        (self.delivery.due, self.order)
    }
}

impl PartialEq for QueuedDelivery {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedDelivery {}

impl PartialOrd for QueuedDelivery {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedDelivery {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(due: u64, tag: u8) -> PendingDelivery {
        PendingDelivery {
            direction: 0,
            first: Duration::from_micros(due),
            due: Duration::from_micros(due),
            packets: 1,
            bytes: 1,
            is_copy: false,
            frame: vec![tag],
        }
    }

    fn drain(schedule: &mut DeliveryQueue) -> Vec<u8> {
        let now = Duration::MAX;
        std::iter::from_fn(|| schedule.pop_due(now))
            .map(|entry| entry.delivery.frame[0])
            .collect()
    }

    #[test]
    fn earliest_first_and_ties_in_order() {
        let mut schedule = DeliveryQueue::new(MEMORY_LIMIT);
        for (due, tag) in [(3, 0), (1, 1), (2, 2), (1, 3), (2, 4)] {
            schedule.push(delivery(due, tag));
        }
        assert_eq!(schedule.next_due(), Some(Duration::from_micros(1)));
        assert_eq!(drain(&mut schedule), [1, 3, 2, 4, 0]);
    }

    #[test]
    fn nothing_is_early() {
        let mut schedule = DeliveryQueue::new(MEMORY_LIMIT);
        schedule.push(delivery(5, 0));
        assert!(schedule.pop_due(Duration::from_micros(4)).is_none());
        assert!(schedule.pop_due(Duration::from_micros(5)).is_some());
    }

    #[test]
    fn what_is_put_back_keeps_its_turn() {
        let mut schedule = DeliveryQueue::new(MEMORY_LIMIT);
        schedule.push(delivery(1, 0));
        schedule.push(delivery(1, 1));
        let entry = schedule.pop_due(Duration::from_micros(1)).unwrap();
        schedule.put_back(entry);
        assert_eq!(drain(&mut schedule), [0, 1]);
    }

    #[test]
    fn memory_is_counted_and_given_back() {
        let mut schedule = DeliveryQueue::new(1000);
        let mut frame = delivery(1, 0);
        frame.frame = vec![0; 600];
        schedule.push(frame);
        assert!(schedule.has_room());
        let mut frame = delivery(2, 1);
        frame.frame = vec![0; 600];
        schedule.push(frame);
        assert!(!schedule.has_room());
        drain(&mut schedule);
        assert_eq!((schedule.memory, schedule.has_room()), (0, true));
    }
}
