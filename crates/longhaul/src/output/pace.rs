//! Rates and the remaining time of a copy, from its progress events.

use std::collections::VecDeque;
use std::time::Duration;

use copy::CopyProgress;

/// Rates are averages over this time. Between two servers bytes are reported every 5 s, so a shorter time would show the
/// reports and not the rate.
const WINDOW: Duration = Duration::from_secs(10);
/// A lower rate of files says nothing about the time that is left for the others.
const LEAST_FILES_PER_SECOND: f64 = 1.0;

/// Follows the progress events of one copy.
#[derive(Debug, Default)]
pub(super) struct PaceMeter {
    samples: VecDeque<PaceSample>,
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
    /// Estimate of the remaining time; `None`: unknown.
    pub(super) left: Option<Duration>,
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
        let pace = Pace {
            bytes_per_second: rate(now.moved, first.moved),
            files_per_second: rate(now.files, first.files),
            left: None,
            silent: now.at.saturating_sub(self.last_movement),
        };
        Pace {
            left: time_left(progress, pace),
            ..pace
        }
    }
}

/// The longer of the times that the bytes and the files will take.
#[allow(clippy::cast_precision_loss, reason = "whole seconds are shown")]
fn time_left(progress: &CopyProgress, pace: Pace) -> Option<Duration> {
    if !progress.is_listed || progress.done > progress.total_bytes {
        return None;
    }
    let bytes = (progress.total_bytes - progress.done) as f64;
    let files = progress.total_files.saturating_sub(progress.files) as f64;
    let of_bytes = match bytes {
        0.0 => 0.0,
        _ if pace.bytes_per_second < 1.0 => return None,
        _ => bytes / pace.bytes_per_second,
    };
    let of_files = match pace.files_per_second >= LEAST_FILES_PER_SECOND {
        true => files / pace.files_per_second,
        false => 0.0,
    };
    Duration::try_from_secs_f64(of_bytes.max(of_files)).ok()
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
    fn the_rate_is_an_average_over_ten_seconds_and_the_rest_takes_as_long() {
        let mut meter = PaceMeter::default();
        assert_eq!(meter.update(&at(1, 10)).bytes_per_second, 10.0);
        for second in 2..30 {
            meter.update(&at(second, 10 * second));
        }
        // Ten times as fast for five seconds.
        for second in 30..35 {
            meter.update(&at(second, 290 + 100 * (second - 29)));
        }
        let pace = meter.update(&at(35, 890));
        assert_eq!(pace.bytes_per_second, 64.0);
        assert_eq!(pace.left, Some(Duration::from_secs_f64(110.0 / 64.0)));
    }

    #[test]
    fn resumed_bytes_are_done_and_no_rate() {
        let mut meter = PaceMeter::default();
        let resumed = CopyProgress {
            done: 900,
            ..at(1, 10)
        };
        let pace = meter.update(&resumed);
        assert_eq!(pace.bytes_per_second, 10.0);
        assert_eq!(pace.left, Some(Duration::from_secs(10)));
    }

    #[test]
    fn many_small_files_take_as_long_as_their_number() {
        let mut meter = PaceMeter::default();
        let small = CopyProgress {
            files: 20,
            total_files: 220,
            ..at(10, 990)
        };
        let pace = meter.update(&small);
        assert_eq!(pace.files_per_second, 2.0);
        assert_eq!(pace.left, Some(Duration::from_secs(100)));
    }

    #[test]
    fn the_time_left_is_unknown_while_files_are_found_and_while_nothing_moves() {
        let mut meter = PaceMeter::default();
        let listing = CopyProgress {
            is_listed: false,
            ..at(1, 10)
        };
        assert_eq!(meter.update(&listing).left, None);
        for second in 2..20 {
            meter.update(&at(second, 10));
        }
        let pace = meter.update(&at(20, 10));
        assert_eq!((pace.left, pace.silent), (None, Duration::from_secs(19)));
    }
}
