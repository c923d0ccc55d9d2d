//! The re-architected drsFTP's receiver (2004 paper, §3): buffers of twice the bandwidth-delay
//! product, per stream.
//!
//! Bandwidth is what arrives, since applications write in larger bursts than networks carry (§3.1).
//! The round trip comes from echoes of messages that also tell the sender its buffer (§3.2, §3.3);
//! before the first echo it is that of the handshake. Twice the product is what a path needs that is
//! full. In slow start what arrived in the last round trip is half of what comes in the next,
//! and acknowledgements of that must already allow twice as much again: then four times it is,
//! so that the window never holds slow start back.

mod bandwidth;
mod bandwidth_interval;
mod interval_text;
mod rtt_estimator;
mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use super::BufferBounds;
use super::arrivals::ArrivalHistory;
use crate::sample::{StreamId, TcpSample};
use rtt_estimator::{RttEstimator, RttTrialEvent};
use stream::DrsStream;

pub use bandwidth_interval::{DrsInterval, LONGEST_INTERVAL, SHORTEST_INTERVAL};
pub use interval_text::DrsIntervalError;

/// Least and most time between messages while no size changes. They go about once a round trip.
const PROBES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Arrivals are kept for this long at least: a path may become several times longer.
const HISTORY: Duration = Duration::from_secs(4);

/// All streams of a transfer at its receiving end.
#[derive(Debug, Clone)]
pub struct DrsReceiverTuner {
    bounds: BufferBounds,
    interval: DrsInterval,
    round_trip: RttEstimator,
    streams: BTreeMap<StreamId, DrsStream>,
    /// Of all streams together.
    arrivals: ArrivalHistory,
    /// The latest message: when, and what it said.
    announced: Option<(Duration, u64)>,
}

/// Step to take after a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrsStep {
    /// New receive buffers.
    pub resize: Vec<(StreamId, u64)>,
    /// Send `SBUF <now> <size>`: the largest of the streams' sizes, because it is new or because an
    /// echo is wanted.
    pub announce: Option<u64>,
}

impl DrsReceiverTuner {
    /// A transfer that begins.
    pub fn new(bounds: BufferBounds, interval: DrsInterval) -> Self {
        Self {
            bounds,
            interval,
            round_trip: RttEstimator::new(),
            streams: BTreeMap::new(),
            arrivals: ArrivalHistory::default(),
            announced: None,
        }
    }

    /// An echo came back: this long after its message left. What cannot be (zero, a minute) is
    /// ignored.
    pub fn on_echo(&mut self, rtt: Duration) {
        self.round_trip.on_echo(rtt);
    }

    /// Looks at all live streams; those that are not among them are over.
    pub fn on_samples(&mut self, at: Duration, streams: &[TcpSample]) -> DrsStep {
        self.note(at, streams);
        let turn = self.round_trip.update_trial(
            at,
            |rtt| self.streams.values().any(|s| s.fills_window(rtt)),
            |time| self.arrivals.latest(time),
        );
        let rtt = self.round_trip.estimate();
        let resize = self.resize(at, rtt, turn);
        let announce = self.announce(at, rtt);
        DrsStep { resize, announce }
    }

    fn resize(
        &mut self,
        at: Duration,
        rtt: Duration,
        turn: Option<RttTrialEvent>,
    ) -> Vec<(StreamId, u64)> {
        let product = |stream: &DrsStream| stream.bandwidth().product(rtt);
        let products = self.streams.values().map(product);
        let products = products.fold(0, u64::saturating_add);
        // Twice: when flights of several streams are spread over the round trip, what comes between
        // two looks does not show the line.
        let line = self.arrivals.peak(rtt, rtt).saturating_mul(2);
        let mut sizes = Vec::new();
        for (id, stream) in &mut self.streams {
            let before = stream.size();
            match turn {
                Some(RttTrialEvent::Started) => stream.begin_trial(),
                Some(RttTrialEvent::Ended { won }) => stream.end_trial(won),
                None => {}
            }
            let share = part(line, stream.bandwidth().product(rtt), products);
            stream.resize(at, rtt, share);
            if stream.size() != before {
                sizes.push((*id, stream.size()));
            }
            if stream.size() > before {
                self.round_trip.on_growth(at);
            }
        }
        sizes
    }

    /// When the next look is due, after the last.
    pub fn next_sample_in(&self) -> Duration {
        let scatter = self.streams.values().map(|s| s.bandwidth().scatter());
        let rtt = self.round_trip.estimate();
        self.interval.pause(rtt, scatter.max().unwrap_or(u32::MAX))
    }

    /// Round trip that is reckoned with: the handshake's before the first echo. `None`: neither is
    /// known yet, and the papers' 100 ms are taken.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.measured()
    }

    fn note(&mut self, at: Duration, looks: &[TcpSample]) {
        self.streams
            .retain(|id, _| looks.iter().any(|look| look.stream == *id));
        let mut come = self.arrivals.counter().unwrap_or(0);
        for look in looks {
            let fresh = !self.streams.contains_key(&look.stream);
            if fresh || self.round_trip.measured().is_none() {
                self.round_trip.on_handshake(look.min_rtt);
            }
            let stream = self.streams.entry(look.stream);
            let stream = stream.or_insert_with(|| DrsStream::new(self.bounds, self.interval, look));
            come = come.saturating_add(stream.on_sample(look, self.round_trip.current()));
        }
        self.arrivals
            .record(at, come, HISTORY.max(2 * self.round_trip.current()));
    }

    fn announce(&mut self, at: Duration, rtt: Duration) -> Option<u64> {
        let largest = self.streams.values().map(DrsStream::size).max()?;
        if let Some((last, said)) = self.announced {
            let silent = at.saturating_sub(last);
            if said == largest && silent < rtt.clamp(PROBES.0, PROBES.1) {
                return None;
            }
        }
        self.announced = Some((at, largest));
        Some(largest)
    }
}

/// Of `all`, the part that `share` is of `shares`.
fn part(all: u64, share: u64, shares: u64) -> u64 {
    let product = u128::from(all) * u128::from(share);
    u64::try_from(product / u128::from(shares.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "times and sizes are small")]
mod tests;
