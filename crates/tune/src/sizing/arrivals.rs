//! Bytes that arrived on a stream over time: the input of both papers' loops.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sample::TcpSample;

/// Largest number of points in the history: a bound on memory, far above what queries need.
const MAX_POINTS: usize = 512;

/// Part of the receive queue's memory that is payload, as Linux was measured to account it: 2/3.
const PAYLOAD_PART: (u64, u64) = (2, 3);

/// Counts the bytes that have arrived on a stream, in order or not. The kernel counts only bytes in order:
/// behind a lost segment its counter stands still, and it jumps by a whole window when the segment arrives.
/// Meanwhile the memory of the receive queue shows what arrives.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArrivalCounter {
    bytes: u64,
    queued: u64,
    /// Bytes that arrived out of order.
    out_of_order: u64,
}

impl ArrivalCounter {
    /// Total bytes that have arrived by this sample.
    pub(super) fn total_at(&mut self, sample: &TcpSample) -> u64 {
        let queued = sample.receive_queue_memory / PAYLOAD_PART.1 * PAYLOAD_PART.0;
        let in_order = sample.bytes_received.saturating_sub(self.bytes);
        let more = queued.saturating_sub(self.queued);
        // Unread data in order cannot grow faster than the counter: the rest is out of order.
        if more > in_order {
            self.out_of_order = self.out_of_order.saturating_add(more);
        }
        self.out_of_order = self.out_of_order.min(queued);
        (self.bytes, self.queued) = (sample.bytes_received, queued);
        sample.bytes_received.saturating_add(self.out_of_order)
    }
}

/// History of a byte counter. Between two points the bytes count as evenly distributed.
#[derive(Debug, Clone, Default)]
pub(super) struct ArrivalHistory {
    points: VecDeque<(Duration, u64)>,
}

impl ArrivalHistory {
    /// Adds a point and forgets points older than `keep`. Neither the counter nor time ever goes back: a
    /// smaller value counts as the last one.
    pub(super) fn record(&mut self, at: Duration, bytes: u64, keep: Duration) {
        match self.points.back_mut() {
            Some(last) if at <= last.0 => last.1 = last.1.max(bytes),
            Some(&mut (_, before)) => self.points.push_back((at, bytes.max(before))),
            None => self.points.push_back((at, bytes)),
        }
        let oldest = self.end().saturating_sub(keep);
        while self.points.len() > MAX_POINTS
            || self.points.get(1).is_some_and(|(at, _)| *at <= oldest)
        {
            self.points.pop_front();
        }
    }

    /// Time of the latest point; zero before the first.
    pub(super) fn end(&self) -> Duration {
        self.points.back().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Counter at the latest point; `None` before the first.
    pub(super) fn counter(&self) -> Option<u64> {
        self.points.back().map(|(_, bytes)| *bytes)
    }

    /// Bytes that arrived in the latest `span`.
    pub(super) fn latest(&self, span: Duration) -> u64 {
        self.before(Duration::ZERO, span)
    }

    /// Bytes that arrived in a `span` which ended `ago` before the latest point.
    pub(super) fn before(&self, ago: Duration, span: Duration) -> u64 {
        let to = self.end().saturating_sub(ago);
        self.counted(to)
            .saturating_sub(self.counted(to.saturating_sub(span)))
    }

    /// Highest rate over any quarter of `length` that ended with a point of the latest `span`, as bytes per
    /// `length`.
    pub(super) fn peak(&self, span: Duration, length: Duration) -> u64 {
        let oldest = self.end().saturating_sub(span);
        let samples = self.points.iter().filter(|(at, _)| *at > oldest);
        // A quarter is short enough to lie inside one flight, and long enough to even out single segments.
        let quarters = samples
            .map(|(at, bytes)| bytes - self.counted(at.saturating_sub(length / 4)).min(*bytes));
        quarters.max().unwrap_or(0).saturating_mul(4)
    }

    /// Interpolated counter at a time; before the first point that of the first point.
    fn counted(&self, at: Duration) -> u64 {
        let next = self.points.partition_point(|(sample, _)| *sample <= at);
        match (
            next.checked_sub(1).map(|last| self.points[last]),
            self.points.get(next),
        ) {
            (Some((from, before)), Some((to, after))) => {
                let interpolated = scaled(after - before, at - from, to.saturating_sub(from));
                before + interpolated.min(after - before)
            }
            (Some((_, bytes)), None) | (None, Some(&(_, bytes))) => bytes,
            (None, None) => 0,
        }
    }
}

/// `bytes · part / whole`; 0 if `whole` is zero.
pub(super) fn scaled(bytes: u64, part: Duration, whole: Duration) -> u64 {
    let product = u128::from(bytes).saturating_mul(part.as_nanos());
    let scaled = product.checked_div(whole.as_nanos()).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn arrivals(samples: &[(u64, u64)]) -> ArrivalHistory {
        let mut arrivals = ArrivalHistory::default();
        for (at, bytes) in samples {
            arrivals.record(ms(*at), *bytes, ms(1000));
        }
        arrivals
    }

    #[test]
    fn sums_interpolate_between_points() {
        let a = arrivals(&[(0, 0), (100, 1000), (150, 1000), (250, 3000)]);
        assert_eq!(a.latest(ms(100)), 2000);
        assert_eq!(a.latest(ms(50)), 1000);
        assert_eq!(a.latest(ms(200)), 2500);
        assert_eq!(a.before(ms(100), ms(100)), 500);
        assert_eq!(a.latest(ms(5000)), 3000);
        assert_eq!(a.before(ms(5000), ms(5000)), 0);
    }

    #[test]
    fn the_peak_is_independent_of_the_sampling_rate() {
        let a = arrivals(&[(0, 0), (25, 1000), (50, 1100), (75, 1100), (100, 1200)]);
        assert_eq!(a.peak(ms(100), ms(100)), 4000);
        assert_eq!(a.peak(ms(50), ms(100)), 400);
        let often = arrivals(&[(0, 0), (24, 900), (25, 1000), (50, 1100), (75, 1100)]);
        assert_eq!(often.peak(ms(100), ms(100)), 4000);
        assert_eq!(ArrivalHistory::default().peak(ms(100), ms(100)), 0);
    }

    #[test]
    fn points_are_forgotten_only_when_they_are_older_than_kept() {
        let mut a = ArrivalHistory::default();
        for n in 0..10_000 {
            a.record(ms(n), n * 10, ms(100));
        }
        assert_eq!(a.points.len(), 101);
        assert_eq!(a.latest(ms(100)), 1000);
        for n in 10_000..20_000 {
            a.record(ms(n), n * 10, Duration::MAX);
        }
        assert_eq!(a.points.len(), MAX_POINTS);
    }

    #[test]
    fn neither_time_nor_counter_goes_back() {
        let a = arrivals(&[(0, 0), (100, 1000), (100, 1200), (50, 3), (200, 900)]);
        assert_eq!(a.points, [(ms(0), 0), (ms(100), 1200), (ms(200), 1200)]);
    }

    fn arrived(samples: &[(u64, u64)]) -> Vec<u64> {
        let mut arrived = ArrivalCounter::default();
        let by = |(bytes, receive_queued): &(u64, u64)| {
            arrived.total_at(&TcpSample {
                bytes_received: *bytes,
                receive_queue_memory: *receive_queued,
                ..TcpSample::default()
            })
        };
        samples.iter().map(by).collect()
    }

    #[test]
    fn data_behind_a_lost_segment_counts_as_arrived() {
        let samples = [
            (100, 0),
            (100, 300),
            (200, 600),
            (200, 900),
            (900, 0),
            (1000, 0),
        ];
        assert_eq!(arrived(&samples), [100, 300, 600, 800, 900, 1000]);
    }

    #[test]
    fn unread_data_in_order_is_counted_once() {
        let samples = [(200, 300), (400, 600), (600, 600), (600, 0), (800, 300)];
        assert_eq!(arrived(&samples), [200, 400, 600, 600, 800]);
    }

    proptest! {
        #[test]
        fn the_arrival_count_is_at_least_the_bytes_in_order(
            samples in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
        ) {
            let all = arrived(&samples);
            prop_assert!(all.iter().zip(&samples).all(|(all, (bytes, _))| all >= bytes));
        }

        #[test]
        fn no_sum_exceeds_the_counter(
            samples in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
            ago in any::<u64>(),
            span in any::<u64>(),
        ) {
            let mut a = ArrivalHistory::default();
            for (at, bytes) in &samples {
                a.record(Duration::from_nanos(*at), *bytes, Duration::MAX);
            }
            let most = samples.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            let (ago, span) = (Duration::from_nanos(ago), Duration::from_nanos(span));
            prop_assert!(a.before(ago, span) <= most);
            prop_assert!(a.latest(span) <= a.latest(Duration::MAX));
            let _ = a.peak(span, ago);
        }
    }
}
