//! Conditions that vary in time: a table of when, rate, round trip and loss.

use std::time::Duration;

use crate::rate::Rate;

/// Values from one moment until the next point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Since the start of the trace; the first point is at 0, each later one is later.
    pub at: Duration,
    /// Bottleneck rate; `None`: the path's own.
    pub rate: Option<Rate>,
    /// Round trip without queues (each direction gets half); `None`: the path's own.
    pub rtt: Option<Duration>,
    /// Probability that a packet is lost, 0..=1; `None`: the path's own.
    pub loss: Option<f64>,
}

/// At least one point, in time order. After its last point's interval (as long as the one before
/// it) it begins again.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    points: Vec<Point>,
}

impl Trace {
    /// The points, in time order.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Each point with the time at which its values end; the last of them is the period after which
    /// the trace begins again. A single point holds for ever.
    pub fn spans(&self) -> impl Iterator<Item = (&Point, Duration)> {
        let ends = self.points.iter().skip(1).map(|next| next.at);
        self.points.iter().zip(ends.chain([self.period()]))
    }

    /// After how long it begins again: the last point holds as long as the one before it.
    pub fn period(&self) -> Duration {
        match self.points.as_slice() {
            [.., before, last] => last.at + (last.at - before.at),
            _ => Duration::MAX,
        }
    }
}
