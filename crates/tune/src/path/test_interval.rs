//! Time between two active tests of a path (section 6.2 of the paper and its future work).

use std::fmt;
use std::time::Duration;

use units::show;

use super::correlation::ValueCorrelation;

/// Factor by which one test lengthens or shortens the interval at most: the correlation of few values is a rough estimate.
const MOST_STEP: f32 = 2.0;
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

/// The grounds of an interval without demand.
#[derive(Debug, Clone, Copy, PartialEq)]
enum IntervalGround {
    /// Too few values are known.
    FewValues,
    /// The values are constant.
    Constant,
    /// The autocorrelation of the values falls below 1/e after so many seconds.
    CorrelatedUntil(f32),
    /// It does not within so many seconds.
    CorrelatedBeyond(f32),
    Outlier,
    Shift,
    Failure,
}

/// The interval of one path: the time over which its values resemble each other, shorter when it changed and when it is
/// used.
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
    ground: IntervalGround,
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
            ground: IntervalGround::FewValues,
        }
    }

    /// A test found the path as before; `correlation` is that of its values.
    pub fn on_steady(&mut self, correlation: ValueCorrelation) {
        let (ground, wanted) = match correlation {
            ValueCorrelation::Unknown => (IntervalGround::FewValues, self.initial),
            ValueCorrelation::Constant => (IntervalGround::Constant, self.longest),
            ValueCorrelation::Until(time) => {
                let seconds = time.min(MAX_INTERVAL).as_secs_f32();
                (IntervalGround::CorrelatedUntil(seconds), seconds)
            }
            ValueCorrelation::Beyond(time) => {
                let seconds = time.min(MAX_INTERVAL).as_secs_f32();
                let longer = seconds.max(self.base);
                (IntervalGround::CorrelatedBeyond(seconds), longer)
            }
        };
        let step = wanted.clamp(self.base / MOST_STEP, self.base * MOST_STEP);
        self.base = step.clamp(self.shortest, self.longest);
        self.ground = ground;
        self.demand *= DEMAND_DECAY;
    }

    /// A test found an outlier: the next one, soon, decides whether the path has changed.
    pub fn on_outlier(&mut self) {
        self.base = self.shortest;
        self.ground = IntervalGround::Outlier;
    }

    /// The path has changed.
    pub fn on_shift(&mut self) {
        self.base = self.shortest;
        self.ground = IntervalGround::Shift;
    }

    /// A test failed: nothing is known, and the path is tried as one of which little is known.
    pub fn on_failure(&mut self) {
        self.base = self.base.max(self.initial);
        self.ground = IntervalGround::Failure;
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

impl fmt::Display for TestInterval {
    /// One line for people: the interval and its grounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: f32| show::time(Duration::from_secs_f32(seconds));
        write!(f, "every {}: ", show::time(self.next(0.5)))?;
        match self.ground {
            IntervalGround::FewValues => {
                f.write_str("too few values to tell how long one stays valid")
            }
            IntervalGround::Constant => f.write_str("the values hardly differ"),
            IntervalGround::CorrelatedUntil(seconds) => write!(
                f,
                "values resemble each other for {} (autocorrelation above 1/e)",
                time(seconds)
            ),
            IntervalGround::CorrelatedBeyond(seconds) => write!(
                f,
                "values resemble each other for {} or longer (autocorrelation above 1/e)",
                time(seconds)
            ),
            IntervalGround::Outlier => f.write_str("the last value was an outlier"),
            IntervalGround::Shift => f.write_str("the path has changed"),
            IntervalGround::Failure => f.write_str("the last test failed"),
        }?;
        if self.demand > DEMAND_OF_QUESTION {
            f.write_str("; questions make it shorter")?;
        }
        if self.base <= self.shortest {
            f.write_str("; it is the shortest of the settings")?;
        } else if self.base >= self.longest {
            f.write_str("; it is the longest of the settings")?;
        }
        Ok(())
    }
}

/// Longest interval that can be configured: ten years.
const MAX_INTERVAL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_constant_path_is_tested_ever_less_often_up_to_the_longest_interval() {
        let mut interval = TestInterval::default();
        let mut before = interval.next(0.5);
        assert_eq!(before, IntervalBounds::default().initial);
        for _ in 0..10 {
            interval.on_steady(ValueCorrelation::Constant);
            assert!(interval.next(0.5) >= before);
            before = interval.next(0.5);
        }
        assert_eq!(before, IntervalBounds::default().longest);
    }

    #[test]
    fn the_interval_follows_the_time_over_which_values_resemble_each_other() {
        let mut interval = TestInterval::default();
        let hours = |n: f64| Duration::from_secs_f64(3600.0 * n);
        let mut after = |found: ValueCorrelation, times: u32| {
            (0..times).for_each(|_| interval.on_steady(found));
            (interval.next(0.5), interval.to_string())
        };
        let (time, text) = after(ValueCorrelation::Until(hours(1.0)), 1);
        assert_eq!(time, hours(2.0), "one test halves it at most");
        let (found, text_then) = after(ValueCorrelation::Until(hours(1.0)), 3);
        assert_eq!(found, hours(1.0));
        assert!(text.starts_with("every 2") && text_then.starts_with("every 1"));
        let why = "values resemble each other for 1 h 0 min (autocorrelation above 1/e)";
        assert!(text_then.ends_with(why), "{text_then}");
        assert_eq!(after(ValueCorrelation::Beyond(hours(1.5)), 1).0, hours(1.5));
        assert_eq!(after(ValueCorrelation::Beyond(hours(0.5)), 1).0, hours(1.5));
        assert_eq!(after(ValueCorrelation::Unknown, 9).0, hours(4.0));
        let (shortest, text) = after(ValueCorrelation::Until(hours(0.001)), 9);
        assert_eq!(shortest, IntervalBounds::default().shortest);
        assert!(text.ends_with("the shortest of the settings"), "{text}");
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
            used.on_steady(ValueCorrelation::Constant);
        }
        assert!(used.next(0.5) > Duration::from_secs(23 * 3600));
    }

    proptest! {
        #[test]
        fn the_interval_stays_within_its_bounds(
            times in any::<[u64; 3]>(),
            events in prop::collection::vec(0_u8..7, 0..40),
            bytes in any::<u64>(),
            jitter in any::<f64>(),
        ) {
            let [shortest, initial, longest] = times.map(Duration::from_secs);
            let mut interval = TestInterval::new(IntervalBounds { shortest, initial, longest });
            for event in events {
                match event {
                    0 => interval.on_steady(ValueCorrelation::Constant),
                    4 => interval.on_steady(ValueCorrelation::Until(Duration::from_secs(bytes))),
                    5 => interval.on_steady(ValueCorrelation::Beyond(Duration::from_secs(bytes))),
                    1 => interval.on_shift(),
                    2 => interval.on_outlier(),
                    3 => interval.on_failure(),
                    _ => interval.on_question(Some(bytes)),
                }
            }
            let next = interval.next(jitter);
            let (least, most) = (interval.shortest, interval.longest);
            prop_assert!(least <= interval.initial && interval.initial <= most);
            prop_assert!(!interval.to_string().is_empty());
            prop_assert!((least..=most).contains(&next.as_secs_f32()));
        }
    }
}
