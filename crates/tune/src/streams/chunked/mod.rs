//! Tuners that see a transfer as a sequence of chunks: the three modes of Ito, Ohsaki and Imase (2008), "On
//! Automatic Parameter Configuration Mechanism for Data Transfer Protocol GridFTP", and the probe that `auto`
//! uses when the sender is another program and cannot be sampled.
//!
//! The caller transfers each [`Chunk`] that the tuner asks for and reports the [`ChunkResult`]. The paper does
//! not say how streams share a chunk. Here each stream takes the next block when it becomes free, until
//! the chunk is complete.

mod chunk;
mod marker_rate;
mod modes;
mod parameters;
mod probe;
mod size;

use std::time::Duration;

pub use chunk::{Chunk, ChunkResult, ChunkTuner, ChunkTuningMode};
pub use marker_rate::{MarkerRateMeter, RelativeRate};
pub use parameters::{ChunkParameters, Optimum, ParameterError, RttCommands};

/// R of §3.3: running average `R ← R(1−ρ) + R_i·ρ`, which begins with the first sample.
#[derive(Debug, Clone, Copy)]
pub struct RttAverage {
    rho: f64,
    average: Option<f64>,
}

impl RttAverage {
    /// An average without samples. `rho` is the weight ρ of a new sample, above 0 and below 1.
    pub fn new(rho: f64) -> Self {
        // The same bounds as for the option `rho`.
        let rho = ChunkParameters {
            rho,
            ..ChunkParameters::default()
        }
        .bounded()
        .rho;
        Self { rho, average: None }
    }

    /// Takes the response time of a command. The caller leaves out commands that TCP had to retransmit: with the
    /// retransmission timeout in R the modes never terminate.
    pub fn on_sample(&mut self, sample: Duration) {
        if sample.is_zero() {
            return;
        }
        let sample = sample.as_secs_f64();
        self.average = Some(match self.average {
            Some(average) => average * (1.0 - self.rho) + sample * self.rho,
            None => sample,
        });
    }

    /// R, or `None` before the first sample.
    pub fn average(&self) -> Option<Duration> {
        self.average
            .and_then(|s| Duration::try_from_secs_f64(s).ok())
    }
}

/// The tuner of one of the paper's modes. `window` (W, bytes) and `rtt` (R) give the size of the first chunk
/// (eq. 14); 0 if unknown. Parameters outside their ranges are clamped.
pub fn mode_tuner(
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    window: u64,
    rtt: Duration,
) -> Box<dyn ChunkTuner> {
    Box::new(modes::ModeTuner::new(
        mode,
        parameters.bounded(),
        window,
        rtt,
    ))
}

/// The tuner of `auto` for senders that cannot be sampled. It begins with `first` streams and uses at most
/// `most`; `rtt` (zero if unknown) gives the length of the first chunks.
///
/// It doubles the streams while that raises goodput by 15 % or more, settles at the smallest number that
/// reaches about the best goodput, tries fewer, and searches again when goodput falls below three quarters of
/// that, rises above four thirds, or after a long time. Markers show such a change while a chunk still runs.
pub fn probe_tuner(first: u32, most: u32, rtt: Duration) -> Box<dyn ChunkTuner> {
    Box::new(probe::ProbeTuner::new(first, most, rtt))
}

/// As [`probe_tuner`], with at least `least` streams: when several chunks are transferred at the same time,
/// each needs one.
pub fn probe_tuner_with_min(
    least: u32,
    first: u32,
    most: u32,
    rtt: Duration,
) -> Box<dyn ChunkTuner> {
    Box::new(probe::ProbeTuner::new(first, most, rtt).with_min_streams(least))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_average_begins_with_the_first_sample() {
        let mut rtt = RttAverage::new(0.1);
        assert_eq!(rtt.average(), None);
        rtt.on_sample(Duration::from_millis(20));
        assert_eq!(rtt.average(), Some(Duration::from_millis(20)));
        rtt.on_sample(Duration::from_millis(120));
        assert_eq!(rtt.average(), Some(Duration::from_millis(30)));
        rtt.on_sample(Duration::ZERO);
        assert_eq!(rtt.average(), Some(Duration::from_millis(30)));
    }

    proptest! {
        #[test]
        fn the_average_is_between_the_samples(
            rho: f64, samples in prop::collection::vec(1_u64..1 << 40, 1..50),
        ) {
            let mut rtt = RttAverage::new(rho);
            for sample in &samples {
                rtt.on_sample(Duration::from_nanos(*sample));
            }
            let average = rtt.average().unwrap().as_nanos() as f64;
            let least = samples.iter().min().copied().unwrap_or_default() as f64;
            let largest = samples.iter().max().copied().unwrap_or_default() as f64;
            prop_assert!(average >= least * 0.999 - 1.0 && average <= largest * 1.001 + 1.0);
        }
    }
}
