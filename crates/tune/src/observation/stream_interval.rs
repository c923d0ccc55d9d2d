//! A spell of looks: its rate, its mean round trip, and whether the path was idle in between.

use std::time::Duration;

use units::bytes_per_second;

use super::rate_meter::Rtt;
use crate::sample::TcpSample;

/// Shortest time between acknowledgements that says anything about a rate.
const SHORTEST_STEP: Duration = Duration::from_millis(5);

/// Looks from a first one on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamInterval {
    pub(crate) first: TcpSample,
    /// When bytes were last counted, and how many there were.
    counted: (Duration, u64),
    last: (Duration, u64),
    /// The best rate between two looks, bytes per second.
    peak: u64,
    trips: Duration,
    looks: u32,
    /// Segments were sent again: what is acknowledged then jumps when a gap is filled.
    resent: bool,
}

impl StreamInterval {
    pub(crate) fn new(look: &TcpSample) -> Self {
        Self {
            first: *look,
            counted: (look.at, look.bytes),
            last: (look.at, look.bytes),
            peak: 0,
            trips: Rtt::of_sample(look).smoothed,
            looks: 1,
            resent: false,
        }
    }

    pub(crate) fn on_sample(&mut self, look: &TcpSample) {
        self.last = (look.at, look.bytes);
        self.trips += Rtt::of_sample(look).smoothed;
        self.looks = self.looks.saturating_add(1);
        self.resent = look.retransmits > self.first.retransmits;
        let step = look.at.saturating_sub(self.counted.0);
        if step >= SHORTEST_STEP {
            let rate = bytes_per_second(look.bytes.saturating_sub(self.counted.1), step);
            self.peak = self.peak.max(rate);
            self.counted = self.last;
        }
    }

    /// How long it has been.
    pub(crate) fn time(&self) -> Duration {
        self.last.0.saturating_sub(self.first.at)
    }

    /// How many, the first included.
    pub(crate) fn samples(&self) -> u32 {
        self.looks
    }

    /// Bytes moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.last.1.saturating_sub(self.first.bytes)
    }

    /// The mean rate, bytes per second.
    pub(crate) fn rate(&self) -> u64 {
        bytes_per_second(self.bytes(), self.time())
    }

    /// The mean round trip.
    pub(crate) fn rtt(&self) -> Rtt {
        let base = Rtt::of_sample(&self.first).min;
        Rtt {
            min: base,
            smoothed: (self.trips / self.looks).max(base),
        }
    }

    /// Segments were sent again meanwhile.
    pub(crate) fn has_retransmits(&self) -> bool {
        self.resent
    }

    /// The path is no faster than this stream: packets queue, and they arrive evenly. A sender
    /// without pacing makes queues of its own bursts, but then the path idles between them.
    pub(crate) fn fills_path(&self) -> bool {
        self.rtt().has_queue() && (self.resent || self.peak / 5 < self.rate() / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(rtt: u64, arrived: impl Fn(u64) -> u64) -> StreamInterval {
        let look = |n| TcpSample {
            at: Duration::from_millis(25 * n),
            bytes: arrived(n),
            smoothed_rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(100),
            ..TcpSample::default()
        };
        let mut spell = StreamInterval::new(&look(0));
        (1..=8).for_each(|n| spell.on_sample(&look(n)));
        spell
    }

    #[test]
    fn even_arrivals_and_a_queue_are_a_full_path() {
        let even = |n| n * 25_000;
        let full = spell(120, even);
        assert_eq!(
            (full.rate(), full.time()),
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
