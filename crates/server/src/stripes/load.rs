//! How loaded a data node is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::RecentRate;

/// The work of a node now, for all its front ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeLoad {
    /// Parts of transfers that run.
    pub(crate) running: u64,
    /// Bytes per second of all of them, over the last second.
    pub(crate) bytes_per_second: u64,
    /// Connections and parts that the node has refused since its start, because a bound was reached.
    pub(crate) refused: u64,
}

impl NodeLoad {
    /// The less, the better for a further part: fewer running ones, then a lower rate (differences below 1 MiB/s are noise).
    pub(crate) fn rank(&self) -> (u64, u64) {
        (self.running, self.bytes_per_second >> 20)
    }
}

/// Measures the load of this node.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    running: AtomicU64,
    refused: AtomicU64,
    moved: Mutex<(u64, RecentRate)>,
}

/// A part that runs. When this is dropped, it does not any more.
#[derive(Debug)]
pub(crate) struct MeteredPart {
    meter: Arc<LoadMeter>,
    /// Bytes that the meter knows.
    bytes: u64,
}

impl LoadMeter {
    /// Nothing runs at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            running: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            moved: Mutex::new((0, RecentRate::new(now))),
        }
    }

    /// Counts a part from its start.
    pub(crate) fn part_begins(self: &Arc<Self>) -> MeteredPart {
        self.running.fetch_add(1, Ordering::Relaxed);
        MeteredPart {
            meter: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Counts a connection or a part that is refused because a bound is reached.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The load at `now`.
    pub(crate) fn load(&self, now: Instant) -> NodeLoad {
        let mut moved = self.moved.lock();
        let (sum, rate) = &mut *moved;
        rate.note(*sum, now);
        NodeLoad {
            running: self.running.load(Ordering::Relaxed),
            bytes_per_second: rate.per_second().unwrap_or(0),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl MeteredPart {
    /// Notes how much the part has moved.
    pub(crate) fn note(&mut self, bytes: u64, now: Instant) {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        let mut moved = self.meter.moved.lock();
        let (sum, rate) = &mut *moved;
        *sum += more;
        rate.note(*sum, now);
    }
}

impl Drop for MeteredPart {
    fn drop(&mut self) {
        self.meter.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_parts_of_a_node_are_its_load_while_they_run() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let meter = Arc::new(LoadMeter::new(begin));
        let (mut one, mut other) = (meter.part_begins(), meter.part_begins());
        one.note(1_000_000, at(1));
        other.note(500_000, at(1));
        one.note(900_000, at(1));
        meter.count_refusal();
        let load = meter.load(at(1));
        let expected = NodeLoad {
            running: 2,
            bytes_per_second: 1_500_000,
            refused: 1,
        };
        assert_eq!(load, expected);
        drop(one);
        assert_eq!(meter.load(at(2)).running, 1);
        drop(other);
        let idle = NodeLoad {
            refused: 1,
            ..NodeLoad::default()
        };
        assert_eq!(meter.load(at(3600)), idle);
    }
}
