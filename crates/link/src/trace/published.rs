//! Built-in traces, generated from published statistics of real paths.
//!
//! The papers publish minimum, maximum and mean, not the single values. Each trace here has exactly
//! these statistics, with a plausible distribution: *n* values at the quantiles of
//! *min + (max - min)·u^g* with u uniform, where *g* is chosen to give the mean. For rates this is a
//! broad distribution with more high values; for RTTs it gives many values near the minimum and a
//! long tail, as congestion does. Consecutive values are correlated: their order comes from a
//! first-order autoregressive process. A common component of both processes makes long RTTs more
//! likely when the rate is low.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Rate;

use super::{PathTrace, TracePoint};

/// Names of the built-in traces, each with a description of one line.
pub const BUILT_IN_TRACES: [(&str, &str); 2] = [
    (
        "drsftp-path",
        "Los Alamos to New York, 26 kbit/s-28.5 Mbit/s, 119-475 ms, new values every 20 s",
    ),
    (
        "drsftp-wan",
        "Los Alamos to Oregon, 0-93 Mbit/s, 72-257 ms, new values every second for two hours",
    ),
];

/// Seed of the built-in traces, so that they are the same everywhere.
const SEED: u64 = 2004;

/// The built-in trace of this name (see [`BUILT_IN_TRACES`]). It is generated once per process.
pub fn built_in_trace(name: &str) -> Option<Arc<PathTrace>> {
    static PATH: LazyLock<Arc<PathTrace>> = LazyLock::new(|| Arc::new(drsftp_path(SEED)));
    static WAN: LazyLock<Arc<PathTrace>> = LazyLock::new(|| Arc::new(drsftp_wan(SEED)));
    match name {
        "drsftp-path" => Some(PATH.clone()),
        "drsftp-wan" => Some(WAN.clone()),
        _ => None,
    }
}

/// The path between Los Alamos and New York in section 2 of Gardner, Feng and Fisk, "Dynamic
/// Right-Sizing in FTP (drsFTP)", and of the 2003 paper on its kernel and user-space versions:
/// bottleneck bandwidth from 0.026 to 28.5 Mbit/s with mean 17.2, RTT from 119 to 475 ms with mean 157,
/// at intervals of 20 s.
///
/// The published standard deviation of the bandwidth, 26.3 Mbit/s, is impossible for values with this
/// range and mean (13.9 is the maximum); here it is 7.4. Together with the confidence interval of
/// ±1.8 it determines the number of values: (1.96 · 26.3 / 1.8)² = 820, which is four and a half hours.
pub fn drsftp_path(seed: u64) -> PathTrace {
    let shape = TraceStatistics {
        count: 820,
        interval: Duration::from_secs(20),
        rate: ValueStatistics {
            min: 26_000.0,
            max: 28_500_000.0,
            mean: 17_200_000.0,
        },
        rtt: ValueStatistics {
            min: 119_000.0,
            max: 475_000.0,
            mean: 157_000.0,
        },
        correlation: 0.8,
    };
    shape.trace(seed)
}

/// The live WAN between Los Alamos and the Oregon Graduate Institute in section 5.1 of the drsFTP
/// paper: every second for two hours, bandwidth from 0 to 93 Mbit/s and RTT from 72 to 257 ms with mean
/// 76.7 (measured with ping, section 5.4).
///
/// The mean bandwidth is not published. 60 Mbit/s is assumed here, because transfers on the path reached
/// 55 Mbit/s (section 5.4).
pub fn drsftp_wan(seed: u64) -> PathTrace {
    let shape = TraceStatistics {
        count: 7200,
        interval: Duration::from_secs(1),
        rate: ValueStatistics {
            min: 0.0,
            max: 93_000_000.0,
            mean: 60_000_000.0,
        },
        rtt: ValueStatistics {
            min: 72_000.0,
            max: 257_000.0,
            mean: 76_700.0,
        },
        correlation: 0.9,
    };
    shape.trace(seed)
}

/// Published statistics of a path, and the shape of the generated trace.
struct TraceStatistics {
    count: usize,
    interval: Duration,
    /// Rate, bit/s.
    rate: ValueStatistics,
    /// RTT, microseconds.
    rtt: ValueStatistics,
    /// Correlation of consecutive values.
    correlation: f64,
}

/// Published statistics of one value.
struct ValueStatistics {
    min: f64,
    max: f64,
    mean: f64,
}

impl TraceStatistics {
    fn trace(&self, seed: u64) -> PathTrace {
        let mut numbers = Pcg64Mcg::seed_from_u64(seed);
        // The common component of both series; its sign differs, so low rates meet long RTTs.
        let congestion = self.process(&mut numbers);
        let mut like_congestion = |sign: f64| -> Vec<f64> {
            let own = self.process(&mut numbers);
            congestion
                .iter()
                .zip(own)
                .map(|(c, own)| sign * c + own)
                .collect()
        };
        let rates = self.rate.values_in_order_of(&like_congestion(-1.0));
        let rtts = self.rtt.values_in_order_of(&like_congestion(1.0));
        let mut at = Duration::ZERO;
        let points = rates.into_iter().zip(rtts).map(|(rate, rtt)| {
            let point = TracePoint {
                at,
                rate: Some(Rate::bits_per_second(rate)),
                rtt: Some(Duration::from_micros(rtt)),
                loss: None,
            };
            at += self.interval;
            point
        });
        // Valid by construction: times increase from 0, and not all rates are 0.
        PathTrace {
            points: points.collect(),
        }
    }

    /// Values of a first-order autoregressive process. Its innovations are uniform instead of normal,
    /// because only the order of the values is used.
    fn process(&self, numbers: &mut Pcg64Mcg) -> Vec<f64> {
        let mut value = 0.0;
        let step = || {
            value = self.correlation * value + numbers.random_range(-1.0..1.0);
            value
        };
        std::iter::repeat_with(step).take(self.count).collect()
    }
}

impl ValueStatistics {
    /// Values with these statistics, sorted like `order`: the smallest value is where `order` is smallest.
    fn values_in_order_of(&self, order: &[f64]) -> Vec<u64> {
        let mut indices: Vec<usize> = (0..order.len()).collect();
        indices.sort_by(|a, b| order[*a].total_cmp(&order[*b]));
        let exponent = self.exponent(order.len());
        let mut values = vec![0; order.len()];
        for (rank, index) in indices.into_iter().enumerate() {
            values[index] = self.quantile(rank, order.len(), exponent);
        }
        values
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ranks are small, and values lie between the published min and max"
    )]
    fn quantile(&self, rank: usize, count: usize, exponent: f64) -> u64 {
        let u = rank as f64 / (count - 1) as f64;
        (self.min + (self.max - self.min) * u.powf(exponent)).round() as u64
    }

    /// The exponent that gives `count` values the mean. It is found by bisection, because the mean falls
    /// as the exponent grows.
    fn exponent(&self, count: usize) -> f64 {
        let wanted = self.mean * count as f64;
        let (mut low, mut high) = (0.01_f64, 100.0_f64);
        // 40 halvings of the interval are far more precise than the rounding of the values.
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            let sum: u64 = (0..count)
                .map(|rank| self.quantile(rank, count, middle))
                .sum();
            if sum as f64 > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        f64::midpoint(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minimum, maximum and mean.
    fn statistics(values: &[f64]) -> (f64, f64, f64) {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(0.0, f64::max);
        (min, max, values.iter().sum::<f64>() / values.len() as f64)
    }

    fn rates(trace: &PathTrace) -> Vec<f64> {
        let rate = |p: &TracePoint| p.rate.unwrap().as_bits_per_second() as f64;
        trace.points().iter().map(rate).collect()
    }

    fn rtts(trace: &PathTrace) -> Vec<f64> {
        let rtt = |p: &TracePoint| p.rtt.unwrap().as_secs_f64() * 1e3;
        trace.points().iter().map(rtt).collect()
    }

    /// Correlation coefficient of two series.
    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let mean = |values: &[f64]| statistics(values).2;
        let (mean_a, mean_b) = (mean(a), mean(b));
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            a.iter()
                .zip(b)
                .map(|(a, b)| f(a - mean_a, b - mean_b))
                .sum()
        };
        sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
    }

    #[test]
    fn the_path_has_the_papers_statistics() {
        for seed in [SEED, 1, u64::MAX] {
            let trace = drsftp_path(seed);
            assert_eq!(trace.points().len(), 820);
            assert_eq!(trace.points()[1].at, Duration::from_secs(20));
            let (min, max, mean) = statistics(&rates(&trace));
            assert_eq!((min, max), (26_000.0, 28_500_000.0));
            assert!((mean - 17_200_000.0).abs() < 10.0, "{mean}");
            let (min, max, mean) = statistics(&rtts(&trace));
            assert_eq!((min, max), (119.0, 475.0));
            assert!((mean - 157.0).abs() < 0.001, "{mean}");
        }
    }

    #[test]
    fn the_wan_has_the_papers_statistics() {
        let trace = drsftp_wan(SEED);
        assert_eq!(trace.period(), Duration::from_secs(7200));
        let (min, max, mean) = statistics(&rates(&trace));
        assert_eq!((min, max), (0.0, 93_000_000.0));
        assert!((mean - 60_000_000.0).abs() < 10.0, "{mean}");
        let (min, max, mean) = statistics(&rtts(&trace));
        assert_eq!((min, max), (72.0, 257.0));
        assert!((mean - 76.7).abs() < 0.001, "{mean}");
    }

    #[test]
    fn consecutive_values_are_correlated_and_low_rates_have_long_rtts() {
        for (name, _) in BUILT_IN_TRACES {
            let trace = built_in_trace(name).unwrap();
            let (rates, rtts) = (rates(&trace), rtts(&trace));
            assert!(correlation(&rates[1..], &rates[..rates.len() - 1]) > 0.6);
            assert!(correlation(&rates, &rtts) < -0.1);
        }
        assert!(built_in_trace("no-such-path").is_none());
    }

    #[test]
    fn a_seed_determines_the_trace_and_it_reads_back_unchanged() {
        assert_eq!(drsftp_path(7), drsftp_path(7));
        assert_ne!(drsftp_path(7), drsftp_path(8));
        let trace = drsftp_wan(7);
        assert_eq!(PathTrace::from_csv(&trace.to_csv()), Ok(trace));
    }

    #[test]
    fn the_published_deviation_is_impossible() {
        let trace = drsftp_path(SEED);
        let rates = rates(&trace);
        let mean = statistics(&rates).2;
        let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 820.0;
        assert!(
            (variance.sqrt() - 7.4e6).abs() < 0.1e6,
            "{}",
            variance.sqrt()
        );
        // The largest possible deviation for this range and mean has all values at the two ends.
        let most = ((mean - 26_000.0) * (28_500_000.0 - mean)).sqrt();
        assert!(most < 14e6);
    }
}
