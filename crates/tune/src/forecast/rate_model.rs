//! The mean of a rate over the time to come, from the rates so far.
//!
//! Model: the rate is a constant plus a stationary process whose correlation falls exponentially over a time (Ornstein-Uhlenbeck), plus
//! noise without correlation. The constant and the variance are unknown (Jeffreys priors), and so are the correlation time and the
//! share of the noise: each pair of a grid predicts, weighted by how well it explains the rates so far (Bayesian model averaging;
//! Rasmussen and Williams, "Gaussian Processes for Machine Learning", sections 2.7 and 5.4).

/// Correlation times, as parts of the time observed.
const CORRELATION_TIMES: [f64; 5] = [0.03, 0.1, 0.3, 1.0, 3.0];
/// Shares of the noise in the variance of the rates seen.
const NOISE_SHARES: [f64; 3] = [0.003, 0.3, 0.9];
/// Relative standard deviation that is assumed before any was seen, and its weight in observations.
const ASSUMED_DEVIATION: f64 = 0.03;
const ASSUMED_WEIGHT: f64 = 2.0;
/// A block longer than this shows the path itself, and not its first reactions, seconds.
const SETTLED_AFTER: f64 = 3.0;
/// Relative deviation of a rate that was seen for a moment. Its square falls to 1/e in each such time, seconds.
const EARLY_SPREAD: f64 = 0.5;
const STARTING: f64 = 4.0;
/// Relative deviation by what no rate so far shows: for any copy, and for one that lasts much longer than what was seen.
const LEAST_SPREAD: f64 = 0.015;
const UNSEEN_SPREAD: f64 = 0.09;

/// A predicted mean rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RateEstimate {
    /// Amount per second, above 0.
    pub(super) per_second: f64,
    /// Standard deviation of its logarithm.
    pub(super) spread: f64,
}

impl RateEstimate {
    /// A rate that still rises: by the factor whose logarithm is `rise` in the last part of the time.
    pub(super) fn rising(self, now: f64, rise: f64) -> Self {
        Self {
            per_second: now * rise.exp(),
            spread: self.spread.max(rise),
        }
    }

    /// Combined with what was expected, unless they differ by more than `contradiction` standard deviations.
    pub(super) fn with_prior(self, expected: Self, contradiction: f64) -> Self {
        let (own, other) = (self.spread.powi(2), expected.spread.powi(2).max(1e-6));
        let difference = (expected.per_second / self.per_second).ln();
        if !difference.is_finite() || difference.abs() > contradiction * (own + other).sqrt() {
            return self;
        }
        let variance = 1.0 / (1.0 / own + 1.0 / other);
        Self {
            per_second: self.per_second * (difference * variance / other).exp(),
            spread: variance.sqrt(),
        }
    }
}

/// The mean rate over the time in which `left` moves, from the mean rates of consecutive blocks of `width` seconds, the last of which ends now.
/// `seen`: time since anything moved, seconds. `None`: it is too short, or nothing moves.
pub(super) fn predict(rates: &[f64], width: f64, left: f64, seen: f64) -> Option<RateEstimate> {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    if seen < SETTLED_AFTER || mean <= 0.0 {
        return None;
    }
    let relative: Vec<f64> = rates.iter().map(|rate| rate / mean).collect();
    let observed = width * rates.len() as f64;
    let horizon = (left / mean).max(width);
    let mut models = Vec::new();
    for time in CORRELATION_TIMES {
        for noise in NOISE_SHARES {
            let model = Correlation {
                time: time * observed,
                // A slow process varies less in the time seen than on the whole.
                process: (1.0 - noise) * (1.0 + time),
                noise,
                width,
            };
            models.extend(model.predict(&relative, horizon));
        }
    }
    let best = models
        .iter()
        .map(|m| m.log_evidence)
        .fold(f64::MIN, f64::max);
    let (mut weights, mut first, mut second) = (0.0, 0.0, 0.0);
    for model in &models {
        let weight = (model.log_evidence - best).exp();
        weights += weight;
        first += weight * model.mean;
        second += weight * (model.variance + model.mean.powi(2));
    }
    let (first, second) = (first / weights, second / weights);
    let first = first.max(0.05);
    let variance = (second - first * first).max(0.0) / (first * first);
    let unseen = UNSEEN_SPREAD.powi(2) * (horizon / (horizon + 4.0 * seen));
    let starting = EARLY_SPREAD.powi(2) * (-seen / STARTING).exp();
    let variance = (1.0 + variance).ln() + LEAST_SPREAD.powi(2) + unseen + starting;
    Some(RateEstimate {
        per_second: mean * first,
        spread: variance.sqrt(),
    })
    .filter(|e| e.spread.is_finite())
}

/// One member of the grid.
#[derive(Debug, Clone, Copy)]
struct Correlation {
    /// Correlation time, seconds.
    time: f64,
    /// Variances of the process at one moment, and of the noise of a block, relative to the same scale.
    process: f64,
    noise: f64,
    /// Length of a block, seconds.
    width: f64,
}

#[derive(Debug, Clone, Copy)]
struct ModelPrediction {
    mean: f64,
    variance: f64,
    log_evidence: f64,
}

impl Correlation {
    fn predict(self, rates: &[f64], horizon: f64) -> Option<ModelPrediction> {
        let n = rates.len();
        let by_distance: Vec<f64> = (0..n).map(|distance| self.of_blocks(distance)).collect();
        let factor = Cholesky::of(&by_distance)?;
        // Everything is multiplied with the inverse of the factor, which makes the observations independent.
        let ones = factor.whitened(vec![1.0; n]);
        let seen = factor.whitened(rates.to_vec());
        let future = factor.whitened(
            (0..n)
                .map(|i| self.with_future(n - 1 - i, horizon))
                .collect(),
        );
        let precision = dot(&ones, &ones);
        let mean = dot(&ones, &seen) / precision;
        let rest: Vec<f64> = seen
            .iter()
            .zip(&ones)
            .map(|(y, one)| y - mean * one)
            .collect();
        let degrees = ASSUMED_WEIGHT + (n - 1) as f64;
        let scale = ASSUMED_WEIGHT * ASSUMED_DEVIATION.powi(2) + dot(&rest, &rest);
        let own =
            self.process * mean_variance(horizon / self.time) + self.noise * self.width / horizon;
        let unknown_mean = (1.0 - dot(&future, &ones)).powi(2) / precision;
        let variance = (own - dot(&future, &future) + unknown_mean).max(0.0);
        Some(ModelPrediction {
            mean: mean + dot(&future, &rest),
            // The variance of Student's distribution.
            variance: variance * scale / (degrees - 2.0),
            log_evidence: -factor.log_diagonal()
                - 0.5 * precision.ln()
                - 0.5 * degrees * scale.ln(),
        })
    }

    /// Covariance of the means of two blocks.
    fn of_blocks(self, distance: usize) -> f64 {
        let x = self.width / self.time;
        match distance {
            0 => self.process * mean_variance(x) + self.noise,
            _ => {
                let averaged = ((x / 2.0).sinh() / (x / 2.0)).powi(2);
                self.process * averaged * (-x * distance as f64).exp()
            }
        }
    }

    /// Covariance of the mean of a block, `later` blocks before the last, and that of the time to come.
    fn with_future(self, later: usize, horizon: f64) -> f64 {
        let (x, h) = (self.width / self.time, horizon / self.time);
        let block = (1.0 - (-x).exp()) / x * (-x * later as f64).exp();
        self.process * block * (1.0 - (-h).exp()) / h
    }
}

/// Variance of the mean of the process over a time of `x` correlation times; 1 at one moment.
fn mean_variance(x: f64) -> f64 {
    match x < 1e-4 {
        true => 1.0 - x / 3.0,
        false => 2.0 * (x - 1.0 + (-x).exp()) / (x * x),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The lower triangular factor of a covariance, by rows.
struct Cholesky(Vec<Vec<f64>>);

impl Cholesky {
    /// Of the covariance of equal blocks, by their distance. `None`: it is no covariance, by rounding.
    fn of(by_distance: &[f64]) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(by_distance.len());
        for i in 0..by_distance.len() {
            let mut row: Vec<f64> = Vec::with_capacity(i + 1);
            for (j, other) in rows.iter().enumerate() {
                let rest = by_distance[i - j] - dot(&row, &other[..j]);
                row.push(rest / other[j]);
            }
            let rest = by_distance[0] - dot(&row, &row);
            if rest.is_nan() || rest <= 0.0 {
                return None;
            }
            row.push(rest.sqrt());
            rows.push(row);
        }
        Some(Self(rows))
    }

    /// The solution of factor times x = `values`.
    fn whitened(&self, mut values: Vec<f64>) -> Vec<f64> {
        for (i, row) in self.0.iter().enumerate() {
            let rest = values[i] - dot(&row[..i], &values[..i]);
            values[i] = rest / row[i];
        }
        values
    }

    /// Sum of the logarithms of the diagonal: half of that of the determinant.
    fn log_diagonal(&self) -> f64 {
        self.0
            .iter()
            .filter_map(|row| row.last())
            .map(|d| d.ln())
            .sum()
    }
}
