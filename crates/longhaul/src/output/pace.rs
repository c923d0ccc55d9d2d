//! Rates and the end of a copy, from its progress events.

use std::collections::VecDeque;
use std::time::Duration;

use copy::CopyProgress;
use tune::forecast::{Forecast, Forecaster, ProgressSample};

/// Rates are averages over this time. Between two servers bytes are reported every 5 s, so a shorter time would show the
/// reports and not the rate.
const WINDOW: Duration = Duration::from_secs(10);

/// Follows the progress events of one copy.
#[derive(Debug, Default)]
pub(super) struct PaceMeter {
    samples: VecDeque<PaceSample>,
    forecaster: Forecaster,
    /// When anything was last seen to move.
    last_movement: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PaceSample {
    at: Duration,
    moved: u64,
    done: u64,
    files: u64,
}

/// How fast a copy is at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pace {
    /// Bytes per second, over the last [`WINDOW`].
    pub(super) bytes_per_second: f64,
    /// Files per second, likewise.
    pub(super) files_per_second: f64,
    /// The remaining time; `None`: unknown.
    pub(super) left: Option<Forecast>,
    /// Time since anything moved.
    pub(super) silent: Duration,
}

impl PaceMeter {
    /// Takes the next progress event.
    #[allow(clippy::cast_precision_loss, reason = "rates have three digits")]
    pub(super) fn update(&mut self, progress: &CopyProgress) -> Pace {
        let now = PaceSample {
            at: progress.elapsed,
            moved: progress.bytes,
            done: progress.done,
            files: progress.files,
        };
        // Everything begins with nothing at time 0.
        let before = self.samples.back().copied().unwrap_or_default();
        if self.samples.is_empty() {
            self.samples.push_back(before);
        }
        if (now.moved, now.done, now.files) != (before.moved, before.done, before.files) {
            self.last_movement = now.at;
        }
        self.samples.push_back(now);
        // The first sample is the youngest one that is old enough.
        while self.samples.get(1).is_some_and(|s| s.at + WINDOW <= now.at) {
            self.samples.pop_front();
        }
        let first = self.samples.front().copied().unwrap_or_default();
        let seconds = now.at.saturating_sub(first.at).as_secs_f64();
        let rate = |to: u64, from: u64| match seconds > 0.0 {
            true => to.saturating_sub(from) as f64 / seconds,
            false => 0.0,
        };
        Pace {
            bytes_per_second: rate(now.moved, first.moved),
            files_per_second: rate(now.files, first.files),
            left: self.forecast(progress),
            silent: now.at.saturating_sub(self.last_movement),
        }
    }

    /// The remaining time. It is unknown while files are still found.
    fn forecast(&mut self, progress: &CopyProgress) -> Option<Forecast> {
        if let Some(rate) = progress.expected {
            self.forecaster.expect(rate);
        }
        // Servers report the bytes that are safe every few seconds, those that move are known at any time.
        let resumed = self
            .samples
            .iter()
            .map(|s| i128::from(s.done) - i128::from(s.moved));
        let done = i128::from(progress.bytes) + resumed.max().unwrap_or(0);
        let left = (i128::from(progress.total_bytes) - done).max(0);
        self.forecaster.add(ProgressSample {
            at: progress.elapsed,
            bytes_moved: progress.bytes,
            bytes_left: u64::try_from(left).unwrap_or(u64::MAX),
            files_done: progress.files,
            files_left: progress.total_files.saturating_sub(progress.files),
        });
        let is_known = progress.is_listed && progress.done <= progress.total_bytes;
        is_known.then(|| self.forecaster.forecast()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, bytes: u64) -> CopyProgress {
        CopyProgress {
            elapsed: Duration::from_secs(seconds),
            bytes,
            done: bytes,
            total_bytes: 1000,
            is_listed: true,
            ..CopyProgress::default()
        }
    }

    #[test]
    fn the_rate_is_an_average_over_ten_seconds() {
        let mut meter = PaceMeter::default();
        assert_eq!(meter.update(&at(1, 10)).bytes_per_second, 10.0);
        for second in 2..30 {
            meter.update(&at(second, 10 * second));
        }
        // Ten times as fast for five seconds.
        for second in 30..35 {
            meter.update(&at(second, 290 + 100 * (second - 29)));
        }
        assert_eq!(meter.update(&at(35, 890)).bytes_per_second, 64.0);
    }

    #[test]
    fn bytes_that_are_reported_late_are_not_left() {
        let mut meter = PaceMeter::default();
        let reported = |second: u64| CopyProgress {
            // 100 bytes of an earlier run, and a report every 5 s.
            done: 100 + 10 * (second / 5 * 5),
            ..at(second, 10 * second)
        };
        let ends = (1..50).map(|second| {
            let left = meter.update(&reported(second)).left;
            left.map(|left| left.expected.as_secs() + second)
        });
        let ends: Vec<_> = ends.flatten().skip(5).collect();
        assert!(ends.len() > 30, "{ends:?}");
        assert!(ends.iter().all(|end| (88..=91).contains(end)), "{ends:?}");
    }

    #[test]
    fn the_time_left_is_unknown_while_files_are_found() {
        let mut meter = PaceMeter::default();
        for is_listed in [false, true] {
            for second in 1..10 {
                let second = second + if is_listed { 10 } else { 0 };
                let left = meter
                    .update(&CopyProgress {
                        is_listed,
                        ..at(second, 10 * second)
                    })
                    .left;
                assert_eq!(left.is_some(), is_listed, "{second}");
            }
        }
    }
}
