//! Detects within a few round trips that the first losses of a transfer are the path's own: several
//! streams lose segments while nothing queues. A slow start that overruns the path shows the queue that it
//! has filled, or loses a large part of its data.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pacing::HARMLESS_QUEUE;
use super::transfer_meter::TransferCounters;
use crate::observation::Rtt;
use crate::sample::{StreamId, TcpSample};

/// Separate losses that are needed: each on another stream, or a round trip later.
const MIN_LOSS_EVENTS: u32 = 3;
/// Largest loss ratio of the path itself. More may come from a queue too short to be seen.
const MAX_LOSS_RATIO: f64 = 0.12;
/// The detector gives up after so many round trips, and at least [`MIN_WATCH_TIME`].
const WATCHED_ROUND_TRIPS: u32 = 25;
const MIN_WATCH_TIME: Duration = Duration::from_secs(2);

/// Losses of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct LosingStream {
    retransmits: u64,
    /// Last loss that counts as a separate one.
    at: Option<Duration>,
}

/// Detector for the first round trips of a transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstLossDetector {
    started: Option<Duration>,
    streams: BTreeMap<StreamId, LosingStream>,
    /// Last time at which packets queued.
    last_queue: Option<Duration>,
    /// Time of the first loss.
    first_loss: Option<Duration>,
    events: u32,
    is_stopped: bool,
}

/// Loss ratio of the first losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LossEstimate {
    /// Part of the sent segments that was lost, 0..=1.
    pub(super) ratio: f64,
    /// Upper bound of the ratio: few losses make it uncertain.
    pub(super) upper_bound: f64,
}

impl FirstLossDetector {
    /// Takes the samples of all streams; returns an estimate once, if the losses are the path's own.
    /// `counters`: those of the whole transfer.
    pub(super) fn on_sample(
        &mut self,
        counters: TransferCounters,
        samples: &[TcpSample],
        rtt: Rtt,
    ) -> Option<LossEstimate> {
        if self.is_stopped {
            return None;
        }
        let at = counters.at;
        let started = *self.started.get_or_insert(at);
        let time_limit = MIN_WATCH_TIME.max(rtt.min * WATCHED_ROUND_TRIPS);
        if at.saturating_sub(started) >= time_limit {
            self.stop();
            return None;
        }
        if rtt.has_queue() || rtt.smoothed.saturating_sub(rtt.min) > HARMLESS_QUEUE {
            self.last_queue = Some(at);
        }
        for tcp in samples {
            self.note_stream(at, tcp, rtt.smoothed);
        }
        let first_loss = self.first_loss?;
        // A queue overflows a round trip before the sender notices the loss.
        if self
            .last_queue
            .is_some_and(|last_queue| last_queue + rtt.smoothed * 2 >= first_loss)
        {
            self.stop();
            return None;
        }
        let estimate = LossEstimate::from_counters(counters, segment(samples));
        // A full round trip after the first loss must pass without a queue.
        let is_clear = self.events >= MIN_LOSS_EVENTS
            && self.have_most_left_slow_start(samples)
            && at.saturating_sub(first_loss) >= rtt.min
            && estimate.ratio <= MAX_LOSS_RATIO;
        if !is_clear {
            return None;
        }
        self.stop();
        Some(estimate)
    }

    /// Stops the detector for the rest of the transfer.
    pub(super) fn stop(&mut self) {
        *self = Self {
            is_stopped: true,
            ..Self::default()
        };
    }

    fn note_stream(&mut self, at: Duration, tcp: &TcpSample, rtt: Duration) {
        let stream = self.streams.entry(tcp.stream).or_default();
        if tcp.retransmits <= stream.retransmits {
            return;
        }
        stream.retransmits = tcp.retransmits;
        // Losses of one stream within a round trip are one event: TCP reduces its window once for them
        // (RFC 5681 §3.2, RFC 6675 §5).
        if stream.at.is_none_or(|last| at.saturating_sub(last) >= rtt) {
            stream.at = Some(at);
            self.events += 1;
            self.first_loss.get_or_insert(at);
        }
    }

    /// Whether losses have ended the slow start of half of the streams.
    fn have_most_left_slow_start(&self, samples: &[TcpSample]) -> bool {
        let lost = |tcp: &&TcpSample| {
            let known = self.streams.get(&tcp.stream);
            !tcp.in_slow_start && known.is_some_and(|stream| stream.at.is_some())
        };
        samples.iter().filter(lost).count() * 2 >= samples.len()
    }
}

impl LossEstimate {
    /// Loss ratio of all that was sent so far, in segments of `segment` bytes.
    fn from_counters(counters: TransferCounters, segment: u64) -> Self {
        let ratio = counters.since(&TransferCounters::default()).loss_ratio();
        let lost = counters.bytes_retransmitted as f64 / segment as f64;
        // Two standard deviations of a Poisson count, relative to the count.
        let uncertainty = (lost.sqrt() * 2.0 + 1.0) / lost.max(1.0);
        Self {
            ratio,
            upper_bound: (ratio * (1.0 + uncertainty)).min(1.0),
        }
    }
}

/// Rate that the present congestion windows allow, bytes per second. The measured rate lags behind it in
/// slow start.
pub(super) fn cwnd_rate(samples: &[TcpSample], rtt: Rtt) -> u64 {
    let windows = samples.iter().map(|tcp| tcp.cwnd);
    units::bytes_per_second(windows.fold(0, u64::saturating_add), rtt.smoothed)
}

fn segment(samples: &[TcpSample]) -> u64 {
    samples.iter().map(|tcp| tcp.mss).max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn rtt(queue: u64) -> Rtt {
        Rtt {
            min: RTT,
            smoothed: RTT + Duration::from_millis(queue),
        }
    }

    /// Samples every half round trip of streams in slow start until they lose a segment. Each entry:
    /// queueing delay in ms, and segments lost by each stream.
    fn detect(samples_by_queue: &[(u64, [u64; 4])]) -> Option<(Duration, LossEstimate)> {
        let mut detect = FirstLossDetector::default();
        let mut lost = [0; 4];
        let mut moved = 0;
        for (n, (queue, more)) in (1_u32..).zip(samples_by_queue) {
            let at = RTT / 2 * n;
            moved += 4 * 1448 * 20 * u64::from(n);
            let samples: Vec<TcpSample> = (0..4)
                .map(|stream| {
                    lost[stream] += more[stream];
                    TcpSample {
                        stream: stream as u64,
                        at,
                        retransmits: lost[stream],
                        in_slow_start: lost[stream] == 0,
                        mss: 1448,
                        ..TcpSample::default()
                    }
                })
                .collect();
            let counters = TransferCounters {
                at,
                bytes_moved: moved,
                bytes_retransmitted: lost.iter().sum::<u64>() * 1448,
            };
            if let Some(estimate) = detect.on_sample(counters, &samples, rtt(*queue)) {
                return Some((at, estimate));
            }
        }
        None
    }

    #[test]
    fn losses_of_several_streams_without_a_queue_are_detected_within_a_round_trip() {
        let none = (1, [0; 4]);
        let (at, estimate) = detect(&[
            none,
            none,
            none,
            none,
            (1, [1, 0, 0, 0]),
            (1, [0, 1, 0, 1]),
            (1, [0, 0, 1, 0]),
        ])
        .unwrap();
        assert_eq!(at, RTT / 2 * 7);
        assert!(
            estimate.ratio > 0.001 && estimate.ratio < 0.01,
            "{estimate:?}"
        );
        assert!(estimate.upper_bound > estimate.ratio * 2.0, "{estimate:?}");
    }

    #[test]
    fn a_queue_before_or_after_the_first_loss_stops_the_detector() {
        let lost = |queue| (queue, [1; 4]);
        let none = |queue| (queue, [0; 4]);
        assert!(detect(&[none(1), lost(1), lost(1), lost(1)]).is_some());
        assert_eq!(detect(&[none(6), lost(1), lost(1), lost(1), lost(1)]), None);
        assert_eq!(detect(&[none(1), lost(1), lost(6), lost(1), lost(1)]), None);
    }

    #[test]
    fn losses_of_one_stream_or_a_burst_are_not_enough() {
        let one = (1, [1, 0, 0, 0]);
        assert_eq!(detect(&[one; 12]), None);
        // Bursts of losses come from a queue that is too short to be seen.
        let burst = (1, [60, 60, 60, 60]);
        assert_eq!(detect(&[(1, [0; 4]), burst, burst, burst]), None);
    }
}
