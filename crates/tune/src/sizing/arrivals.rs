//! Arrivals on a stream and their times: the measure that both papers' loops decide on.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sample::TcpSample;

/// Looks that are kept at most: a bound on memory, far above what is asked for.
const KEPT: usize = 512;

/// Payload that is in memory, as 2/3 of it: what Linux was measured to reckon with.
const PAYLOAD: (u64, u64) = (2, 3);

/// Bytes that have arrived in a stream, in order or not. The kernel counts what is in order; behind a lost
/// segment its counter stands, and jumps by a whole window when the segment comes. Meanwhile the
/// memory of what is queued tells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArrivalCounter {
    bytes: u64,
    queued: u64,
    /// Out of order, bytes.
    beyond: u64,
}

impl ArrivalCounter {
    /// All that has arrived by a look.
    pub(super) fn total_at(&mut self, look: &TcpSample) -> u64 {
        let queued = look.receive_queue_memory / PAYLOAD.1 * PAYLOAD.0;
        let in_order = look.bytes.saturating_sub(self.bytes);
        let more = queued.saturating_sub(self.queued);
        // What is in order and only not read yet cannot be more than what came in order.
        if more > in_order {
            self.beyond = self.beyond.saturating_add(more);
        }
        self.beyond = self.beyond.min(queued);
        (self.bytes, self.queued) = (look.bytes, queued);
        look.bytes.saturating_add(self.beyond)
    }
}

/// The latest looks at a counter of bytes. Between two looks the bytes are taken to have come
/// evenly.
#[derive(Debug, Clone, Default)]
pub(super) struct ArrivalHistory {
    points: VecDeque<(Duration, u64)>,
}

impl ArrivalHistory {
    /// Notes a look and forgets what is older than `keep`. The counter never goes back: one that
    /// does stands still, and so does time.
    pub(super) fn record(&mut self, at: Duration, bytes: u64, keep: Duration) {
        match self.points.back_mut() {
            Some(last) if at <= last.0 => last.1 = last.1.max(bytes),
            Some(&mut (_, before)) => self.points.push_back((at, bytes.max(before))),
            None => self.points.push_back((at, bytes)),
        }
        let oldest = self.end().saturating_sub(keep);
        while self.points.len() > KEPT || self.points.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.points.pop_front();
        }
    }

    /// When the latest look was taken; zero before the first.
    pub(super) fn end(&self) -> Duration {
        self.points.back().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// The counter at the latest look; `None` before the first.
    pub(super) fn counter(&self) -> Option<u64> {
        self.points.back().map(|(_, bytes)| *bytes)
    }

    /// Bytes of the latest `span`.
    pub(super) fn latest(&self, span: Duration) -> u64 {
        self.before(Duration::ZERO, span)
    }

    /// Bytes of a `span` that ended so long `ago`, counted from the latest look.
    pub(super) fn before(&self, ago: Duration, span: Duration) -> u64 {
        let to = self.end().saturating_sub(ago);
        self.counted(to)
            .saturating_sub(self.counted(to.saturating_sub(span)))
    }

    /// The most that came in any quarter of `length` that ended with a look of the latest `span`, were
    /// it to go on for all of `length`, bytes.
    pub(super) fn peak(&self, span: Duration, length: Duration) -> u64 {
        let oldest = self.end().saturating_sub(span);
        let looks = self.points.iter().filter(|(at, _)| *at > oldest);
        let quarters = looks
            .map(|(at, bytes)| bytes - self.counted(at.saturating_sub(length / 4)).min(*bytes));
        quarters.max().unwrap_or(0).saturating_mul(4)
    }

    /// The counter at a time: that of the first look for all before it.
    fn counted(&self, at: Duration) -> u64 {
        let next = self.points.partition_point(|(look, _)| *look <= at);
        match (
            next.checked_sub(1).map(|last| self.points[last]),
            self.points.get(next),
        ) {
            (Some((from, before)), Some((to, after))) => {
                let come = scaled(after - before, at - from, to.saturating_sub(from));
                before + come.min(after - before)
            }
            (Some((_, bytes)), None) | (None, Some(&(_, bytes))) => bytes,
            (None, None) => 0,
        }
    }
}

/// `bytes · part / whole`; nothing if there is no whole.
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

    fn arrivals(looks: &[(u64, u64)]) -> ArrivalHistory {
        let mut arrivals = ArrivalHistory::default();
        for (at, bytes) in looks {
            arrivals.record(ms(*at), *bytes, ms(1000));
        }
        arrivals
    }

    #[test]
    fn sums_slide_and_share_what_came_between_looks() {
        let a = arrivals(&[(0, 0), (100, 1000), (150, 1000), (250, 3000)]);
        assert_eq!(a.latest(ms(100)), 2000);
        assert_eq!(a.latest(ms(50)), 1000);
        assert_eq!(a.latest(ms(200)), 2500);
        assert_eq!(a.before(ms(100), ms(100)), 500);
        assert_eq!(a.latest(ms(5000)), 3000);
        assert_eq!(a.before(ms(5000), ms(5000)), 0);
    }

    #[test]
    fn the_peak_is_of_a_quarter_however_often_it_was_looked_at() {
        let a = arrivals(&[(0, 0), (25, 1000), (50, 1100), (75, 1100), (100, 1200)]);
        assert_eq!(a.peak(ms(100), ms(100)), 4000);
        assert_eq!(a.peak(ms(50), ms(100)), 400);
        let often = arrivals(&[(0, 0), (24, 900), (25, 1000), (50, 1100), (75, 1100)]);
        assert_eq!(often.peak(ms(100), ms(100)), 4000);
        assert_eq!(ArrivalHistory::default().peak(ms(100), ms(100)), 0);
    }

    #[test]
    fn what_is_old_is_forgotten_but_not_before_it_is_asked_for() {
        let mut a = ArrivalHistory::default();
        for n in 0..10_000 {
            a.record(ms(n), n * 10, ms(100));
        }
        assert_eq!(a.points.len(), 101);
        assert_eq!(a.latest(ms(100)), 1000);
        for n in 10_000..20_000 {
            a.record(ms(n), n * 10, Duration::MAX);
        }
        assert_eq!(a.points.len(), KEPT);
    }

    #[test]
    fn neither_time_nor_counter_goes_back() {
        let a = arrivals(&[(0, 0), (100, 1000), (100, 1200), (50, 3), (200, 900)]);
        assert_eq!(a.points, [(ms(0), 0), (ms(100), 1200), (ms(200), 1200)]);
    }

    fn arrived(looks: &[(u64, u64)]) -> Vec<u64> {
        let mut arrived = ArrivalCounter::default();
        let by = |(bytes, receive_queued): &(u64, u64)| {
            arrived.total_at(&TcpSample {
                bytes: *bytes,
                receive_queue_memory: *receive_queued,
                ..TcpSample::default()
            })
        };
        looks.iter().map(by).collect()
    }

    #[test]
    fn what_waits_behind_a_lost_segment_has_arrived() {
        let looks = [
            (100, 0),
            (100, 300),
            (200, 600),
            (200, 900),
            (900, 0),
            (1000, 0),
        ];
        assert_eq!(arrived(&looks), [100, 300, 600, 800, 900, 1000]);
    }

    #[test]
    fn what_is_only_not_read_yet_is_counted_once() {
        let looks = [(200, 300), (400, 600), (600, 600), (600, 0), (800, 300)];
        assert_eq!(arrived(&looks), [200, 400, 600, 600, 800]);
    }

    proptest! {
        #[test]
        fn arrived_is_at_least_what_is_in_order(
            looks in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
        ) {
            let all = arrived(&looks);
            prop_assert!(all.iter().zip(&looks).all(|(all, (bytes, _))| all >= bytes));
        }

        #[test]
        fn no_sum_exceeds_what_came(
            looks in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
            ago in any::<u64>(),
            span in any::<u64>(),
        ) {
            let mut a = ArrivalHistory::default();
            for (at, bytes) in &looks {
                a.record(Duration::from_nanos(*at), *bytes, Duration::MAX);
            }
            let most = looks.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            let (ago, span) = (Duration::from_nanos(ago), Duration::from_nanos(span));
            prop_assert!(a.before(ago, span) <= most);
            prop_assert!(a.latest(span) <= a.latest(Duration::MAX));
            let _ = a.peak(span, ago);
        }
    }
}
