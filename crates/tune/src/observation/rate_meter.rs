//! Round trip and rate of a stream.

use std::time::Duration;

use crate::limiter::Role;
use crate::sample::TcpSample;

/// Shortest round: shorter ones measure bursts.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);

/// Round trip of a stream, without and with queueing delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rtt {
    /// Smallest round trip; zero if unknown.
    pub(crate) min: Duration,
    /// Smoothed round trip; never below `min`.
    pub(crate) smoothed: Duration,
}

impl Rtt {
    /// The round trip that an end with this role sees.
    pub(crate) fn of_sample(sample: &TcpSample, role: Role) -> Self {
        let smoothed = match role {
            Role::Sender => sample.smoothed_rtt,
            Role::Receiver => sample.receiver_rtt,
        };
        let known = sample.rtt_without_queue();
        let base = if known.is_zero() { smoothed } else { known };
        Self {
            min: base,
            smoothed: smoothed.max(base),
        }
    }

    /// Whether the path is within a machine or a rack, where no buffer limits. True for unknown round trips.
    pub(crate) fn is_local(&self) -> bool {
        self.min < Duration::from_millis(1)
    }

    /// Whether packets queue on the path. 10 % and 1 ms cover the noise of the smoothed round trip.
    pub(crate) fn has_queue(&self) -> bool {
        self.smoothed > self.min + self.min / 10 + Duration::from_millis(1)
    }

    /// Whether packets queue for so long that the path must be full.
    pub(crate) fn is_congested(&self) -> bool {
        self.smoothed > self.min * 3 / 2 + Duration::from_millis(1)
    }

    /// Round trip for the test whether a receive window limits: the smoothed one, up to a quarter above the
    /// smallest. A longer one contains a queue, and then the window is not the bottleneck.
    pub(crate) fn for_window(&self) -> Duration {
        self.smoothed.min(self.min + self.min / 4)
    }
}

/// Rates of a stream per round trip, bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateMeter {
    from: Option<TcpSample>,
    recent: [u64; 3],
    best: u64,
}

impl RateMeter {
    /// Takes a sample. A round ends when a round trip has passed.
    pub(crate) fn on_sample(&mut self, role: Role, sample: &TcpSample, rtt: Rtt) {
        let Some(from) = &self.from else {
            self.from = Some(*sample);
            return;
        };
        let stats = sample.since(from, role);
        if stats.time < rtt.smoothed.max(SHORTEST_ROUND) {
            return;
        }
        let rate = stats.rate();
        self.recent = [rate, self.recent[0], self.recent[1]];
        // Data behind a lost segment counts all at once when the segment arrives. The lower of two
        // rounds is free of such jumps.
        self.best = self.best.max(rate.min(self.recent[1]));
        self.from = Some(*sample);
    }

    /// Rate of the last round.
    pub(crate) fn latest(&self) -> u64 {
        self.recent[0]
    }

    /// Highest rate of the last three rounds, so that one slow round does not count.
    pub(crate) fn best_recent(&self) -> u64 {
        self.recent.into_iter().max().unwrap_or_default()
    }

    /// Highest rate that two consecutive rounds reached.
    pub(crate) fn best(&self) -> u64 {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn sample(at: Duration, bytes: u64) -> TcpSample {
        TcpSample {
            at,
            bytes_acked: bytes,
            smoothed_rtt: ms(100),
            ..TcpSample::default()
        }
    }

    #[test]
    fn a_round_lasts_one_round_trip() {
        let mut meter = RateMeter::default();
        for (at, bytes) in [
            (0, 0),
            (50, 5_000),
            (100, 10_000),
            (150, 40_000),
            (200, 11_000),
        ] {
            let sample = sample(ms(at), bytes);
            meter.on_sample(Role::Sender, &sample, Rtt::of_sample(&sample, Role::Sender));
        }
        let rates = (meter.latest(), meter.best_recent(), meter.best());
        assert_eq!(rates, (10_000, 100_000, 10_000));
    }

    #[test]
    fn a_queue_is_distinguished_from_noise() {
        let rtt = |now| Rtt {
            min: ms(100),
            smoothed: ms(now),
        };
        assert!(!rtt(110).has_queue());
        assert!(rtt(112).has_queue() && !rtt(150).is_congested());
        assert!(rtt(160).is_congested());
        assert_eq!(rtt(300).for_window(), ms(125));
        assert_eq!(rtt(105).for_window(), ms(105));
    }
}
