//! Which segments of a super-packet are handed over together.

use std::ops::Range;
use std::time::Duration;

/// The shortest time within which segments are handed over together, and the longest. At 100 Mbit/s
/// each goes by itself, at 1 Gbit/s about 8 to 20 go together.
const QUANTUM: (Duration, Duration) = (Duration::from_micros(100), Duration::from_micros(250));
/// In between it is this part of the path's delay, so that it changes a round trip by 1 % at most.
const PART_OF_DELAY: u32 = 50;

/// Segments of one super-packet that arrive within this time of the first of them are handed over
/// together, at the time of the last: each hand-over costs the emulator and the receiver a wake-up.
pub(super) fn batching_interval(delay: Duration) -> Duration {
    (delay / PART_OF_DELAY).clamp(QUANTUM.0, QUANTUM.1)
}

/// Neighbouring segments that are handed over as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentBatch {
    /// Which of the super-packet.
    pub(super) segments: Range<usize>,
    /// When the first arrives.
    pub(super) first: Duration,
    /// When the last arrives: the run is never handed over before.
    pub(super) last: Duration,
    /// Its only segment's payload is to be changed.
    pub(super) corrupt: Option<u64>,
    /// It is the copy of a segment that arrives as well.
    pub(super) is_copy: bool,
}

/// One segment's arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentArrival {
    /// Which segment.
    pub(super) index: usize,
    /// When.
    pub(super) at: Duration,
    /// When its copy arrives.
    pub(super) again: Option<Duration>,
    /// Its payload is to be changed.
    pub(super) corrupt: Option<u64>,
    /// It was held back to be overtaken.
    pub(super) is_held: bool,
}

/// Joins a super-packet's segments to runs.
#[derive(Debug, Default)]
pub(super) struct SegmentBatcher {
    runs: Vec<SegmentBatch>,
    quantum: Duration,
    /// The last run may grow.
    is_open: bool,
}

impl SegmentBatcher {
    /// Begins with another super-packet, whose segments may wait this long for each other.
    pub(super) fn begin(&mut self, quantum: Duration) {
        self.runs.clear();
        self.quantum = quantum;
        self.is_open = false;
    }

    /// The next segment arrives. A missing one ends the run, and so do a changed, copied or held
    /// one, which must not take its neighbours along.
    pub(super) fn push(&mut self, arrival: SegmentArrival) {
        let SegmentArrival { index, at, .. } = arrival;
        let is_alone = arrival.corrupt.is_some() || arrival.is_held;
        match self.runs.last_mut() {
            Some(run)
                if self.is_open
                    && !is_alone
                    && run.segments.end == index
                    && at >= run.last
                    && at - run.first <= self.quantum =>
            {
                run.segments.end = index + 1;
                run.last = at;
            }
            _ => self.runs.push(SegmentBatch {
                segments: index..index + 1,
                first: at,
                last: at,
                corrupt: arrival.corrupt,
                is_copy: false,
            }),
        }
        self.is_open = !is_alone && arrival.again.is_none();
        if let Some(again) = arrival.again {
            self.runs.push(SegmentBatch {
                segments: index..index + 1,
                first: again,
                last: again,
                corrupt: arrival.corrupt,
                is_copy: true,
            });
        }
    }

    /// The runs of this packet.
    pub(super) fn batches(&self) -> &[SegmentBatch] {
        &self.runs
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
        let mut runs = SegmentBatcher::default();
        runs.begin(batching_interval(Duration::from_millis(1)));
        arrivals.iter().for_each(|arrival| runs.push(*arrival));
        let all = runs.batches().iter();
        all.map(|run| (run.segments.clone(), run.last.as_micros()))
            .collect()
    }

    #[test]
    fn the_quantum_grows_with_the_delay() {
        let quantum = |micros| batching_interval(Duration::from_micros(micros)).as_micros();
        let delays = [0, 1000, 10_000, 50_000];
        assert_eq!(delays.map(quantum), [100, 100, 200, 250]);
    }

    #[test]
    fn slow_segments_go_by_themselves() {
        let at_100_mbit = [arrival(0, 120), arrival(1, 240), arrival(2, 360)];
        assert_eq!(
            joined(&at_100_mbit),
            [(0..1, 120), (1..2, 240), (2..3, 360)]
        );
    }

    #[test]
    fn fast_segments_go_together_at_the_time_of_the_last() {
        let at_1_gbit: Vec<_> = (0..20).map(|i| arrival(i, 12 * i as u64)).collect();
        assert_eq!(
            joined(&at_1_gbit),
            [(0..9, 96), (9..18, 204), (18..20, 228)]
        );
    }

    #[test]
    fn a_hole_splits() {
        let lost_1 = [arrival(0, 1), arrival(2, 3), arrival(3, 4)];
        assert_eq!(joined(&lost_1), [(0..1, 1), (2..4, 4)]);
    }

    #[test]
    fn a_held_segment_takes_none_along() {
        let mut held = arrival(1, 50);
        held.is_held = true;
        let all = [arrival(0, 1), held, arrival(2, 3), arrival(3, 4)];
        assert_eq!(joined(&all), [(0..1, 1), (1..2, 50), (2..4, 4)]);
    }

    #[test]
    fn a_changed_segment_goes_alone() {
        let mut changed = arrival(1, 2);
        changed.corrupt = Some(7);
        let all = [arrival(0, 1), changed, arrival(2, 3)];
        assert_eq!(joined(&all), [(0..1, 1), (1..2, 2), (2..3, 3)]);
    }

    #[test]
    fn a_copied_segment_comes_before_its_copy() {
        let mut copied = arrival(1, 2);
        copied.again = Some(Duration::from_micros(2));
        let all = [arrival(0, 1), copied, arrival(2, 3)];
        assert_eq!(joined(&all), [(0..2, 2), (1..2, 2), (2..3, 3)]);
    }

    #[test]
    fn without_a_bottleneck_all_go_together() {
        let at_once: Vec<_> = (0..44).map(|i| arrival(i, 500)).collect();
        assert_eq!(joined(&at_once), [(0..44, 500)]);
    }
}
