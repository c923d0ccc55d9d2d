//! Traffic that does not listen: UDP at a constant rate, or on and off.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Rate;

use super::packets::packet_interval;

/// A source of datagrams for the forward bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossTraffic {
    /// While it sends, IP packets included.
    pub rate: Rate,
    /// Of each IP packet.
    pub packet_bytes: u32,
    /// When it begins.
    pub start: Duration,
    /// When it ends.
    pub stop: Option<Duration>,
    /// Mean lengths of the times it sends and is silent, both exponential; `None`: no pause.
    pub bursts: Option<(Duration, Duration)>,
}

/// A running source.
#[derive(Debug)]
pub(super) struct CrossTrafficSource {
    spec: CrossTraffic,
    random: Pcg64Mcg,
    /// When the burst ends.
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

    /// When it sends first: within an interval of its start, so that sources are not in step.
    pub(super) fn first(&mut self) -> Duration {
        let interval = self.interval();
        let first = self.spec.start + interval.mul_f64(uniform(&mut self.random));
        self.begin_burst(first);
        first
    }

    /// It sends at `now`: how much, and when next.
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
        mean.mul_f64(-(1.0 - uniform(&mut self.random)).ln())
    }
}

/// A number in 0..1.
pub(super) fn uniform(random: &mut Pcg64Mcg) -> f64 {
    // 53 bits are what a double holds exactly.
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
