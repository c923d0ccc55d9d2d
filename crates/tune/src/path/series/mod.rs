//! Statistics of one measured quantity over its last values (section 5 and future work of the paper).
//!
//! A value is judged against the values before it that are not themselves suspected. Were three outliers
//! judged against a deviation that contains them, no change by any factor could be found among ten values.

/// Values that the paper keeps.
const DEFAULT_KEEP: usize = 10;
/// Fewest values to keep: three changed ones and something to compare them with.
const MIN_KEEP: usize = 6;
/// Most values to keep: one bit of [`Series::outliers`] each.
const MAX_KEEP: usize = 128;
/// Part of the values that the trimmed mean discards at either end.
const TRIMMED_PART: f64 = 0.1;
/// Distance from the mean from which on a value is suspected, in standard deviations.
const SUSPICIOUS_DEVIATIONS: f64 = 2.5;
/// Successive suspected values that make a change.
const CHANGE_AFTER: usize = 3;
/// Fewest values against which another one is judged: fewer have no meaningful deviation.
const MIN_BASELINE: usize = 3;
/// Smallest deviation that counts, as a part of the mean. Identical values have none, so that any other
/// value would be a change. With it, a change of less than 10 % is none, which also changes no advice.
pub(super) const MIN_RELATIVE_DEVIATION: f64 = 0.04;
/// Largest magnitude of a value, so that sums and squares stay finite.
const LARGEST: f64 = 1e18;

/// Finding about a new value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SeriesEvent {
    /// The value is farther than 2.5 standard deviations from the mean. One such value changes nothing.
    Outlier {
        /// The value.
        value: f64,
        /// Mean of the values that it was judged against.
        mean: f64,
        /// Their standard deviation, at least 4 % of the mean.
        deviation: f64,
    },
    /// Three successive values were outliers: the path has changed, and older values were dropped.
    Shift {
        /// Mean before.
        from: f64,
        /// Mean of the three values.
        to: f64,
    },
}

/// The last values of one quantity, oldest first.
///
/// Up to two suspected values at the end wait for the third: they are among the [`values`](Self::values)
/// and [`quantile`](Self::quantile)s, but in no mean. A value before a normal one is an outlier for good. It
/// counts in the means, where the trimming removes it, but new values are not judged against it unless
/// outliers are so frequent (a third) that they are the path's normal behaviour.
///
/// A service holds several series of each of its clients: values take no more room than there are values.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    values: Vec<f64>,
    /// Bit *n*: value *n* was found to be an outlier.
    outliers: u128,
    keep: u8,
    /// Suspected values at the end, 0..=2.
    suspected: u8,
}

impl Default for Series {
    fn default() -> Self {
        Self::new(DEFAULT_KEEP)
    }
}

impl Series {
    /// An empty series of at most `keep` values, 6 to 128.
    pub fn new(keep: usize) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "at most 128")]
        let keep = keep.clamp(MIN_KEEP, MAX_KEEP) as u8;
        Self {
            values: Vec::new(),
            outliers: 0,
            keep,
            suspected: 0,
        }
    }

    /// A series of stored values, oldest first.
    pub fn from_values(keep: usize, values: impl IntoIterator<Item = f64>) -> Self {
        let mut series = Self::new(keep);
        for value in values {
            series.push(value);
        }
        series
    }

    /// Adds a value. A value that is not finite is ignored, and one beyond ±10¹⁸ counts as that.
    pub fn push(&mut self, value: f64) -> Option<SeriesEvent> {
        if !value.is_finite() {
            return None;
        }
        let value = value.clamp(-LARGEST, LARGEST);
        let baseline = self.baseline();
        let suspicion = baseline
            .filter(|(mean, deviation)| (value - mean).abs() > SUSPICIOUS_DEVIATIONS * deviation);
        self.append(value, suspicion.is_some());
        let Some((mean, deviation)) = suspicion else {
            self.suspected = 0;
            return None;
        };
        self.suspected += 1;
        if usize::from(self.suspected) >= CHANGE_AFTER {
            return Some(self.drop_older(mean));
        }
        Some(SeriesEvent::Outlier {
            value,
            mean,
            deviation,
        })
    }

    /// Mean of the values without the largest and smallest tenth: one of ten at either end, and at least one
    /// of three or more, so that one outlier among few values changes nothing either.
    pub fn trimmed_mean(&self) -> Option<f64> {
        let mut values = self.settled().to_vec();
        values.sort_by(f64::total_cmp);
        let trimmed = trimmed_count(values.len());
        let kept = values.get(trimmed..values.len() - trimmed)?;
        mean_and_deviation(kept).map(|(mean, _)| mean)
    }

    /// Mean and standard deviation of the values. The deviation of a single value is 0.
    pub fn mean_and_deviation(&self) -> Option<(f64, f64)> {
        mean_and_deviation(self.settled())
    }

    /// Quantile `q` (0..=1) of the values, interpolated between neighbours. `None` without values or if `q` is
    /// NaN.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        quantile_of_sorted(&values, q)
    }

    /// The values, oldest first.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values without those that are suspected.
    fn settled(&self) -> &[f64] {
        let settled = self
            .values
            .len()
            .saturating_sub(usize::from(self.suspected));
        self.values.get(..settled).unwrap_or_default()
    }

    /// Adds a value at the end; the oldest makes room.
    fn append(&mut self, value: f64, is_outlier: bool) {
        if self.values.len() >= usize::from(self.keep) {
            self.values.remove(0);
            self.outliers >>= 1;
        }
        self.outliers |= u128::from(is_outlier) << self.values.len();
        self.values.reserve_exact(1);
        self.values.push(value);
    }

    /// Mean and deviation that a new value is judged against; `None` if there are too few values.
    fn baseline(&self) -> Option<(f64, f64)> {
        let settled = self.settled();
        let usual: Vec<f64> = settled
            .iter()
            .enumerate()
            .filter(|(place, _)| self.outliers >> place & 1 == 0)
            .map(|(_, value)| *value)
            .collect();
        let outliers = settled.len() - usual.len();
        let (mean, deviation) = if outliers * 3 >= settled.len() || usual.len() < MIN_BASELINE {
            mean_and_deviation(settled)?
        } else {
            mean_and_deviation(&usual)?
        };
        (settled.len() >= MIN_BASELINE)
            .then(|| (mean, deviation.max(mean.abs() * MIN_RELATIVE_DEVIATION)))
    }

    /// Keeps only the values of the changed path.
    fn drop_older(&mut self, from: f64) -> SeriesEvent {
        let older = self.values.len().saturating_sub(CHANGE_AFTER);
        self.values.drain(..older);
        self.values.shrink_to_fit();
        self.outliers = 0;
        self.suspected = 0;
        let to = mean_and_deviation(&self.values).map_or(from, |(mean, _)| mean);
        SeriesEvent::Shift { from, to }
    }
}

/// Values to discard at either end of `count`.
fn trimmed_count(count: usize) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a tenth of at most 128"
    )]
    let tenth = (count as f64 * TRIMMED_PART).ceil() as usize;
    if count < MIN_BASELINE { 0 } else { tenth }
}

/// Mean and standard deviation (of a sample, with n − 1).
fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = if values.len() > 1 {
        (squares / (count - 1.0)).sqrt()
    } else {
        0.0
    };
    Some((mean, deviation))
}

/// Quantile of values in ascending order.
pub(super) fn quantile_of_sorted(values: &[f64], q: f64) -> Option<f64> {
    if q.is_nan() {
        return None;
    }
    let last = values.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a slice"
    )]
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(values[below] * (1.0 - part) + values[above] * part)
}

#[cfg(test)]
mod tests;
