//! The loop of the re-architected drsFTP as published (2004 paper, §3 and §4).
//!
//! "Currently, drsFTP computes the bandwidth every time the round-trip time is calculated" (§3.1): with each
//! echo, the bytes that have arrived since the one before are divided by the time between the two. The buffer
//! becomes twice the product of this bandwidth and the echo's round trip (§3.3). "The process is then
//! repeated" (§4): the message with the new size is the next to be echoed.
//!
//! A smaller product leaves the buffer as it is. The text does not say so, but figure 6 does: its buffers only
//! grow, and "nearly 6 MB" at the end is twice the product of 55 Mbit/s and 434 ms, the longest echo of
//! figure 8. Of several streams, of which the paper says nothing, each has a bandwidth of its own here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::granted_size::GrantedSize;
use super::{DrsReceiverLoop, DrsStep, bits_per_second};
use crate::sample::{StreamId, TcpSample};
use crate::sizing::arrivals::scaled;
use crate::sizing::{BufferBounds, DrsMeasurement};

/// Time between samples without an echo. They find new streams.
const SAMPLE_PAUSE: Duration = Duration::from_millis(50);
/// Longest echo that counts.
const LONGEST_ECHO: Duration = Duration::from_secs(60);

/// Tuner of all streams of a transfer at its receiving end, as published in 2004. Without echoes it changes
/// nothing.
#[derive(Debug, Clone)]
pub struct PublishedDrsTuner {
    bounds: BufferBounds,
    streams: BTreeMap<StreamId, PublishedDrsStream>,
    /// Echo since the last sample.
    echo: Option<Duration>,
    round_trip: Option<Duration>,
    /// The first message, which no echo precedes, was sent.
    has_begun: bool,
}

/// Buffer of one stream, and its bytes at the last echo.
#[derive(Debug, Clone)]
struct PublishedDrsStream {
    size: GrantedSize,
    counted: u64,
    counted_at: Duration,
}

impl PublishedDrsTuner {
    /// Tuner of a transfer that begins.
    pub fn new(bounds: BufferBounds) -> Self {
        Self {
            bounds,
            streams: BTreeMap::new(),
            echo: None,
            round_trip: None,
            has_begun: false,
        }
    }

    fn note(&mut self, at: Duration, samples: &[TcpSample]) {
        self.streams
            .retain(|id, _| samples.iter().any(|sample| sample.stream == *id));
        for sample in samples {
            let stream = self.streams.entry(sample.stream);
            let stream = stream.or_insert_with(|| PublishedDrsStream {
                size: GrantedSize::new(self.bounds, sample),
                counted: sample.bytes_received,
                counted_at: at,
            });
            stream.size.on_sample(sample);
        }
    }
}

impl DrsReceiverLoop for PublishedDrsTuner {
    fn on_echo(&mut self, rtt: Duration) {
        if !rtt.is_zero() && rtt <= LONGEST_ECHO {
            self.echo = Some(rtt);
            self.round_trip = Some(rtt);
        }
    }

    fn on_samples(&mut self, at: Duration, samples: &[TcpSample]) -> DrsStep {
        let mut step = DrsStep::default();
        self.note(at, samples);
        // Without a stream the echo waits: every echo must lead to the next message.
        if self.streams.is_empty() {
            return step;
        }
        let echo = self.echo.take();
        if let Some(rtt) = echo {
            for sample in samples {
                let Some(stream) = self.streams.get_mut(&sample.stream) else {
                    continue;
                };
                let (bytes, time) = stream.count(at, sample.bytes_received);
                let twice = scaled(bytes, rtt, time).saturating_mul(2);
                if twice > stream.size.bytes() && stream.size.set(twice) {
                    step.resize.push((sample.stream, stream.size.bytes()));
                }
                let measured = DrsMeasurement {
                    echo: rtt,
                    round_trip: rtt,
                    bandwidth: bits_per_second(bytes, time),
                };
                step.measured.push((sample.stream, measured));
            }
        }
        if echo.is_some() || !self.has_begun {
            self.has_begun = true;
            step.announce = self.streams.values().map(|s| s.size.bytes()).max();
        }
        step
    }

    fn next_sample_in(&self) -> Duration {
        SAMPLE_PAUSE
    }

    fn needs_sample(&self) -> bool {
        self.echo.is_some()
    }

    /// The latest echo.
    fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}

impl PublishedDrsStream {
    /// Counts to `total` bytes; returns those since the last echo, and the time since then.
    fn count(&mut self, at: Duration, total: u64) -> (u64, Duration) {
        let since = (
            total.saturating_sub(self.counted),
            at.saturating_sub(self.counted_at),
        );
        (self.counted, self.counted_at) = (total, at);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: u64 = 1 << 10;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn sample(bytes: u64) -> TcpSample {
        TcpSample {
            bytes_received: bytes,
            min_rtt: ms(10),
            ..TcpSample::default()
        }
    }

    /// The loop at `at` milliseconds, with an echo of `rtt` milliseconds and a total of `bytes`.
    fn echo(drs: &mut PublishedDrsTuner, at: u64, rtt: u64, bytes: u64) -> DrsStep {
        drs.on_echo(ms(rtt));
        assert!(drs.needs_sample());
        let step = drs.on_samples(ms(at), &[sample(bytes)]);
        assert!(!drs.needs_sample());
        step
    }

    #[test]
    fn each_echo_sets_twice_the_product_of_its_round_trip_and_the_bandwidth_since_the_last_one() {
        let mut drs = PublishedDrsTuner::new(BufferBounds::default());
        let first = drs.on_samples(ms(0), &[sample(0)]);
        assert_eq!((first.resize, first.announce), (vec![], Some(64 * KB)));
        // 1 MB in 200 ms and an echo of 100 ms: a product of 500 kB.
        let step = echo(&mut drs, 200, 100, 1_000_000);
        assert_eq!(step.resize, [(0, 1_000_000)]);
        assert_eq!(step.announce, Some(1_000_000));
        let measured = DrsMeasurement {
            echo: ms(100),
            round_trip: ms(100),
            bandwidth: 40_000_000,
        };
        assert_eq!(step.measured, [(0, measured)]);
        // A longer echo counts although a shorter one is known.
        let step = echo(&mut drs, 600, 400, 2_000_000);
        assert_eq!(step.resize, [(0, 2_000_000)]);
        assert_eq!(drs.round_trip(), Some(ms(400)));
    }

    #[test]
    fn a_smaller_product_leaves_the_buffer_and_is_followed_by_the_next_message() {
        let mut drs = PublishedDrsTuner::new(BufferBounds::default());
        drs.on_samples(ms(0), &[sample(0)]);
        echo(&mut drs, 100, 100, 1_000_000);
        for at in [200, 300] {
            let step = echo(&mut drs, at, 100, 1_100_000);
            assert_eq!((step.resize, step.announce), (vec![], Some(2_000_000)));
        }
    }

    #[test]
    fn without_an_echo_no_size_changes_and_no_further_message_is_sent() {
        let mut drs = PublishedDrsTuner::new(BufferBounds::default());
        drs.on_samples(ms(0), &[sample(0)]);
        for n in 1..50 {
            drs.on_echo(Duration::ZERO);
            let step = drs.on_samples(ms(50 * n), &[sample(n << 20)]);
            assert_eq!(step, DrsStep::default());
        }
    }

    #[test]
    fn an_echo_between_two_streams_waits_for_the_next_stream() {
        let mut drs = PublishedDrsTuner::new(BufferBounds::default());
        drs.on_samples(ms(0), &[sample(0)]);
        drs.on_echo(ms(100));
        assert_eq!(drs.on_samples(ms(100), &[]), DrsStep::default());
        assert_eq!(
            drs.on_samples(ms(200), &[sample(0)]).announce,
            Some(64 * KB)
        );
    }

    #[test]
    fn sizes_never_exceed_the_bounds_or_what_the_kernel_grants() {
        let mut drs = PublishedDrsTuner::new(BufferBounds::default());
        drs.on_samples(ms(0), &[sample(0)]);
        assert_eq!(echo(&mut drs, 100, 60_000, 1 << 30).resize, [(0, 16 << 20)]);
        // Nothing beyond the kernel's limit is requested again.
        for at in [200, 300] {
            drs.on_echo(ms(100));
            let granted = TcpSample {
                receive_buffer: 2 * 208 * KB,
                ..sample(at << 30)
            };
            let step = drs.on_samples(ms(at), &[granted]);
            assert_eq!((step.resize, step.announce), (vec![], Some(208 * KB)));
        }
    }
}
