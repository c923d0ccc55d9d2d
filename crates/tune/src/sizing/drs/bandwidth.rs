//! Bytes that one stream brings in a round trip, from looks at what has arrived.

use std::collections::VecDeque;
use std::time::Duration;

use super::bandwidth_interval::DrsInterval;
use crate::sizing::arrivals::{ArrivalHistory, scaled};

/// The largest of the samples of so many round trips counts: a sample that falls between two
/// flights must not make the buffer lag.
const RECENT: u32 = 4;
/// A stream is in slow start if it brings more than in any of so many round trips.
const REMEMBERED: u32 = 16;
/// Samples that are kept at most.
const KEPT: usize = 256;
/// Weight of a new difference in the scatter, as 1/n.
const SMOOTHING: u32 = 4;
/// Looks are kept for this long at least: a path may become several times longer.
const HISTORY: Duration = Duration::from_secs(4);
/// All of it, in the 1/1000 that scatter is told in.
const WHOLE: u32 = 1000;

/// One stream's bandwidth.
#[derive(Debug, Clone)]
pub(super) struct StreamBandwidth {
    interval: DrsInterval,
    arrivals: ArrivalHistory,
    samples: VecDeque<BandwidthSample>,
    /// How far back samples are recent.
    recent: Duration,
    growing: bool,
    /// In 1/1000; `None`: nothing was compared yet.
    scatter: Option<u32>,
    /// When the scatter was last brought up to date.
    compared: Duration,
}

/// Bytes of one interval.
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

    /// Takes a look: so many bytes have arrived; how many of them since the look before.
    /// `round_trip` is that of now, queue included: flights come once in it, and a shorter sample may
    /// hold one flight whole.
    pub(super) fn note(&mut self, at: Duration, bytes: u64, round_trip: Duration) -> u64 {
        let length = self.length(round_trip);
        let seen = self.arrivals.counter();
        self.arrivals
            .record(at, bytes, HISTORY.max(4 * length.max(round_trip)));
        let now = self.arrivals.latest(length);
        let before = self.arrivals.before(length, length);
        let surely = without_backlog(before, now);
        self.growing = doubles(before, now) && surpasses(self.best_before(length), surely);
        if at.saturating_sub(self.compared) >= length {
            self.compared = at;
            self.compare(before, now);
        }
        // With what had waited, two samples together are right again.
        let brought = if self.growing {
            surely
        } else {
            now / 2 + before / 2
        };
        self.recent = RECENT * round_trip.max(length);
        self.sample(brought, length, REMEMBERED * round_trip.max(length));
        seen.map_or(0, |seen| bytes.saturating_sub(seen))
    }

    /// Bytes in a round trip that the receive buffer must be twice of: the most of the latest.
    pub(super) fn product(&self, round_trip: Duration) -> u64 {
        let oldest = self.arrivals.end().saturating_sub(self.recent);
        self.most(round_trip, |sample| sample.at >= oldest)
    }

    /// The most of all samples that ended before the present one began.
    fn best_before(&self, length: Duration) -> u64 {
        let begun = self.arrivals.end().saturating_sub(length);
        self.most(length, |sample| sample.at <= begun)
    }

    fn most(&self, span: Duration, which: impl Fn(&BandwidthSample) -> bool) -> u64 {
        let samples = self.samples.iter().filter(|sample| which(sample));
        let scaled = samples.map(|s| scaled(s.bytes, span, s.length));
        scaled.max().unwrap_or(0)
    }

    /// Forgets the samples: another round trip is reckoned with, and those of a shorter one may be
    /// single flights of a longer.
    pub(super) fn start_over(&mut self) {
        self.samples.clear();
    }

    /// Bytes that the next round trips bring if the sender is in slow start. Its next flight is twice the
    /// last, and it must already be allowed twice that when the next flight is acknowledged; but
    /// never faster than the line shows to be inside a flight, or more than `share`.
    pub(super) fn outlook(&self, round_trip: Duration, share: u64) -> u64 {
        let product = self.product(round_trip);
        if !self.growing {
            return product;
        }
        let line = self.arrivals.peak(round_trip, round_trip);
        product.max(product.saturating_mul(2).min(line).min(share))
    }

    /// Bytes of the latest `span`.
    pub(super) fn latest(&self, span: Duration) -> u64 {
        self.arrivals.latest(span)
    }

    /// How much successive samples differ, in 1/1000; slow start is no scatter. Before any could be
    /// compared: entirely.
    pub(super) fn scatter(&self) -> u32 {
        self.scatter.unwrap_or(WHOLE)
    }

    /// How long a sample is now.
    fn length(&self, round_trip: Duration) -> Duration {
        let scatter = self.scatter.filter(|_| !self.growing).unwrap_or(0);
        self.interval.length(round_trip, scatter)
    }

    fn compare(&mut self, before: u64, now: u64) {
        if self.growing || before == 0 {
            return;
        }
        let whole = u128::from(before.max(now));
        let difference = u128::from(now.abs_diff(before)) * u128::from(WHOLE) / whole;
        let difference = u32::try_from(difference).unwrap_or(WHOLE);
        let smoothed = |scatter: u32| (scatter * (SMOOTHING - 1) + difference) / SMOOTHING;
        self.scatter = Some(self.scatter.map_or(difference, smoothed));
    }

    fn sample(&mut self, bytes: u64, length: Duration, kept: Duration) {
        let at = self.arrivals.end();
        self.samples
            .push_back(BandwidthSample { at, bytes, length });
        let oldest = at.saturating_sub(kept);
        let old = |sample: &BandwidthSample| sample.at < oldest;
        while self.samples.len() > KEPT || self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
    }
}

/// Whether `now` follows `before` as flights do in slow start: about twice as much, and up to four
/// times after a window that was too small.
fn doubles(before: u64, now: u64) -> bool {
    now.saturating_mul(5) >= before.saturating_mul(7) && now <= before.saturating_mul(5)
}

/// Whether `now` is more than scatter, and a hole that was not quite seen, make of the `best` before.
fn surpasses(best: u64, now: u64) -> bool {
    now.saturating_mul(5) >= best.saturating_mul(8)
}

/// A sample without what may have waited in the kernel for a lost segment: a hole makes one round trip
/// empty and the next one full of both. A flight of slow start, twice the one before, is counted
/// whole.
fn without_backlog(before: u64, now: u64) -> u64 {
    let both = now / 3 + before / 3;
    now.min(both.saturating_mul(2))
}
