//! Path conditions that vary over time: a table of time, rate, RTT and loss.

mod csv;
mod published;

use std::time::Duration;

use units::{Rate, UnitError};

pub use published::{BUILT_IN_TRACES, built_in_trace, drsftp_path, drsftp_wan};

/// Conditions from one time until the next point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TracePoint {
    /// Time since the start of the trace. The first point is at 0; times increase.
    pub at: Duration,
    /// Rate of the bottleneck; `None`: the path's own rate.
    pub rate: Option<Rate>,
    /// RTT without queueing, half of it in each direction; `None`: the path's own delay.
    pub rtt: Option<Duration>,
    /// Probability of loss per packet, 0..=1; `None`: the path's own loss.
    pub loss: Option<f64>,
}

/// A trace of at least one point, in order of time. It repeats after the interval of its last point,
/// which is as long as the interval before it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathTrace {
    points: Vec<TracePoint>,
}

/// The reason why points are not a valid trace. Each message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The header is missing or cannot be read.
    #[error(
        "line {line}: the header must name the columns, seconds and any of rate, rtt, loss: {problem}"
    )]
    Header {
        /// Line number from 1.
        line: usize,
        /// The mistake.
        problem: String,
    },
    /// The line has more or fewer cells than the header has columns.
    #[error("line {line}: {found} of the {expected} values that the header names")]
    Width {
        /// Line number from 1.
        line: usize,
        /// Number of cells.
        found: usize,
        /// Number of columns.
        expected: usize,
    },
    /// A cell that cannot be read.
    #[error("line {line}: {column}: {problem}")]
    Cell {
        /// Line number from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// The mistake.
        problem: UnitError,
    },
    /// A point is invalid or out of order.
    #[error("line {line}: {problem}")]
    Point {
        /// Line number from 1; for points that were not read from text, the number of the point.
        line: usize,
        /// The mistake.
        problem: PointError,
    },
    /// The trace has no point.
    #[error("the trace has no values; add at least one line below the header")]
    Empty,
    /// Every point has the rate 0.
    #[error("the rate is 0 on every line; give at least one line a rate above 0")]
    ZeroRate,
}

/// The reason why a point cannot follow the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    /// The first point is not at the time 0.
    #[error("the first time must be 0 seconds; subtract it from all of them")]
    StartNotZero,
    /// The point is not later than the one before it.
    #[error("times must increase; sort the lines by seconds and give each time once")]
    NotIncreasing,
    /// The loss is outside of 0..=1 or not a number.
    #[error("loss is a probability, 0 to 100%")]
    Loss,
    /// The time is too long to compute with.
    #[error("the time is longer than {} years", LONGEST.as_secs() / 31_536_000)]
    TooLong,
}

/// Longest time in a trace: a hundred years of 365 days, far below the limit of 64-bit nanoseconds.
const LONGEST: Duration = Duration::from_secs(100 * 31_536_000);

impl PathTrace {
    /// Creates a trace of these points.
    ///
    /// # Errors
    /// [`TraceError`], whose line is the number of the point, from 1.
    pub fn new(points: Vec<TracePoint>) -> Result<Self, TraceError> {
        Self::with_lines(points, |index| index + 1)
    }

    /// Reads a table of comma-separated values:
    ///
    /// ```text
    /// seconds,rate,rtt,loss
    /// 0,10mbit,157ms,0.5%
    /// 20,26000,119,0
    /// ```
    ///
    /// The column `seconds` is required; the others are optional, in any order. An empty cell means the
    /// path's own value. A plain number is bit/s for the rate, milliseconds for the RTT, and a fraction
    /// 0..1 for the loss. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn from_csv(text: &str) -> Result<Self, TraceError> {
        let (points, lines) = csv::read(text)?;
        Self::with_lines(points, |index| lines.get(index).copied().unwrap_or(0))
    }

    /// Formats the trace as a table, which [`PathTrace::from_csv`] reads back exactly.
    pub fn to_csv(&self) -> String {
        csv::write(&self.points)
    }

    /// The points in order of time.
    pub fn points(&self) -> &[TracePoint] {
        &self.points
    }

    /// Each point with the end of its interval. The last end is the period of the trace. The interval of
    /// a single point never ends.
    pub fn intervals(&self) -> impl Iterator<Item = (&TracePoint, Duration)> {
        let ends = self.points.iter().skip(1).map(|next| next.at);
        self.points.iter().zip(ends.chain([self.period()]))
    }

    /// The time after which the trace repeats. The last interval is as long as the one before it.
    pub fn period(&self) -> Duration {
        match self.points.as_slice() {
            [.., before, last] => last.at + (last.at - before.at),
            _ => Duration::MAX,
        }
    }

    /// Mean rate over the period; `None`: some point uses the path's own rate.
    pub fn mean_rate(&self) -> Option<Rate> {
        let mean = self.mean(|point| point.rate.map(|rate| rate.as_bits_per_second().into()))?;
        Some(Rate::bits_per_second(u64::try_from(mean).ok()?))
    }

    /// Mean RTT over the period; `None`: some point uses the path's own delay.
    pub fn mean_rtt(&self) -> Option<Duration> {
        let mean = self.mean(|point| point.rtt.map(|rtt| rtt.as_nanos()))?;
        Some(Duration::from_nanos(u64::try_from(mean).ok()?))
    }

    /// Mean of a value, weighted by the lengths of the intervals.
    fn mean(&self, value: impl Fn(&TracePoint) -> Option<u128>) -> Option<u128> {
        let (mut sum, mut begin) = (0_u128, Duration::ZERO);
        // A single point has an infinite period, which cannot be used as a weight.
        if let [only] = self.points.as_slice() {
            return value(only);
        }
        for (point, end) in self.intervals() {
            sum = sum.saturating_add(value(point)?.saturating_mul((end - begin).as_nanos()));
            begin = end;
        }
        Some(sum / self.period().as_nanos())
    }

    fn with_lines(
        points: Vec<TracePoint>,
        line: impl Fn(usize) -> usize,
    ) -> Result<Self, TraceError> {
        let mut before = None;
        for (index, point) in points.iter().enumerate() {
            check(point, before).map_err(|problem| TraceError::Point {
                line: line(index),
                problem,
            })?;
            before = Some(point.at);
        }
        if points.is_empty() {
            return Err(TraceError::Empty);
        }
        // With rate 0 everywhere no packet would ever arrive.
        let zero = Some(Rate::bits_per_second(0));
        if points.iter().all(|point| point.rate == zero) {
            return Err(TraceError::ZeroRate);
        }
        Ok(Self { points })
    }
}

/// Checks whether `point` may follow a point at `before`.
fn check(point: &TracePoint, before: Option<Duration>) -> Result<(), PointError> {
    match before {
        None if !point.at.is_zero() => return Err(PointError::StartNotZero),
        Some(before) if point.at <= before => return Err(PointError::NotIncreasing),
        _ => {}
    }
    if point.at > LONGEST || point.rtt.is_some_and(|rtt| rtt > LONGEST) {
        return Err(PointError::TooLong);
    }
    match point.loss {
        // NaN is not contained in the range, so it is refused, too.
        Some(loss) if !(0.0..=1.0).contains(&loss) => Err(PointError::Loss),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seconds: u64) -> TracePoint {
        TracePoint {
            at: Duration::from_secs(seconds),
            rate: None,
            rtt: None,
            loss: None,
        }
    }

    #[test]
    fn the_last_point_holds_as_long_as_the_one_before_it() {
        let trace = PathTrace::new(vec![point(0), point(5), point(15)]).unwrap();
        assert_eq!(trace.period(), Duration::from_secs(25));
        let ends: Vec<_> = trace.intervals().map(|(_, end)| end.as_secs()).collect();
        assert_eq!(ends, [5, 15, 25]);
        assert_eq!(
            PathTrace::new(vec![point(0)]).unwrap().period(),
            Duration::MAX
        );
    }

    #[test]
    fn impossible_points_are_refused() {
        let problem = |points| match PathTrace::new(points) {
            Err(TraceError::Point { line, problem }) => (line, problem),
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(vec![point(1)]), (1, PointError::StartNotZero));
        assert_eq!(
            problem(vec![point(0), point(2), point(2)]),
            (3, PointError::NotIncreasing)
        );
        for loss in [1.5, -0.1, f64::NAN] {
            let lossy = TracePoint {
                loss: Some(loss),
                ..point(0)
            };
            assert_eq!(problem(vec![lossy]), (1, PointError::Loss));
        }
        assert_eq!(PathTrace::new(vec![]), Err(TraceError::Empty));
        let still = TracePoint {
            rate: Some(Rate::bits_per_second(0)),
            ..point(0)
        };
        assert_eq!(PathTrace::new(vec![still]), Err(TraceError::ZeroRate));
    }

    #[test]
    fn means_are_weighted_with_time() {
        let with = |seconds, bits, rtt| TracePoint {
            rate: Some(Rate::bits_per_second(bits)),
            rtt: Some(Duration::from_millis(rtt)),
            ..point(seconds)
        };
        let trace = PathTrace::new(vec![with(0, 100, 10), with(1, 400, 40)]).unwrap();
        assert_eq!(trace.mean_rate(), Some(Rate::bits_per_second(250)));
        assert_eq!(trace.mean_rtt(), Some(Duration::from_millis(25)));
        let uneven =
            PathTrace::new(vec![with(0, 100, 10), with(1, 400, 10), with(4, 0, 10)]).unwrap();
        assert_eq!(uneven.mean_rate(), Some(Rate::bits_per_second(1300 / 7)));
        let partly = PathTrace::new(vec![with(0, 100, 10), point(1)]).unwrap();
        assert_eq!(partly.mean_rate(), None);
    }
}
