//! When a copy ends: an interval that holds the end with a probability of 80 %.
//!
//! A [`Forecaster`] takes samples of the progress and predicts the mean rate over the time that is left. That mean varies less than
//! the rate itself, but slow changes do not average out, so the prediction needs the correlation of the rate over time. It is
//! learned from the rates so far (`rate_model`). Before the first byte, and while streams are still in slow start, only an
//! [`ExpectedRate`] from earlier transfers or advice tells the end.

mod rate_model;
mod rate_record;

use std::time::Duration;

use rate_model::RateEstimate;
use rate_record::RateRecord;

/// Half-width of the interval in standard deviations of the logarithm of the rate: the 90 % quantile of the normal distribution
/// and a reserve for what the model does not know.
const HALF_WIDTH: f64 = 1.30;
/// Smallest distances of the ends of the interval: times are shown in whole seconds, streams end one by one, and the last reply
/// takes its time.
const LEAST_EARLIER: Duration = Duration::from_millis(500);
const LEAST_LATER: Duration = Duration::from_secs(1);
/// A prediction that differs from the expected rate by more standard deviations drops it.
const CONTRADICTION: f64 = 2.0;
/// A lower rate of files per second says nothing about the time that is left for the others.
const LEAST_FILES_PER_SECOND: f64 = 1.0;
/// Fewer files say nothing about the others.
const LEAST_FILES: u64 = 10;
/// More than 100 years: nothing moves.
const LONGEST: f64 = 3.2e9;

/// An 80 % interval of a remaining time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The end comes earlier in one of ten cases.
    pub earliest: Duration,
    /// The best estimate.
    pub expected: Duration,
    /// The end comes later in one of ten cases.
    pub latest: Duration,
}

/// The rate of a transfer that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedRate {
    /// Goodput of all streams together, bytes per second, whatever limits it.
    pub bytes_per_second: u64,
    /// Standard deviation of the goodput of transfers about it, per cent.
    pub spread_percent: u32,
}

/// The progress of a copy at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgressSample {
    /// Time since the copy began.
    pub at: Duration,
    /// Bytes moved since then.
    pub bytes_moved: u64,
    /// Bytes still to move.
    pub bytes_left: u64,
    /// Files completed since the copy began.
    pub files_done: u64,
    /// Files still to complete.
    pub files_left: u64,
}

/// Predicts the end of one copy.
#[derive(Debug, Clone, Default)]
pub struct Forecaster {
    bytes: RateRecord,
    files: RateRecord,
    expected: Option<ExpectedRate>,
    last: ProgressSample,
}

impl Forecaster {
    /// Sets the rate that is expected of the path. Measurements count more as soon as they are more certain.
    pub fn expect(&mut self, rate: ExpectedRate) {
        self.expected = Some(rate);
    }

    /// Takes a sample, in order of time.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn add(&mut self, sample: ProgressSample) {
        let at = sample.at.as_secs_f64();
        self.bytes.add(at, sample.bytes_moved as f64);
        self.files.add(at, sample.files_done as f64);
        self.last = sample;
    }

    /// The remaining time at the last sample. `None`: nothing has moved, and nothing is expected.
    ///
    /// Bytes and files both need their time; the later end counts.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn forecast(&self) -> Option<Forecast> {
        let bytes_left = self.last.bytes_left as f64;
        let of_bytes = match bytes_left > 0.0 {
            true => Some(self.of_bytes(bytes_left)?),
            false => None,
        };
        let of_files = self.of_files(self.last.files_left as f64);
        let later = match (of_bytes, of_files) {
            (Some(bytes), Some(files)) => bytes.max(files),
            (one, other) => one.or(other).unwrap_or(Forecast::NOW),
        };
        Some(later)
    }

    fn of_bytes(&self, left: f64) -> Option<Forecast> {
        let measured = self.bytes.estimate(left);
        let expected = self.expected.map(ExpectedRate::estimate);
        let rate = match (measured, expected) {
            (Some(measured), Some(expected)) => measured.with_prior(expected, CONTRADICTION),
            (one, other) => one.or(other)?,
        };
        Forecast::of(left, rate, self.since_movement(&self.bytes))
    }

    fn of_files(&self, left: f64) -> Option<Forecast> {
        if self.last.files_done < LEAST_FILES || left < 1.0 {
            return None;
        }
        let rate = self.files.estimate(left)?;
        let counts = rate.per_second >= LEAST_FILES_PER_SECOND;
        Forecast::of(left, rate, self.since_movement(&self.files)).filter(|_| counts)
    }

    /// Time since the sample that the record ends with: reports that come every few seconds are no pauses.
    fn since_movement(&self, record: &RateRecord) -> f64 {
        self.last.at.as_secs_f64() - record.end().unwrap_or(f64::INFINITY)
    }
}

impl Forecast {
    /// Nothing is left to do.
    pub const NOW: Self = Self {
        earliest: Duration::ZERO,
        expected: Duration::ZERO,
        latest: Duration::ZERO,
    };

    /// The time for `bytes` at a rate that is only expected, after `setup` for logging in and starting. `None`: the rate is 0.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn before_start(bytes: u64, rate: ExpectedRate, setup: Duration) -> Option<Self> {
        let moving = Self::of(bytes as f64, rate.estimate(), 0.0)?;
        Some(Self {
            earliest: moving.earliest,
            expected: moving.expected.saturating_add(setup),
            latest: moving
                .latest
                .saturating_add(setup.saturating_mul(2))
                .max(moving.expected + setup + LEAST_LATER),
        })
    }

    /// The time of two copies, one after the other. Their errors may be the same, so the widths add up.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            earliest: self.earliest.saturating_add(next.earliest),
            expected: self.expected.saturating_add(next.expected),
            latest: self.latest.saturating_add(next.latest),
        }
    }

    fn of(left: f64, rate: RateEstimate, since: f64) -> Option<Self> {
        let since = since.max(0.0);
        let expected = left / rate.per_second;
        if !expected.is_finite() || expected > LONGEST {
            return None;
        }
        let factor = (HALF_WIDTH * rate.spread).exp();
        let time = |seconds: f64| Duration::from_secs_f64((seconds - since).clamp(0.0, LONGEST));
        let middle = time(expected);
        Some(Self {
            earliest: time(expected / factor).min(middle.saturating_sub(LEAST_EARLIER)),
            expected: middle,
            latest: time(expected * factor).max(middle + LEAST_LATER),
        })
    }

    /// The later of two ends.
    fn max(self, other: Self) -> Self {
        Self {
            earliest: self.earliest.max(other.earliest),
            expected: self.expected.max(other.expected),
            latest: self.latest.max(other.latest),
        }
    }
}

impl ExpectedRate {
    /// Standard deviation of the goodput of a transfer about that of the one before, per cent, while only one is known.
    pub const ASSUMED_SPREAD_PERCENT: u32 = 30;
    /// A smaller spread is chance.
    const LEAST_SPREAD_PERCENT: u32 = 5;

    /// The rate of the one transfer that is known.
    pub fn of_one_transfer(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            spread_percent: Self::ASSUMED_SPREAD_PERCENT,
        }
    }

    /// The expectation after a further transfer: its rate, and a spread whose square is two thirds of the one so far and one third of
    /// that of the distance between the two rates.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within 5 and 300"
    )]
    pub fn after(self, next: Self) -> Self {
        let error = (next.estimate().per_second / self.estimate().per_second).ln();
        let square = (2.0 * self.estimate().spread.powi(2) + error.powi(2)) / 3.0;
        let percent = (square.sqrt() * 100.0).clamp(Self::LEAST_SPREAD_PERCENT.into(), 300.0);
        Self {
            bytes_per_second: next.bytes_per_second,
            spread_percent: percent.round() as u32,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn estimate(self) -> RateEstimate {
        RateEstimate {
            per_second: self.bytes_per_second as f64,
            spread: f64::from(self.spread_percent) / 100.0,
        }
    }
}

#[cfg(test)]
mod tests;
