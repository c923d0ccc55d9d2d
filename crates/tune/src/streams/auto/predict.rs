//! The number of streams that a model of the path calls for.

use std::time::Duration;

use units::bytes_per_second;

use super::estimate::{Confidence, EstimatedLoss, PathEstimate};
use super::thresholds::LIMITS;

/// Constants of CUBIC: C, in segments per second cubed, and its multiplicative decrease (RFC 9438 §4.1, §4.6).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Mean congestion window under random losses of `ratio` (0..=1), in segments: the larger one of CUBIC's response function
/// (RFC 9438 §5.1) and Reno's (RFC 5681), which CUBIC emulates on short paths.
pub(super) fn window_under_loss(ratio: f64, rtt: Duration) -> f64 {
    let ratio = ratio.clamp(1e-9, 1.0);
    let cubic = (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
        * (rtt.as_secs_f64() / ratio).powf(0.75);
    let reno = (1.5 / ratio).sqrt();
    cubic.max(reno).max(1.0)
}

/// Rate of one stream under the path's random losses, bytes per second; `None` without such losses. `segment` is in bytes.
pub(super) fn stream_rate_under_loss(path: &PathEstimate, segment: u64) -> Option<u64> {
    let EstimatedLoss::Random { ratio, .. } = path.loss else {
        return None;
    };
    let window = window_under_loss(ratio, path.base_rtt) * segment as f64;
    Some(bytes_per_second(rounded(window), path.base_rtt).max(1))
}

/// Streams that fill the path if each carries `each` bytes per second and `streams` carry `rate` now: as many as the path's rate
/// takes, if that is known, otherwise [`growth`](super::Thresholds::growth) times as many as now, or as the best rate so far
/// takes.
pub(super) fn streams_to_fill(path: &PathEstimate, each: u64, streams: u32) -> u32 {
    let known = path.bottleneck_bandwidth;
    let for_rate = |rate: f64| rounded(rate * LIMITS.prediction_margin / each.max(1) as f64);
    let wanted = match known.confidence {
        Confidence::Measured => for_rate(known.value as f64),
        // An earlier transfer may have been as limited as this one: what it reached is a goal, and no bound.
        Confidence::Earlier if for_rate(known.value as f64) > u64::from(streams) => {
            for_rate(known.value as f64)
        }
        Confidence::Earlier | Confidence::Unknown | Confidence::AtLeast => {
            let more =
                for_rate(known.value as f64 * f64::from(LIMITS.growth) / LIMITS.prediction_margin);
            more.max(u64::from(streams) * u64::from(LIMITS.growth))
        }
    };
    u32::try_from(wanted).unwrap_or(u32::MAX)
}

/// Streams that carry what `from` streams did, times a gain, and the margin.
pub(super) fn streams_for_gain(from: u32, gain: f64) -> u32 {
    let needed = f64::from(from) * gain.max(0.0) * LIMITS.prediction_margin;
    u32::try_from(rounded(needed)).unwrap_or(u32::MAX)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn rounded(value: f64) -> u64 {
    value.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::super::estimate::Estimated;
    use super::*;

    #[test]
    fn windows_follow_the_published_response_functions() {
        let rtt = Duration::from_millis(100);
        // RFC 9438, table 2: CUBIC (C = 0.4) at 100 ms.
        for (ratio, window) in [(1e-3, 39.0), (1e-4, 187.0), (1e-5, 1054.0), (1e-6, 5926.0)] {
            let found = window_under_loss(ratio, rtt);
            assert!((found / window - 1.0).abs() < 0.05, "{ratio}: {found}");
        }
        let short = window_under_loss(0.01, Duration::from_millis(1));
        assert!((short - 12.2).abs() < 0.1, "{short}");
    }

    #[test]
    fn a_known_rate_is_filled_and_an_unknown_one_is_approached() {
        let path = |value, confidence| PathEstimate {
            bottleneck_bandwidth: Estimated { value, confidence },
            ..PathEstimate::default()
        };
        assert_eq!(
            streams_to_fill(&path(1000, Confidence::Measured), 100, 2),
            11
        );
        assert_eq!(streams_to_fill(&path(200, Confidence::AtLeast), 100, 2), 8);
        assert_eq!(streams_to_fill(&path(900, Confidence::AtLeast), 100, 2), 36);
        // An earlier transfer is a goal until it is reached.
        assert_eq!(streams_to_fill(&path(900, Confidence::Earlier), 100, 2), 10);
        assert_eq!(streams_to_fill(&path(200, Confidence::Earlier), 100, 4), 16);
        assert_eq!(streams_for_gain(8, 1.5), 14);
    }
}
