//! The rate of a running chunk, by the 112 markers that its servers send while it moves (GFD.20 §3.8).
//!
//! A chunk between two servers is known as a whole only when it has ended. Markers show the last seconds of it.
//! They come from another program: they may be absent or rare, arrive late and together, or count backwards. A
//! rate follows only from markers about a second apart, and counts as changed only when two intervals in a row
//! say so, since a marker that is late makes one interval look slow and the next one fast.

use std::collections::BTreeMap;
use std::time::Duration;

/// Shortest time between two markers of a session that gives a rate. Servers are asked for one a second.
const MIN_INTERVAL: Duration = Duration::from_millis(800);
/// Longest one. Where markers are rarer, as they are by default, only whole chunks are compared.
const MAX_INTERVAL: Duration = Duration::from_millis(2500);
/// Rates of two intervals whose quotient is at least this are the same rate.
const STEADY_SHARE: f64 = 0.85;
/// Weight of a further steady rate in their average: low, so that it does not follow a fall that takes seconds.
const WEIGHT: f64 = 1.0 / 16.0;

/// Rate of a running chunk in the last seconds, relative to its steady rate before. Between the bounds it is not
/// known: while a session waits for a command, the streams of the others may or may not take its share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativeRate {
    /// It is no less than this.
    pub at_least: f64,
    /// It is no more than this.
    pub at_most: f64,
}

/// Measures the rate of the sessions that move a file together.
#[derive(Debug, Default)]
pub struct MarkerRateMeter {
    /// The running range of each session, with its share of the present number of streams.
    ranges: BTreeMap<u32, MarkedRange>,
    /// The present number of streams of all sessions.
    streams: u32,
    /// Average of the steady rates of all these streams, bytes per second.
    steady: Option<f64>,
    /// Their rate is steady now, and another one.
    has_changed: bool,
}

/// The range of one session, running or ended.
#[derive(Debug, Default)]
struct MarkedRange {
    is_running: bool,
    streams: u32,
    /// When the last marker arrived, or the range began.
    heard: Duration,
    /// Where the present interval began: time and bytes of the range.
    from: Option<(Duration, u64)>,
    /// Rates of the last two intervals, bytes per second, the latest first.
    rates: [Option<f64>; 2],
    /// Time and rate at the end of the session's range before. The others' rates go back to then.
    earlier: (Duration, f64),
}

impl MarkerRateMeter {
    /// A new chunk begins, although the rate may have changed: it is the steady one from now on.
    pub fn begin_chunk(&mut self) {
        if std::mem::take(&mut self.has_changed) {
            self.steady = None;
        }
    }

    /// Session number `session` begins a range at `at` with its share `streams` of `all_streams`. Rates with another
    /// number of streams are forgotten.
    pub fn begin_range(&mut self, session: u32, streams: u32, all_streams: u32, at: Duration) {
        if self.streams != all_streams {
            self.forget();
            self.streams = all_streams;
        }
        let range = self.ranges.entry(session).or_default();
        *range = MarkedRange {
            is_running: true,
            streams,
            heard: at,
            earlier: range.earlier,
            ..MarkedRange::default()
        };
    }

    /// The session has ended its range.
    pub fn end_range(&mut self, session: u32) {
        if let Some(range) = self.ranges.get_mut(&session) {
            *range = MarkedRange {
                earlier: (range.heard, range.highest()),
                ..MarkedRange::default()
            };
        }
    }

    /// Forgets all rates. The running ranges count no more.
    pub fn forget(&mut self) {
        self.ranges.clear();
        (self.steady, self.has_changed) = (None, false);
    }

    /// Takes a marker that arrived at `at`: so many bytes of the session's range have moved. Returns the rate if the
    /// marker ends an interval and a steady rate is known.
    pub fn on_marker(&mut self, session: u32, at: Duration, bytes: u64) -> Option<RelativeRate> {
        let range = self.ranges.get_mut(&session).filter(|r| r.is_running)?;
        let ends_interval = range.on_marker(at, bytes);
        // A session that reports nothing may move any number of bytes.
        let is_silent =
            |range: &MarkedRange| range.is_running && at.saturating_sub(range.heard) > MAX_INTERVAL;
        if !ends_interval || self.ranges.values().any(is_silent) {
            return None;
        }
        let (mut low, mut high, mut flowing) = (0.0, 0.0, 0);
        for range in self.ranges.values() {
            // A range that has just begun is still in slow start, and counts for what it moves.
            let (ended, earlier) = range.earlier;
            let is_past = at.saturating_sub(ended) > MAX_INTERVAL;
            high += range.highest().max(if is_past { 0.0 } else { earlier });
            if let [Some(latest), Some(before)] = range.rates {
                low += latest.min(before);
                flowing += range.streams;
            }
        }
        let before = self.steady;
        if flowing == self.streams && low > 0.0 && is_same(low, high) {
            let now = f64::midpoint(low, high);
            let steady = before.unwrap_or(now);
            // A change is measured by the rate before it, however long it lasts.
            self.has_changed = !is_same(now, steady);
            if !self.has_changed {
                self.steady = Some(steady + (now - steady) * WEIGHT);
            }
        }
        let steady = before?;
        // The streams that flow carry at least their share of the rate, on a full path more.
        let share = f64::from(flowing) / f64::from(self.streams.max(1));
        (flowing > 0).then(|| RelativeRate {
            at_least: low / steady,
            at_most: high / (steady * share),
        })
    }
}

/// Whether two rates are the same for a meter of markers.
fn is_same(one: f64, other: f64) -> bool {
    one.min(other) >= STEADY_SHARE * one.max(other)
}

impl MarkedRange {
    /// The higher rate of the last two intervals.
    fn highest(&self) -> f64 {
        let [latest, before] = self.rates.map(Option::unwrap_or_default);
        latest.max(before)
    }

    /// Takes a marker; returns whether it ends an interval.
    fn on_marker(&mut self, at: Duration, bytes: u64) -> bool {
        self.heard = at;
        let Some((from, bytes_before)) = self.from else {
            self.from = Some((at, bytes));
            return false;
        };
        let time = at.saturating_sub(from);
        if bytes < bytes_before || time > MAX_INTERVAL {
            // Nothing follows from a gap, or from bytes that are taken back.
            (self.from, self.rates) = (Some((at, bytes)), [None; 2]);
            return false;
        }
        if time < MIN_INTERVAL {
            return false;
        }
        let rate = (bytes - bytes_before) as f64 / time.as_secs_f64();
        (self.from, self.rates) = (Some((at, bytes)), [Some(rate), self.rates[0]]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Two sessions with two streams each, whose ranges begin at 0 s, and their bytes.
    struct Pair {
        meter: MarkerRateMeter,
        moved: [u64; 2],
        at: Duration,
    }

    impl Pair {
        fn new() -> Self {
            let mut meter = MarkerRateMeter::default();
            for session in 0..2 {
                meter.begin_range(session, 2, 4, Duration::ZERO);
                meter.on_marker(session, ms(100), 0);
            }
            Self {
                meter,
                moved: [0; 2],
                at: ms(100),
            }
        }

        /// A second in which the sessions move so many bytes. Returns the rate after the second one's marker.
        fn second(&mut self, bytes: [u64; 2]) -> Option<RelativeRate> {
            self.at += ms(1000);
            let mut last = None;
            for (session, bytes) in (0..).zip(bytes) {
                let moved = &mut self.moved[session as usize];
                *moved += bytes;
                last = self.meter.on_marker(session, self.at, *moved);
            }
            last
        }
    }

    #[test]
    fn a_change_is_known_after_two_seconds() {
        let mut pair = Pair::new();
        assert_eq!([900, 1000].map(|n| pair.second([n, n])), [None; 2]);
        let same = pair.second([1000, 1000]).unwrap();
        assert!(same.at_least > 0.9 && same.at_most < 1.1, "{same:?}");
        // One slow interval may be a marker that is late.
        assert!(pair.second([500, 500]).unwrap().at_most > 0.9);
        for _ in 0..50 {
            assert!(pair.second([500, 500]).unwrap().at_most < 0.6);
        }
        assert!(pair.second([2000, 2000]).unwrap().at_least < 1.0);
        assert!(pair.second([2000, 2000]).unwrap().at_least > 1.7);
        // It is the steady rate of the next chunk.
        pair.meter.begin_chunk();
        let same = pair.second([2000, 2000]).unwrap();
        assert!(same.at_least > 0.9 && same.at_most < 1.1, "{same:?}");
    }

    #[test]
    fn a_session_between_two_ranges_is_no_change() {
        let mut pair = Pair::new();
        (0..3).for_each(|_| _ = pair.second([1000, 1000]));
        pair.meter.end_range(1);
        // The streams of the other one may keep their rate, or take all of it.
        for bytes in [1000, 1000, 2000, 2000] {
            pair.at += ms(1000);
            pair.moved[0] += bytes;
            let rate = pair.meter.on_marker(0, pair.at, pair.moved[0]).unwrap();
            assert!(rate.at_least < 1.1 && rate.at_most > 0.9, "{rate:?}");
        }
        pair.meter.begin_range(1, 2, 4, pair.at);
        pair.moved[1] = 0;
        assert_eq!(pair.second([1000, 0]), None);
        let slow_start = pair.second([1000, 300]).unwrap();
        assert!(
            slow_start.at_least < 1.1 && slow_start.at_most > 0.9,
            "{slow_start:?}"
        );
    }

    #[test]
    fn a_session_that_has_ended_had_its_share_of_the_seconds_before() {
        let mut pair = Pair::new();
        (0..4).for_each(|_| _ = pair.second([600, 1400]));
        pair.meter.end_range(1);
        for n in 1..5 {
            // The other one gets all of the full path.
            pair.moved[0] += if n == 1 { 600 } else { 2000 };
            let rate = pair
                .meter
                .on_marker(0, pair.at + ms(1000 * n), pair.moved[0]);
            assert!(rate.unwrap().at_most > 0.9, "{n}: {rate:?}");
        }
    }

    #[test]
    fn markers_that_say_little_give_no_rate() {
        // Every five seconds.
        let mut rare = Pair::new();
        for _ in 0..5 {
            rare.at += ms(4000);
            assert_eq!(rare.second([5000, 5000]), None);
        }
        // Backwards.
        let mut pair = Pair::new();
        (0..4).for_each(|_| _ = pair.second([1000, 1000]));
        pair.moved = [0; 2];
        assert_eq!([0, 1000].map(|n| pair.second([n, n])), [None; 2]);
        // Beyond every number: the size of a range bounds it, and the tuner what follows from it.
        assert!(pair.second([u64::MAX / 2; 2]).unwrap().at_least < 1.1);
        // One session reports nothing.
        let mut pair = Pair::new();
        pair.meter.begin_range(1, 2, 4, ms(100));
        for n in 1..10 {
            assert_eq!(pair.meter.on_marker(0, ms(100 + 1000 * n), n * 1000), None);
        }
    }

    #[test]
    fn another_number_of_streams_begins_anew() {
        let mut pair = Pair::new();
        (0..4).for_each(|_| _ = pair.second([1000, 1000]));
        pair.meter.begin_range(0, 4, 8, pair.at);
        pair.moved[0] = 0;
        for _ in 0..4 {
            assert_eq!(pair.second([3000, 1000]), None);
        }
    }
}
