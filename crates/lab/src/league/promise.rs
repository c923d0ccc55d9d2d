//! The promise of an end: how often a league's transfers ended within the interval that was told while they ran.

use std::time::Duration;

use sim::fluid::AutoFluidOutcome;
use tune::forecast::{Forecaster, ProgressSample};

/// Times at which the end is told, seconds.
const TOLD_AT: [f64; 12] = [
    1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 150.0,
];
/// Shortest rest that is worth an interval, seconds.
const LEAST_REST: f64 = 5.0;
/// From this time on an interval should be narrow, seconds.
const NARROW_FROM: f64 = 30.0;

/// Ends that were told during one transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToldEnds {
    /// Intervals that held the end, and all of them.
    pub(super) held: usize,
    pub(super) of: usize,
    /// Half-widths of those after 30 s, as parts of the expected rest.
    pub(super) half_widths: Vec<f64>,
}

impl ToldEnds {
    /// The ends that the course of a transfer of `bytes` bytes lets the forecast tell. None if its end was extrapolated.
    pub(super) fn of(run: &AutoFluidOutcome, bytes: u64) -> Self {
        let mut told = Self::default();
        if run.outcome.is_extrapolated || !run.outcome.elapsed.is_finite() {
            return told;
        }
        let end = run.timeline.last().map_or(0.0, |point| point.at);
        let mut forecaster = Forecaster::default();
        let mut times = TOLD_AT.iter().peekable();
        let (mut moved, mut before) = (0.0, 0.0);
        for point in &run.timeline {
            moved += point.rate * (point.at - before);
            before = point.at;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a sum of bytes, no more than the file has"
            )]
            let bytes_moved = (moved as u64).min(bytes);
            forecaster.add(ProgressSample {
                at: Duration::from_secs_f64(point.at),
                bytes_moved,
                bytes_left: bytes - bytes_moved,
                ..ProgressSample::default()
            });
            let is_due = times.next_if(|time| point.at >= **time).is_some();
            let rest = end - point.at;
            let Some(forecast) = forecaster
                .forecast()
                .filter(|_| is_due && rest >= LEAST_REST)
            else {
                continue;
            };
            let [earliest, expected, latest] =
                [forecast.earliest, forecast.expected, forecast.latest].map(|t| t.as_secs_f64());
            told.of += 1;
            told.held += usize::from(earliest <= rest && rest <= latest);
            if point.at >= NARROW_FROM {
                told.half_widths
                    .push((latest - earliest) / 2.0 / expected.max(1e-9));
            }
        }
        told
    }
}
