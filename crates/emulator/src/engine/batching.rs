//! Groups the segments of a super-packet that are delivered together.

use std::ops::Range;
use std::time::Duration;

/// Shortest and longest batching interval. They hold 1 to 3 segments of 1500 bytes at 100 Mbit/s, and
/// 9 to 21 at 1 Gbit/s.
const INTERVAL_RANGE: (Duration, Duration) =
    (Duration::from_micros(100), Duration::from_micros(250));
/// Within that range the interval is the path's one-way delay divided by this: it changes the round-trip
/// time by 1 % at most.
const DELAY_DIVISOR: u32 = 50;

/// The batching interval of a path. Segments of a super-packet that arrive within this time after the
/// first one are delivered together, at the arrival time of the last one. Each delivery costs the
/// emulator and the receiver a wake-up.
pub(super) fn batching_interval(delay: Duration) -> Duration {
    (delay / DELAY_DIVISOR).clamp(INTERVAL_RANGE.0, INTERVAL_RANGE.1)
}

/// Consecutive segments that are delivered together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentBatch {
    /// Indices in the super-packet.
    pub(super) segments: Range<usize>,
    /// Arrival time of the first segment.
    pub(super) first: Duration,
    /// Arrival time of the last segment, which is the delivery time of the batch.
    pub(super) last: Duration,
    /// Corrupt the payload of the only segment; the number selects byte and value.
    pub(super) corrupt: Option<u64>,
    /// Whether this is the duplicate of a segment that arrives as well.
    pub(super) is_copy: bool,
}

/// Arrival of one segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentArrival {
    /// Index in the super-packet.
    pub(super) index: usize,
    /// Arrival time.
    pub(super) at: Duration,
    /// Arrival time of its duplicate.
    pub(super) again: Option<Duration>,
    /// Corrupt the payload; the number selects byte and value.
    pub(super) corrupt: Option<u64>,
    /// Whether the link delayed it to be overtaken.
    pub(super) is_held: bool,
}

/// Groups the segments of a super-packet into batches.
#[derive(Debug, Default)]
pub(super) struct SegmentBatcher {
    batches: Vec<SegmentBatch>,
    interval: Duration,
    /// Whether the last batch may grow.
    is_open: bool,
}

impl SegmentBatcher {
    /// Starts the next super-packet, whose segments may wait this long for each other.
    pub(super) fn begin(&mut self, interval: Duration) {
        self.batches.clear();
        self.interval = interval;
        self.is_open = false;
    }

    /// Adds the next segment that arrives. A lost segment ends the batch. So does a corrupted,
    /// duplicated or delayed one, because these must not affect other segments.
    pub(super) fn push(&mut self, arrival: SegmentArrival) {
        let SegmentArrival { index, at, .. } = arrival;
        // A duplicated segment may still join the batch; only its duplicate is separate.
        let is_alone = arrival.corrupt.is_some() || arrival.is_held;
        match self.batches.last_mut() {
            Some(batch)
                if self.is_open
                    && !is_alone
                    && batch.segments.end == index
                    // Jitter and reordering on the link can give a later segment an earlier
                    // arrival.
                    && at >= batch.last
                    && at - batch.first <= self.interval =>
            {
                batch.segments.end = index + 1;
                batch.last = at;
            }
            _ => self.batches.push(SegmentBatch {
                segments: index..index + 1,
                first: at,
                last: at,
                corrupt: arrival.corrupt,
                is_copy: false,
            }),
        }
        self.is_open = !is_alone && arrival.again.is_none();
        if let Some(again) = arrival.again {
            self.batches.push(SegmentBatch {
                segments: index..index + 1,
                first: again,
                last: again,
                corrupt: arrival.corrupt,
                is_copy: true,
            });
        }
    }

    /// The batches of this super-packet.
    pub(super) fn batches(&self) -> &[SegmentBatch] {
        &self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(index: usize, micros: u64) -> SegmentArrival {
        SegmentArrival {
            index,
            at: Duration::from_micros(micros),
            again: None,
            corrupt: None,
            is_held: false,
        }
    }

    /// Segments and delivery times, microseconds.
    fn joined(arrivals: &[SegmentArrival]) -> Vec<(Range<usize>, u128)> {
        let mut batches = SegmentBatcher::default();
        batches.begin(batching_interval(Duration::from_millis(1)));
        arrivals.iter().for_each(|arrival| batches.push(*arrival));
        let all = batches.batches().iter();
        all.map(|batch| (batch.segments.clone(), batch.last.as_micros()))
            .collect()
    }

    #[test]
    fn the_batching_interval_grows_with_the_delay() {
        let interval = |micros| batching_interval(Duration::from_micros(micros)).as_micros();
        let delays = [0, 1000, 10_000, 50_000];
        assert_eq!(delays.map(interval), [100, 100, 200, 250]);
    }

    #[test]
    fn segments_of_a_slow_path_are_delivered_separately() {
        let at_100_mbit = [arrival(0, 120), arrival(1, 240), arrival(2, 360)];
        assert_eq!(
            joined(&at_100_mbit),
            [(0..1, 120), (1..2, 240), (2..3, 360)]
        );
    }

    #[test]
    fn segments_of_a_fast_path_are_delivered_together_when_the_last_arrives() {
        let at_1_gbit: Vec<_> = (0..20).map(|i| arrival(i, 12 * i as u64)).collect();
        assert_eq!(
            joined(&at_1_gbit),
            [(0..9, 96), (9..18, 204), (18..20, 228)]
        );
    }

    #[test]
    fn a_lost_segment_ends_the_batch() {
        let lost_1 = [arrival(0, 1), arrival(2, 3), arrival(3, 4)];
        assert_eq!(joined(&lost_1), [(0..1, 1), (2..4, 4)]);
    }

    #[test]
    fn a_delayed_segment_delays_no_other() {
        let mut held = arrival(1, 50);
        held.is_held = true;
        let all = [arrival(0, 1), held, arrival(2, 3), arrival(3, 4)];
        assert_eq!(joined(&all), [(0..1, 1), (1..2, 50), (2..4, 4)]);
    }

    #[test]
    fn a_corrupted_segment_is_delivered_separately() {
        let mut changed = arrival(1, 2);
        changed.corrupt = Some(7);
        let all = [arrival(0, 1), changed, arrival(2, 3)];
        assert_eq!(joined(&all), [(0..1, 1), (1..2, 2), (2..3, 3)]);
    }

    #[test]
    fn a_duplicated_segment_is_delivered_before_its_duplicate() {
        let mut copied = arrival(1, 2);
        copied.again = Some(Duration::from_micros(2));
        let all = [arrival(0, 1), copied, arrival(2, 3)];
        assert_eq!(joined(&all), [(0..2, 2), (1..2, 2), (2..3, 3)]);
    }

    #[test]
    fn without_a_bottleneck_all_segments_are_delivered_together() {
        let at_once: Vec<_> = (0..44).map(|i| arrival(i, 500)).collect();
        assert_eq!(joined(&at_once), [(0..44, 500)]);
    }
}
