//! Receiver of the re-architected drsFTP (2004 paper, §3): each stream's buffer is twice the bandwidth-delay
//! product. [`DrsReceiverTuner`] is longhaul's loop, [`PublishedDrsTuner`] the published one.
//!
//! Bandwidth is measured from arrivals, since applications write in larger bursts than networks carry (§3.1).
//! The round trip is measured from echoes of the messages that tell the sender its buffer size (§3.2, §3.3);
//! before the first echo it is that of the handshake. A full path needs a buffer of twice the product. In slow
//! start the next round trip brings twice as much as the last one, and its acknowledgements must already
//! allow twice as much again. The buffer is then four times the product, so that the window never limits
//! slow start.

mod bandwidth;
mod bandwidth_interval;
mod granted_size;
mod interval_parser;
mod published;
mod rtt_estimator;
mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use super::arrivals::{ArrivalHistory, scaled};
use super::{BufferBounds, DrsMeasurement};
use crate::sample::{StreamId, TcpSample};
use rtt_estimator::{RttEstimator, RttTrialEvent};
use stream::DrsStream;

pub use bandwidth_interval::{DrsInterval, LONGEST_INTERVAL, SHORTEST_INTERVAL};
pub use interval_parser::DrsIntervalError;
pub use published::PublishedDrsTuner;

/// Shortest and longest time between messages while no size changes. Within these bounds one is sent per
/// round trip.
const MESSAGE_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Shortest history of arrivals: the round trip may become several times longer.
const HISTORY: Duration = Duration::from_secs(4);

/// A loop at the receiving end of a transfer: samples and echoes in, sizes and messages out.
pub trait DrsReceiverLoop: std::fmt::Debug + Send {
    /// Takes the time between a message and its echo. Impossible values (zero, more than a minute) are
    /// ignored.
    fn on_echo(&mut self, rtt: Duration);

    /// Takes the samples of all open streams; streams without a sample have ended.
    fn on_samples(&mut self, at: Duration, streams: &[TcpSample]) -> DrsStep;

    /// Time from the last sample to the next.
    fn next_sample_in(&self) -> Duration;

    /// Whether an echo has arrived that a sample should follow at once.
    fn needs_sample(&self) -> bool {
        false
    }

    /// Round trip in use; `None` if none is known yet.
    fn round_trip(&self) -> Option<Duration>;
}

/// Tuner of all streams of a transfer at its receiving end.
#[derive(Debug, Clone)]
pub struct DrsReceiverTuner {
    bounds: BufferBounds,
    interval: DrsInterval,
    round_trip: RttEstimator,
    streams: BTreeMap<StreamId, DrsStream>,
    /// Arrivals of all streams together.
    arrivals: ArrivalHistory,
    /// Time of the latest message, and the size in it.
    announced: Option<(Duration, u64)>,
    /// Echo since the last sample.
    echo: Option<Duration>,
}

/// Answer to the samples: new sizes, and a message if one is due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrsStep {
    /// New receive buffer sizes, bytes.
    pub resize: Vec<(StreamId, u64)>,
    /// Size for a message `SBUF <now> <size>`: the largest of the streams' sizes, because it has changed or
    /// because an echo is due.
    pub announce: Option<u64>,
    /// Measurements of each stream, if an echo has arrived since the last samples.
    pub measured: Vec<(StreamId, DrsMeasurement)>,
}

impl DrsReceiverTuner {
    /// Tuner of a transfer that begins.
    pub fn new(bounds: BufferBounds, interval: DrsInterval) -> Self {
        Self {
            bounds,
            interval,
            round_trip: RttEstimator::new(),
            streams: BTreeMap::new(),
            arrivals: ArrivalHistory::default(),
            announced: None,
            echo: None,
        }
    }

    fn resize(
        &mut self,
        at: Duration,
        rtt: Duration,
        event: Option<RttTrialEvent>,
    ) -> Vec<(StreamId, u64)> {
        let product = |stream: &DrsStream| stream.bandwidth().product(rtt);
        let products = self.streams.values().map(product);
        let products = products.fold(0, u64::saturating_add);
        // Twice, because flights of several streams spread over the round trip, and no quarter of it
        // then shows the full rate of the line.
        let line = self.arrivals.peak(rtt, rtt).saturating_mul(2);
        let mut sizes = Vec::new();
        for (id, stream) in &mut self.streams {
            let before = stream.size();
            match event {
                Some(RttTrialEvent::Started) => stream.begin_trial(),
                Some(RttTrialEvent::Ended { gained }) => stream.end_trial(gained),
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

    /// The measurements of all streams, if there is a new echo.
    fn measured(&mut self, rtt: Duration) -> Vec<(StreamId, DrsMeasurement)> {
        let Some(echo) = self.echo.take() else {
            return Vec::new();
        };
        let of = |stream: &DrsStream| DrsMeasurement {
            echo,
            round_trip: rtt,
            bandwidth: bits_per_second(stream.bandwidth().product(rtt), rtt),
        };
        self.streams.iter().map(|(id, s)| (*id, of(s))).collect()
    }

    fn note(&mut self, at: Duration, samples: &[TcpSample]) {
        self.streams
            .retain(|id, _| samples.iter().any(|sample| sample.stream == *id));
        let mut total = self.arrivals.counter().unwrap_or(0);
        for sample in samples {
            let fresh = !self.streams.contains_key(&sample.stream);
            // A new connection may show a shorter route than the old ones.
            if fresh || self.round_trip.measured().is_none() {
                self.round_trip.on_handshake(sample.rtt_without_queue());
            }
            let stream = self.streams.entry(sample.stream);
            let stream =
                stream.or_insert_with(|| DrsStream::new(self.bounds, self.interval, sample));
            total = total.saturating_add(stream.on_sample(sample, self.round_trip.current()));
        }
        self.arrivals
            .record(at, total, HISTORY.max(2 * self.round_trip.current()));
    }

    fn announce(&mut self, at: Duration, rtt: Duration) -> Option<u64> {
        let largest = self.streams.values().map(DrsStream::size).max()?;
        if let Some((last, last_size)) = self.announced {
            let silent = at.saturating_sub(last);
            if last_size == largest && silent < rtt.clamp(MESSAGE_PAUSE.0, MESSAGE_PAUSE.1) {
                return None;
            }
        }
        // The sender echoes every message, so that repeating a size also measures the round trip.
        self.announced = Some((at, largest));
        Some(largest)
    }
}

impl DrsReceiverLoop for DrsReceiverTuner {
    fn on_echo(&mut self, rtt: Duration) {
        self.round_trip.on_echo(rtt);
        self.echo = Some(rtt);
    }

    fn on_samples(&mut self, at: Duration, streams: &[TcpSample]) -> DrsStep {
        self.note(at, streams);
        let event = self.round_trip.update_trial(
            at,
            |rtt| self.streams.values().any(|s| s.fills_window(rtt)),
            |time| self.arrivals.latest(time),
        );
        let rtt = self.round_trip.estimate();
        let resize = self.resize(at, rtt, event);
        let announce = self.announce(at, rtt);
        DrsStep {
            resize,
            announce,
            measured: self.measured(rtt),
        }
    }

    fn next_sample_in(&self) -> Duration {
        let scatter = self.streams.values().map(|s| s.bandwidth().scatter());
        let rtt = self.round_trip.estimate();
        // The stream that scatters most needs the most samples.
        self.interval.pause(rtt, scatter.max().unwrap_or(u32::MAX))
    }

    /// Before the first echo the round trip of the handshake. While neither is known, the papers' 100 ms
    /// count.
    fn round_trip(&self) -> Option<Duration> {
        self.round_trip.measured()
    }
}

/// Rate of `bytes` in `time`, bits per second; 0 in no time.
fn bits_per_second(bytes: u64, time: Duration) -> u64 {
    scaled(bytes.saturating_mul(8), Duration::from_secs(1), time)
}

/// `all` · `share` / `shares`.
fn part(all: u64, share: u64, shares: u64) -> u64 {
    let product = u128::from(all) * u128::from(share);
    u64::try_from(product / u128::from(shares.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "times and sizes are small")]
mod tests;
