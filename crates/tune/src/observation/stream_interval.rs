//! A spell of looks: its rate, its mean round trip, and whether the path was idle in between.

use std::time::Duration;

use super::rate_meter::Rtt;
use crate::limiter::Role;
use crate::sample::{IntervalStats, TcpSample};

/// Shortest time between acknowledgements that says anything about a rate.
const SHORTEST_STEP: Duration = Duration::from_millis(5);

/// Samples of one stream from a first one on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamInterval {
    role: Role,
    first: TcpSample,
    last: TcpSample,
    /// The sample up to which the peak rate is known.
    counted: TcpSample,
    /// Highest rate between two samples, bytes per second.
    peak: u64,
    /// Sum of the smoothed round trips of all samples.
    trips: Duration,
    looks: u32,
}

impl StreamInterval {
    pub(crate) fn new(role: Role, look: &TcpSample) -> Self {
        Self {
            role,
            first: *look,
            last: *look,
            counted: *look,
            peak: 0,
            trips: Rtt::of_sample(look, role).smoothed,
            looks: 1,
        }
    }

    pub(crate) fn on_sample(&mut self, look: &TcpSample) {
        self.last = *look;
        self.trips += Rtt::of_sample(look, self.role).smoothed;
        self.looks = self.looks.saturating_add(1);
        let step = look.since(&self.counted, self.role);
        if step.time >= SHORTEST_STEP {
            self.peak = self.peak.max(step.rate());
            self.counted = *look;
        }
    }

    /// Difference of the last sample to the first.
    pub(crate) fn stats(&self) -> IntervalStats {
        self.last.since(&self.first, self.role)
    }

    /// Number of samples, the first included.
    pub(crate) fn samples(&self) -> u32 {
        self.looks
    }

    /// Mean round trip.
    pub(crate) fn rtt(&self) -> Rtt {
        let base = Rtt::of_sample(&self.first, self.role).min;
        Rtt {
            min: base,
            smoothed: (self.trips / self.looks).max(base),
        }
    }

    /// The path is no faster than this stream: packets queue, and they arrive evenly. A sender
    /// without pacing makes queues of its own bursts, but then the path idles between them.
    pub(crate) fn fills_path(&self) -> bool {
        let stats = self.stats();
        self.rtt().has_queue() && (stats.has_losses() || self.peak / 5 < stats.rate() / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(rtt: u64, arrived: impl Fn(u64) -> u64) -> StreamInterval {
        let look = |n| TcpSample {
            at: Duration::from_millis(25 * n),
            bytes_acked: arrived(n),
            smoothed_rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(100),
            ..TcpSample::default()
        };
        let mut spell = StreamInterval::new(Role::Sender, &look(0));
        (1..=8).for_each(|n| spell.on_sample(&look(n)));
        spell
    }

    #[test]
    fn even_arrivals_and_a_queue_are_a_full_path() {
        let even = |n| n * 25_000;
        let full = spell(120, even);
        assert_eq!(
            (full.stats().rate(), full.stats().time),
            (1_000_000, Duration::from_millis(200))
        );
        assert!(full.fills_path());
        assert!(!spell(105, even).fills_path());
    }

    #[test]
    fn bursts_queue_on_a_path_that_idles() {
        let bursts = |n: u64| n.div_ceil(4) * 100_000;
        assert!(!spell(120, bursts).fills_path());
    }
}
