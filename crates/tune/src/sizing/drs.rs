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
mod interval;
mod round_trip;
mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Bounds, Look, StreamId};
use round_trip::{RoundTrip, Turn};
use stream::Stream;

pub use interval::Interval;

/// Least and most time between messages while no size changes. They go about once a round trip.
const PROBES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// All streams of a transfer at its receiving end.
#[derive(Debug, Clone)]
pub struct Drs {
    bounds: Bounds,
    interval: Interval,
    round_trip: RoundTrip,
    streams: BTreeMap<StreamId, Stream>,
    /// The latest message: when, and what it said.
    announced: Option<(Duration, u64)>,
}

/// What to do after a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// New receive buffers.
    pub resize: Vec<(StreamId, u64)>,
    /// Send `SBUF <now> <size>`: the largest of the streams' sizes, because it is new or because an
    /// echo is wanted.
    pub announce: Option<u64>,
}

impl Drs {
    /// A transfer that begins.
    pub fn new(bounds: Bounds, interval: Interval) -> Self {
        Self {
            bounds,
            interval,
            round_trip: RoundTrip::new(),
            streams: BTreeMap::new(),
            announced: None,
        }
    }

    /// An echo came back: this long after its message left. What cannot be (zero, a minute) is
    /// ignored.
    pub fn on_echo(&mut self, rtt: Duration) {
        self.round_trip.on_echo(rtt);
    }

    /// Looks at all live streams; those that are not among them are over.
    pub fn on_look(&mut self, at: Duration, streams: &[Look]) -> Step {
        self.note(streams);
        let mut step = Step::default();
        let turn = self.round_trip.turn(
            at,
            |rtt| self.streams.values().any(|s| s.fills_window(rtt)),
            |time| {
                self.streams
                    .values()
                    .map(|s| s.bandwidth().latest(time))
                    .sum()
            },
        );
        let rtt = self.round_trip.reckoned();
        for (id, stream) in &mut self.streams {
            let taken_back = match turn {
                Some(Turn::Begins) => {
                    stream.begin_trial();
                    None
                }
                Some(Turn::Ends { won }) => stream.end_trial(won),
                None => None,
            };
            let size = stream.resize(at, rtt).or(taken_back);
            step.resize.extend(size.map(|size| (*id, size)));
        }
        if !step.resize.is_empty() {
            self.round_trip.on_resize(at);
        }
        step.announce = self.announce(at, rtt);
        step
    }

    /// When the next look is due, after the last.
    pub fn due(&self) -> Duration {
        let scatter = self.streams.values().map(|s| s.bandwidth().scatter());
        let rtt = self.round_trip.reckoned();
        self.interval.pause(rtt, scatter.max().unwrap_or(u32::MAX))
    }

    /// Round trip that is reckoned with: the handshake's before the first echo. `None`: neither is
    /// known yet, and the papers' 100 ms are taken.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.known()
    }

    fn note(&mut self, looks: &[Look]) {
        self.streams
            .retain(|id, _| looks.iter().any(|look| look.stream == *id));
        for look in looks {
            let stream = self.streams.entry(look.stream).or_insert_with(|| {
                self.round_trip.on_handshake(look.min_rtt);
                Stream::new(self.bounds, self.interval)
            });
            stream.note(look, self.round_trip.reckoned());
        }
    }

    fn announce(&mut self, at: Duration, rtt: Duration) -> Option<u64> {
        let largest = self.streams.values().map(Stream::size).max()?;
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

#[cfg(test)]
mod tests;
