//! Minimum round trip of the path, which follows a change of the route.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::sample::{StreamId, TcpSample};

/// Length of one slot of the round trip history. The slots that show a longer route are long enough for loss-based cross
/// traffic to drain the queue once, and short enough to follow it within 15 s.
const SLOT_TIME: Duration = Duration::from_secs(1);
const SLOTS: usize = 8;
/// Slots of the recent minimum: in this time, transfers whose windows limit give way and grow again some times. Chosen.
const RECENT_SLOTS: usize = 30;

/// Smallest and largest round trip of one slot.
#[derive(Debug, Clone, Copy)]
struct RttSlot {
    from: Duration,
    min: Duration,
    max: Duration,
}

/// Estimates the minimum round trip that the path has now. Linux keeps its minimum for five minutes
/// (`tcp_min_rtt_wlen`); until then a longer route looks like a full path.
#[derive(Debug, Clone, Default)]
pub(super) struct MinRttFilter {
    min: Option<Duration>,
    /// The kernel's minimum of each stream.
    streams: BTreeMap<StreamId, Duration>,
    slots: VecDeque<RttSlot>,
}

impl MinRttFilter {
    /// The estimate; zero if unknown.
    pub(super) fn get(&self) -> Duration {
        self.min.unwrap_or_default()
    }

    /// Takes the samples of all streams and their mean round trip; true if the route became longer.
    pub(super) fn on_samples(
        &mut self,
        at: Duration,
        samples: &[TcpSample],
        now: Duration,
    ) -> bool {
        self.streams
            .retain(|id, _| samples.iter().any(|tcp| tcp.stream == *id));
        for tcp in samples.iter().filter(|tcp| !tcp.min_rtt.is_zero()) {
            let known = self.streams.insert(tcp.stream, tcp.min_rtt);
            // An old minimum may be that of a former route.
            if known.is_none_or(|known| tcp.min_rtt < known) {
                self.lower(tcp.min_rtt);
            }
        }
        // An idle or very new stream has no round trip.
        if now.is_zero() {
            return false;
        }
        self.lower(now);
        self.record(at, now);
        self.adopt_longer_path()
    }

    /// The smallest round trip of the last seconds; zero if unknown.
    pub(super) fn recent(&self) -> Duration {
        self.slots
            .iter()
            .map(|slot| slot.min)
            .min()
            .unwrap_or_default()
    }

    fn lower(&mut self, rtt: Duration) {
        self.min = Some(self.min.map_or(rtt, |smallest| smallest.min(rtt)));
    }

    fn record(&mut self, at: Duration, now: Duration) {
        match self.slots.back_mut() {
            Some(slot) if at.saturating_sub(slot.from) < SLOT_TIME => {
                slot.min = slot.min.min(now);
                slot.max = slot.max.max(now);
            }
            _ => self.slots.push_back(RttSlot {
                from: at,
                min: now,
                max: now,
            }),
        }
        while self.slots.len() > RECENT_SLOTS {
            self.slots.pop_front();
        }
    }

    /// A drain has shown that this round trip holds no queue.
    pub(super) fn adopt(&mut self, rtt: Duration) {
        self.min = Some(rtt);
        self.slots.clear();
    }

    /// Adopts a round trip that is a quarter longer and was even over eight seconds. That is a longer
    /// route: a queue would vary.
    fn adopt_longer_path(&mut self) -> bool {
        let last = || self.slots.iter().rev().take(SLOTS);
        let smallest = last().map(|slot| slot.min).min();
        let largest = last().map(|slot| slot.max).max();
        let (Some(smallest), Some(largest), true) = (smallest, largest, self.slots.len() >= SLOTS)
        else {
            return false;
        };
        let is_even = largest <= smallest + smallest / 10 + Duration::from_millis(1);
        let is_longer =
            is_even && smallest > self.get() + self.get() / 4 + Duration::from_millis(1);
        if is_longer {
            self.min = Some(smallest);
            // Earlier round trips are those of another route.
            self.slots.drain(..self.slots.len() - SLOTS);
        }
        is_longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn tcp(stream: StreamId, min: u64) -> TcpSample {
        TcpSample {
            stream,
            min_rtt: ms(min),
            ..TcpSample::default()
        }
    }

    fn after(filter: &mut MinRttFilter, from: u64, to: u64, rtt: impl Fn(u64) -> u64) -> Duration {
        for at in (from..to).step_by(100) {
            filter.on_samples(ms(at), &[tcp(0, 24)], ms(rtt(at)));
        }
        filter.get()
    }

    #[test]
    fn a_longer_route_is_adopted_and_a_queue_is_not() {
        let mut filter = MinRttFilter::default();
        assert_eq!(after(&mut filter, 0, 5000, |_| 25), ms(24));
        assert_eq!(after(&mut filter, 5000, 12_000, |_| 96), ms(24));
        assert_eq!(after(&mut filter, 12_000, 14_100, |_| 96), ms(96));
        let mut queue = MinRttFilter::default();
        assert_eq!(
            after(&mut queue, 0, 60_000, |at| 70 + at / 100 % 30),
            ms(24)
        );
    }

    #[test]
    fn a_shorter_route_is_adopted_at_once() {
        let mut filter = MinRttFilter::default();
        filter.on_samples(ms(0), &[tcp(0, 100)], ms(104));
        filter.on_samples(ms(100), &[tcp(0, 100)], ms(30));
        assert_eq!(filter.get(), ms(30));
        // The minimum of a new stream counts as well.
        filter.on_samples(ms(200), &[tcp(0, 100), tcp(1, 25)], ms(30));
        assert_eq!(filter.get(), ms(25));
    }
}
