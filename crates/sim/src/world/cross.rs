//! Cross traffic without congestion control: UDP at a constant rate, or in bursts.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Rate;

use super::packets::packet_interval;

/// A source of datagrams for the forward bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossTraffic {
    /// Rate while it sends, bit/s of IP packets.
    pub rate: Rate,
    /// Size of each IP packet, bytes.
    pub packet_bytes: u32,
    /// Start time.
    pub start: Duration,
    /// End time; `None`: never.
    pub stop: Option<Duration>,
    /// Mean lengths of bursts and of pauses, both exponentially distributed; `None`: no pauses.
    pub bursts: Option<(Duration, Duration)>,
}

/// A running source of cross traffic.
#[derive(Debug)]
pub(super) struct CrossTrafficSource {
    spec: CrossTraffic,
    random: Pcg64Mcg,
    /// End of the current burst.
    burst_end: Duration,
}

impl CrossTrafficSource {
    pub(super) fn new(spec: CrossTraffic, seed: u64) -> Self {
        Self {
            spec,
            random: Pcg64Mcg::seed_from_u64(seed),
            burst_end: Duration::ZERO,
        }
    }

    /// Time of the first packet: at random within one packet interval of the start, so that sources are
    /// not synchronized.
    pub(super) fn first(&mut self) -> Duration {
        let interval = self.interval();
        let first = self.spec.start + interval.mul_f64(uniform(&mut self.random));
        self.begin_burst(first);
        first
    }

    /// Sends a packet at `now`; returns its size and the time of the next packet.
    pub(super) fn send(&mut self, now: Duration) -> (u32, Option<Duration>) {
        let mut next = now + self.interval();
        if next >= self.burst_end
            && let Some((_, pause)) = self.spec.bursts
        {
            next = self.burst_end.max(now) + self.exponential(pause);
            self.begin_burst(next);
        }
        let more = self.spec.stop.is_none_or(|stop| next < stop);
        (self.spec.packet_bytes, more.then_some(next))
    }

    fn interval(&self) -> Duration {
        packet_interval(self.spec.rate, self.spec.packet_bytes)
    }

    fn begin_burst(&mut self, now: Duration) {
        self.burst_end = match self.spec.bursts {
            Some((burst, _)) => now + self.exponential(burst),
            None => Duration::MAX,
        };
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        // Inversion of the distribution function; 1 - u is never 0, so the logarithm is finite.
        mean.mul_f64(-(1.0 - uniform(&mut self.random)).ln())
    }
}

/// A uniformly distributed number in 0..1.
pub(super) fn uniform(random: &mut Pcg64Mcg) -> f64 {
    // A double holds 53 bits exactly.
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
