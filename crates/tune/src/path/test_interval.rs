//! Time between two active tests of a path (section 6.2 of the paper and its future work).

use std::time::Duration;

/// Growth of the interval with each test that finds nothing new.
const STEADY_GROWTH: f32 = 1.5;
/// Questions and transfers raise the demand; each test takes this part of it.
const DEMAND_DECAY: f32 = 0.5;
/// Demand of one question.
const DEMAND_OF_QUESTION: f32 = 0.1;
/// Bytes whose transfer raises the demand by 1: the better a large transfer is advised, the more it gains.
const BYTES_OF_DEMAND: f32 = 10e9;
/// Largest demand: the interval is at least a seventeenth of that without demand.
const MAX_DEMAND: f32 = 16.0;
/// Part of the interval by which jitter lengthens or shortens it.
const JITTER: f64 = 0.1;

/// Bounds of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalBounds {
    /// Shortest interval.
    pub shortest: Duration,
    /// Interval of a path of which little is known.
    pub initial: Duration,
    /// Longest interval.
    pub longest: Duration,
}

impl Default for IntervalBounds {
    /// Ten minutes, the paper's four hours, and a day.
    fn default() -> Self {
        Self {
            shortest: Duration::from_secs(600),
            initial: Duration::from_secs(4 * 3600),
            longest: Duration::from_secs(24 * 3600),
        }
    }
}

/// The interval of one path: longer while it is steady, shorter when it changed and when it is used.
///
/// Its times are seconds in single precision, since a service holds several of each client, and the jitter is
/// larger by far than what is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct TestInterval {
    shortest: f32,
    initial: f32,
    longest: f32,
    /// Without demand.
    base: f32,
    /// 0..=16.
    demand: f32,
}

impl Default for TestInterval {
    fn default() -> Self {
        Self::new(IntervalBounds::default())
    }
}

impl TestInterval {
    /// Begins with the initial interval. Bounds that contradict each other are put in order: none is zero, and
    /// the longest is at least the shortest.
    pub fn new(bounds: IntervalBounds) -> Self {
        let shortest = bounds.shortest.clamp(Duration::from_secs(1), MAX_INTERVAL);
        let longest = bounds.longest.clamp(shortest, MAX_INTERVAL);
        let initial = bounds.initial.clamp(shortest, longest);
        Self {
            shortest: shortest.as_secs_f32(),
            initial: initial.as_secs_f32(),
            longest: longest.as_secs_f32(),
            base: initial.as_secs_f32(),
            demand: 0.0,
        }
    }

    /// A test found the path as before.
    pub fn on_steady(&mut self) {
        self.base = (self.base * STEADY_GROWTH).min(self.longest);
        self.demand *= DEMAND_DECAY;
    }

    /// A test found an outlier: the next one, soon, decides whether the path has changed.
    pub fn on_outlier(&mut self) {
        self.base = self.shortest;
    }

    /// The path has changed.
    pub fn on_shift(&mut self) {
        self.base = self.shortest;
    }

    /// A test failed: nothing is known, and the path is tried as one of which little is known.
    pub fn on_failure(&mut self) {
        self.base = self.base.max(self.initial);
        self.demand *= DEMAND_DECAY;
    }

    /// Somebody asked for advice, for a transfer of `bytes` if known.
    pub fn on_question(&mut self, bytes: Option<u64>) {
        let size = bytes.unwrap_or(0) as f32 / BYTES_OF_DEMAND;
        self.demand = (self.demand + DEMAND_OF_QUESTION + size).min(MAX_DEMAND);
    }

    /// The interval at the beginning, without jitter.
    pub fn initial(&self) -> Duration {
        Duration::from_secs_f32(self.initial)
    }

    /// Time from the last test to the next. `jitter`, 0..=1, is random, so that tests of many paths that began
    /// together do not stay together; NaN counts as its middle.
    pub fn next(&self, jitter: f64) -> Duration {
        let jitter = if jitter.is_nan() { 0.5 } else { jitter };
        let factor = 1.0 + JITTER * (jitter.clamp(0.0, 1.0) * 2.0 - 1.0);
        let seconds = f64::from(self.base) / (1.0 + f64::from(self.demand)) * factor;
        let (shortest, longest) = (f64::from(self.shortest), f64::from(self.longest));
        Duration::from_secs_f64(seconds.clamp(shortest, longest))
    }
}

/// Longest interval that can be configured: ten years.
const MAX_INTERVAL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_steady_path_is_tested_ever_less_often_up_to_the_longest_interval() {
        let mut interval = TestInterval::default();
        let mut before = interval.next(0.5);
        assert_eq!(before, IntervalBounds::default().initial);
        for _ in 0..10 {
            interval.on_steady();
            assert!(interval.next(0.5) >= before);
            before = interval.next(0.5);
        }
        assert_eq!(before, IntervalBounds::default().longest);
    }

    #[test]
    fn a_changed_path_is_tested_soon() {
        let mut interval = TestInterval::default();
        interval.on_shift();
        assert_eq!(interval.next(0.5), IntervalBounds::default().shortest);
    }

    #[test]
    fn questions_and_large_transfers_shorten_the_interval_until_tests_have_run() {
        let interval = |bytes: Option<u64>, times: u32| {
            let mut interval = TestInterval::default();
            (0..times).for_each(|_| interval.on_question(bytes));
            interval
        };
        let next = |bytes, times| interval(bytes, times).next(0.5);
        assert!(next(None, 1) < next(None, 0));
        assert!(next(None, 20) < next(None, 1));
        assert!(next(Some(100_000_000_000), 1) < next(Some(1_000_000), 1));
        let mut used = interval(Some(u64::MAX), 100);
        assert!(used.next(0.5) >= IntervalBounds::default().shortest);
        for _ in 0..20 {
            used.on_steady();
        }
        assert!(used.next(0.5) > Duration::from_secs(23 * 3600));
    }

    proptest! {
        #[test]
        fn the_interval_stays_within_its_bounds(
            times in any::<[u64; 3]>(),
            events in prop::collection::vec(0_u8..5, 0..40),
            bytes in any::<u64>(),
            jitter in any::<f64>(),
        ) {
            let [shortest, initial, longest] = times.map(Duration::from_secs);
            let mut interval = TestInterval::new(IntervalBounds { shortest, initial, longest });
            for event in events {
                match event {
                    0 => interval.on_steady(),
                    1 => interval.on_shift(),
                    2 => interval.on_outlier(),
                    3 => interval.on_failure(),
                    _ => interval.on_question(Some(bytes)),
                }
            }
            let next = interval.next(jitter);
            let (least, most) = (interval.shortest, interval.longest);
            prop_assert!(least <= interval.initial && interval.initial <= most);
            prop_assert!((least..=most).contains(&next.as_secs_f32()));
        }
    }
}
