//! Bytes that arrive on one stream per round trip.

use std::collections::VecDeque;
use std::time::Duration;

use super::bandwidth_interval::DrsInterval;
use crate::sizing::arrivals::{ArrivalHistory, scaled};

/// Number of round trips over which the largest measurement counts, so that one between two flights does not
/// shrink the estimate.
const RECENT_ROUND_TRIPS: u32 = 4;
/// Number of round trips whose largest measurement a stream in slow start must exceed.
const SLOW_START_ROUND_TRIPS: u32 = 16;
/// Largest number of stored measurements.
const MAX_MEASUREMENTS: usize = 256;
/// Inverse weight of a new difference in the smoothed scatter.
const SMOOTHING: u32 = 4;
/// Shortest history of arrivals: the round trip may become several times longer.
const HISTORY: Duration = Duration::from_secs(4);
/// Scatter of 100 %, in 1/1000.
const FULL_SCATTER: u32 = 1000;

/// Bandwidth of one stream.
#[derive(Debug, Clone)]
pub(super) struct StreamBandwidth {
    interval: DrsInterval,
    arrivals: ArrivalHistory,
    samples: VecDeque<BandwidthSample>,
    /// Age up to which measurements are recent.
    recent: Duration,
    growing: bool,
    /// Smoothed scatter in 1/1000; `None` before the first comparison.
    scatter: Option<u32>,
    /// Time of the last comparison.
    compared: Duration,
}

/// Bytes that arrived in one interval.
#[derive(Debug, Clone, Copy)]
struct BandwidthSample {
    at: Duration,
    bytes: u64,
    length: Duration,
}

impl StreamBandwidth {
    pub(super) fn new(interval: DrsInterval) -> Self {
        Self {
            interval,
            arrivals: ArrivalHistory::default(),
            samples: VecDeque::new(),
            recent: Duration::ZERO,
            growing: false,
            scatter: None,
            compared: Duration::ZERO,
        }
    }

    /// Takes the total of arrived bytes and returns the bytes since the last call. `round_trip` is the
    /// present one, queue included: a flight arrives once per round trip, and a shorter interval may contain a
    /// whole one.
    pub(super) fn note(&mut self, at: Duration, bytes: u64, round_trip: Duration) -> u64 {
        let length = self.length(round_trip);
        let last_total = self.arrivals.counter();
        self.arrivals
            // Two intervals are compared, and the next interval may be twice as long.
            .record(at, bytes, HISTORY.max(4 * length.max(round_trip)));
        let now = self.arrivals.latest(length);
        let before = self.arrivals.before(length, length);
        let lower_bound = without_backlog(before, now);
        self.growing = doubles(before, now) && surpasses(self.best_before(length), lower_bound);
        if at.saturating_sub(self.compared) >= length {
            self.compared = at;
            self.compare(before, now);
        }
        // The mean of two measurements evens out data that had waited for a lost segment.
        let measured = if self.growing {
            lower_bound
        } else {
            now / 2 + before / 2
        };
        self.recent = RECENT_ROUND_TRIPS * round_trip.max(length);
        self.sample(
            measured,
            length,
            SLOW_START_ROUND_TRIPS * round_trip.max(length),
        );
        last_total.map_or(0, |last_total| bytes.saturating_sub(last_total))
    }

    /// Bandwidth-delay product, bytes: the largest recent measurement, scaled to a round trip.
    pub(super) fn product(&self, round_trip: Duration) -> u64 {
        let oldest = self.arrivals.end().saturating_sub(self.recent);
        self.most(round_trip, |sample| sample.at >= oldest)
    }

    /// The largest of all measurements that ended before the present one began.
    fn best_before(&self, length: Duration) -> u64 {
        let started = self.arrivals.end().saturating_sub(length);
        self.most(length, |sample| sample.at <= started)
    }

    fn most(&self, span: Duration, which: impl Fn(&BandwidthSample) -> bool) -> u64 {
        let samples = self.samples.iter().filter(|sample| which(sample));
        let scaled = samples.map(|s| scaled(s.bytes, span, s.length));
        scaled.max().unwrap_or(0)
    }

    /// Forgets all measurements, because the round trip in use has changed: those of a shorter one may be
    /// single flights of a longer one.
    pub(super) fn start_over(&mut self) {
        self.samples.clear();
    }

    /// Bytes of the next round trip, of which the buffer must hold twice as many. A sender in slow start doubles
    /// its flight, but never beyond the rate inside a flight, which is that of the line, or beyond `share`.
    pub(super) fn next_round_trip_bytes(&self, round_trip: Duration, share: u64) -> u64 {
        let product = self.product(round_trip);
        if !self.growing {
            return product;
        }
        // Segments of a flight arrive back to back at the rate of the bottleneck.
        let line = self.arrivals.peak(round_trip, round_trip);
        product.max(product.saturating_mul(2).min(line).min(share))
    }

    /// Bytes that arrived in the latest `span`.
    pub(super) fn latest(&self, span: Duration) -> u64 {
        self.arrivals.latest(span)
    }

    /// Scatter of successive measurements, in 1/1000, outside of slow start; 1000 before the first
    /// comparison.
    pub(super) fn scatter(&self) -> u32 {
        self.scatter.unwrap_or(FULL_SCATTER)
    }

    /// Length of the present interval.
    fn length(&self, round_trip: Duration) -> Duration {
        let scatter = self.scatter.filter(|_| !self.growing).unwrap_or(0);
        self.interval.length(round_trip, scatter)
    }

    fn compare(&mut self, before: u64, now: u64) {
        // The growth of slow start is not scatter.
        if self.growing || before == 0 {
            return;
        }
        let whole = u128::from(before.max(now));
        let difference = u128::from(now.abs_diff(before)) * u128::from(FULL_SCATTER) / whole;
        let difference = u32::try_from(difference).unwrap_or(FULL_SCATTER);
        let smoothed = |scatter: u32| (scatter * (SMOOTHING - 1) + difference) / SMOOTHING;
        self.scatter = Some(self.scatter.map_or(difference, smoothed));
    }

    fn sample(&mut self, bytes: u64, length: Duration, kept: Duration) {
        let at = self.arrivals.end();
        self.samples
            .push_back(BandwidthSample { at, bytes, length });
        let oldest = at.saturating_sub(kept);
        let old = |sample: &BandwidthSample| sample.at < oldest;
        while self.samples.len() > MAX_MEASUREMENTS || self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
    }
}

/// Whether flights grow from `before` to `now` as in slow start: about twice, and up to four times after a
/// window that was too small.
fn doubles(before: u64, now: u64) -> bool {
    // From 1.4 times on, because a measurement may fall between two flights.
    now.saturating_mul(5) >= before.saturating_mul(7) && now <= before.saturating_mul(5)
}

/// Whether `now` exceeds the `best` before by more than scatter and loss recovery explain.
fn surpasses(best: u64, now: u64) -> bool {
    // Scatter and a recovered loss together stay below 1.6 times.
    now.saturating_mul(5) >= best.saturating_mul(8)
}

/// A measurement without data that may have waited in the kernel for a lost segment: a loss empties one round
/// trip and puts the data of both into the next one. A flight of slow start, twice the one before, counts
/// in full.
fn without_backlog(before: u64, now: u64) -> u64 {
    // Slow start puts two thirds of both measurements into the second one.
    let both = now / 3 + before / 3;
    now.min(both.saturating_mul(2))
}
