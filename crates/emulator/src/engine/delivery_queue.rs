//! Packets in flight, in the order of their delivery.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::route::StopAtRouter;

/// Maximum memory for packets in flight, bytes: the bandwidth-delay product of 10 Gbit/s and 0.86 s.
pub(super) const MEMORY_LIMIT: usize = 1 << 30;

/// A frame in flight.
#[derive(Debug)]
pub(super) struct PendingDelivery {
    /// Index of its direction.
    pub(super) direction: usize,
    /// Arrival time of its first packet on the path.
    pub(super) first: Duration,
    /// Arrival time of its last packet, when the frame is delivered.
    pub(super) due: Duration,
    /// Number of packets in the frame.
    pub(super) packets: u32,
    /// Bytes of these packets.
    pub(super) bytes: u64,
    /// Whether this is a duplicate.
    pub(super) is_copy: bool,
    /// The router at which it ends, instead of the receiving host.
    pub(super) stop: Option<StopAtRouter>,
    /// Virtio-net header, if the devices use it, and packet.
    pub(super) frame: Vec<u8>,
}

/// A priority queue by delivery time; frames with equal times stay in the order of insertion.
#[derive(Debug)]
pub(super) struct DeliveryQueue {
    // `BinaryHeap` is a max-heap; `Reverse` puts the earliest delivery on top.
    heap: BinaryHeap<Reverse<QueuedDelivery>>,
    next: u64,
    memory: usize,
    limit: usize,
}

/// A delivery with its rank among those due at the same time. It keeps the rank when put back.
#[derive(Debug)]
pub(super) struct QueuedDelivery {
    rank: u64,
    /// The frame to deliver.
    pub(super) delivery: PendingDelivery,
}

impl DeliveryQueue {
    /// An empty queue that may use this many bytes of memory.
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
        let rank = self.next;
        // A rank per entry, because a binary heap does not keep the order of equal elements.
        self.next += 1;
        self.put_back(QueuedDelivery { rank, delivery });
    }

    /// Adds an entry that was taken out and could not be delivered.
    pub(super) fn put_back(&mut self, entry: QueuedDelivery) {
        self.memory += entry.memory();
        self.heap.push(Reverse(entry));
    }

    /// Time of the next delivery.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(entry)| entry.delivery.due)
    }

    /// Removes and returns the next delivery if it is due.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<QueuedDelivery> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.memory -= entry.memory();
        Some(entry)
    }

    /// Whether another packet may be added. The last one may exceed the limit.
    pub(super) fn has_room(&self) -> bool {
        self.memory < self.limit
    }
}

impl QueuedDelivery {
    fn memory(&self) -> usize {
        // The capacity counts, not the length: that is the memory in use.
        size_of::<Self>() + self.delivery.frame.capacity()
    }

    fn key(&self) -> (Duration, u64) {
        (self.delivery.due, self.rank)
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
            stop: None,
            frame: vec![tag],
        }
    }

    fn drain(queue: &mut DeliveryQueue) -> Vec<u8> {
        let now = Duration::MAX;
        std::iter::from_fn(|| queue.pop_due(now))
            .map(|entry| entry.delivery.frame[0])
            .collect()
    }

    #[test]
    fn deliveries_come_by_time_and_ties_in_insertion_order() {
        let mut queue = DeliveryQueue::new(MEMORY_LIMIT);
        for (due, tag) in [(3, 0), (1, 1), (2, 2), (1, 3), (2, 4)] {
            queue.push(delivery(due, tag));
        }
        assert_eq!(queue.next_due(), Some(Duration::from_micros(1)));
        assert_eq!(drain(&mut queue), [1, 3, 2, 4, 0]);
    }

    #[test]
    fn a_delivery_is_not_returned_before_it_is_due() {
        let mut queue = DeliveryQueue::new(MEMORY_LIMIT);
        queue.push(delivery(5, 0));
        assert!(queue.pop_due(Duration::from_micros(4)).is_none());
        assert!(queue.pop_due(Duration::from_micros(5)).is_some());
    }

    #[test]
    fn a_delivery_that_is_put_back_keeps_its_rank() {
        let mut queue = DeliveryQueue::new(MEMORY_LIMIT);
        queue.push(delivery(1, 0));
        queue.push(delivery(1, 1));
        let entry = queue.pop_due(Duration::from_micros(1)).unwrap();
        queue.put_back(entry);
        assert_eq!(drain(&mut queue), [0, 1]);
    }

    #[test]
    fn memory_is_counted_and_released() {
        let mut queue = DeliveryQueue::new(1000);
        let mut frame = delivery(1, 0);
        frame.frame = vec![0; 600];
        queue.push(frame);
        assert!(queue.has_room());
        let mut frame = delivery(2, 1);
        frame.frame = vec![0; 600];
        queue.push(frame);
        assert!(!queue.has_room());
        drain(&mut queue);
        assert_eq!((queue.memory, queue.has_room()), (0, true));
    }
}
