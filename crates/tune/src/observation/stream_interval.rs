//! Consecutive samples of one stream: rate, mean round trip, and whether the path was idle in between.

use std::time::Duration;

use super::rate_meter::Rtt;
use crate::limiter::Role;
use crate::sample::{IntervalStats, TcpSample};

/// Shortest time over which acknowledgements give a rate.
const SHORTEST_STEP: Duration = Duration::from_millis(5);

/// Samples of one stream from a first one on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamInterval {
    role: Role,
    first: TcpSample,
    last: TcpSample,
    /// The sample up to which the peak rate is known.
    peak_until: TcpSample,
    /// Highest rate between two samples, bytes per second.
    peak: u64,
    /// Sum of the smoothed round trips of all samples.
    rtt_sum: Duration,
    samples: u32,
}

impl StreamInterval {
    pub(crate) fn new(role: Role, sample: &TcpSample) -> Self {
        Self {
            role,
            first: *sample,
            last: *sample,
            peak_until: *sample,
            peak: 0,
            rtt_sum: Rtt::of_sample(sample, role).smoothed,
            samples: 1,
        }
    }

    pub(crate) fn on_sample(&mut self, sample: &TcpSample) {
        self.last = *sample;
        self.rtt_sum += Rtt::of_sample(sample, self.role).smoothed;
        self.samples = self.samples.saturating_add(1);
        let step = sample.since(&self.peak_until, self.role);
        if step.time >= SHORTEST_STEP {
            self.peak = self.peak.max(step.rate());
            self.peak_until = *sample;
        }
    }

    /// Difference of the last sample to the first.
    pub(crate) fn stats(&self) -> IntervalStats {
        self.last.since(&self.first, self.role)
    }

    /// Number of samples, the first included.
    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }

    /// Mean round trip.
    pub(crate) fn rtt(&self) -> Rtt {
        let base = Rtt::of_sample(&self.first, self.role).min;
        Rtt {
            min: base,
            smoothed: (self.rtt_sum / self.samples).max(base),
        }
    }

    /// Whether this stream fills the path: packets queue and acknowledgements arrive evenly. The bursts
    /// of a sender without pacing queue too, but then the path is idle between them.
    pub(crate) fn fills_path(&self) -> bool {
        let stats = self.stats();
        // Arrivals are even if the peak is below 5/4 of the mean. Losses make acknowledgements jump, so
        // that the peak means nothing then.
        self.rtt().has_queue() && (stats.has_losses() || self.peak / 5 < stats.rate() / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(rtt: u64, arrived: impl Fn(u64) -> u64) -> StreamInterval {
        let sample = |n| TcpSample {
            at: Duration::from_millis(25 * n),
            bytes_acked: arrived(n),
            smoothed_rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(100),
            ..TcpSample::default()
        };
        let mut interval = StreamInterval::new(Role::Sender, &sample(0));
        (1..=8).for_each(|n| interval.on_sample(&sample(n)));
        interval
    }

    #[test]
    fn even_arrivals_with_a_queue_mean_a_full_path() {
        let even = |n| n * 25_000;
        let full = interval(120, even);
        assert_eq!(
            (full.stats().rate(), full.stats().time),
            (1_000_000, Duration::from_millis(200))
        );
        assert!(full.fills_path());
        assert!(!interval(105, even).fills_path());
    }

    #[test]
    fn bursts_with_a_queue_do_not_mean_a_full_path() {
        let bursts = |n: u64| n.div_ceil(4) * 100_000;
        assert!(!interval(120, bursts).fills_path());
    }
}
